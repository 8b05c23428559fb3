"""Which records have to go: pure decisions, by file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.log.engine import PartitionId, Retention
from penstock.log.index import Extent


def new_starts(
    closed: Sequence[Mapping[PartitionId, Extent]],
    active: Mapping[PartitionId, Extent],
    starts: Mapping[PartitionId, int],
    retention: Callable[[PartitionId], Retention],
    now: int,
) -> dict[PartitionId, int]:
    """Log starts that retention moves up. `closed` are the closed files, oldest first; a file's share of a
    partition goes as a whole, and never the share of the active file."""
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
            too_old = limit.seconds is not None and extent.max_timestamp < now - limit.seconds * 1_000_000
            too_much = limit.bytes is not None and kept[partition] - extent.byte_size >= limit.bytes
            if too_old or too_much:
                moved[partition] = extent.end_offset
                kept[partition] -= extent.byte_size
            else:
                stopped.add(partition)
    return moved


def removable(closed: Sequence[Mapping[PartitionId, Extent]], starts: Mapping[PartitionId, int]) -> int:
    """How many of the oldest files hold nothing that is still wanted."""
    for number, extents in enumerate(closed):
        if any(extent.end_offset > starts.get(partition, 0) for partition, extent in extents.items()):
            return number
    return len(closed)
