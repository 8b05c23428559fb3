"""Appends on their way to the disk: the open group that collects them, and the sealed group that is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.log.batch import Batch, OpenBatch
from penstock.log.engine import CommitGroup, PartitionId, Records
from penstock.log.journal import JournalFile

BATCH_BYTES: Final = 1 << 20  # a batch that has reached this size takes no further append


class OpenGroup:
    """Collects appends until it is sealed."""

    __slots__ = ("_batches", "appends", "byte_size", "drops", "events", "outcome", "trims")

    def __init__(self) -> None:
        self.outcome = CommitGroup()
        self._batches: dict[int, list[OpenBatch]] = {}
        self.events: list[bytes] = []  # encoded entries
        self.trims: dict[PartitionId, int] = {}
        self.drops: set[int] = set()
        self.byte_size = 0
        self.appends = 0

    def add(self, records: Records, offset: int, timestamp: int) -> None:
        batches = self._batches.get(records.partition)
        if batches is None:
            batches = self._batches[records.partition] = []
        if not batches or batches[-1].byte_size >= BATCH_BYTES:
            batches.append(OpenBatch(records.partition, offset))
        batches[-1].extend(records.values, records.keys, records.headers, records.expires, timestamp)

    def build(self, position: int) -> list[Batch]:
        """The finished batches; `position` is that of the first record."""
        built = []
        for batches in self._batches.values():
            for batch in batches:
                built.append(Batch(batch.build(position)))
                position += len(batch.values)
        return built


@dataclass(slots=True, eq=False)
class SealedGroup:
    """A group as it goes to the disk. Events come before records."""

    number: int
    position: int
    timestamp: int
    must_sync: bool
    roll: bool  # start a new journal file with it
    outcome: CommitGroup
    events: list[bytes]
    batches: list[Batch]
    trims: dict[PartitionId, int]
    drops: set[int]
    byte_size: int
    advance: int = field(init=False)  # positions it takes
    snapshot: bytes | None = None  # to be kept once it is written
    published: bool = False
    file: JournalFile | None = None  # where it was written
    place: int = 0

    def __post_init__(self) -> None:
        self.advance = len(self.events) + sum([batch.count for batch in self.batches])

    @property
    def is_empty(self) -> bool:
        return not self.batches and not self.events


def size_of(writes: Sequence[Records], events: Sequence[bytes]) -> int:
    """About what an append takes in the journal."""
    size = sum(map(len, events)) + 64 * len(events)
    for records in writes:
        size += sum(map(len, records.values)) + 16 * len(records.values)
        if records.keys is not None:
            size += sum([len(key) for key in records.keys if key is not None])
        if records.headers is not None:
            size += sum([4 * len(name) + len(value) + 8 for pairs in records.headers for name, value in pairs])
    return size
