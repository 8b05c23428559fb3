"""Environments with clients that others have released, each with one version of one package, made by the test run and
kept below `build/`. What is installed is in `requirements/`, with hashes."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "build" / "clients"

_UNREACHABLE = re.compile(
    r"fail(ed)? to fetch|error sending request|dns error|network|connect|timed out|no solution", re.I
)


def python_with(name: str) -> str:
    """The interpreter of an environment with `requirements/NAME.txt`. Skips the test where that cannot be fetched."""
    requirements = ROOT / "requirements" / f"{name}.txt"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    kept = KEPT / f"{name}-{digest}"
    if not kept.exists():
        _make(kept, name, requirements)
    return str(kept / "bin" / "python")


def _make(kept: Path, name: str, requirements: Path) -> None:
    """Beside its place, and then moved there: others may be making it too."""
    uv = str(Path(sys.executable).parent / "uv")
    KEPT.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=KEPT))
    try:
        subprocess.run(
            [uv, "venv", "--quiet", "--relocatable", "--clear", "--python", sys.executable, str(made)], check=True
        )
        install = [uv, "pip", "install", "--quiet", "--python", str(made / "bin" / "python"), "--require-hashes"]
        done = subprocess.run([*install, "-r", str(requirements)], capture_output=True, text=True)
        if done.returncode and _UNREACHABLE.search(done.stderr):
            pytest.skip(f"{name} cannot be fetched from here: {done.stderr.strip()[:300]}")
        assert done.returncode == 0, done.stderr
        if not kept.exists():
            made.rename(kept)
    finally:
        shutil.rmtree(made, ignore_errors=True)
