"""The interface between the broker and the log, and the values that cross it.

The broker uses an `Engine` and nothing below it. The engine stores *records* by partition and offset, and opaque *state
events* in one total order; it never decodes either. `tests/log/contract.py` defines, as tests, what every engine must
do.

All methods are called on one thread (the event loop's) and do not block on the disk, unless documented otherwise.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NewType, Protocol, TypeAlias

import msgspec

from penstock.log.batch import Headers, RecordSlice
from penstock.log.columns import Columns
from penstock.log.latency import Latency

logger = logging.getLogger(__name__)

PartitionId = NewType("PartitionId", int)
"""A partition of a topic: the topic's numeric id in the upper bits, the partition's number in the lower 32."""


def partition_id(topic: int, partition: int) -> PartitionId:
    return topic << 32 | partition  # type: ignore[return-value] # calling a NewType costs more than the expression


def topic_of(partition: PartitionId) -> int:
    return partition >> 32


def number_of(partition: PartitionId) -> int:
    return partition & 0xFFFFFFFF


class Durability(enum.StrEnum):
    """The meaning of an acknowledgement."""

    SYNCED = "synced"  # on disk
    WRITTEN = "written"  # handed to the operating system; synced within a second
    MEMORY = "memory"  # in this process; written soon after


class Records(msgspec.Struct):
    """Records for one partition: columns of equal length. `None` for a whole column means no record has it."""

    partition: PartitionId
    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers] | None = None
    expires: Sequence[int] | None = None  # µs since 1970; 0 = never
    expected_offset: int | None = None  # append only if this is the partition's next offset


class Prepared(msgspec.Struct):
    """Records for one partition, already in the stored column layout: they become a separate batch, without being
    decoded. The creator of the columns must have enforced the limits of a record."""

    partition: PartitionId
    columns: Columns
    expected_offset: int | None = None  # as in `Records`


Write: TypeAlias = Records | Prepared


class Producer(NamedTuple):
    """Makes an append idempotent: a repeat of (id, epoch, sequence) returns the first result."""

    id: bytes  # 1 to 64 bytes, chosen by the producer
    epoch: int  # permanently fences lower ones
    sequence: int  # one more than in the producer's last append of the same epoch
    owner: bytes = b""  # for fair eviction: of too many producers, those of the owner with the most are forgotten first


class GroupState(enum.Enum):
    OPEN = enum.auto()  # not durable yet
    COMMITTED = enum.auto()
    FAILED = enum.auto()  # nothing of it is readable


# Plain names for the members: looking one up in its enum takes several times as long, and hot paths do so often.
OPEN: Final = GroupState.OPEN
COMMITTED: Final = GroupState.COMMITTED
FAILED: Final = GroupState.FAILED


class CommitGroup:
    """Appends that become durable, readable and acknowledged together, or not at all."""

    __slots__ = ("_callbacks", "error", "position", "state")

    def __init__(self) -> None:
        self.state = OPEN
        self.error: Exception | None = None
        self.position = 0  # the global position after it, set on commit
        self._callbacks: list[Callable[[CommitGroup], None]] = []

    def on_done(self, callback: Callable[[CommitGroup], None]) -> None:
        """Call back when it is committed or failed; immediately if it already is."""
        if self.state is OPEN:
            self._callbacks.append(callback)
        else:
            callback(self)

    def finish(self, error: Exception | None = None) -> None:
        """Used by engines. An error in one callback is logged and affects neither the others nor the committer."""
        self.error = error
        self.state = COMMITTED if error is None else FAILED
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                logger.exception("a callback of a commit group failed")


class Appended(msgspec.Struct):
    """The outcome of an append: valid once `group` is committed, void if that fails."""

    group: CommitGroup
    base_offsets: tuple[int, ...]  # of the first record of each write, in the order given
    timestamp: int  # µs since 1970, of all its records
    repeated: bool = False  # an earlier append had the same producer id, epoch and sequence

    @property
    def position(self) -> int:
        """The global position after it, valid once its group is committed: a reader of the log at this position sees
        these records, and all others of the group, as a group is never partly visible. For a repeated append it is the
        current position, which is after the first one too."""
        return self.group.position


class Bounds(NamedTuple):
    """The bounds of a partition: offsets from `start` up to, not including, `high_watermark`."""

    start: int
    high_watermark: int


class ReadPlan(Protocol):
    """A read with a fixed position in the log. `run` may block on the disk and may be called on any thread."""

    @property
    def ready(self) -> bool:
        """Whether `run` works without the disk."""

    def run(self) -> list[RecordSlice]:
        """The records, in order of offset, without gaps. Raises LogDamaged."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention limits of a partition. `None` = no limit."""

    seconds: float | None = None
    bytes: int | None = None


class Reclaimed(NamedTuple):
    """Counters of files and bytes removed by retention since the log was opened."""

    files: int
    bytes: int


class TieredReader(Protocol):
    """Reads records that are no longer in a segment, but in tables. Blocks; any thread.

    Any failure (an object store that does not respond, a missing file) is raised as a LogError that describes it. It
    never skips records."""

    def read(
        self, partition: PartitionId, offset: int, end: int, max_bytes: int, max_records: int
    ) -> list[RecordSlice]:
        """Records from `offset` on, below `end`, in order and without gaps: at least one, otherwise up to both
        limits."""

    def offset_at(self, partition: PartitionId, timestamp: int, start: int) -> int | None:
        """The first offset from `start` on whose record is not older than `timestamp` (µs); None if no table has it."""

    def close(self) -> None: ...


