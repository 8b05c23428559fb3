"""Streams for SQL statements: a topic's read view, and its records from the files.

See `penstock.sql.catalog.Stream`. Records of segments and tables form one sequence, with visible records only, and
never more than a few batches in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from penstock.broker.errors import QueryError
from penstock.broker.queries.declarations import Declarations
from penstock.flight.reading import Lost, NotWritten, PartitionSource, Reader
from penstock.log.arrow import VisibleRows
from penstock.log.errors import LogError
from penstock.sql.catalog import PartitionRange
from penstock.workers.flight.rpc_messages import ReadViewMessage
from penstock.workers.read_view_source import source_of, view_of

MAX_REMEMBERED: Final = 4_096  # partitions for which the result is remembered
SCAN_RECORDS: Final = 200_000  # records scanned before the result is remembered

T = TypeVar("T")


class ExpiryScan:
    """Remembers, per partition, up to which offset no record has an expiry time, so that only new records must be
    scanned. Thread-safe."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._known: dict[int, tuple[int, int]] = {}  # partition → (from, to): scanned, and without expiring records
        self._lock = threading.Lock()

    def holds(self, source: PartitionSource, check: Callable[[], None]) -> bool:
        """True if no record of the partition expires. `check` may raise: results found by then are kept."""
        with self._lock:
            start, end = self._known.get(source.partition, (source.start, source.start))
        if source.start < start or end < source.start:
            start = end = source.start
        while end < source.end:
            check()
            at, end = end, min(end + SCAN_RECORDS, source.end)
            if self._reader.may_expire(source, at, end):
                return False
            self._keep(source.partition, start, end)
        return True

    def _keep(self, partition: int, start: int, end: int) -> None:
        with self._lock:
            self._known.pop(partition, None)
            while len(self._known) >= MAX_REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[partition] = (start, end)


class ReadContext(NamedTuple):
    """The tools with which one statement reads records."""

    reader: Reader
    expiry_scan: ExpiryScan
    check: Callable[[], None]  # called regularly, and may raise to stop the statement
    on_failure: Callable[[Exception], Exception]  # receives an error, and returns the one to raise


class TopicStream:
    """A `Stream`: a topic as in its read view."""

    def __init__(
        self, read_view: ReadViewMessage, declarations: Declarations, created: int, head: int, reading: ReadContext
    ) -> None:
        """`head` is the position of the read view."""
        self.name = read_view.name
        self.identity = str(read_view.topic)  # never reused
        self.created = created
        self.declarations = declarations
        self.partitions = [PartitionRange(part.number, part.start, part.end) for part in read_view.partitions]
        self._read_view = read_view
        self._head = head
        self._reader, self._expiry_scan, self._check, self._on_failure = reading
        self._sources = [source_of(read_view, which) for which in range(len(read_view.partitions))]
        self._ends: dict[int, list[int]] = {}  # position → the end of each partition at that time

    def as_of(self, head: int) -> TopicStream:
        """Restrict the stream to a position of the log, which may be before the read view. Returns the stream
        itself."""
        if head < self._head:
            ends = self.ends(head)
            self._sources = [source._replace(end=end) for source, end in zip(self._sources, ends, strict=True)]
            self.partitions = [span._replace(end=end) for span, end in zip(self.partitions, ends, strict=True)]
            self._head = head
            self.declarations = self.declarations.before(head)
        return self

    @property
    def dense(self) -> bool:
        if self._read_view.horizon:
            return False
        for part, source in zip(self._read_view.partitions, self._sources, strict=True):
            if part.deleted_below > source.start or any(source.start <= offset < source.end for offset in part.deleted):
                return False
            if source.start < source.end and not self._read(partial(self._expiry_scan.holds, source, self._check)):
                return False
        return True

    def first_position(self) -> int:
        """The position of the first record; for an empty partition, where it is no longer known, the log's head."""
        found = 0
        for source in self._sources:
            if source.start:
                found = max(found, self._read(partial(self._position_of_first, source)))
        return found

    def _position_of_first(self, source: PartitionSource) -> int:
        if source.start == source.end:
            return self._head
        everything = VisibleRows(0)
        (batch,) = self._reader.read(source, source.start, source.start + 1, ("position",), everything, self._check)
        return int(batch.column(0)[0].as_py())

    def ends(self, position: int | None) -> list[int]:
        """The end of each partition at a position."""
        if position is None or position >= self._head:
            return [source.end for source in self._sources]
        known = self._ends.get(position)
        if known is None:
            find = self._reader.offset_of
            known = self._read(lambda: [find(source, position) for source in self._sources])
            self._ends[position] = known
        return known

    def batches(
        self, columns: Sequence[str], position: int | None, start: Mapping[int, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        try:
            for which, end in enumerate(self.ends(position)):
                source, view = self._sources[which], view_of(self._read_view, which)
                begin = max(source.start, (start or {}).get(self.partitions[which].partition, 0))
                if begin < end:
                    yield from self._reader.read(source, begin, end, columns, view, self._check)
        except Exception as error:
            raise self._on_failure(error) from error

    def _read(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except Exception as error:
            raise self._on_failure(error) from error


def statement_error(error: Exception) -> Exception:
    """An error of reading records, in terms that the statement's author understands."""
    if isinstance(error, Lost):
        return QueryError(f"Records were removed by retention while they were read ({error}): run the statement again")
    if isinstance(error, NotWritten):
        return QueryError(f"Not everything that is committed can be read yet: {error}")
    if isinstance(error, OSError):
        return LogError(f"the log cannot be read: {error.strerror or error}")
    return error
