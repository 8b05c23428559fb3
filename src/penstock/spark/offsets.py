"""Offsets of a stream, and pure functions on them.

Spark writes the end of every micro-batch into the checkpoint, but not the start of the first one; it requests the start
again, possibly several times. So the start is a symbol (`{"/start": "latest"}`), which is resolved when the first end
is computed. The result is stored in the checkpoint with every end, so that the last one alone shows the progress of the
query:

    {"/from": {"orders": {"0": 100}}, "orders": {"0": 105}}       the end of the first micro-batch
    {"/from": {"orders": {"0": 100}}, "orders": {"0": 131}}       of the second

Topic names never begin with a slash, so these two keys are unambiguous.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from penstock.flight.log import TopicPartition
from penstock.spark.options import OffsetSpec, nested

START: Final = "/start"
FROM: Final = "/from"

Offsets = dict[TopicPartition, int]
Json = dict[str, Any]


class Range(NamedTuple):
    """Records of one partition: from `start` up to, not including, `end`."""

    place: TopicPartition
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


def symbol(position: OffsetSpec) -> Json:
    return {START: position.encode()}


def is_symbol(offset: Json) -> bool:
    return START in offset


def encode(ends: Mapping[TopicPartition, int], begun: Mapping[TopicPartition, int] | None = None) -> Json:
    """An offset for Spark; `begun`: the start offsets of the query's first micro-batch, if known."""
    encoded: Json = {} if begun is None else {FROM: nested(begun)}
    return encoded | nested(ends)


def decode(offset: Json) -> Offsets:
    """The offset of each partition."""
    return _flat({name: inner for name, inner in offset.items() if name not in (START, FROM)})


def origins(offset: Json) -> Offsets | None:
    """The start offsets of the query, if the offset contains them: earlier versions did not store them."""
    return _flat(offset[FROM]) if FROM in offset else None


def begins(start: Json, end: Json) -> Offsets:
    """The start offsets of the micro-batch between these two."""
    return _flat(end[FROM]) if is_symbol(start) else decode(start)


def _flat(by_topic: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, by_partition in by_topic.items()
        for partition, offset in by_partition.items()
    }


def share(backlog: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """The number of records to read of each partition, up to `limit` in total: in proportion to the backlog, and at
    least one of each, so that a small partition does not wait for a large one."""
    waiting = {place: rows for place, rows in backlog.items() if rows > 0}
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    if limit <= len(waiting):
        largest = heapq.nlargest(limit, waiting, key=lambda place: (waiting[place], place))
        return dict.fromkeys(largest, 1)
    # One for each, and a share of the rest, rounded down; the remainder goes to those with the largest rounding loss.
    rest, left = limit - len(waiting), total - len(waiting)
    taken = {place: 1 + rest * (rows - 1) // left for place, rows in waiting.items()}
    missing = limit - sum(taken.values())
    for place in heapq.nlargest(missing, waiting, key=lambda place: (rest * (waiting[place] - 1) % left, place)):
        taken[place] += 1
    return taken


def split(ranges: Iterable[Range], least: int | None = None, most_rows: int | None = None) -> list[Range]:
    """The ranges of tasks: none longer than `most_rows`, and at least `least` of them if there are enough records. The
    longest ranges are split first, evenly."""
    whole = [each for each in ranges if each.rows > 0]
    pieces = [max(1, -(-each.rows // most_rows)) if most_rows else 1 for each in whole]
    if least is not None:
        _cut_more(whole, pieces, least)
    return [piece for each, count in zip(whole, pieces, strict=True) for piece in _even(each, count)]


def _cut_more(whole: list[Range], pieces: list[int], least: int) -> None:
    missing = min(least, sum(each.rows for each in whole)) - sum(pieces)
    heap = [(-each.rows / count, index) for index, (each, count) in enumerate(zip(whole, pieces, strict=True))]
    heapq.heapify(heap)
    while missing > 0:
        _, index = heap[0]
        pieces[index] += 1
        missing -= 1
        heapq.heapreplace(heap, (-whole[index].rows / pieces[index], index))


def _even(whole: Range, count: int) -> list[Range]:
    cuts = [whole.start + whole.rows * index // count for index in range(count + 1)]
    return [Range(whole.place, start, end) for start, end in pairwise(cuts)]
