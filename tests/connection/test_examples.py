"""The programs of `examples/`, each run as a user would, beside one broker that has every door."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

PRINTED = {
    "produce_and_consume.py": [
        "stored at offset 0 of partition 0",
        "the last nail is at offset 1002",
        "'source': b'web'",
    ],
    "consumer_group.py": ["billed shipment 0", "billed shipment 5", "left over: []", "lag: 0"],
    "work_queue.py": ["sent: ['ann@example.org', 'bob@example.org', 'cy@example.org']", "2 attempts: nonsense"],
    "transaction.py": ["refused: that is too much", "debits ann 100\ncredits bob 100\n"],
    "exactly_once_loader.py": ["begins at line 0\ncrashed\nbegins at line 6\n", "each line once: True"],
    "delayed_and_expiring.py": ["at once: ['now', 'one-time code 1234']", "later: in a moment"],
    "sql_time_travel.py": ["bell 7\nanvil 85\n", "now: 4\nthen: 3\n"],
    "table_to_pandas.py": ["10000 rows", "mean: 499.95", "999.9"],
    "cache.py": ["ann: b'logged in'\nann, later: None\n", "visits: 100", "True - worker 2 has it: False b'worker 1'"],
    "administration.py": ["86400", "refused: ", "users: ['ann']"],
    "live_tail.py": ["tick 0\ntick 1\ntick 2\ntick 3\ntick 4\n"],
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    listen = ("--listen", "flight=127.0.0.1:0", "--listen", "felix=127.0.0.1:0")
    with BrokerProcess(tmp_path_factory.mktemp("examples"), *listen) as broker:
        yield broker.ready().address("http")


def test_all_programs_are_here_and_in_the_list_of_the_folder() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == set(PRINTED)
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"[{name}]({name})" in listed for name in programs)


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example(name: str, address: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, address],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in PRINTED[name]:
        assert text in done.stdout, done.stdout
