"""The two ends of a mirror: what a source and a destination can do, whatever protocol they speak."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, NamedTuple

from penstock.mirror.records import Chunk, MirrorRecord

Part = Literal["keys", "headers", "partitions", "times"]
PARTS: Final[tuple[Part, ...]] = ("keys", "headers", "partitions", "times")

MAX_RECORDS: Final = 500  # in a batch
MAX_BYTES: Final = 512 << 10


class Source(ABC):
    """A broker that is read."""

    carries: ClassVar[frozenset[Part]] = frozenset()
    replayable: ClassVar[bool] = True
    """Whether a position can be read again."""
    tells_end: ClassVar[bool] = True
    """Whether `end` is known; else it is over when nothing comes for a while."""

    @abstractmethod
    def topics(self) -> list[str] | None:
        """All topics; None if the protocol cannot list them."""

    @abstractmethod
    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic. Raises MirrorError if there is no such topic."""

    @abstractmethod
    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that is there, and the one behind the last; 0 and 0 where they are not told."""

    @abstractmethod
    def read(self, topic: str, partition: int, offset: int, limit: int, wait: float) -> Chunk:
        """Records from an offset on, few or many; none if none come in `wait` seconds."""

    def offset_at(self, topic: str, partition: int, moment: int) -> int | None:  # noqa: ARG002
        """The first offset with this time (µs) or a later one; None if the protocol cannot tell, and times of records
        have to be looked at."""
        return None

    def settle(self) -> None:  # noqa: B027 - most have nothing to do
        """Note that what was read so far is stored at the destination."""

    @abstractmethod
    def close(self) -> None: ...


class Batch(NamedTuple):
    """Records for one partition of a destination, and their number, for those who take one only once."""

    topic: str
    partition: int
    records: Sequence[MirrorRecord]
    producer: str
    epoch: int
    number: int
    end: int  # where the partition ended when the intent was stored


class Destination(ABC):
    """A broker that is written to."""

    carries: ClassVar[frozenset[Part]] = frozenset()
    readable: ClassVar[bool] = True
    """Whether what was written can be read back; else progress is in a file, and a batch may come twice."""
    numbered: ClassVar[bool] = False
    """Whether a batch with a number counts once, however often it is written."""
    transactional: ClassVar[bool] = False
    """Whether a batch and the progress of the mirror are stored in one transaction, by `write_with_progress`."""

    def fence(self, target: str, producer: str) -> None:  # noqa: B027 - for those with transactions
        """End the transactions of earlier runs of this producer, before progress is read."""

    @abstractmethod
    def create(self, topic: str, partitions: int) -> int:
        """Make a topic unless there is one. The number of its partitions."""

    def create_progress(self, topic: str) -> None:
        """Make a topic for progress unless there is one: of one partition, whose last record must not expire."""
        self.create(topic, 1)

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Returns when all of it is stored. Raises a PenstockError if it is not, or if that is not known."""

    def write_with_progress(self, batch: Batch, topic: str, progress: bytes) -> None:
        """Store a batch, and its progress in a topic of its own: both or neither. Raises like `write`."""
        raise NotImplementedError

    def end(self, topic: str, partition: int) -> int:  # noqa: ARG002 - of those who are not readable
        """The offset behind the last record of a partition."""
        return 0

    def tail(self, topic: str, partition: int, offset: int) -> list[tuple[bytes | None, bytes]]:  # noqa: ARG002
        """Keys and values from an offset on, to the end, as many as a batch may have."""
        return []

    def last(self, topic: str, partition: int) -> bytes | None:  # noqa: ARG002
        """The value of the last record of a partition."""
        return None

    def append(self, topic: str, partition: int, value: bytes) -> None:
        """Store one record, perhaps twice if it had to be sent again."""
        self.write(Batch(topic, partition, [MirrorRecord(0, value)], "", 0, 0, self.end(topic, partition)))

    @abstractmethod
    def close(self) -> None: ...


class Places(NamedTuple):
    """Both ends."""

    source: Source
    destination: Destination

    @property
    def exactly_once(self) -> bool:
        return self.source.replayable and self.destination.readable

    def lost(self) -> list[Part]:
        """The parts that the destination cannot take of what the source has; times apart (`keeps_times`)."""
        left_out = self.source.carries - self.destination.carries - {"times"}
        return [part for part in PARTS if part in left_out]

    @property
    def keeps_times(self) -> bool:
        return "times" in self.source.carries & self.destination.carries
