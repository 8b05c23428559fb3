"""The programs of the README and of Felix's page, as they stand there, against a broker; and what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess, penstock

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs/protocols/felix.md")
DOORS = {"9092": "rustlog", "5555": "blipmq", "5432": "kimberlite", "5000": "felix"}
PROGRAMS = [
    block
    for page in PAGES
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    if "penstock.clients" in block  # those for Spark are in its own page, and run by its test
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("readme")
    with BrokerProcess(directory, "--durability", "written", "--listen", "felix=127.0.0.1:0") as running:
        running.ready()
        assert penstock("topic", "create", "logs", "--server", running.address("rustlog")).returncode == 0
        yield running


def test_they_are_found() -> None:
    assert len(PROGRAMS) == 6


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program(broker: BrokerProcess, program: str) -> None:
    for port, door in DOORS.items():
        program = re.sub(rf"\b{port}\b", broker.address(door).rpartition(":")[2], program)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for said in re.findall(r"print\(.*\)  # (.*)", program):
        assert said in done.stdout.splitlines()
