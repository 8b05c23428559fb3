"""The process that builds tables is killed, again and again, at any moment: table and log agree record by record."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from tests.log.tables.source import Source
from tests.log.tables.test_build import agree

from penstock.log.tables import maintenance
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table
from penstock.log.tables.verify import verify

pytestmark = pytest.mark.process

KILLS = 60
ROOT = Path(__file__).parents[3]


class Killer:
    """A process that forks builders and kills each after a while. See `builder.py`."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "tests.log.tables.builder", str(root)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, seed: int, seconds: float) -> bool:
        """Whether the builder got to its end before it was killed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{seed} {seconds}\n")
        self._process.stdin.flush()
        said = [self._process.stdout.readline().strip()]
        if said == ["done"]:
            said.append(self._process.stdout.readline().strip())
        assert said[-1] == "killed", "a builder failed: see its traceback above"
        return said[0] == "done"

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)


@pytest.fixture
def killer(tmp_path: Path) -> object:
    made = Killer(tmp_path)
    yield made
    made.close()


def test_kills(source: Source, killer: Killer) -> None:
    random = Random(5)
    longest = 0.3
    unfinished = 0
    for kill in range(KILLS):
        source.fill(kill // 3 + 2, most=30)
        if killer.run(kill, random.uniform(0.005, longest)):
            longest *= 0.9  # most should be killed at work, however quick the machine is
        else:
            unfinished += 1
            longest = min(longest * 1.1, 0.4)
        _check_in_between(source)
    assert unfinished >= KILLS // 3, "hardly any was killed at work"
    ends = source.build_all()
    outcome = verify(source.ref, source.tailer, dict.fromkeys(ends, 0), ends)
    assert outcome.sound, outcome.differences
    assert outcome.compared == outcome.checked == sum(ends.values()) > 5_000
    agree(source, ends)
    maintenance.clean(source.ref, time.time_ns() // 1000 + 1, keep_seconds=0)
    table = source.table()
    left = {file.path for file in TableStore(source.ref).data_files()}
    assert left == {file.path for number in ends for file in table.extents(number)}


def _check_in_between(source: Source) -> None:
    """Whenever it is looked at, the table holds a part of the log from its start, each offset once."""
    table = Table.open(source.ref)
    for number, end in (table.ends() if table is not None else {}).items():
        assert table is not None
        files = table.extents(number)
        assert [file.first for file in files] == [0, *(file.end for file in files[:-1])]
        assert files[-1].end == end
