"""The group that collects appends and then is written to disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from penstock.equal_values import EqualValues
from penstock.log.batch import RECORD_BYTES, Batch
from penstock.log.columns import Columns
from penstock.log.engine import CommitGroup, PartitionId, Prepared, Records, Write
from penstock.log.errors import OffsetMismatch
from penstock.log.open_batch import OpenBatch, build_equal
from penstock.log.plain_batch import PlainBatch
from penstock.log.segment import Segment
from penstock.log.single_batch import SingleBatch

BATCH_BYTES: Final = 1 << 20  # a batch of this size accepts no more appends
ALONE_BYTES: Final = 16 << 10  # values of one length with this many bytes become a batch of their own


class PreparedBatch:
    """Columns with their offsets in a partition. It accepts no more appends."""

    __slots__ = ("_base_offset", "_columns", "_door", "_partition", "_timestamp", "count")

    def __init__(self, partition: int, columns: Columns, base_offset: int, timestamp: int, door: int) -> None:
        self.count = columns.count
        self._partition = partition
        self._columns = columns
        self._base_offset = base_offset
        self._timestamp = timestamp
        self._door = door

    def build(self, position: int) -> bytes:
        """The finished batch; `position` is the global position of its first record."""
        stamp = self._timestamp
        stamps = stamp.to_bytes(8, "little", signed=True) * self.count
        return self._columns.build(self._partition, self._base_offset, position, stamps, stamp, stamp, self._door)


class EqualBatch:
    """Values of one length with their offsets in a partition, built without looking at any. It accepts no more
    appends."""

    __slots__ = ("_base_offset", "_door", "_partition", "_timestamp", "_values", "count")

    def __init__(self, partition: int, values: EqualValues, base_offset: int, timestamp: int, door: int) -> None:
        self.count = len(values)
        self._partition = partition
        self._values = values
        self._base_offset = base_offset
        self._timestamp = timestamp
        self._door = door

    def build(self, position: int) -> bytes:
        """The finished batch; `position` is the global position of its first record."""
        return build_equal(self._partition, self._base_offset, position, self._values, self._timestamp, self._door)


GroupBatch: TypeAlias = SingleBatch | PlainBatch | OpenBatch | PreparedBatch | EqualBatch


class PendingGroup:
    """A commit group: open, it collects appends; sealed, it is written. Events precede records.

    One class serves both purposes, because a group of one small append is the log's most frequent operation."""

    __slots__ = (
        "_full",
        "_last",
        "advance",
        "appends",
        "batches",
        "byte_size",
        "drops",
        "events",
        "file",
        "file_offset",
        "must_sync",
        "number",
        "outcome",
        "position",
        "published",
        "roll",
        "snapshot",
        "timestamp",
        "trims",
        "write_ns",
    )

    file: Segment  # in which it was written
    file_offset: int  # its position in the file
    write_ns: int  # duration of the write
    number: int
    position: int  # before the group
    advance: int  # number of positions in it
    timestamp: int
    must_sync: bool
    roll: bool  # start a new segment with it
    batches: list[Batch]

    def __init__(self) -> None:
        self.outcome = CommitGroup()
        self._last: dict[int, GroupBatch] = {}  # of each partition; it may accept appends
        self._full: list[GroupBatch] = []  # those before it
        self.events: list[bytes] = []  # encoded entries
        self.trims: dict[PartitionId, int] = {}
        self.drops: set[int] = set()
        self.byte_size = 0
        self.appends = 0

    def add(self, records: Records, offset: int, timestamp: int, door: int) -> None:
        values = records.values
        plain = records.keys is None and records.headers is None and records.expires is None
        if plain and isinstance(values, EqualValues) and values.size >= ALONE_BYTES:
            self._put(records.partition, EqualBatch(records.partition, values, offset, timestamp, door))
            return
        if plain and len(values) == 1:
            self.add_record(records.partition, values[0], offset, timestamp, door)
            return
        batch = self._batch_for(records.partition, offset, door)
        batch.extend(records.values, records.keys, records.headers, records.expires, timestamp)

    def add_record(self, partition: int, value: bytes, offset: int, timestamp: int, door: int) -> None:
        """`add` of one record without key, headers and expiry."""
        last = self._last.get(partition)
        if last is None:
            self._last[partition] = SingleBatch(partition, offset, value, timestamp, door)
        elif isinstance(last, PlainBatch) and last.appended_bytes < BATCH_BYTES and last.door == door:
            last.append(value, timestamp)  # most records of clients that share a topic
        elif isinstance(last, SingleBatch) and last.value_bytes < BATCH_BYTES - RECORD_BYTES and last.door == door:
            batch = self._last[partition] = last.reopened()
            batch.append(value, timestamp)
        elif isinstance(last, OpenBatch) and last.byte_size < BATCH_BYTES and last.door == door:
            last.append(value, timestamp)
        else:
            self._put(partition, SingleBatch(partition, offset, value, timestamp, door))

    def _batch_for(self, partition: int, offset: int, door: int) -> OpenBatch:
        """The partition's open batch, or a new one from this offset on if it is full or of another door."""
        last = self._last.get(partition)
        if isinstance(last, OpenBatch) and last.byte_size < BATCH_BYTES and last.door == door:
            return last
        if isinstance(last, SingleBatch) and last.value_bytes < BATCH_BYTES - RECORD_BYTES and last.door == door:
            last = last.reopened()
        if isinstance(last, PlainBatch) and last.appended_bytes < BATCH_BYTES and last.door == door:
            batch = self._last[partition] = last.reopened()
            return batch
        batch = OpenBatch(partition, offset, door)
        self._put(partition, batch)
        return batch

    def add_prepared(self, prepared: Prepared, offset: int, timestamp: int, door: int) -> None:
        partition = prepared.partition
        self._put(partition, PreparedBatch(partition, prepared.columns, offset, timestamp, door))

    def _put(self, partition: int, batch: GroupBatch) -> None:
        """Begin another batch of the partition."""
        last = self._last.get(partition)
        if last is not None:
            self._full.append(last)
        self._last[partition] = batch

    def seal(self, number: int, position: int, timestamp: int, *, must_sync: bool, roll: bool) -> None:
        """Finish the batches. The group accepts no more appends."""
        self.number = number
        self.position = position
        self.timestamp = timestamp
        self.must_sync = must_sync
        self.roll = roll
        self.snapshot: bytes | None = None  # to be stored after the write
        self.published = False
        end = position + len(self.events)
        self.batches = []
        for batch in (*self._full, *self._last.values()) if self._full else self._last.values():
            if isinstance(batch, (SingleBatch, PlainBatch)):
                batch.finish(end)
                self.batches.append(batch)
                end += batch.count
            else:
                sealed = Batch(batch.build(end))
                self.batches.append(sealed)
                end += sealed.count
        self.advance = end - position


