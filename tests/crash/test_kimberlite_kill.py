"""Kimberlite's door, killed under load: what it acknowledged holds."""

from __future__ import annotations

from pathlib import Path

from tests.crash.campaign import Campaign, run
from tests.crash.kimberlite_adapter import KimberliteAdapter, inserts, keys_tried
from tests.histories.history import Outcome


def test_what_was_acknowledged_holds_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    outcomes = run(KimberliteAdapter(seed=1), Campaign(str(tmp_path), 4, seed=1))
    outcomes.verify(tmp_path)
    assert outcomes.records("append") > 500, "hardly anything was acknowledged: this tests nothing"
    assert outcomes.count("append", outcome=Outcome.REJECTED) > 5, "nobody came too late: this tests nothing"
    assert inserts(outcomes) > 2 and outcomes.count("query_at") > 6 and keys_tried(outcomes) > 5
    assert outcomes.count("position") > 6 and outcomes.count("commit") > 5
    assert Outcome.UNKNOWN in {one.outcome for one in outcomes.history.of("append")}
