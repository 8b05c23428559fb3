"""Published packages as tests need them: each version in a folder of its own, installed once and by hash."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ROOT / "build" / "wheels"
UNREACHABLE = ("error sending request", "dns error", "failed to connect", "connection refused", "timed out", "offline")


def wheel_folder(name: str) -> Path:
    """The folder with what `requirements/<name>.txt` lists, to be put first on `sys.path`. Skips the test if it is not
    there yet and the package index cannot be reached."""
    requirements = ROOT / "requirements" / f"{name}.txt"
    folder = FOLDERS / f"{name}-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    FOLDERS.mkdir(parents=True, exist_ok=True)
    unfinished = tempfile.mkdtemp(prefix=f"{name}.", dir=FOLDERS)
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    install[0] = str(Path(sys.executable).parent / "uv")
    told = subprocess.run(
        [*install, "--python", sys.executable, "--target", unfinished, "-r", str(requirements)],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        if told.returncode:
            if any(reason in told.stderr.lower() for reason in UNREACHABLE):
                pytest.skip(f"{name}: the package index cannot be reached")
            raise AssertionError(told.stderr)
        try:
            os.rename(unfinished, folder)
        except OSError:  # another process of the same run was quicker
            assert folder.is_dir()
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder
