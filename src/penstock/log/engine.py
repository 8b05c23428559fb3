"""The interface between the broker and the log, and the values that cross it.

the broker knows an `Engine` and nothing below it. The engine keeps *records* by partition and offset, and opaque *state
events* in one total order; it never looks inside either. `tests/log/contract.py` says, as tests, what every
engine must do.

All methods are called on one thread (the event loop's) unless they say otherwise, and none of them blocks on a
disk unless it says so.
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
    return topic << 32 | partition  # type: ignore[return-value] # calling a NewType costs more than all the rest


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
    """Records for one partition that already lie by column as they will be stored: a batch of their own, appended
    without a look at any of them. Whoever made the columns has kept to the limits of a record."""

    partition: PartitionId
    columns: Columns
    expected_offset: int | None = None  # as in `Records`


Write: TypeAlias = Records | Prepared


class Producer(NamedTuple):
    """Makes an append idempotent: a repeat of (id, epoch, sequence) returns the first result."""

    id: bytes  # 1 to 64 bytes, chosen by the producer
    epoch: int  # a higher epoch replaces a lower one for good
    sequence: int  # one more than that of the producer's last append in the same epoch
    owner: bytes = b""  # whose it is: the log knows only so many producers, and who has most forgets its own first


class GroupState(enum.Enum):
    OPEN = enum.auto()  # not durable yet
    COMMITTED = enum.auto()
    FAILED = enum.auto()  # nothing of it is in the log


# The same as plain names: to look a member up in its enum takes several times as long, and hot paths ask often.
OPEN: Final = GroupState.OPEN
COMMITTED: Final = GroupState.COMMITTED
FAILED: Final = GroupState.FAILED


class CommitGroup:
    """Appends that become durable, readable and acknowledged together, or not at all."""

    __slots__ = ("_callbacks", "error", "position", "state")

    def __init__(self) -> None:
        self.state = OPEN
        self.error: Exception | None = None
        self.position = 0  # the global position behind it, once it is committed
        self._callbacks: list[Callable[[CommitGroup], None]] = []

    def on_done(self, callback: Callable[[CommitGroup], None]) -> None:
        """Call back once it is committed or failed; at once if it already is."""
        if self.state is OPEN:
            self._callbacks.append(callback)
        else:
            callback(self)

    def finish(self, error: Exception | None = None) -> None:
        """For engines. An error in one callback is logged and stops neither the others nor the committer."""
        self.error = error
        self.state = COMMITTED if error is None else FAILED
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                logger.exception("a callback of a commit group failed")


class Appended(msgspec.Struct):
    """The outcome of an append: true once `group` is committed, void if it fails."""

    group: CommitGroup
    base_offsets: tuple[int, ...]  # of the first record of each write, in the order given
    timestamp: int  # µs since 1970, of all its records
    repeated: bool = False  # an earlier append with the same producer id, epoch and sequence is the one that counts

    @property
    def position(self) -> int:
        """The global position behind it, once its group is committed: whoever looks at the log as it was at this
        position sees these records, and all others of the group, for there is no moment at which only some of them
        were there. Behind a repeated append it is where the log is now, which is behind the first one too."""
        return self.group.position


class Bounds(NamedTuple):
    """The bounds of a partition: offsets from `start` up to, not including, `high_watermark`."""

    start: int
    high_watermark: int


class ReadPlan(Protocol):
    """A read whose place in the log is fixed. `run` may block on the disk and may be called on any thread."""

    @property
    def ready(self) -> bool:
        """True if `run` will not touch the disk."""

    def run(self) -> list[RecordSlice]:
        """The records, in order of offset, without gaps. Raises LogDamaged."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention limits of a partition. `None` = no limit."""

    seconds: float | None = None
    bytes: int | None = None


class Reclaimed(NamedTuple):
    """Counters of what retention removed since the log was opened."""

    files: int
    bytes: int


class TieredReader(Protocol):
    """Records that are in no segment any more, because tables have them. Blocks; any thread.

    Whatever keeps it from reading (an object store that does not answer, a file that is gone) it raises as a LogError
    that says so. It never leaves anything out."""

    def read(
        self, partition: PartitionId, offset: int, end: int, max_bytes: int, max_records: int
    ) -> list[RecordSlice]:
        """Records from `offset` on, below `end`, in order and without gaps: at least one, else up to both limits."""

    def offset_at(self, partition: PartitionId, timestamp: int, start: int) -> int | None:
        """The first offset from `start` on whose record is not older than `timestamp` (µs); None if no table has it."""

    def close(self) -> None: ...


class ClosedSpan(NamedTuple):
    """The records of one partition in a closed segment that are in no table yet, and still wanted."""

    first: int
    end: int
    bytes: int  # of the file's whole share of the partition


class ClosedFile(NamedTuple):
    """A segment that is complete, and what of it is in no table yet."""

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
    notes: list[str] = field(default_factory=list)  # what recovery did, for the operator