class ClosedSpan(NamedTuple):
    """The records of one partition in a closed segment that are in no table yet, and not removed by retention."""

    first: int
    end: int
    bytes: int  # all bytes of the partition in the file


class ClosedFile(NamedTuple):
    """A closed segment, with the records that are in no table yet."""

    sequence: int
    spans: dict[PartitionId, ClosedSpan]


@dataclass(frozen=True, slots=True)
class Health:
    writable: bool
    reason: str = ""


@dataclass(slots=True)
class Recovered:
    """The result of recovery: the newest snapshot of the broker's state, and the events after it."""

    snapshot: bytes | None
    events: Iterator[bytes]
    notes: list[str] = field(default_factory=list)  # actions of recovery, for the operator


class Engine(Protocol):
    """A durable log of many partitions. The constructor opens it, and raises LogError if that fails."""

    # -- writing

    def append(
        self, writes: Sequence[Write], events: Sequence[bytes] = (), producer: Producer | None = None, door: int = 0
    ) -> Appended:
        """Append records and state events as one atomic entry. After a LogError nothing was appended. `door` is a
        number below 256 that is stored in the header of every batch; its meaning is up to the caller."""

    def append_record(self, partition: PartitionId, value: bytes, door: int = 0) -> Appended:
        """`append` of one record without key, headers and expiry: the fast path for clients that send one record at a
        time."""

    def repeat_of(self, producer: Producer) -> Appended | None:
        """The outcome of the append that this one repeats; None if it is the next one of its producer."""

    def append_event(self, event: bytes) -> CommitGroup:
        """`append` for a single event: a fast path, used for every delivery of a queue."""

    def trim(self, starts: Mapping[PartitionId, int], *, drop: bool = False) -> CommitGroup:
        """Advance log start offsets (they never move back); records below are unreadable once it is committed. With
        `drop`, the partitions will never be used again. It is in the same group as the appends just before."""

    def advance_table_ends(self, ends: Mapping[PartitionId, int]) -> CommitGroup:
        """Record that tables durably have all retained records of these partitions below these offsets. After the
        commit, segments that hold nothing else may be removed. Ends never move back. It is in the same group as the
        appends just before."""

    @property
    def entry_bytes(self) -> int:
        """The maximum size of one append."""

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not committed yet; for back-pressure."""

    # -- reading

    def bounds(self, partition: PartitionId) -> Bounds:
        """The bounds of a partition. An unknown one is empty: (0, 0)."""

    def next_offset(self, partition: PartitionId) -> int:
        """The offset of the next append; above the high watermark while there are uncommitted appends."""

    def read(self, partition: PartitionId, offset: int, max_bytes: int, max_records: int) -> ReadPlan:
        """Plan a read from `offset` on: at least one record if there is one, otherwise up to both limits (`max_bytes`
        counts keys and values), and nothing at or above the high watermark. Raises OffsetOutOfRange below the start."""

    def offset_at(self, partition: PartitionId, timestamp: int) -> int | None:
        """The first offset whose record is not older than `timestamp` (µs). Blocks on the disk; any thread."""

    def read_tiered_from(self, tiered: TieredReader) -> None:
        """Set the reader for records that are only in tables. The engine closes it on `close`."""

    def watch(self, partition: PartitionId, callback: Callable[[], None]) -> None:
        """Call back after every commit that appends to the partition, until `unwatch`."""

    def unwatch(self, partition: PartitionId, callback: Callable[[], None]) -> None: ...

    @property
    def position(self) -> int:
        """The global position: the number of records and events ever committed."""

    def segment_count(self, partition: PartitionId) -> int:
        """The number of segments with records of the partition; records that are only in a table count as one."""

    # -- tables

    def closed_files(self) -> list[ClosedFile]:
        """Closed segments, oldest first, with records that are in no table yet."""

    def table_end(self, partition: PartitionId) -> int:
        """The offset, exclusive, up to which tables have the partition."""

    def stored_bytes(self, partition: PartitionId, offset: int) -> int:
        """The bytes of the partition in segments, from about `offset` on."""

    def usage(self) -> dict[int, int]:
        """The bytes of each topic in segments, by the topic's id: without records below the log start and those that
        tables have, which exist only until their file is removed."""

    # -- state

    def recover(self) -> Recovered:
        """The committed state: at start, and again after a failed group with events."""

    def on_late_commit(self, callback: Callable[[], None]) -> None:
        """Call back after groups were committed that had been reported as failed: the state must be recovered again.
        Only a log whose journal is on Kafka has such groups."""

    def snapshot_from(self, source: Callable[[], bytes]) -> None:
        """Set the source of the broker's state. The engine calls `source` from time to time, when the state reflects
        exactly the events appended so far, so that a start does not replay them."""

    # -- maintenance

    @property
    def owner_term(self) -> tuple[str, int] | None:
        """The id of the journal that this broker owns, and the term, if there can be other owners; see
        `TableWriter`."""

    def maintain(self, now: int, retention: Callable[[PartitionId], Retention]) -> None:
        """Apply retention, close old files, sync at level `written`. Called about once a second."""

    def sync(self) -> bool:
        """Sync. Whether everything committed so far survives a loss of power, at any durability level. Blocks on the
        disk; any thread. For callers with side effects outside of the log."""

    @property
    def reclaimed(self) -> Reclaimed: ...

    @property
    def commit_latency(self) -> Latency:
        """Durations of writing a group, including the sync if replies wait for it."""

    @property
    def write_failures(self) -> int:
        """Number of failed groups and syncs since the log was opened."""

    def health(self) -> Health: ...

    def close(self) -> None:
        """Commit all appends, then release all resources. Blocks."""
