"""The original's Python client as it is on PyPI, in the versions that speak 4, 5a and 5b of the protocol: each in an
environment of its own, against the real broker as it comes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess
from tests.released_clients import python_with

PROGRAM = Path(__file__).with_name("kimberlite_wheel.py")
VERSIONS = ("0.6.1", "0.7.0", "0.8.0", "0.9.1")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_with_a_published_client_works(tmp_path: Path, version: str) -> None:
    python = python_with(f"kimberlite-{version}")
    with BrokerProcess(tmp_path) as broker:
        address = broker.ready().address("kimberlite")
        told = subprocess.run(
            [python, str(PROGRAM), version, address],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (told.returncode, told.stdout) == (0, f"done {version}\n"), told.stderr
