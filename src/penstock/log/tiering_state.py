"""Tiering state: the end offset of each partition in its table, and the age of its newest record there.

A table is ahead of this: its own commit defines its contents, and the journal records it later. Segments are removed
based on what the journal has committed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from penstock.log.engine import COMMITTED, ClosedFile, ClosedSpan, CommitGroup, PartitionId, topic_of
from penstock.log.index import Extent
from penstock.log.segment import Segment


class TableEnd(NamedTuple):
    """Tables have all retained records of a partition below `offset`."""

    offset: int = 0
    newest: int = 0  # highest timestamp among them, µs: retention by age removes these before later records


class TieringState(msgspec.Struct, frozen=True, tag="b", array_like=True):
    """The journal's record of tables that grew."""

    ends: dict[int, TableEnd]


NONE: Final = TableEnd()


class TableEnds:
    """The committed ends, and those in flight."""

    def __init__(self, ends: Mapping[int, TableEnd] | None = None) -> None:
        self._committed: dict[int, TableEnd] = dict(ends or {})
        self._ahead: list[tuple[CommitGroup, Mapping[int, TableEnd]]] = []

    def get(self, partition: int) -> TableEnd:
        return self._committed.get(partition, NONE)

    def newest(self) -> dict[int, int]:
        """The highest timestamp in the table of each partition that has one."""
        return {partition: end.newest for partition, end in self._committed.items()}

    def ahead(self, partition: int) -> TableEnd:
        """The end after all groups in flight are committed."""
        found = self.get(partition)
        for _, ends in self._ahead:
            if (end := ends.get(partition)) is not None:
                found = _later(found, end)
        return found

    def add(self, group: CommitGroup, ends: Mapping[int, TableEnd], dropped: set[int]) -> None:
        """Set these ends when the group is committed, except for partitions that are in `dropped` by then."""
        entry = group, ends
        self._ahead.append(entry)

        def settle(group: CommitGroup) -> None:
            self._ahead = [other for other in self._ahead if other is not entry]
            if group.state is COMMITTED:
                self.replay(ends, dropped)

        group.on_done(settle)

    def replay(self, ends: Mapping[int, TableEnd], dropped: Iterable[int] = ()) -> None:
        for partition, end in ends.items():
            if partition not in dropped:
                self._committed[partition] = _later(self.get(partition), end)

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget partitions that were removed permanently, with their tables."""
        for partition in partitions:
            self._committed.pop(partition, None)

    def newest_before(self, partition: int, start: int, first: int) -> int:
        """The timestamp of the newest record in the table, if the log start is below the first offset in segments;
        otherwise 0."""
        return self.get(partition).newest if start < first else 0

    def dump(self, dropped: Iterable[int] = ()) -> dict[int, TableEnd]:
        """For a snapshot: the ends after everything in flight is committed."""
        partitions = self._committed.keys() | {partition for _, ends in self._ahead for partition in ends}
        return {partition: self.ahead(partition) for partition in partitions.difference(dropped)}


def _later(one: TableEnd, other: TableEnd) -> TableEnd:
    return TableEnd(max(one.offset, other.offset), max(one.newest, other.newest))


def new_ends(closed: Sequence[Segment], ends: Mapping[PartitionId, int]) -> dict[int, TableEnd]:
    """These ends with the timestamp of the newest record before each, from the closed files."""
    found = {}
    for partition, end in ends.items():
        extents = (segment.index.extent(partition) for segment in closed)
        stamps = [extent.max_timestamp for extent in extents if extent is not None and extent.first_offset < end]
        found[int(partition)] = TableEnd(end, max(stamps, default=0))
    return found


def extents_of(segment: Segment) -> Mapping[PartitionId, Extent]:
    """The extents of each partition in a segment. Read-only."""
    return cast(Mapping[PartitionId, Extent], segment.index.all_extents())


def usage(segments: Sequence[Segment], table_ends: TableEnds, starts: Mapping[int, int]) -> dict[int, int]:
    """See `Engine.usage`."""
    sizes: dict[int, int] = {}
    for segment in segments:
        for partition, extent in extents_of(segment).items():
            if extent.end_offset > max(starts.get(partition, 0), table_ends.get(partition).offset):
                topic = topic_of(partition)
                sizes[topic] = sizes.get(topic, 0) + extent.byte_size
    return sizes


def closed_files(
    closed: Sequence[Segment], table_ends: TableEnds, starts: Mapping[int, int], dropped: Container[int]
) -> list[ClosedFile]:
    """See `Engine.closed_files`."""
    found = []
    for segment in closed:
        spans = {}
        for partition, extent in extents_of(segment).items():
            first = max(extent.first_offset, table_ends.ahead(partition).offset, starts.get(partition, 0))
            if first < extent.end_offset and partition not in dropped:
                spans[partition] = ClosedSpan(first, extent.end_offset, extent.byte_size)
        if spans:
            found.append(ClosedFile(segment.sequence, spans))
    return found
