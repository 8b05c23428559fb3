"""One partition of the running log: its bounds, and its newest batches in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.log.batch import Batch, RecordSlice
from penstock.log.slice_collector import SliceCollector

BATCH_OVERHEAD: Final = 512  # memory of a batch besides its bytes


class PartitionLog:
    """Offsets from `start` up to `high_watermark` are readable; appends get offsets from `next_offset` on, and
    timestamps that are not below `newest`."""

    __slots__ = ("_last", "high_watermark", "newest", "next_offset", "start", "tail", "watchers")

    def __init__(self, start: int = 0, end: int = 0) -> None:
        self.start = start
        self.high_watermark = end
        self.next_offset = end
        self.newest = 0  # the timestamp of the last append, µs
        self.tail: deque[Batch] = deque()
        self.watchers: list[Callable[[], None]] | None = None  # most partitions have none
        self._last = 0  # index in the tail of the batch read last: most reads continue where another ended

    def slices(self, offset: int, max_bytes: int, max_records: int) -> list[RecordSlice] | None:
        """Committed records from memory, or None if `offset` is no longer there."""
        tail = self.tail
        if not tail or offset < tail[0].base_offset:
            return None
        newest = tail[-1]
        if offset >= newest.base_offset:
            return [newest.slice(offset, newest.end_offset, max_bytes, max_records)]
        first = self._find(offset)
        if max_records == 1:
            return [tail[first].slice(offset, offset + 1, max_bytes, 1)]
        slices = SliceCollector(offset, max_bytes, max_records)
        for i in range(first, len(tail)):
            if not slices.add(tail[i], tail[i].end_offset):
                break
        return slices.found

    def _find(self, offset: int) -> int:
        """The index of the cached batch that holds the offset."""
        last = self._last
        if last < len(self.tail):
            batch = self.tail[last]
            if batch.base_offset <= offset < batch.base_offset + batch.count:
                return last
        self._last = bisect_right(self.tail, offset, key=_base_offset) - 1
        return self._last


def _base_offset(batch: Batch) -> int:
    return batch.base_offset


class Tail:
    """The newest batches of all partitions together, up to a number of bytes; the oldest are evicted first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._order: deque[PartitionLog] = deque()  # the partition of each batch, oldest first
        self._kept = 0  # number of the newest batches that must stay because they are not on disk yet

    def publish(self, partitions: Mapping[int, PartitionLog], batches: Sequence[Batch]) -> list[PartitionLog]:
        """Make the batches of a group readable; returns their partitions that are watched."""
        order, size, watched = self._order, 0, []
        for batch in batches:
            log = partitions[batch.partition]
            log.tail.append(batch)
            order.append(log)
            size += len(batch.data)
            log.high_watermark = batch.base_offset + batch.count
            if log.watchers:
                watched.append(log)
        self._size += size + BATCH_OVERHEAD * len(batches)
        self._kept += len(batches)
        return watched

    def written(self, batches: int) -> None:
        """The oldest `batches` of those not on disk have been written."""
        self._kept -= batches
        order = self._order
        while self._size > self._limit and len(order) > self._kept:
            self._size -= len(order.popleft().tail.popleft().data) + BATCH_OVERHEAD
