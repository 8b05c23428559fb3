"""The real broker, killed under load: what it acknowledged is there, exactly once, in order, at its offset."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.crash.campaign import Campaign, run
from tests.crash.payloads import id_of, payload_of
from tests.crash.rustlog_adapter import RustLogAdapter
from tests.crash.rustlog_load import Connection
from tests.histories.history import Outcome
from tests.launcher import RestartableBroker

CYCLES = int(os.environ.get("PENSTOCK_KILL_CYCLES", "25"))


@pytest.mark.parametrize(("durability", "cycles"), [("synced", CYCLES), ("written", max(3, CYCLES // 6))])
def test_nothing_acknowledged_is_lost_by_kill(tmp_path: Path, durability: str, cycles: int) -> None:
    outcomes = run(RustLogAdapter(), Campaign(str(tmp_path), cycles, seed=7, durability=durability))
    outcomes.verify(tmp_path)
    assert outcomes.records("append") > 50 * cycles, "hardly anything was acknowledged: this tests nothing"
    answered = {operation.outcome for operation in outcomes.history.operations}
    assert Outcome.UNKNOWN in answered, "no kill interrupted anything: this tests nothing"


def test_a_clean_stop_answers_what_was_accepted(tmp_path: Path) -> None:
    with RestartableBroker(str(tmp_path)) as broker:
        broker.start()
        with Connection(broker.port) as connection:
            connection.create_topic("t", 1)
            assert connection.produce("t", 0, [b"1", b"2"]) == 0
        assert broker.stop() == 0
        broker.start()
        with Connection(broker.port) as connection:
            assert connection.topics() == {"t": 1}
            assert list(connection.fetch_all("t", 0)) == [(0, b"1"), (1, b"2")]


def test_payloads_show_damage() -> None:
    payload = payload_of("writer-1:7", 60)
    assert id_of(payload) == "writer-1:7"
    assert id_of(payload.replace(b"7", b"8", 1)).startswith("damaged")
