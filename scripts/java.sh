#!/bin/sh
# Sees to it that there is a Java for Spark, where the user may: as root or with sudo that asks for no password, and with
# apt. Otherwise says what is missing. Never fails: the broker runs without.
set -u
oldest=17
package=openjdk-17-jre-headless

version() {
    "$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

enough() {
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    command -v "$java" >/dev/null 2>&1 && [ "$(version "$java")" -ge "$oldest" ] 2>/dev/null
}

enough && exit 0

if [ -n "${JAVA_HOME:-}" ]; then
    echo "JAVA_HOME=$JAVA_HOME is no Java $oldest or newer: the pipeline does not start with it." >&2
    exit 0
fi

as_root=
if [ "$(id -u)" -eq 0 ]; then
    as_root=env
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
fi

if [ -n "$as_root" ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing $package for Spark"
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null 2>&1
    # Newer releases have only newer ones.
    for name in "$package" default-jre-headless; do
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$name" \
            >/dev/null 2>&1 && enough && exit 0
    done
    echo "$package could not be installed." >&2
fi

echo "There is no Java $oldest or newer: the broker starts, the pipeline does not. To have it too:" >&2
echo "  Debian, Ubuntu:  sudo apt install $package" >&2
echo "  Fedora:          sudo dnf install java-17-openjdk-headless" >&2
echo "  macOS:           brew install openjdk@17" >&2
exit 0
