"""The real broker, killed while clients use FlyMQ's transactions, delays, groups, users, schemas, dead letters and
records that expire: what it told them stays true."""

from __future__ import annotations

import os
from pathlib import Path

from tests.crash.campaign import Campaign, run
from tests.crash.flymq_adapter import FlyMqAdapter
from tests.crash.flymq_load import LATER, MORTAL
from tests.histories.evidence import Evidence
from tests.histories.history import Outcome, ids_of

CYCLES = max(4, int(os.environ.get("PENSTOCK_KILL_CYCLES", "25")) * 3 // 5)
ACKNOWLEDGED, REJECTED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.REJECTED, Outcome.UNKNOWN

HAPPENS: dict[str, set[Outcome]] = {  # or else the campaign tests less than it should
    "transaction": {ACKNOWLEDGED, REJECTED},
    "recommit": {ACKNOWLEDGED},
    "read": {ACKNOWLEDGED},
    "delay": {ACKNOWLEDGED},
    "cancel": {ACKNOWLEDGED, REJECTED},
    "commit": {ACKNOWLEDGED},
    "position": {ACKNOWLEDGED},
    "put": {ACKNOWLEDGED},
    "get": {ACKNOWLEDGED},
    "letter": {ACKNOWLEDGED},
    "replay": {ACKNOWLEDGED, REJECTED},
    "append_ttl": {ACKNOWLEDGED},
}


def test_what_flymq_promised_is_kept_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    outcomes = run(FlyMqAdapter(), Campaign(str(tmp_path), CYCLES, seed=21))
    outcomes.verify(tmp_path)
    history = outcomes.history
    for kind, expected in HAPPENS.items():
        for outcome in expected:
            assert outcomes.count(kind, outcome=outcome), f"no {kind} was {outcome}: this tests nothing"
    answered = sum(one.outcome is not UNKNOWN for one in history.operations)
    assert answered > 50 * CYCLES, "hardly anything happened: this tests nothing"
    interrupted = {one.kind for one in history.operations if one.outcome is UNKNOWN}
    assert len(interrupted & HAPPENS.keys()) > 3, "the kills interrupted hardly anything: this tests nothing"
    evidence = Evidence(history)
    where = evidence.where.items()
    appeared = {record: found[0].time for record, found in where if found[0].place.topic == LATER}
    kills = [evidence.last_time(kill) for kill in history.of("kill")]
    waited = [delay for delay in history.of("delay") if delay.ids[0] in appeared]
    assert any(evidence.last_time(one) < kill < appeared[one.ids[0]] for one in waited for kill in kills), (
        "no delayed record waited while the broker was killed: this tests nothing"
    )
    mortal = ids_of(history.of("append_ttl"))
    for door in ("flymq", "rustlog"):
        came = ids_of([one for one in history.of("read") if one.door == door and one.place.topic == MORTAL])
        assert came and came < mortal, f"{door} served all or nothing: this tests nothing"
