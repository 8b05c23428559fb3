"""The interface of both ends of a mirror: a source and a destination, for any protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, NamedTuple

from penstock.mirror.records import Chunk, MirrorRecord

Part = Literal["keys", "headers", "partitions", "times"]
PARTS: Final[tuple[Part, ...]] = ("keys", "headers", "partitions", "times")

MAX_RECORDS: Final = 500  # per batch
MAX_BYTES: Final = 512 << 10


class Source(ABC):
    """A broker that is read from."""

    carries: ClassVar[frozenset[Part]] = frozenset()
    replayable: ClassVar[bool] = True
    """Whether a position can be read again."""
    knows_end: ClassVar[bool] = True
    """Whether `end` is known; otherwise the copy ends when nothing arrives for a while."""

    @abstractmethod
    def topics(self) -> list[str] | None:
        """All topics; None if the protocol cannot list them."""

    @abstractmethod
    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic. Raises MirrorError if there is no such topic."""

    @abstractmethod
    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first available offset and the end offset of a partition; (0, 0) if the protocol does not report them."""

    @abstractmethod
    def read(self, topic: str, partition: int, offset: int, limit: int, wait: float) -> Chunk:
        """Some records from an offset on; none if none arrive within `wait` seconds."""

    def offset_at(self, topic: str, partition: int, moment: int) -> int | None:  # noqa: ARG002
        """The first offset at or after this time (µs); None if the protocol has no such request, and records must be
        searched."""
        return None

    def settle(self) -> None:  # noqa: B027 - most need nothing
        """Confirm that everything read so far is stored at the destination."""

    @abstractmethod
    def close(self) -> None: ...


class MirrorBatch(NamedTuple):
    """Records for one partition of a destination, with a number for destinations that deduplicate."""

    topic: str
    partition: int
    records: Sequence[MirrorRecord]
    producer: str
    epoch: int
    number: int
    end: int  # end of the partition when the intent was stored


class Destination(ABC):
    """A broker that is written to."""

    carries: ClassVar[frozenset[Part]] = frozenset()
    readable: ClassVar[bool] = True
    """Whether written records can be read back; otherwise progress is stored in a file, and a batch may be written
    twice."""
    numbered: ClassVar[bool] = False
    """Whether a numbered batch is stored only once, however often it is written."""
    transactional: ClassVar[bool] = False
    """Whether a batch and the mirror's progress are stored in one transaction, by `write_with_progress`."""

    def fence(self, target: str, producer: str) -> None:  # noqa: B027 - for destinations with transactions
        """End the transactions of earlier runs of this producer, before progress is read."""

    @abstractmethod
    def create(self, topic: str, partitions: int) -> int:
        """Create a topic unless it exists. Returns the number of its partitions."""

    def create_progress(self, topic: str) -> None:
        """Create a topic for progress unless it exists: with one partition, whose last record must not expire."""
        self.create(topic, 1)

    @abstractmethod
    def write(self, batch: MirrorBatch) -> None:
        """Store a batch, and wait until all of it is stored. Raises a PenstockError if it is not, or if the outcome is
        unknown."""

    def write_with_progress(self, batch: MirrorBatch, topic: str, progress: bytes) -> None:
        """Store a batch, and its progress in a separate topic, atomically. Raises like `write`."""
        raise NotImplementedError

    def end(self, topic: str, partition: int) -> int:  # noqa: ARG002 - for destinations that are not readable
        """The end offset of a partition."""
        return 0

    def tail(self, topic: str, partition: int, offset: int) -> list[tuple[bytes | None, bytes]]:  # noqa: ARG002
        """Keys and values from an offset to the end, at most as many as in a batch."""
        return []

    def last(self, topic: str, partition: int) -> bytes | None:
        """The value of the last record of a partition."""
        found = self.tail(topic, partition, max(0, self.end(topic, partition) - 1))
        return found[-1][1] if found else None

    def append(self, topic: str, partition: int, value: bytes) -> None:
        """Store one record; a retry may store it twice."""
        self.write(MirrorBatch(topic, partition, [MirrorRecord(0, value)], "", 0, 0, self.end(topic, partition)))

    @abstractmethod
    def close(self) -> None: ...


class MirrorEnds(NamedTuple):
    """Both ends."""

    source: Source
    destination: Destination

    @property
    def exactly_once(self) -> bool:
        return self.source.replayable and self.destination.readable

    def lost(self) -> list[Part]:
        """The parts of the source's records that the destination cannot store, except for times (see `keeps_times`)."""
        left_out = self.source.carries - self.destination.carries - {"times"}
        return [part for part in PARTS if part in left_out]

    @property
    def keeps_times(self) -> bool:
        return "times" in self.source.carries & self.destination.carries
