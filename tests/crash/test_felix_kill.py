"""Felix's door, killed under load: what it acknowledged holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.campaign import Campaign, run
from tests.crash.felix_adapter import FelixAdapter, unacknowledged
from tests.histories.history import Outcome


@pytest.mark.parametrize(("durability", "kills", "least"), [("synced", 5, 300), ("written", 2, 100)])
def test_what_was_acknowledged_holds_whenever_the_broker_is_killed(
    tmp_path: Path, durability: str, kills: int, least: int
) -> None:
    outcomes = run(FelixAdapter(seed=1), Campaign(str(tmp_path), kills, seed=1, durability=durability))
    outcomes.verify(tmp_path)
    assert outcomes.records("append") > least, "hardly anything was acknowledged: this tests nothing"
    assert unacknowledged(outcomes) > 20 and outcomes.count("read", "follow") > 20
    assert outcomes.count("put", "delete", "swap", "add") > 20 and outcomes.count("get", "count") > 10
    assert outcomes.count("put_ttl") > 5 and outcomes.count("get_ttl") > 5
    assert Outcome.UNKNOWN in {one.outcome for one in outcomes.history.of("put", "swap", "add", "count", "put_ttl")}
