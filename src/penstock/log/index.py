"""The index of a segment: the positions of its batches by partition and offset.

The index of the active file is in memory. When the file is closed, its index is written to a side file; only a summary
per partition stays in memory, and the rest is read when needed. The side file can always be rebuilt from the segment,
so a damaged or missing one only costs time.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.log.batch import Batch
from penstock.log.checksum import crc32c

_MAGIC: Final = b"PSI1"
#                              magic, checksum of all that follows
#                              |  | last group, end position in the file, highest timestamp
#                              |  | | | | partitions
_HEAD: Final = struct.Struct("<4sIQQqQ")
#                                 partition, first offset, end offset, bytes, highest timestamp, batches
_SUMMARY: Final = struct.Struct("<QQQQqQ")
_ENTRY: Final = struct.Struct("3q")


class BatchRange(NamedTuple):
    position: int
    length: int


class PartitionIndex:
    """The batches of one partition in one file, in order of offset.

    Reader threads use it while the loop appends: an entry is added in one call, and every lookup takes the number of
    entries once. All entries are in one array, because with many partitions most of the time of an append goes into
    fetching what belongs to its partition from memory.
    """

    __slots__ = ("_newest", "byte_size", "end_offset", "entries")

    def __init__(self) -> None:
        # Of each batch: its base offset, position << 32 | length, and the highest timestamp up to it.
        self.entries = array("q")
        self._newest = -1 << 63  # of those added here
        self.end_offset = 0
        self.byte_size = 0

    @classmethod
    def of_columns(cls, data: bytes, count: int, extent: Extent) -> PartitionIndex:
        """From the bases, ranges and stamps of so many batches."""
        found, size = cls(), 8 * count
        entries = found.entries = array("q", bytes(_ENTRY.size * count))
        for which in range(3):
            entries[which::3] = array("q", data[which * size : (which + 1) * size])
        found.end_offset = extent.end_offset
        found.byte_size = extent.byte_size
        return found

    def columns(self) -> list[bytes]:
        """All bases, all ranges, all stamps."""
        return [self.entries[which::3].tobytes() for which in range(3)]

    def add(self, base: int, count: int, position: int, length: int, max_timestamp: int) -> None:
        newest = self._newest
        if max_timestamp > newest:
            self._newest = newest = max_timestamp
        self.end_offset = base + count
        self.byte_size += length
        self.entries.frombytes(_ENTRY.pack(base, position << 32 | length, newest))

    def __len__(self) -> int:
        return len(self.entries) // 3

    def base(self, which: int) -> int:
        return self.entries[3 * which]

    def at(self, which: int) -> BatchRange:
        span = self.entries[3 * which + 1]
        return BatchRange(span >> 32, span & 0xFFFFFFFF)

    @property
    def newest(self) -> int:
        """The highest timestamp of all batches."""
        return self.entries[-1]

    def span(self, offset: int, end: int) -> range:
        """The batches with the offsets from `offset` up to `end`: at least the one that holds `offset`, if any does."""
        numbers, base = range(len(self)), self.base
        return range(max(bisect_right(numbers, offset, key=base) - 1, 0), bisect_left(numbers, end, key=base))

    def first_at(self, timestamp: int) -> int:
        """The first batch that has a record not older than `timestamp`; the number of batches if there is none.
        Timestamps are running maxima: earlier batches have no record this new."""
        entries = self.entries
        return bisect_left(range(len(self)), timestamp, key=lambda which: entries[3 * which + 2])

    def from_offset(self, offset: int) -> Iterator[BatchRange]:
        """Ranges of the batch that holds `offset` and of all later ones."""
        i = max(bisect_right(range(len(self)), offset, key=self.base) - 1, 0)
        while i < len(self):
            yield self.at(i)
            i += 1

    def from_time(self, timestamp: int) -> Iterator[BatchRange]:
        """Ranges from the first batch that has a record not older than `timestamp`."""
        i = self.first_at(timestamp)
        while i < len(self):
            yield self.at(i)
            i += 1


class Extent(NamedTuple):
    """The records of one partition in one segment."""

    first_offset: int
    end_offset: int
    byte_size: int
    max_timestamp: int
    batches: int


def _extent(live: PartitionIndex) -> Extent:
    return Extent(live.base(0), live.end_offset, live.byte_size, live.newest, len(live))


class IndexDamaged(ValueError):
    """The side file is not usable; rebuild it."""


class FileIndex:
    """The index of one segment."""

    __slots__ = ("_live", "_load", "_recent", "_sections", "end_position", "extents", "last_group", "max_timestamp")

    def __init__(self) -> None:
        self.extents: dict[int, Extent] = {}  # complete only when the file is closed; see `extent`
        self._live: dict[int, PartitionIndex] = {}
        self._load: Callable[[int, int], bytes] | None = None  # reads the side file: (position, size)
        self._sections: dict[int, int] = {}
        self._recent: tuple[int, PartitionIndex] | None = None  # the last one read from the side file
        self.last_group = 0
        self.end_position = 0
        self.max_timestamp = 0

    def add(self, partition: int, base: int, count: int, position: int, length: int, max_timestamp: int) -> None:
        live = self._live.get(partition)
        if live is None:
            live = PartitionIndex()
            live.add(base, count, position, length, max_timestamp)
            self._live[partition] = live  # only now: reader threads never see it empty
        else:
            live.add(base, count, position, length, max_timestamp)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp

    def add_group(self, batches: Sequence[Batch], at: int) -> int:
        """Add the batches of a group, which lie one behind the other from this position on; returns their end."""
        live, newest = self._live, self.max_timestamp
        for batch in batches:
            index, length, stamp = live.get(batch.partition), len(batch.data), batch.max_timestamp
            if index is None:
                self.add(batch.partition, batch.base_offset, batch.count, at, length, stamp)
            else:
                index.add(batch.base_offset, batch.count, at, length, stamp)
            if stamp > newest:
                newest = stamp
            at += length
        self.max_timestamp = newest
        return at

    def partitions(self) -> list[int]:
        return list(self._live or self.extents)

    def extent(self, partition: int) -> Extent | None:
        live = self._live.get(partition)
        if live is None:
            return self.extents.get(partition)
        return _extent(live)

    def all_extents(self) -> Mapping[int, Extent]:
        """The extents of all partitions. Read-only. Takes no time if the file is closed."""
        return {partition: _extent(live) for partition, live in self._live.items()} if self._live else self.extents

    def partition(self, partition: int) -> PartitionIndex | None:
        """The batches of a partition. Reads the side file if the segment is closed: blocks; any thread."""
        live = self._live.get(partition)
        if live is not None:
            return live
        extent = self.extents.get(partition)
        if extent is None or self._load is None:
            return None
        recent = self._recent
        if recent is not None and recent[0] == partition:
            return recent[1]  # a reader that catches up needs the same one repeatedly
        size = 8 * extent.batches
        try:
            data = self._load(self._sections[partition], 3 * size)
        except FileNotFoundError:  # just removed; `reach_by` has replaced `_load` before
            data = self._load(self._sections[partition], 3 * size)
        found = PartitionIndex.of_columns(data, extent.batches, extent)
        self._recent = (partition, found)
        return found

    def encode(self) -> bytes:
        """The content of the side file."""
        summaries: list[bytes] = []
        columns: list[bytes] = []
        for partition, live in self._live.items():
            summaries.append(_SUMMARY.pack(partition, *_extent(live)))
            columns += live.columns()
        body = b"".join(
            [
                _HEAD.pack(_MAGIC, 0, self.last_group, self.end_position, self.max_timestamp, len(summaries))[8:],
                *summaries,
                *columns,
            ]
        )
        return _MAGIC + crc32c(body).to_bytes(4, "little") + body

    def close(self, load: Callable[[int, int], bytes]) -> None:
        """Drop the batches and keep the summaries: `load` reads the encoded index from now on."""
        at = _HEAD.size + _SUMMARY.size * len(self._live)
        for partition, live in self._live.items():
            self.extents[partition] = _extent(live)
            self._sections[partition] = at
            at += _ENTRY.size * len(live)
        self._load = load
        self._live = {}

    def reach_by(self, load: Callable[[int, int], bytes]) -> None:
        """Read the side file with this function from now on: its name is about to be removed while readers may need
        it."""
        self._load = load

    @classmethod
    def decode(cls, data: bytes, load: Callable[[int, int], bytes]) -> FileIndex:
        """A closed index from its side file, or IndexDamaged."""
        if len(data) < _HEAD.size or data[:4] != _MAGIC or crc32c(data[8:]) != int.from_bytes(data[4:8], "little"):
            raise IndexDamaged("wrong checksum of an index")
        index = cls()
        _, _, index.last_group, index.end_position, index.max_timestamp, count = _HEAD.unpack_from(data)
        at = _HEAD.size + _SUMMARY.size * count
        for i in range(count):
            partition, first, end, size, stamp, batches = _SUMMARY.unpack_from(data, _HEAD.size + _SUMMARY.size * i)
            index.extents[partition] = Extent(first, end, size, stamp, batches)
            index._sections[partition] = at
            at += _ENTRY.size * batches
        if at != len(data):
            raise IndexDamaged("wrong length of an index")
        index._load = load
        return index