def size_of(writes: Sequence[Write], events: Sequence[bytes]) -> int:
    """The approximate size of an append in the journal."""
    size = sum(map(len, events)) + 64 * len(events) if events else 0
    for records in writes:
        if isinstance(records, Prepared):
            size += records.columns.byte_size
            continue
        values = records.values
        size += values.size if isinstance(values, EqualValues) else sum(map(len, values))
        size += RECORD_BYTES * len(values)
        if records.keys is not None:
            size += sum([len(key) for key in records.keys if key is not None])
        if records.headers is not None:
            size += sum([4 * len(name) + len(value) + 8 for pairs in records.headers for name, value in pairs])
    return size


def check_writes(writes: Sequence[Write], next_offset: Callable[[PartitionId], int]) -> None:
    """Check expected offsets, and that columns have equal length. Raises OffsetMismatch or ValueError."""
    if len(writes) == 1 and (only := writes[0]).expected_offset is None:  # the usual case
        if isinstance(only, Prepared) or only.keys is not None or only.headers is not None or only.expires is not None:
            _check_columns(only)
        return
    expected: dict[int, int] = {}
    for records in writes:
        partition = records.partition
        actual = expected[partition] if partition in expected else next_offset(partition)
        if records.expected_offset is not None and records.expected_offset != actual:
            raise OffsetMismatch(records.expected_offset, actual)
        expected[partition] = actual + _check_columns(records)


def _check_columns(records: Write) -> int:
    """The number of records. Raises ValueError for columns of different lengths."""
    if isinstance(records, Prepared):
        return records.columns.count
    count = len(records.values)
    if records.keys is None and records.headers is None and records.expires is None:
        return count
    for column in (records.keys, records.headers, records.expires):
        if column is not None and len(column) != count:
            raise ValueError("columns of different lengths")
    return count
