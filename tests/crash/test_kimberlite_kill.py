"""Kimberlite's door, killed under load: what it acknowledged holds. And the rules that say so find what is planted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.campaign import Campaign, run
from tests.crash.history import Contents, Outcome, Place
from tests.crash.kimberlite_adapter import APPENDS, KimberliteAdapter
from tests.crash.kimberlite_history import RULES, DeedHistory, check_kimberlite


def test_what_was_acknowledged_holds_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    outcomes = run(KimberliteAdapter(seed=1), Campaign(str(tmp_path), 4, seed=1))
    outcomes.verify(tmp_path)
    assert outcomes.records(*APPENDS) > 500, "hardly anything was acknowledged: this tests nothing"
    assert outcomes.count("append", "retry", outcome=Outcome.REJECTED) > 5, "nobody came too late: this tests nothing"
    assert outcomes.count("insert") > 2 and outcomes.count("look") > 6 and outcomes.count("enter") > 5
    assert outcomes.count("resume") > 6 and outcomes.count("settle") > 5
    assert Outcome.UNKNOWN in {deed.outcome for deed in outcomes.history.asked("append")}


# -- planted violations

P = Place("p", 0)
T = Place("t", 0)


def sound() -> tuple[DeedHistory, dict[Place, list[tuple[int, str]]]]:
    """Two who race, one of whom tries again after a kill; inserts and looks; a group; a tenant, a table, two keys."""
    history = DeedHistory()
    won, lost = (history.ask(name, "append", P, [f"{name}1"], number=0) for name in "ab")
    history.acknowledge(won, offset=0)
    history.reject(lost, "mismatch")
    history.ask("a", "append", P, ["a2", "a3"], number=1)
    history.acknowledge(history.ask("a", "retry", P, ["a2", "a3"], number=1), offset=1)
    history.ask("b", "append", P, ["b2"], number=3)
    history.reject(history.ask("b", "retry", P, ["b2"], number=3), "mismatch")
    for position, ids in ((10, ["s1", "s2"]), (12, ["s3"])):
        history.acknowledge(history.ask("s", "insert", T, ids, number=position))
    for position, ids in ((10, ["s1", "s2"]), (12, ["s1", "s2", "s3"]), (10, ["s1", "s2"])):
        history.acknowledge(history.ask("s", "look", T, number=position), ids=ids)
    history.acknowledge(history.ask("g", "read", P, group="g"), offset=0, ids=["a1", "a2"])
    history.acknowledge(history.ask("g", "settle", P, group="g", offset=2))
    history.ask("g", "settle", P, group="g", offset=3)
    history.acknowledge(history.ask("g", "resume", P, group="g"), offset=2)
    history.acknowledge(history.ask("g", "read", P, group="g"), offset=2, ids=["a3", "b2"])
    for thing in ("tenant/1", "tenant/2", "tenant/3"):
        history.acknowledge(history.ask("c", "make", value=thing))
    history.acknowledge(history.ask("c", "unmake", value="tenant/2"))
    history.ask("c", "unmake", value="tenant/3")
    history.acknowledge(history.ask("c", "observe", value="tenant/"), ids=["tenant/1"])
    for secret, good in (("old", 1), ("old", 0), ("new", 1)):
        history.acknowledge(history.ask("c", "lock", number=good, value=secret))
    for secret, good in (("old", 0), ("new", 1)):
        history.acknowledge(history.ask("c", "enter", number=good, value=secret))
    records = {P: [(0, "a1"), (1, "a2"), (2, "a3"), (3, "b2")], T: [(0, "s1"), (1, "s2"), (2, "s3")]}
    return history, records


def found(history: DeedHistory, records: dict[Place, list[tuple[int, str]]]) -> set[str]:
    return {violation.rule for violation in check_kimberlite(history, Contents(records))}


def test_a_sound_history_has_no_violations() -> None:
    assert found(*sound()) == set()


def _see(history: DeedHistory, rows: tuple[str, ...]) -> None:
    """Whoever looked at the first position saw these."""
    for at in (0, 2):
        history.asked("look")[at].ids = rows


Plant = Callable[[DeedHistory, dict[Place, list[tuple[int, str]]]], object]

PLANTED: dict[str, list[Plant]] = {
    "nothing_foreign_is_there": [lambda _, records: records[T].append((3, "zz"))],
    "expected_offsets_hold": [
        lambda history, _: history.acknowledge(history.operations[0], offset=4),
        lambda _, records: records.update({P: [(0, "a1"), (1, "a2"), (2, "a3"), (3, "x"), (4, "b2")]}),
    ],
    "retries_are_there": [
        lambda _, records: records.update({P: records[P][:1]}),
        lambda _, records: records.update({P: records[P][:3]}),
    ],
    "inserts_are_whole": [
        lambda _, records: records.update({T: []}),
        lambda _, records: records.update({T: [(0, "s1"), (1, "s3")]}),
        lambda history, _: history.reject(history.asked("insert")[1], "refused"),
    ],
    "the_past_stays": [
        lambda history, _: setattr(history.asked("look")[2], "ids", ("s1",)),
        lambda history, _: history.reject(history.asked("look")[2], "ahead"),
    ],
    "positions_cut_the_log": [
        lambda history, _: _see(history, ("s1", "s2", "s3")),
        lambda history, _: _see(history, ("s1",)),
        lambda history, _: setattr(history.asked("look")[1], "ids", ("s2", "s1", "s3")),
    ],
    "groups_get_everything": [lambda history, _: setattr(history.asked("read")[1], "ids", ("a3",))],
    "groups_go_on": [
        lambda history, _: setattr(history.asked("resume")[0], "offset", 1),
        lambda history, _: setattr(history.asked("resume")[0], "offset", 4),
    ],
    "things_stay": [
        lambda history, _: setattr(history.asked("observe")[0], "ids", ()),
        lambda history, _: setattr(history.asked("observe")[0], "ids", ("tenant/1", "tenant/2")),
        lambda history, _: setattr(history.asked("observe")[0], "ids", ("tenant/1", "tenant/9")),
    ],
    "keys_open_doors": [
        lambda history, _: setattr(history.asked("enter")[0], "number", 1),
        lambda history, _: setattr(history.asked("enter")[1], "number", 0),
    ],
}


@pytest.mark.parametrize(("rule", "plant"), [(rule, plant) for rule, plants in PLANTED.items() for plant in plants])
def test_a_planted_violation_is_found(rule: str, plant: Plant) -> None:
    history, records = sound()
    plant(history, records)
    assert rule in found(history, records)


def test_every_rule_of_this_door_has_something_planted() -> None:
    own = {rule.__name__ for rule in RULES if rule.__module__.endswith("kimberlite_history")}
    assert own == set(PLANTED)
