"""Felix's door, killed under load: what it acknowledged holds. And the rules that say so find what is planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.crash.campaign import Campaign, run
from tests.crash.felix_adapter import FelixAdapter, unacknowledged
from tests.crash.felix_history import OWN, Deed, FelixHistory, check_felix
from tests.crash.history import Contents, Outcome, Place


@pytest.mark.parametrize(("durability", "kills", "least"), [("synced", 5, 300), ("written", 2, 100)])
def test_what_was_acknowledged_holds_whenever_the_broker_is_killed(
    tmp_path: Path, durability: str, kills: int, least: int
) -> None:
    outcomes = run(FelixAdapter(seed=1), Campaign(str(tmp_path), kills, seed=1, durability=durability))
    outcomes.verify(tmp_path)
    assert outcomes.records("append") > least, "hardly anything was acknowledged: this tests nothing"
    assert unacknowledged(outcomes) > 20 and outcomes.count("read") > 20
    assert outcomes.count("put", "delete", "swap", "add") > 20 and outcomes.count("get", "count") > 10
    assert outcomes.count("mortal") > 5 and outcomes.count("glance") > 5
    assert Outcome.UNKNOWN in {deed.outcome for deed in outcomes.history.asked("put", "swap", "add", "count", "mortal")}


# -- planted violations

P = Place("p", 0)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Story:
    """A short history in which everything is as it should be, and what is there in the end."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.history = FelixHistory(self.clock)
        self.records: dict[Place, list[tuple[int, str]]] = {}
        self._publish()
        self._change()
        self._count()
        self._let_live()

    def done(self, deed: Deed, *, found: str | None = None, number: int | None = None) -> Deed:
        deed.found = found
        if number is not None:
            deed.number = number
        self.history.acknowledge(deed)
        return deed

    def _publish(self) -> None:
        """Two who publish, one of them without an answer, and a subscriber over a kill."""
        history = self.history
        history.acknowledge(history.ask("a", "append", P, ["a1", "a2"]))
        history.ask("b", "append", P, ["b1"])
        history.acknowledge(history.ask("s", "read", P, group="s"), offset=0, ids=["a1", "a2"])
        history.kill()
        history.ask("b", "append", P, ["b2", "b3"])
        history.acknowledge(history.ask("a", "append", P, ["a3"]))
        history.acknowledge(history.ask("s", "read", P, group="s"), offset=2, ids=["b2", "b3", "a3"])
        self.records[P] = list(enumerate(["a1", "a2", "b2", "b3", "a3"]))

    def _change(self) -> None:
        history, done = self.history, self.done
        done(history.ask("k", "put", key="k", value="1"))
        done(history.ask("k", "get", key="k"), found="1")
        history.ask("k", "put", key="k", value="2")
        history.kill()
        done(history.ask("k", "get", key="k"), found="2")
        done(history.ask("k", "swap", key="k", value="3", expected="2"), found="3", number=1)
        done(history.ask("k", "swap", key="k", value="4", expected="2"), found="3", number=0)
        done(history.ask("k", "delete", key="k"), number=1)
        history.ask("k", "swap", key="k", value="5", expected="3")
        done(history.ask("k", "get", key="k"))
        done(history.ask("k", "add", key="k", number=7), found="7")
        history.ask("k", "add", key="k", number=1)
        history.kill()
        done(history.ask("k", "add", key="k", number=2), found="10")
        done(history.ask("k", "get", key="k"), found="10")

    def _count(self) -> None:
        """Two at the same time, one of whom is not answered."""
        history, done = self.history, self.done
        first, second = (history.ask(name, "count", key="c") for name in "xy")
        done(second, found="1")
        done(first, found="2")
        history.ask("x", "count", key="c")
        history.kill()
        done(history.ask("y", "count", key="c"), found="4")

    def _let_live(self) -> None:
        history, done, clock = self.history, self.done, self.clock
        clock.now = 10.0
        done(history.ask("u", "mortal", key="m", value="v", number=1000))
        history.ask("u", "mortal", key="n", value="w", number=1000)
        clock.now = 10.8
        done(history.ask("u", "glance", key="m"), found="v")
        history.kill()
        clock.now = 11.02  # the clock of a start may be a little off
        done(history.ask("u", "glance", key="m"), found="v")
        clock.now = 11.7
        done(history.ask("u", "glance", key="n"), found="w")  # nobody knows when it was put, but for the kill
        done(history.ask("u", "glance", key="m"))

    def the(self, kind: str, at: int) -> Deed:
        return self.history.asked(kind)[at]

    def found(self) -> set[str]:
        return {violation.rule for violation in check_felix(self.history, Contents(self.records))}


