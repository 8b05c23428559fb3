"""Retention: pure functions that decide which segments to remove."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.log.engine import PartitionId, Retention
from penstock.log.index import Extent


def new_starts(
    closed: Sequence[Mapping[PartitionId, Extent]],
    active: Callable[[PartitionId], Extent | None],
    starts: Mapping[PartitionId, int],
    retention: Callable[[PartitionId], Retention],
    now: int,
    newest_in_table: Callable[[PartitionId, int], int],
) -> dict[PartitionId, int]:
    """Log starts that retention advances. `closed` are the closed files, oldest first, `active` is the file after them;
    a partition's records in a file are removed together, and never those in the active file.

    `newest_in_table`, for a partition and its first offset in the files: the time of the newest record that only the
    table has; 0 if there is none. Records in the table are removed before those in files; while they are young enough,
    nothing in the files is removed by age.

    With many partitions this is the most work that the log does each second: for a partition that keeps its records,
    it looks up nothing but its oldest file and its limits."""
    moved: dict[PartitionId, int] = {}
    first: dict[PartitionId, int] = {}  # offset in the files, of those in `moved`
    kept: dict[PartitionId, int] = {}  # bytes, of those with a limit
    stopped: set[PartitionId] = set()
    for extents in closed:
        if extents.keys() <= stopped:
            continue
        for partition, extent in extents.items():
            if partition in stopped or extent.end_offset <= starts.get(partition, 0):
                continue
            limit, begin = retention(partition), first.get(partition, extent.first_offset)
            oldest = None if limit.seconds is None else now - limit.seconds * 1_000_000
            gone = oldest is not None and extent.max_timestamp < oldest and newest_in_table(partition, begin) < oldest
            if limit.bytes is not None:
                if partition not in kept:
                    kept[partition] = _size(closed, active(partition), partition, starts.get(partition, 0))
                gone = gone or kept[partition] - extent.byte_size >= limit.bytes
                kept[partition] -= extent.byte_size
            if gone:
                moved[partition] = extent.end_offset
                first[partition] = begin
            else:
                stopped.add(partition)
    return moved


def _size(
    closed: Sequence[Mapping[PartitionId, Extent]], active: Extent | None, partition: PartitionId, start: int
) -> int:
    """The bytes of a partition in all files that have records from its log start on."""
    size = 0 if active is None else active.byte_size
    for extents in closed:
        extent = extents.get(partition)
        if extent is not None and extent.end_offset > start:
            size += extent.byte_size
    return size


def removable(closed: Sequence[Mapping[PartitionId, Extent]], wanted_from: Callable[[PartitionId], int]) -> int:
    """The number of oldest segments without retained records: nothing from these offsets on."""
    for number, extents in enumerate(closed):
        if any(extent.end_offset > wanted_from(partition) for partition, extent in extents.items()):
            return number
    return len(closed)
