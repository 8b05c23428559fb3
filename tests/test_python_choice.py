"""`scripts/python.sh`: which Python .venv is made with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent.parent / "scripts" / "python.sh"
# As far as the script asks: whether it runs, and whether it was built with optimizations.
RUNS = "#!/bin/sh\ncase $2 in *optimizations*) exit 1;; esac\n"
OPTIMIZED = "#!/bin/sh\n"
SHIM = "#!/bin/sh\nexit 127\n"


def python_at(directory: Path, name: str, text: str) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def choose(*path: Path, python: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": ":".join(map(str, path)), "PYTHON": python}
    return subprocess.run(["/bin/sh", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)


def test_the_newest_that_runs(tmp_path: Path) -> None:
    python_at(tmp_path / "shims", "python3.13", SHIM)
    python_at(tmp_path / "shims", "python3.11", RUNS)
    newest = python_at(tmp_path / "other", "python3.12", RUNS)
    assert choose(tmp_path / "shims", tmp_path / "other").stdout.strip() == newest


def test_one_built_with_optimizations_comes_before_a_newer_one(tmp_path: Path) -> None:
    python_at(tmp_path / "compiled here", "python3.13", RUNS)
    python_at(tmp_path / "compiled here", "python3.11", RUNS)
    packaged = python_at(tmp_path / "packaged", "python3.11", OPTIMIZED)
    assert choose(tmp_path / "compiled here", tmp_path / "packaged").stdout.strip() == packaged


def test_the_named_one_comes_first(tmp_path: Path) -> None:
    python_at(tmp_path / "packaged", "python3.11", OPTIMIZED)
    named = python_at(tmp_path, "mine", RUNS)
    assert choose(tmp_path / "packaged", python=named).stdout.strip() == named


def test_without_one_it_says_how_to_get_it(tmp_path: Path) -> None:
    python_at(tmp_path, "python3", SHIM)
    done = choose(tmp_path)
    assert done.returncode == 1
    assert "sudo apt install python3" in done.stderr
