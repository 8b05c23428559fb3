"""Appends on their way to the disk: the group that collects them, and then is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.log.batch import Batch, OpenBatch
from penstock.log.engine import CommitGroup, PartitionId, Records
from penstock.log.journal import JournalFile

BATCH_BYTES: Final = 1 << 20  # a batch that has reached this size takes no further append


class PendingGroup:
    """Open, it collects appends; sealed, it goes to the disk. Events come before records.

    It is one object for both, because a group of one small append is the most frequent thing that the log does."""

    __slots__ = (
        "_open_batches",
        "advance",
        "appends",
        "batches",
        "byte_size",
        "drops",
        "events",
        "file",
        "must_sync",
        "number",
        "outcome",
        "place",
        "position",
        "published",
        "roll",
        "snapshot",
        "timestamp",
        "trims",
    )

    file: JournalFile  # where it was written,
    place: int  # and where in it
    number: int
    position: int  # before it
    advance: int  # positions it takes
    timestamp: int
    must_sync: bool
    roll: bool  # start a new journal file with it
    batches: list[Batch]

    def __init__(self) -> None:
        self.outcome = CommitGroup()
        self._open_batches: dict[int, list[OpenBatch]] = {}
        self.events: list[bytes] = []  # encoded entries
        self.trims: dict[PartitionId, int] = {}
        self.drops: set[int] = set()
        self.byte_size = 0
        self.appends = 0

    def add(self, records: Records, offset: int, timestamp: int) -> None:
        partition = records.partition
        batches = self._open_batches.get(partition)
        if batches is None:
            batches = self._open_batches[partition] = [OpenBatch(partition, offset)]
        elif batches[-1].byte_size >= BATCH_BYTES:
            batches.append(OpenBatch(partition, offset))
        batches[-1].extend(records.values, records.keys, records.headers, records.expires, timestamp)

    def seal(self, number: int, position: int, timestamp: int, *, must_sync: bool, roll: bool) -> None:
        """Finish the batches. It takes no more appends."""
        self.number = number
        self.position = position
        self.timestamp = timestamp
        self.must_sync = must_sync
        self.roll = roll
        self.snapshot: bytes | None = None  # to be kept once it is written
        self.published = False
        end = position + len(self.events)
        self.batches = []
        for batches in self._open_batches.values():
            for batch in batches:
                self.batches.append(Batch(batch.build(end)))
                end += len(batch.values)
        self.advance = end - position


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
