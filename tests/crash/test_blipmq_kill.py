"""The real broker, killed while clients publish and take: nothing is lost, nothing comes too often or too late."""

from __future__ import annotations

import os
from pathlib import Path

from tests.crash.blipmq_adapter import BlipMqAdapter
from tests.crash.campaign import Campaign, run
from tests.histories.history import Outcome

CYCLES = max(3, int(os.environ.get("PENSTOCK_KILL_CYCLES", "25")) // 3)


def test_every_message_is_dealt_with_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    outcomes = run(BlipMqAdapter(), Campaign(str(tmp_path), CYCLES, seed=11))
    outcomes.verify(tmp_path)
    assert outcomes.count("append") > 20 * CYCLES, "hardly anything happened: this tests nothing"
    assert outcomes.count("append", outcome=Outcome.UNKNOWN), "no kill interrupted anything: this tests nothing"
    assert outcomes.count("ack") > 20 * CYCLES
    assert outcomes.count("ack", outcome=Outcome.UNKNOWN), "no kill interrupted an ACK"
    assert outcomes.count("dead_letter") > 10 * CYCLES


def test_nothing_comes_after_its_time_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    adapter = BlipMqAdapter(ttl=0.3, modes=("eager", "never", "late"), quiet_seconds=0.4)
    outcomes = run(adapter, Campaign(str(tmp_path), max(3, CYCLES // 2), seed=12))
    outcomes.verify(tmp_path)
    delivered = {(operation.group, operation.ids) for operation in outcomes.history.of("deliver")}
    (contents,) = outcomes.history.of("contents")
    expected = len(contents.ids) * outcomes.count("subscribe")
    assert 0 < len(delivered) < expected, "nothing expired: this tests nothing"