def test_a_sound_history_has_no_violations() -> None:
    assert Story().found() == set()


Plant = Callable[[Story], object]


def _log(*records: str) -> Plant:
    return lambda story: story.records.update({P: list(enumerate(records))})


def _saw(kind: str, at: int, found: str | None) -> Plant:
    return lambda story: setattr(story.the(kind, at), "found", found)


def _did(kind: str, at: int, number: int) -> Plant:
    return lambda story: setattr(story.the(kind, at), "number", number)


def _sums(*sums: str | None) -> Plant:
    def plant(story: Story) -> None:
        for deed, found in zip(story.history.asked("count"), sums, strict=True):
            deed.found = found

    return plant


PLANTED: dict[str, dict[str, Plant]] = {
    "acknowledged_are_kept": {
        "the last is lost": _log("a1", "a2", "b2", "b3"),
        "the first are lost": _log("b2", "b3", "a3"),
    },
    "nothing_twice": {"duplicated": _log("a1", "a2", "b2", "b3", "a3", "a3")},
    "clients_in_order": {"reordered": _log("a3", "b2", "b3", "a1", "a2")},
    "appends_are_whole": {"in part": _log("a1", "a2", "b2", "a3")},
    "seen_stays": {
        "changed": _log("a1", "x", "b2", "b3", "a3"),
        "moved": _log("a1", "a2", "b1", "b2", "b3", "a3"),
    },
    "nothing_foreign": {"of nobody": _log("a1", "a2", "b2", "b3", "a3", "zz")},
    "offsets_contiguous": {"a gap": lambda story: story.records[P].append((9, "b1"))},
    "subscribers_get_everything": {
        "one is left out": lambda story: setattr(story.the("read", 1), "offset", 3),
        "one comes twice": lambda story: setattr(story.the("read", 1), "offset", 1),
        "the end does not come": lambda story: setattr(story.the("read", 1), "ids", ("b2", "b3")),
    },
    "values_hold": {
        "a put is lost": _saw("get", 0, None),
        "what was replaced is back": _saw("get", 3, "2"),
        "a deleted value is back": _saw("get", 2, "3"),
        "what comes from nowhere": _saw("get", 1, "9"),
        "a swap of another value": _saw("swap", 1, "4"),
        "a swap that must not be": _did("swap", 1, 1),
        "a swap that must be": _did("swap", 0, 0),
        "nothing was deleted": _did("delete", 0, 0),
        "an acknowledged sum is lost": _saw("add", 2, "2"),
        "a sum counts twice": _saw("add", 2, "11"),
        "refused": lambda story: story.history.reject(story.the("put", 0), "full"),
    },
    "counters_count": {
        "told twice": _saw("count", 0, "1"),
        "goes back": _saw("count", 3, "1"),
        "more than were sent": _saw("count", 3, "5"),
        "fewer than were acknowledged": _sums("0", "1", None, "2"),
    },
    "times_hold": {
        "a start lets it live longer": _saw("glance", 3, "v"),
        "it dies too early": _saw("glance", 0, None),
        "another value": _saw("glance", 1, "w"),
    },
}


@pytest.mark.parametrize(
    ("rule", "plant"),
    [(rule, plant) for rule, plants in PLANTED.items() for plant in plants.values()],
    ids=[f"{rule}: {name}" for rule, plants in PLANTED.items() for name in plants],
)
def test_a_planted_violation_is_found(rule: str, plant: Plant) -> None:
    story = Story()
    plant(story)
    assert rule in story.found()


def test_every_rule_of_this_door_has_something_planted() -> None:
    assert {rule.__name__ for rule in OWN} <= set(PLANTED)


def test_a_change_without_an_answer_may_come_to_pass_until_the_broker_is_killed() -> None:
    """A client that has lost its connection cannot tell whether its request is still on its way."""
    for killed, allowed in ((False, True), (True, False)):
        history = FelixHistory(Clock())
        history.acknowledge(history.ask("k", "put", key="k", value="1"))
        history.ask("k", "put", key="k", value="2")
        if killed:
            history.kill()
        for found in ("1", "2"):
            look = history.ask("k", "get", key="k")
            look.found = found
            history.acknowledge(look)
        assert (not check_felix(history, Contents({}))) is allowed
