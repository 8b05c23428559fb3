"""Verifies a table: every byte of its files, every record against the checksum from the journal, and records that
segments still have against those."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.arrow import DOOR, OWN_POSITION, STORED, record_batches
from penstock.log.engine import partition_id
from penstock.log.errors import OffsetOutOfRange, TableDamaged, TableUnreadable
from penstock.log.tables import sidecar
from penstock.log.tables.damage import Damage
from penstock.log.tables.errors import plain
from penstock.log.tables.location import TableRef
from penstock.log.tables.part_reader import PartReader, TableFile
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table
from penstock.log.tailer import Tailer

MOST_DIFFERENCES: Final = 20


class Difference(NamedTuple):
    partition: int
    offset: int
    reason: str


@dataclass(slots=True)
class Verification:
    """The result of a verification. `differences` has only the first ones, `damage` all."""

    topic: str
    version: int | None = None  # None: there is no table
    checked: int = 0  # records of the table
    compared: int = 0  # of these, records that the journal has too
    files: int = 0
    unchecked: int = 0  # of these, files of an earlier version without checksums
    differences: list[Difference] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    unreadable: str = ""  # the reason why the table as a whole cannot be read

    @property
    def sound(self) -> bool:
        return not (self.differences or self.damage or self.unreadable)

    @property
    def full(self) -> bool:
        return len(self.differences) >= MOST_DIFFERENCES

    def differ(self, partition: int, offset: int, reason: str) -> None:
        if not self.full:
            self.differences.append(Difference(partition, offset, reason))


Progress = Callable[[int, int], None]  # records done, total


def verify(
    ref: TableRef,
    tailer: Tailer,
    starts: Mapping[int, int],
    table_ends: Mapping[int, int],
    progress: Progress | None = None,
) -> Verification:
    """`starts` are the log starts of all partitions, `table_ends` the ends of the table according to the journal.

    The records of the newest version are read once. Records that retention removes meanwhile are not compared. Raises
    LogError.
    """
    outcome = Verification(ref.name)
    try:
        table = Table.open(ref)
    except TableUnreadable as error:
        outcome.unreadable = str(error)
        _check_log(outcome, TableStore(ref))
        return outcome
    if table is None:
        for number, end in table_ends.items():
            if end > starts.get(number, 0):
                outcome.differ(number, starts.get(number, 0), f"there is no table, but it should reach to offset {end}")
        return outcome
    outcome.version = table.version
    ends = table.ends()
    _check_log(outcome, table.store)
    _check_unused(outcome, table)
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


def _check_files(outcome: Verification, files: list[TableFile], number: int, start: int, end: int | None) -> None:
    """Check that the files cover the range from the log start to the committed end without gaps."""
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


def _check_seam(outcome: Verification, tailer: Tailer, topic: int, number: int, start: int, end: int) -> None:
    """Check that the journal continues where the table ends, or before."""
    held = tailer.extent(partition_id(topic, number))
    if held is not None and held[0] > max(end, start):
        outcome.differ(number, end, f"neither the table nor the journal has the offsets from here to {held[0]}")


def _check_log(outcome: Verification, store: TableStore) -> None:
    """Check every byte of the table's log that has a sidecar."""
    for path, _ in store.log_files():
        if not sidecar.is_sidecar(path):
            _check_bytes(outcome, store, Damage(path, ""))


def _check_unused(outcome: Verification, table: Table) -> None:
    """Check files that the newest version no longer has, but readers of older ones may use."""
    used = {file.path for number in table.partitions() for file in table.extents(number)}
    for path, _ in table.store.data_files():
        if path not in used:
            _check_bytes(outcome, table.store, Damage(path, ""))


def _check_bytes(outcome: Verification, store: TableStore, where: Damage) -> None:
    with contextlib.suppress(FileNotFoundError):  # no sidecar; or it was removed meanwhile
        found = store.damaged_bytes(where.file)
        if found is not None:
            reason = f"bytes {found.start} to {found.end - 1} are not what was written"
            outcome.damage.append(msgspec.structs.replace(where, reason=reason))


def _check_records(
    outcome: Verification, table: Table, tailer: Tailer, number: int, start: int, progress: Callable[[int], object]
) -> None:
    files = table.extents(number)
    log = _Journal(tailer, table.ref, number, max(start, files[0].first), files[-1].end)
    for file in files:
        outcome.files += 1
        outcome.unchecked += not file.checksummed
        before = len(outcome.damage), len(outcome.differences)
        try:
            _check_file(outcome, table, file, log, progress)
        except FileNotFoundError:
            if not _compacted(table, file):
                reason = "it is gone, and no newer version has its records"
                outcome.damage.append(Damage(file.path, reason, number, file.first, file.end))
            continue
        except OSError as error:
            outcome.differ(number, file.first, f"{file.path} cannot be read: {plain(error)}")
            continue
        except TableDamaged as error:
            outcome.damage.append(Damage(file.path, error.reason, number, error.first, error.end))
        if before == (len(outcome.damage), len(outcome.differences)):
            _check_bytes(outcome, table.store, Damage(file.path, "", number, file.first, file.end))


def _compacted(table: Table, file: TableFile) -> bool:
    """Whether the records of a removed file are in others now."""
    newest = table.newest()
    return newest.file_at(file.partition, file.first) is not None and newest.version > table.version


