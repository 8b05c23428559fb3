"""Checks a table: in itself, and record by record against the log, where segments still have the same records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.arrow import STORED, record_batches
from penstock.log.engine import partition_id
from penstock.log.errors import OffsetOutOfRange, TableUnreadable
from penstock.log.tables.location import TableRef
from penstock.log.tables.table import Table, TableFile
from penstock.log.tailer import Tailer

MOST_DIFFERENCES: Final = 20


class Difference(NamedTuple):
    partition: int
    offset: int
    reason: str


@dataclass(slots=True)
class Outcome:
    """The result of a verification. `differences` has the first ones only."""

    topic: str
    version: int | None = None  # None: there is no table
    checked: int = 0  # records of the table
    compared: int = 0  # those of them that the journal has too
    differences: list[Difference] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.differences

    @property
    def full(self) -> bool:
        return len(self.differences) >= MOST_DIFFERENCES

    def differ(self, partition: int, offset: int, reason: str) -> None:
        if not self.full:
            self.differences.append(Difference(partition, offset, reason))


Progress = Callable[[int, int], None]  # records done, of how many


def verify(
    ref: TableRef,
    tailer: Tailer,
    starts: Mapping[int, int],
    table_ends: Mapping[int, int],
    progress: Progress | None = None,
) -> Outcome:
    """`starts` are the log starts of all partitions, `table_ends` where the journal believes that the table ends.

    The records of the newest version are read once. What retention takes meanwhile is not compared. Raises LogError.
    """
    outcome = Outcome(ref.name)
    table = Table.open(ref)
    if table is None:
        for number, end in table_ends.items():
            if end > starts.get(number, 0):
                outcome.differ(number, starts.get(number, 0), f"there is no table, but it should reach to offset {end}")
        return outcome
    outcome.version = table.version
    ends = table.ends()
    total = sum(file.rows for number in table.partitions() for file in table.extents(number))
    for number in sorted({*table.partitions(), *ends, *starts}):
        start, end = starts.get(number, 0), ends.get(number, 0)
        if table_ends.get(number, 0) > max(end, start):
            outcome.differ(number, end, f"the table ends here; the log counts on it up to offset {table_ends[number]}")
        _check_files(outcome, table.extents(number), number, start, ends.get(number))
        _check_seam(outcome, tailer, ref.topic, number, start, end)
        if table.extents(number):
            _check_records(outcome, table, tailer, number, start, lambda done: progress and progress(done, total))
    return outcome


def _check_files(outcome: Outcome, files: list[TableFile], number: int, start: int, end: int | None) -> None:
    """The files follow each other from the log start to where the table's commits say that it ends."""
    if not files:
        if end is not None and end > start:
            outcome.differ(number, start, f"no file has the offsets from here to {end}")
        return
    if files[0].first > start:
        outcome.differ(number, start, f"the table begins at offset {files[0].first}, above the log start")
    expected = files[0].first
    for file in files:
        if file.first != expected:
            outcome.differ(number, expected, f"{file.path} goes on with offset {file.first}")
        if file.rows != file.end - file.first:
            outcome.differ(
                number, file.first, f"{file.path} has {file.rows} records for {file.end - file.first} offsets"
            )
        expected = file.end
    if end != expected:
        outcome.differ(number, expected, f"the files end here, the table's commits say {end}")


def _check_seam(outcome: Outcome, tailer: Tailer, topic: int, number: int, start: int, end: int) -> None:
    """The journal goes on where the table ends, or before."""
    held = tailer.extent(partition_id(topic, number))
    if held is not None and held[0] > max(end, start):
        outcome.differ(number, end, f"neither the table nor the journal has the offsets from here to {held[0]}")


def _check_records(
    outcome: Outcome, table: Table, tailer: Tailer, number: int, start: int, progress: Callable[[int], object]
) -> None:
    files = table.extents(number)
    log = _Journal(tailer, table.ref, number, max(start, files[0].first), files[-1].end)
    for file in files:
        before = len(outcome.differences)
        stamps = _stamps_of(outcome, table, file, log, progress)
        if stamps != (file.min_timestamp, file.max_timestamp) and len(outcome.differences) == before:
            outcome.differ(number, file.first, f"{file.path} has other timestamps than the table's log says")


