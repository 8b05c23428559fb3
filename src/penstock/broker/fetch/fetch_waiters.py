"""Fetch waiters: clients that wait for a partition to grow, each until its deadline (Kafka's purgatory)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from penstock.log.engine import Engine, PartitionId


class FetchWaiter:
    """One client's wait. It ends once: by a new record, by its deadline, or by `cancel`."""

    __slots__ = ("_callback", "_engine", "_partition")

    def __init__(self, engine: Engine, partition: PartitionId, callback: Callable[[], None]) -> None:
        self._engine = engine
        self._partition = partition
        self._callback: Callable[[], None] | None = callback
        engine.watch(partition, self._end)

    @property
    def over(self) -> bool:
        return self._callback is None

    def cancel(self) -> None:
        if self._callback is not None:
            self._callback = None
            self._engine.unwatch(self._partition, self._end)

    def _end(self) -> None:
        callback = self._callback
        self.cancel()
        if callback is not None:
            callback()


def watch_all(engine: Engine, partitions: Sequence[PartitionId], callback: Callable[[], None]) -> Callable[[], None]:
    """Call back whenever one of the partitions grows, until the returned function is called."""
    for partition in partitions:
        engine.watch(partition, callback)

    def stop() -> None:
        for partition in partitions:
            engine.unwatch(partition, callback)

    return stop


class FetchWaiters:
    """All waits of a broker, ordered by deadline."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._heap: list[tuple[int, int, FetchWaiter]] = []
        self._count = 0

    def start(self, partition: PartitionId, until: int, callback: Callable[[], None]) -> FetchWaiter:
        """Call back after the next commit to the partition, or when a sweep finds that `until` (µs) has passed."""
        wait = FetchWaiter(self._engine, partition, callback)
        self._count += 1
        heapq.heappush(self._heap, (until, self._count, wait))
        return wait

    def sweep(self, now: int) -> None:
        heap = self._heap
        while heap and (heap[0][0] <= now or heap[0][2].over):
            heapq.heappop(heap)[2]._end()
