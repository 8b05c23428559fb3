"""The checker of pipelines: it accepts a right history, and finds every planted mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.crash.spark_history import RULES, Copied, SparkHistory, check


def history() -> SparkHistory:
    inputs = {(0, 0): b"1:a", (0, 1): b"2:b", (1, 0): b"3:a", (1, 1): b"4:a"}
    return SparkHistory(
        acknowledged={(0, 0): b"1:a", (1, 1): b"4:a"},
        inputs=inputs,
        copies={
            "copy": Copied(list(inputs.items())),
            "newest": Copied([((0, 1), b"2:b"), ((1, 1), b"4:a")], {0: 1, 1: 1}),
        },
        counts=[("a", 2), ("b", 1), ("a", 3)],
        table=dict(inputs),
    )


def test_a_right_history_is_accepted() -> None:
    assert check(history()) == []


def lost(h: SparkHistory) -> None:
    h.acknowledged[0, 2] = b"5:a"


def changed_after_acknowledgement(h: SparkHistory) -> None:
    h.acknowledged[0, 0] = b"9:a"


def skipped(h: SparkHistory) -> None:
    h.copies["copy"].records.pop()


def skipped_at_the_start(h: SparkHistory) -> None:
    h.copies["newest"].records.pop(0)


def twice(h: SparkHistory) -> None:
    h.copies["copy"].records.append(h.copies["copy"].records[0])


def changed(h: SparkHistory) -> None:
    h.copies["copy"].records[0] = ((0, 0), b"1:b")


def invented(h: SparkHistory) -> None:
    h.copies["copy"].records.append(((0, 7), b"7:a"))


def too_early(h: SparkHistory) -> None:
    h.copies["newest"].records.append(((0, 0), b"1:a"))


def batch_repeated(h: SparkHistory) -> None:
    h.counts = [("a", 2), ("b", 1), ("a", 2), ("a", 3)]


def state_lost(h: SparkHistory) -> None:
    h.counts = [("a", 2), ("b", 1)]


def counted_twice(h: SparkHistory) -> None:
    h.counts = [("a", 2), ("b", 1), ("a", 4)]


def not_in_the_table(h: SparkHistory) -> None:
    del h.table[1, 0]


def only_in_the_table(h: SparkHistory) -> None:
    h.table[1, 5] = b""


def repeated_in_the_table(h: SparkHistory) -> None:
    h.repeated_in_table = 1


PLANTED: dict[Callable[[SparkHistory], None], str] = {
    lost: "acknowledged_inputs_are_there",
    changed_after_acknowledgement: "acknowledged_inputs_are_there",
    skipped: "nothing_is_missing",
    skipped_at_the_start: "nothing_is_missing",
    twice: "nothing_is_there_twice",
    changed: "nothing_is_invented_or_changed",
    invented: "nothing_is_invented_or_changed",
    too_early: "nothing_is_invented_or_changed",
    batch_repeated: "counts_grow",
    state_lost: "counts_are_right_in_the_end",
    counted_twice: "counts_are_right_in_the_end",
    not_in_the_table: "the_table_is_the_topic",
    only_in_the_table: "the_table_is_the_topic",
    repeated_in_the_table: "the_table_is_the_topic",
}


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_mistake_is_found(plant: Callable[[SparkHistory], None]) -> None:
    planted = history()
    plant(planted)
    assert PLANTED[plant] in {violation.rule for violation in check(planted)}


def test_every_rule_finds_something() -> None:
    assert {rule.__name__ for rule in RULES} == set(PLANTED.values())
