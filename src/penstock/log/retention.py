"""Retention: pure functions that decide which segments to remove."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.log.engine import PartitionId, Retention
from penstock.log.index import Extent

_NO_TABLES: Final[Mapping[PartitionId, int]] = {}


def new_starts(
    closed: Sequence[Mapping[PartitionId, Extent]],
    active: Mapping[PartitionId, Extent],
    starts: Mapping[PartitionId, int],
    retention: Callable[[PartitionId], Retention],
    now: int,
    newest_in_tables: Mapping[PartitionId, int] = _NO_TABLES,
) -> dict[PartitionId, int]:
    """Log starts that retention advances. `closed` are the closed files, oldest first; a partition's records in a file
    are removed together, and never those in the active file.

    `newest_in_tables`: for partitions that begin in a table, the time of the newest record that only the table has.
    Records in the table are removed before those in files; while they are young enough, nothing in the files is removed
    by age."""
    moved = {}
    kept = {partition: extent.byte_size for partition, extent in active.items()}
    for extents in closed:
        for partition, extent in extents.items():
            if extent.end_offset > starts.get(partition, 0):
                kept[partition] = kept.get(partition, 0) + extent.byte_size
    stopped: set[PartitionId] = set()
    for extents in closed:
        for partition, extent in extents.items():
            if partition in stopped or extent.end_offset <= starts.get(partition, 0):
                continue
            limit = retention(partition)
            newest = max(extent.max_timestamp, newest_in_tables.get(partition, 0))
            too_old = limit.seconds is not None and newest < now - limit.seconds * 1_000_000
            too_much = limit.bytes is not None and kept[partition] - extent.byte_size >= limit.bytes
            if too_old or too_much:
                moved[partition] = extent.end_offset
                kept[partition] -= extent.byte_size
            else:
                stopped.add(partition)
    return moved


def removable(closed: Sequence[Mapping[PartitionId, Extent]], starts: Mapping[PartitionId, int]) -> int:
    """The number of oldest segments without retained records: nothing from these offsets on."""
    for number, extents in enumerate(closed):
        if any(extent.end_offset > starts.get(partition, 0) for partition, extent in extents.items()):
            return number
    return len(closed)