class Engine(Protocol):
    """A durable log of many partitions. Opened when constructed; the constructor raises LogError if it cannot be."""

    # -- writing

    def append(
        self, writes: Sequence[Write], events: Sequence[bytes] = (), producer: Producer | None = None, door: int = 0
    ) -> Appended:
        """Append records and state events as one atomic entry. Raises LogError, and then appends nothing. `door` is a
        number below 256 that is kept in the header of every batch; what it means is the caller's business."""

    def repeat_of(self, producer: Producer) -> Appended | None:
        """The outcome of the append that this one would repeat; None if it is the next of its producer."""

    def append_event(self, event: bytes) -> CommitGroup:
        """`append` of one event and nothing else, the short way: this is what happens with every delivery of a
        queue."""

    def trim(self, starts: Mapping[PartitionId, int], *, drop: bool = False) -> CommitGroup:
        """Move log start offsets up (never down); records below are gone for readers once it is committed. With
        `drop`, the partitions will never be used again. In one group with what was appended just before."""

    def advance_table_ends(self, ends: Mapping[PartitionId, int]) -> CommitGroup:
        """Tables have, for good, all records of these partitions below these offsets that are still wanted. Once that
        is committed, segments that hold nothing else may go. Ends never move down. In one group with what was
        appended just before."""

    @property
    def entry_bytes(self) -> int:
        """The most that one append may take."""

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not committed yet; for back-pressure."""

    # -- reading

    def bounds(self, partition: PartitionId) -> Bounds:
        """Unknown partitions are empty: (0, 0)."""

    def next_offset(self, partition: PartitionId) -> int:
        """The offset that the next append gets; ahead of the high watermark while appends are uncommitted."""

    def read(self, partition: PartitionId, offset: int, max_bytes: int, max_records: int) -> ReadPlan:
        """Plan to read from `offset`. At least one record if there is one, else up to both limits (`max_bytes`
        counts keys and values). Nothing at or above the high watermark. Raises OffsetOutOfRange below the start."""

    def offset_at(self, partition: PartitionId, timestamp: int) -> int | None:
        """The first offset whose record is not older than `timestamp` (µs). Blocks on the disk; any thread."""

    def read_tiered_from(self, tiered: TieredReader) -> None:
        """Set the reader of records that are in tables only. The engine closes it when it is closed."""

    def watch(self, partition: PartitionId, callback: Callable[[], None]) -> None:
        """Call back after every commit that adds to the partition, until `unwatch`."""

    def unwatch(self, partition: PartitionId, callback: Callable[[], None]) -> None: ...

    @property
    def position(self) -> int:
        """The global position: how many records and events were ever committed."""

    def segment_count(self, partition: PartitionId) -> int:
        """The number of segments with records of the partition; records in a table only count as one."""

    # -- tables

    def closed_files(self) -> list[ClosedFile]:
        """Complete segments, oldest first, that hold what no table has yet."""

    def table_end(self, partition: PartitionId) -> int:
        """Up to which offset, exclusive, tables have the partition."""

    def stored_bytes(self, partition: PartitionId, offset: int) -> int:
        """The bytes that the partition takes in segments from about `offset` on."""

    def usage(self) -> dict[int, int]:
        """The bytes that each topic takes in segments, by the topic's id: without records below the log start and
        those that tables have, which are only there until their file goes."""

    # -- state

    def recover(self) -> Recovered:
        """The committed state: at start, and again after a failed group that held events."""

    def on_late_commit(self, callback: Callable[[], None]) -> None:
        """Call back after groups were committed that had been given up as failed: the state is to be recovered again.
        Only a log that others keep too has such groups."""

    def snapshot_from(self, source: Callable[[], bytes]) -> None:
        """Set the source of the broker's state. The engine calls `source` now and then, at a moment when the state
        holds exactly the events appended so far, so that start-up need not replay them."""

    # -- maintenance

    @property
    def owner_term(self) -> tuple[str, int] | None:
        """The journal that this broker owns, and in which term, if there may be other owners; see `TableWriter`."""

    def maintain(self, now: int, retention: Callable[[PartitionId], Retention]) -> None:
        """Retention, closing of old files, syncing at level `written`. Called about once a second."""

    def sync(self) -> bool:
        """Whether all that is committed by now survives a loss of power, at any level. Blocks on the disk; any
        thread. For those who act on it where the log cannot take it back."""

    @property
    def reclaimed(self) -> Reclaimed: ...

    @property
    def commit_latency(self) -> Latency:
        """Durations of writing a group, with its sync where it is synced before anybody is answered."""

    @property
    def write_failures(self) -> int:
        """Groups and syncs that failed since the log was opened."""

    def health(self) -> Health: ...

    def close(self) -> None:
        """Commit what was appended, then release everything. Blocks."""
