"""Reading partitions of a data directory from its files: older records from the topic's table, then the journal, as one
sequence of offsets, limited to visible records. The caller determines the range and the visibility.

Records are never handled one by one; a stream holds a few record batches at a time, however much it reads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from penstock.log import header_scan
from penstock.log.arrow import ROWS, VisibleRows, only_visible, record_batches, visibility_columns
from penstock.log.engine import PartitionId, number_of
from penstock.log.errors import OffsetOutOfRange, TableDamaged
from penstock.log.tables.location import TableRef
from penstock.log.tailer import NotThereYet, Tailer

if TYPE_CHECKING:
    from penstock.log.tables.table import Table

BATCH_BYTES: Final = 4 << 20  # most bytes of a record batch, unless a single record has more
CATCH_UP_SECONDS: Final = 5.0  # seconds that a record may take from its commit until it is in a file
POLL: Final = 0.01
KEPT_TABLES: Final = 64
KEPT_SECONDS: Final = 10.0  # after which a table is reopened: its files may have been rewritten

T = TypeVar("T")


class NotWritten(Exception):
    """Committed records are still in no file after the timeout."""


class Lost(Exception):
    """Requested records no longer exist: `start` is the first offset that does."""

    def __init__(self, offset: int, start: int) -> None:
        super().__init__(f"offset {offset} is gone: the partition begins at offset {start} now")
        self.offset = offset
        self.start = start


class PartitionSource(NamedTuple):
    """A partition to be read."""

    partition: PartitionId
    topic: str
    table: TableRef | None  # the topic's table, if it may have one
    start: int  # bounds of the partition
    end: int


def _nothing() -> None:
    pass


def _ignore(error: TableDamaged) -> None:
    pass


class Reader:
    """Thread-safe."""

    def __init__(
        self,
        tailer: Tailer,
        *,
        catch_up_seconds: float = CATCH_UP_SECONDS,
        on_damage: Callable[[TableDamaged], None] = _ignore,
    ) -> None:
        """`on_damage` is called for damage to a table before the error is raised."""
        self.tailer = tailer
        self._on_damage = on_damage
        self._catch_up_seconds = catch_up_seconds
        self._tables: dict[str, tuple[float, Table | None]] = {}
        self._lock = threading.Lock()

    def read(
        self,
        source: PartitionSource,
        start: int,
        end: int,
        columns: Sequence[str],
        view: VisibleRows,
        check: Callable[[], None] = _nothing,
    ) -> Iterator[pa.RecordBatch]:
        """The visible records from `start` to `end`, which must be committed. `check` is called repeatedly, and may
        raise to stop the read. Raises Lost, NotWritten, LogDamaged, and errors of the table's storage.
        """
        wanted = visibility_columns(columns)
        at, since = start, time.monotonic()
        while at < end:
            before = at
            for batch in self._run(source, at, end, wanted):
                check()
                at = int(batch.column("offset")[-1].as_py()) + 1
                alive = only_visible(batch, columns, view)
                if len(alive):
                    yield from pieces(alive)
                since = time.monotonic()  # time spent by the client is not the broker's delay
            if at == before:
                check()
                if time.monotonic() - since > self._catch_up_seconds:
                    self.tailer.check_end()  # raises if it was lost
                    raise NotWritten(
                        f"offsets {at} to {end} are committed, but not in a file yet: ask again in a moment"
                    )
                time.sleep(POLL)

    def _run(self, source: PartitionSource, at: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Batches from `at` on, as far as one place has them, the table or the journal. Empty if the caller should
        retry.
        """
        partition = source.partition
        known = self.tailer.extent(partition)
        if known is None or not known[0] <= at < known[1]:
            self.tailer.refresh()
            known = self.tailer.extent(partition)
        if known is not None and known[0] <= at < known[1]:
            try:
                slices = self.tailer.slices(partition, at, min(end, known[1]), groups="position" in columns)
            except (OffsetOutOfRange, NotThereYet):
                return iter(())  # segments were removed meanwhile: it is in the table now
            return record_batches(slices, source.topic, columns)
        table, reaches = self._reaching(source, at)
        if table is None or at >= reaches:
            if known is not None and at < known[0]:
                raise Lost(at, known[0])
            return iter(())
        return self._from_table(table, source, at, min(end, reaches), columns)

    def _from_table(
        self, table: Table, source: PartitionSource, at: int, end: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        number = number_of(source.partition)
        with self._telling_damage():
            for batch in table.read(number, at, end, columns):
                if len(batch):
                    first = int(batch.column("offset")[0].as_py())
                    if first > at:
                        raise Lost(at, first)
                    at = int(batch.column("offset")[-1].as_py()) + 1
                    yield batch

    @contextlib.contextmanager
    def _telling_damage(self) -> Iterator[None]:
        try:
            yield
        except TableDamaged as error:
            self._on_damage(error)
            raise

    # -- by time and by size

    def offset_at(self, source: PartitionSource, timestamp: int) -> int | None:
        """The first offset of the partition whose record is not older than `timestamp` (µs)."""
        first = self._journal_start(source)
        if source.start < first:
            table, reaches = self._reaching(source, first - 1)
            with self._telling_damage():
                found = None if table is None else table.offset_at(number_of(source.partition), timestamp, source.start)
            if found is not None and found < min(first, reaches, source.end):
                return found
        at = max(first, source.start)
        return self._retry_until_written(lambda: self.tailer.offset_at(source.partition, timestamp, at, source.end))

    def offset_after(self, source: PartitionSource, start: int, end: int, max_bytes: int) -> int:
        """The offset about `max_bytes` after `start`; greater than `start`, if that is below `end`."""
        start, end = max(start, source.start), min(end, source.end)
        first = self._journal_start(source)
        left, at = max(1, max_bytes), start
        if at < first:
            table, _ = self._reaching(source, first - 1)
            for file in () if table is None else table.extents(number_of(source.partition)):
                begin, stop = max(at, file.first), min(end, file.end, first)
                if begin >= stop:
                    continue
                each = max(1.0, file.bytes / max(1, file.end - file.first))
                fitting = max(1, int(left / each))
                if begin + fitting < stop:
                    return begin + fitting
                left -= int((stop - begin) * each)
                at = stop
                if left <= 0:
                    return at
        if at >= end:
            return max(at, start)
        place = max(at, first)
        return self._retry_until_written(lambda: self.tailer.offset_after(source.partition, place, end, left))

    # -- from metadata, without reading records

    def offset_of(self, source: PartitionSource, position: int) -> int:
        """The partition's end at this global position: the first offset whose record is in a commit group that ends
        after it; the partition's current end if there is none.
        """
        while True:
            first = min(max(self._journal_start(source), source.start), source.end)
            try:
                look = partial(header_scan.offset_of, self.tailer, source.partition, position, first, source.end)
                found = self._retry_until_written(look)
            except OffsetOutOfRange:
                self.tailer.refresh()  # segments were removed meanwhile: their records are in the table now
                continue
            return found if found > first else self._offset_in_table(source, position, first)

    def _offset_in_table(self, source: PartitionSource, position: int, end: int) -> int:
        low, high = source.start, end
        if low >= high:
            return low
        table = self._table_with(source, low, high)
        number = number_of(source.partition)
        with self._telling_damage():
            while high - low > ROWS:
                middle = (low + high) // 2
                if int(_positions(table, number, middle, middle + 1)[0]) < position:
                    low = middle + 1
                else:
                    high = middle
            return low + int(np.searchsorted(_positions(table, number, low, high), position)) if low < high else low

    def may_expire(self, source: PartitionSource, start: int, end: int) -> bool:
        """Whether a record from `start` to `end` has its own expiry. True if in doubt."""
        first = min(max(self._journal_start(source), start), end)
        if start < first:
            files = self._table_with(source, start, first).extents(number_of(source.partition))
            if any(file.may_expire for file in files if file.first < first and file.end > start):
                return True
        try:
            return self._retry_until_written(partial(header_scan.may_expire, self.tailer, source.partition, first, end))
        except OffsetOutOfRange:
            return True

    def _table_with(self, source: PartitionSource, start: int, end: int) -> Table:
        """The topic's table, which must have these offsets. Raises Lost."""
        table, reaches = self._reaching(source, end - 1)
        if table is None or reaches < end:
            raise Lost(start, end)
        return table

    def _journal_start(self, source: PartitionSource) -> int:
        """The first offset in the journal; the partition's end if there is none."""
        known = self.tailer.extent(source.partition)
        if known is None or known[1] < source.end:
            self.tailer.refresh()
            known = self.tailer.extent(source.partition)
        return source.end if known is None else min(known[0], source.end)

    def _retry_until_written(self, look: Callable[[], T]) -> T:
        """Retry until a committed record is in a file, up to a timeout."""
        limit = time.monotonic() + self._catch_up_seconds
        while True:
            try:
                return look()
            except NotThereYet:
                if time.monotonic() > limit:
                    self.tailer.check_end()
                    raise NotWritten("committed records are not in a file yet: ask again in a moment") from None
                time.sleep(POLL)

    # -- tables

    def reaches(self, source: PartitionSource, offset: int) -> bool:
        """Whether the topic's table has everything below `offset`."""
        return self._reaching(source, offset - 1)[1] >= offset

    def _reaching(self, source: PartitionSource, offset: int) -> tuple[Table | None, int]:
        """The topic's table, and its end in the partition; reopened if the cached one does not reach `offset`."""
        if source.table is None:
            return None, 0
        number = number_of(source.partition)
        for fresh in (False, True):
            table = self._table(source.table, fresh=fresh)
            reaches = 0 if table is None else table.ends().get(number, 0)
            if reaches > offset:
                return table, reaches
        return table, reaches

    def _table(self, ref: TableRef, *, fresh: bool) -> Table | None:
        now = time.monotonic()
        with self._lock:
            opened, table = self._tables.get(ref.url, (0.0, None))
            if not fresh and table is not None and now - opened < KEPT_SECONDS:
                return table
        from penstock.log.tables.table import Table  # slow to import, and often not needed

        table = Table.open(ref)
        with self._lock:
            self._tables.pop(ref.url, None)
            while len(self._tables) >= KEPT_TABLES:
                del self._tables[next(iter(self._tables))]
            self._tables[ref.url] = (now, table)
        return table


def _positions(table: Table, partition: int, start: int, end: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.concatenate([batch.column(0).to_numpy() for batch in table.read(partition, start, end, ("position",))])


def pieces(batch: pa.RecordBatch, most: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """The batch in parts of at most `most` bytes, or of one record."""
    if len(batch) > 1 and batch.nbytes > most:
        half = len(batch) // 2
        yield from pieces(batch.slice(0, half), most)
        yield from pieces(batch.slice(half), most)
    else:
        yield batch


def shares(waiting: Mapping[int, int], total: int) -> dict[int, int]:
    """`total` bytes, divided in proportion to the waiting amounts; at least 1 for each that is not zero."""
    whole = sum(waiting.values())
    return {which: max(1, total * count // whole) for which, count in waiting.items() if count > 0}
