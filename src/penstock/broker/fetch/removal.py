"""Removed records: those that are still in the log, but no longer visible.

Removal at the front of a partition is a single number, to which the same entry of the log moves the log start. Records
removed individually are remembered only as long as there are records before them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeAlias

from penstock.broker.errors import LimitReached
from penstock.broker.limits import Limits
from penstock.broker.state.events import RecordsRemoved
from penstock.broker.tenancy.fair_share import check_room
from penstock.log.engine import PartitionId, number_of, partition_id, topic_of


class RemovedRecords(NamedTuple):
    """The removed records of one partition. Immutable: a read in progress keeps the version it began with."""

    below: int = 0  # all records before this offset
    single: frozenset[int] = frozenset()  # and these

    def has(self, offset: int) -> bool:
        return offset < self.below or offset in self.single

    def within(self, first: int, end: int) -> set[int]:
        """The removed offsets in `first` (inclusive) to `end` (exclusive)."""
        found = set(range(first, min(self.below, end)))
        if len(self.single) < end - first:
            found.update([offset for offset in self.single if first <= offset < end])
        else:
            found.update(self.single.intersection(range(first, end)))
        return found


Removed: TypeAlias = dict[PartitionId, RemovedRecords]

NOTHING_REMOVED: Final = RemovedRecords()


def remove(
    removed: Removed,
    limits: Limits,
    partition: PartitionId,
    offsets: Collection[int],
    start: int,
    tenant: str,
    belongs: Callable[[PartitionId], bool],
) -> RecordsRemoved:
    """The event that removes these records. `start` is the log start of the partition; the caller moves it to the
    event's `below`. `belongs` tells which partitions are the tenant's. Raises LimitReached.
    """
    below, single = removed.get(partition, NOTHING_REMOVED)
    below = max(below, start)
    single = single.union(offsets)
    while below in single:
        below += 1
    limit = limits.removed_per_partition
    if len(single) > limit and sum([offset >= below for offset in single]) > limit:
        raise LimitReached(
            f"{limit} single records are removed from the partition, which is the limit: "
            f"the one at offset {below} has to go first"
        )
    total = sum([len(removals.single) for removals in removed.values()])
    mine = sum([len(removals.single) for at, removals in removed.items() if removals.single and belongs(at)])
    more = len(offsets)
    check_room("single removed records", limits.removed, total, tenant, mine, limits.tenant_share, more)
    return RecordsRemoved(topic_of(partition), number_of(partition), sorted(offsets), below)


def apply_removed(removed: Removed, event: RecordsRemoved) -> None:
    partition = partition_id(event.topic, event.partition)
    below, single = removed.get(partition, NOTHING_REMOVED)
    below = max(below, event.below)
    single = single.union(event.offsets)
    removed[partition] = RemovedRecords(below, frozenset([offset for offset in single if offset >= below]))
