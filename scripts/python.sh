#!/bin/sh
# Prints the Python that .venv is to be made with: the one in $PYTHON, otherwise the best on PATH that is new enough. Tries
# each, because version managers put names there that run nothing. One that was built with optimizations is preferred, even to
# a newer one: the same broker takes a tenth less processor time with it. Distributions build theirs so; version managers that
# compile usually do not.
set -u

usable() { # PYTHON CONDITION
    "$1" -c "import sys; sys.exit(not (sys.version_info >= (3, 11) and $2))" 2>/dev/null
}

# Distributions do not tell how they build, and those that do not build it here were told how.
optimized='(sys.executable.startswith("/usr/bin/") or "--enable-optimizations" in (__import__("sysconfig").get_config_var("CONFIG_ARGS") or ""))'
makes_environments='__import__("venv") and __import__("ensurepip")'

on_path() { # CONDITION
    for name in python3.13 python3.12 python3.11 python3; do
        IFS=:
        for directory in $PATH; do
            unset IFS
            if [ -x "$directory/$name" ] && usable "$directory/$name" "$1"; then
                echo "$directory/$name"
                return 0
            fi
        done
        unset IFS
    done
    return 1
}

if [ -n "${PYTHON:-}" ] && usable "$PYTHON" True; then
    echo "$PYTHON"
    exit 0
fi
on_path "$optimized and $makes_environments" && exit 0
on_path True && exit 0

echo "Penstock needs Python 3.11 or newer, and none was found on PATH." >&2
echo "  Debian, Ubuntu:  sudo apt install python3 python3-venv" >&2
echo "  Fedora:          sudo dnf install python3" >&2
echo "  macOS:           brew install python" >&2
echo "  elsewhere:       make PYTHON=/path/to/python3.11 up" >&2
exit 1