def _stamps_of(
    outcome: Outcome, table: Table, file: TableFile, log: _Journal, progress: Callable[[int], object]
) -> tuple[int, int]:
    """Checks the records of a file; returns their lowest and highest timestamp."""
    low, high = 1 << 63, -(1 << 63)
    at = file.first
    try:
        for batch in table.read(file.partition, file.first, file.end):
            _check_batch(outcome, table.ref.name, file, batch, at)
            log.compare(outcome, batch, at)
            stamps = pc.min_max(batch.column("timestamp").cast(pa.int64()))
            low, high = min(low, stamps["min"].as_py()), max(high, stamps["max"].as_py())
            at += len(batch)
            outcome.checked += len(batch)
            progress(outcome.checked)
    except OffsetOutOfRange:
        outcome.differ(file.partition, at, f"{file.path} is gone, and no newer version has its records")
    except TableUnreadable as error:
        outcome.differ(file.partition, at, str(error))
    return low, high


def _check_batch(outcome: Outcome, topic: str, file: TableFile, batch: pa.RecordBatch, at: int) -> None:
    offsets = batch.column("offset")
    expected = np.arange(at, at + len(batch), dtype=np.int64)
    if offsets.null_count or not np.array_equal(offsets.to_numpy(), expected):
        wrong = next(i for i, found in enumerate(offsets.to_pylist()) if found != at + i)
        outcome.differ(file.partition, at + wrong, f"{file.path} has offset {offsets[wrong]} here")
    if pc.any(pc.not_equal(batch.column("topic"), topic)).as_py() is not False:
        outcome.differ(file.partition, at, f"{file.path} has records of another topic")
    if batch.column("timestamp").null_count or batch.column("value").null_count:
        outcome.differ(file.partition, at, f"{file.path} has records without a value or a timestamp")


class _Journal:
    """The records of one partition as segments have them, beside those of the table."""

    def __init__(self, tailer: Tailer, ref: TableRef, number: int, start: int, end: int) -> None:
        partition = partition_id(ref.topic, number)
        held = tailer.extent(partition) or (end, end)
        self._number = number
        self._at = max(start, held[0])
        self._end = max(self._at, min(end, held[1]))
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None
        if self._at < self._end:
            try:
                slices = tailer.slices(partition, self._at, self._end)
            except OffsetOutOfRange:  # the files have been removed since
                self._end = self._at
            else:
                self._batches = record_batches(slices, ref.name, STORED.names)

    def compare(self, outcome: Outcome, batch: pa.RecordBatch, at: int) -> None:
        """`batch` is what the table has from offset `at` on."""
        while self._at < min(at, self._end):  # the table lacks something
            self._take(at)
        end = min(at + len(batch), self._end)
        while self._at < end and not outcome.full:
            first = self._at
            ours = self._take(end)
            theirs = batch.slice(first - at, len(ours))
            if not ours.equals(theirs):
                _name_differences(outcome, self._number, first, ours, theirs)
            outcome.compared += len(ours)

    def _take(self, end: int) -> pa.RecordBatch:
        """Some of the next records, none from `end` on."""
        if self._rest is None:
            self._rest = next(self._batches)
        found = self._rest.slice(0, end - self._at)
        self._rest = self._rest.slice(len(found)) if len(found) < len(self._rest) else None
        self._at += len(found)
        return found


def _name_differences(outcome: Outcome, number: int, at: int, log: pa.RecordBatch, table: pa.RecordBatch) -> None:
    """Slow, and only for what is known to differ."""
    for name in STORED.names:
        if log.column(name).equals(table.column(name)):
            continue
        pairs = zip(_cells(log.column(name)), _cells(table.column(name)), strict=True)
        for i, (ours, theirs) in enumerate(pairs):
            if ours != theirs:
                outcome.differ(number, at + i, f"{name} is {_shown(ours)} in the log and {_shown(theirs)} in the table")
                break


def _cells(column: pa.Array) -> list[object]:
    """Times as µs: Python's own end with the year 9999, and an expiry may be later."""
    found: list[object] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