def _check_file(
    outcome: Verification, table: Table, file: TableFile, log: _Journal, progress: Callable[[int], object]
) -> None:
    """Check the records of a file, row group by row group: a damaged one does not prevent checking the others."""
    low, high, whole = 1 << 63, -(1 << 63), True
    with PartReader(table.store, file) as part:
        at = file.first
        for group in part.groups:
            at = group.first
            try:
                if file.checksummed:  # read only by others
                    for batch in part.as_written(group):
                        _check_places(outcome, table.ref.name, file, batch, at)
                        at += len(batch)
                    at = group.first
                for batch in part.batches(group, STORED.names):
                    if not file.checksummed:
                        _check_places(outcome, table.ref.name, file, batch, at)
                    _check_filled(outcome, file, batch, at)
                    log.compare(outcome, batch, at)
                    stamps = pc.min_max(batch.column("timestamp").cast(pa.int64()))
                    low, high = min(low, stamps["min"].as_py()), max(high, stamps["max"].as_py())
                    at += len(batch)
                    outcome.checked += len(batch)
                    progress(outcome.checked)
            except TableDamaged as error:
                outcome.damage.append(Damage(file.path, error.reason, file.partition, error.first, error.end))
                whole, at = False, group.end
    if at != file.end:
        outcome.differ(file.partition, at, f"{file.path} ends at offset {at} instead of {file.end}")
    elif whole and (low, high) != (file.min_timestamp, file.max_timestamp):
        outcome.differ(file.partition, file.first, f"{file.path} has other timestamps than the table's log says")


def _check_places(outcome: Verification, topic: str, file: TableFile, batch: pa.RecordBatch, at: int) -> None:
    offsets = batch.column("offset")
    expected = np.arange(at, at + len(batch), dtype=np.int64)
    if offsets.null_count or not np.array_equal(offsets.to_numpy(), expected):
        wrong = next(i for i, found in enumerate(offsets.to_pylist()) if found != at + i)
        outcome.differ(file.partition, at + wrong, f"{file.path} has offset {offsets[wrong]} here")
    if pc.any(pc.not_equal(batch.column("topic"), topic)).as_py() is not False:
        outcome.differ(file.partition, at, f"{file.path} has records of another topic")


def _check_filled(outcome: Verification, file: TableFile, batch: pa.RecordBatch, at: int) -> None:
    if batch.column("timestamp").null_count or batch.column("value").null_count:
        outcome.differ(file.partition, at, f"{file.path} has records without a value or a timestamp")


class _Journal:
    """The records of one partition in the segments, for comparison with the table."""

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
                slices = tailer.slices(partition, self._at, self._end, groups=True)
            except OffsetOutOfRange:  # the files have been removed meanwhile
                self._end = self._at
            else:
                self._batches = record_batches(slices, ref.name, [*STORED.names, OWN_POSITION])

    def compare(self, outcome: Verification, batch: pa.RecordBatch, at: int) -> None:
        """Compare with `batch`, the table's records from offset `at` on."""
        while self._at < min(at, self._end):  # the table lacks records
            self._take(at)
        end = min(at + len(batch), self._end)
        while self._at < end and not outcome.full:
            first = self._at
            ours = self._take(end)
            theirs = batch.slice(first - at, len(ours))
            ours = _as_earlier_versions(ours, theirs)
            if not ours.equals(theirs):
                _name_differences(outcome, self._number, first, ours, theirs)
            outcome.compared += len(ours)

    def _take(self, end: int) -> pa.RecordBatch:
        """The next records, below `end`; maybe only some of them."""
        if self._rest is None:
            self._rest = next(self._batches)
        found = self._rest.slice(0, end - self._at)
        self._rest = self._rest.slice(len(found)) if len(found) < len(self._rest) else None
        self._at += len(found)
        return found


def _as_earlier_versions(log: pa.RecordBatch, table: pa.RecordBatch) -> pa.RecordBatch:
    """The log's records, with the record's own position where the table has that, and without the door where the table
    has none: earlier versions wrote them so."""
    own, written = log.column(OWN_POSITION), table.column("position")
    log = log.select(STORED.names)
    if table.column(DOOR).null_count:
        doors = pc.if_else(table.column(DOOR).is_null(), pa.scalar(None, pa.string()), log.column(DOOR))
        log = log.set_column(log.schema.get_field_index(DOOR), STORED.field(DOOR), doors)
    if log.column("position").equals(written):
        return log
    positions = pc.if_else(pc.fill_null(pc.equal(own, written), False), own, log.column("position"))
    return log.set_column(log.schema.get_field_index("position"), STORED.field("position"), positions)


def _name_differences(outcome: Verification, number: int, at: int, log: pa.RecordBatch, table: pa.RecordBatch) -> None:
    """Report the differing cells. Slow: only for batches that differ."""
    for name in STORED.names:
        if log.column(name).equals(table.column(name)):
            continue
        pairs = zip(_cells(log.column(name)), _cells(table.column(name)), strict=True)
        for i, (ours, theirs) in enumerate(pairs):
            if ours != theirs:
                outcome.differ(number, at + i, f"{name} is {_shown(ours)} in the log and {_shown(theirs)} in the table")
                break


def _cells(column: pa.Array) -> list[object]:
    """The values of a column, times as µs: Python's end with the year 9999, and an expiry may be later."""
    found: list[object] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
