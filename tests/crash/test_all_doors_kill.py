"""All doors at once on one broker that is killed: what one acknowledged, the others show, also from tables."""

from __future__ import annotations

from pathlib import Path

from tests.crash.all_doors_adapter import AllDoorsAdapter, acknowledged_by_door, shown_by_others
from tests.crash.all_doors_load import PLACES
from tests.crash.campaign import Campaign, run
from tests.histories.history import Outcome

WRITERS = {"rustlog", "blipmq", "flymq", "kimberlite", "felix", "sql", "flight"}


def test_what_one_door_acknowledged_all_others_show_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    adapter = AllDoorsAdapter()
    outcomes = run(adapter, Campaign(str(tmp_path), 3, seed=5))
    outcomes.verify(tmp_path)
    written = acknowledged_by_door(outcomes.history)
    assert written.keys() == WRITERS and min(written.values()) > 0, f"a door wrote nothing: {written}"
    assert shown_by_others(outcomes.history) == written
    assert outcomes.count("append", outcome=Outcome.UNKNOWN), "no kill interrupted anything: this tests nothing"
    assert all(adapter.tabled[place] > 0 for place in PLACES)
