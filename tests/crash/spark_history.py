"""What must be true of a pipeline's output, given what went in: every input exactly once, whoever was killed.

Inputs are identified by where they lie, (partition, offset) of the input topic. Each copying query puts these numbers
into what it writes; the counting one tells how many inputs with a certain key it has seen so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.crash.history import Violation

At = tuple[int, int]
"""Partition and offset of an input."""


@dataclass(slots=True)
class Copied:
    """What one copying query wrote, in the order of each partition of its output."""

    records: list[tuple[At, bytes]]
    starts: Mapping[int, int] = field(default_factory=dict)  # the first offset of each partition that is its to copy


@dataclass(slots=True)
class SparkHistory:
    """Everything there is when the last query is done."""

    acknowledged: dict[At, bytes]  # what the producers were told is stored
    inputs: dict[At, bytes]  # what is in the input topic
    copies: dict[str, Copied]
    counts: Sequence[tuple[str, int]]  # (key, how many so far), in the order of each key
    table: dict[At, bytes]  # what the input topic's table and the rest of its journal hold
    repeated_in_table: int = 0  # rows of the table whose place another row has, too


def key_of(value: bytes) -> str:
    """The key that the counting query groups by."""
    return value.rpartition(b":")[2].decode()


def check(history: SparkHistory) -> list[Violation]:
    return [Violation(rule.__name__, text) for rule in RULES for text in rule(history)]


def acknowledged_inputs_are_there(history: SparkHistory) -> Iterator[str]:
    for at, value in history.acknowledged.items():
        if history.inputs.get(at) != value:
            yield f"{at} was acknowledged as {value!r} and is {history.inputs.get(at)!r}"


def nothing_is_missing(history: SparkHistory) -> Iterator[str]:
    for name, copied in history.copies.items():
        seen = {at for at, _ in copied.records}
        for at in history.inputs:
            if at[1] >= copied.starts.get(at[0], 0) and at not in seen:
                yield f"{name}: {at} is missing"


def nothing_is_there_twice(history: SparkHistory) -> Iterator[str]:
    for name, copied in history.copies.items():
        for at, times in Counter(at for at, _ in copied.records).items():
            if times > 1:
                yield f"{name}: {at} is there {times} times"


def nothing_is_invented_or_changed(history: SparkHistory) -> Iterator[str]:
    for name, copied in history.copies.items():
        for at, value in copied.records:
            if at[1] < copied.starts.get(at[0], 0):
                yield f"{name}: {at} is from before its start"
            elif history.inputs.get(at) != value:
                yield f"{name}: {at} is {value!r} and went in as {history.inputs.get(at)!r}"


def counts_grow(history: SparkHistory) -> Iterator[str]:
    """A batch that is written twice would tell the same count again."""
    last: dict[str, int] = {}
    for key, count in history.counts:
        if count <= last.get(key, 0):
            yield f"key {key}: {count} after {last[key]}"
        last[key] = count


def counts_are_right_in_the_end(history: SparkHistory) -> Iterator[str]:
    last = dict(history.counts)
    for key, count in Counter(key_of(value) for value in history.inputs.values()).items():
        if last.get(key) != count:
            yield f"key {key}: counted {last.get(key)} of {count}"


def the_table_is_the_topic(history: SparkHistory) -> Iterator[str]:
    if history.repeated_in_table:
        yield f"{history.repeated_in_table} rows are there twice"
    for at in history.inputs.keys() | history.table.keys():
        if history.inputs.get(at) != history.table.get(at):
            yield f"{at} is {history.table.get(at)!r} in the table and {history.inputs.get(at)!r} in the topic"


RULES = (
    acknowledged_inputs_are_there,
    nothing_is_missing,
    nothing_is_there_twice,
    nothing_is_invented_or_changed,
    counts_grow,
    counts_are_right_in_the_end,
    the_table_is_the_topic,
)
