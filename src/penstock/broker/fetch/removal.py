"""What was removed of partitions: records that are still in the log, and that nobody sees any more.

What is removed at the front of a partition is told by one number, up to which the log start is moved by the same entry
of the log. Single records are kept in mind only as long as there is something before them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple, TypeAlias

from penstock.broker.errors import LimitReached
from penstock.broker.limits import Limits
from penstock.broker.state.events import RecordsRemoved
from penstock.log.engine import PartitionId, number_of, partition_id, topic_of


class Gone(NamedTuple):
    """What was removed of one partition. It never changes: a read that is under way keeps what it began with."""

    below: int = 0  # all before this offset
    single: frozenset[int] = frozenset()  # and these

    def has(self, offset: int) -> bool:
        return offset < self.below or offset in self.single

    def within(self, first: int, end: int) -> set[int]:
        """What it has of the offsets from `first` up to, not including, `end`."""
        found = set(range(first, min(self.below, end)))
        if len(self.single) < end - first:
            found.update([offset for offset in self.single if first <= offset < end])
        else:
            found.update(self.single.intersection(range(first, end)))
        return found


Removed: TypeAlias = dict[PartitionId, Gone]

NOTHING: Final = Gone()


def remove(
    removed: Removed, limits: Limits, partition: PartitionId, offsets: Collection[int], start: int
) -> RecordsRemoved:
    """Decide that these records go. `start` is where the log of the partition begins now; whoever keeps the event moves
    it to where the event says. Raises LimitReached."""
    below, single = removed.get(partition, NOTHING)
    below = max(below, start)
    single = single.union(offsets)
    while below in single:
        below += 1
    most = limits.removed_per_partition
    if len(single) > most and sum([offset >= below for offset in single]) > most:
        raise LimitReached(
            f"{most} single records are removed from the partition, which is the limit: "
            f"the one at offset {below} has to go first"
        )
    if sum([len(gone.single) for gone in removed.values()]) + len(offsets) > limits.removed:
        raise LimitReached(f"{limits.removed} single records are removed from partitions, which is the broker's limit")
    return RecordsRemoved(topic_of(partition), number_of(partition), sorted(offsets), below)


def apply_removed(removed: Removed, event: RecordsRemoved) -> None:
    partition = partition_id(event.topic, event.partition)
    below, single = removed.get(partition, NOTHING)
    below = max(below, event.below)
    single = single.union(event.offsets)
    removed[partition] = Gone(below, frozenset([offset for offset in single if offset >= below]))
