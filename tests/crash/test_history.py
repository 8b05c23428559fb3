"""The history checker accepts what a correct log can do, and finds each kind of violation when it is planted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.crash.history import LOG_RULES, Contents, History, Place, check

P0, P1 = Place("events", 0), Place("events", 1)


def sound() -> tuple[History, Contents]:
    """Two writers, a reader and a group; one append was never answered and is there, another is not."""
    history = History()
    a1 = history.invoke("a", "append", P0, ["a1", "a2"])
    b1 = history.invoke("b", "append", P0, ["b1"])
    history.acknowledge(a1, offset=0)
    history.acknowledge(b1, offset=2)
    history.invoke("a", "append", P0, ["a3", "a4"])
    history.invoke("b", "append", P0, ["b2"])
    rejected = history.invoke("a", "append", P1, ["a5"])
    history.reject(rejected, "no such partition")
    a6 = history.invoke("a", "append", P1, ["a6"])
    history.acknowledge(a6, offset=0)
    read = history.invoke("r", "read", P0)
    history.acknowledge(read, offset=1, ids=["a2", "b1"])
    history.acknowledge(history.invoke("r", "commit", P0, offset=1, group="g"))
    history.acknowledge(history.invoke("r", "commit", P0, offset=3, group="g"))
    history.invoke("r", "commit", P0, offset=5, group="g")
    contents = Contents(
        records={P0: [(0, "a1"), (1, "a2"), (2, "b1"), (3, "a3"), (4, "a4")], P1: [(0, "a6")]},
        ends={P0: 5, P1: 1},
        committed={("g", P0): 3},
    )
    return history, contents


def rules_broken(history: History, contents: Contents) -> set[str]:
    return {violation.rule for violation in check(history, contents)}


def test_a_correct_log_has_no_violations() -> None:
    assert check(*sound()) == []


def test_an_unanswered_append_and_commit_may_be_there_or_not() -> None:
    history, contents = sound()
    without = replace(contents, records={**contents.records, P0: contents.records[P0][:3]}, ends={P0: 3, P1: 1})
    assert check(history, without) == []
    assert check(history, replace(contents, committed={("g", P0): 5})) == []


PLANTED = {
    "acknowledged_are_there": {P0: [(0, "a1"), (1, "a2")]},  # b1 lost
    "offsets_contiguous": {P0: [(0, "a1"), (1, "a2"), (2, "b1"), (4, "a3"), (5, "a4")]},
    "nothing_twice": {P0: [(0, "a1"), (1, "a2"), (2, "b1"), (3, "a3"), (4, "a4"), (5, "a1")]},
    "nothing_foreign": {P0: [(0, "a1"), (1, "a2"), (2, "b1"), (3, "zz")]},
    "rejected_are_absent": {P1: [(0, "a6"), (1, "a5")]},
    "appends_are_whole": {P0: [(0, "a1"), (1, "a2"), (2, "b1"), (3, "a3")]},
    "clients_in_order": {P0: [(0, "a1"), (1, "a2"), (2, "b1"), (3, "a4"), (4, "a3")]},
    "seen_stays": {P0: [(0, "a1"), (1, "a2"), (2, "a3"), (3, "a4")]},
}


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_violation_is_found(rule: str) -> None:
    history, contents = sound()
    planted = replace(contents, records={**contents.records, **PLANTED[rule]}, ends={})
    assert rule in rules_broken(history, planted)


def test_an_acknowledged_record_at_another_offset_is_found() -> None:
    history, contents = sound()
    swapped = [(0, "b1"), (1, "a1"), (2, "a2"), (3, "a3"), (4, "a4")]
    assert "acknowledged_are_there" in rules_broken(history, replace(contents, records={P0: swapped, P1: [(0, "a6")]}))


def test_a_high_watermark_beyond_the_records_is_found() -> None:
    history, contents = sound()
    assert rules_broken(history, replace(contents, ends={P0: 6, P1: 1})) == {"offsets_contiguous"}


@pytest.mark.parametrize("value", [None, 1, 4])
def test_a_lost_or_invented_group_offset_is_found(value: int | None) -> None:
    history, contents = sound()
    assert rules_broken(history, replace(contents, committed={("g", P0): value})) == {"committed_offsets_kept"}


def test_a_group_offset_that_nobody_read_back_is_found() -> None:
    history, contents = sound()
    assert rules_broken(history, replace(contents, committed={})) == {"committed_offsets_kept"}


def test_commits_of_two_clients_at_the_same_time_may_end_either_way() -> None:
    history = History()
    first = history.invoke("r", "commit", P0, offset=1, group="g")
    second = history.invoke("s", "commit", P0, offset=2, group="g")
    history.acknowledge(second)
    history.acknowledge(first)
    for value in (1, 2):
        assert check(history, Contents(records={}, committed={("g", P0): value})) == []


def test_records_below_the_log_start_may_be_gone() -> None:
    history, contents = sound()
    cut = replace(contents, records={**contents.records, P0: contents.records[P0][1:]}, starts={P0: 1})
    assert check(history, cut) == []


def test_a_further_protocol_adds_its_own_rules() -> None:
    history, contents = sound()

    def nothing_delivered(history: History, _: Contents):  # type: ignore[no-untyped-def]
        yield from (operation.client for operation in history.of("deliver"))

    history.invoke("q", "deliver", P0)
    assert [violation.text for violation in check(history, contents, (*LOG_RULES, nothing_delivered))] == ["q"]


def test_a_history_survives_a_file(tmp_path: Path) -> None:
    history, contents = sound()
    history.dump(str(tmp_path / "history.jsonl"))
    loaded = History.load(str(tmp_path / "history.jsonl"))
    assert loaded.operations == history.operations
    assert check(loaded, contents) == []
