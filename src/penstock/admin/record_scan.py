"""Scans of a topic for the administration API: pages of records, in both directions, and following new ones.

A scan takes bounded steps: each reads a little of every partition, off the event loop unless it is in memory, filters
it there, and merges the partitions by time. A page ends when it is full, or after a bounded amount of work: then its
cursor tells where the next one continues, so that the client sees progress and can stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.admin.filters import RecordFilter
from penstock.admin.record_view import RecordPage, RecordView, encode_cursor, views
from penstock.broker.broker import Broker
from penstock.broker.errors import TopicNotFound
from penstock.broker.fetch.fetch_waiters import FetchWaiter
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.names import Scope
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import Identity
from penstock.doors.http.replies import WAITING, Piece
from penstock.log.engine import Bounds

MAX_STEPS: Final = 32  # for one page
STEP_RECORDS: Final = 2_000  # of all partitions in one step, with a filter
STEP_BYTES: Final = 4 << 20  # of keys and values in one step
PAGE_BYTES: Final = 4 << 20  # of keys and values in one page; one record may be larger
LEAST_BYTES: Final = 16 << 10  # per partition and step
TAIL_RECORDS: Final = 500
HEARTBEAT_SECONDS: Final = 15


class ScanTarget(NamedTuple):
    """A topic, and the identity that reads it."""

    identity: Identity
    scope: Scope
    topic: str


class _Read(NamedTuple):
    """One partition's part of a step."""

    partition: int
    plan: VisibleRead
    first: int
    end: int  # of the window: later records are not part of it


class PageScan:
    """The scan for one page. `at` has, for each partition, the next offset (forwards), or the one after it (backwards);
    it is updated."""

    def __init__(
        self,
        broker: Broker,
        where: ScanTarget,
        at: dict[int, int],
        limit: int,
        matches: RecordFilter | None,
        *,
        backwards: bool,
        conclude: Callable[[RecordPage], Any],
    ) -> None:
        """`conclude` turns the page into the outcome."""
        self._broker = broker
        self._conclude = conclude
        self._where = where
        self._at = at
        self._limit = limit
        self._matches = matches
        self._backwards = backwards
        self._found: list[RecordView] = []
        self._size = 0
        self._scanned = 0
        self._steps = 0
        self._done: set[int] = set()  # exhausted partitions
        self._window: dict[int, int] = {}  # size of the window for reading backwards, where the default was too large

    def step(self) -> Any:
        """The next step, or the outcome of the page."""
        reads = self._reads() if self._steps < MAX_STEPS and not self._full() else []
        if not reads:
            return self._page()
        self._steps += 1
        if all(read.plan.ready for read in reads) and self._matches is None:
            return self._take(self._look(reads))
        scans = None if self._matches is None else self._broker.scan_executor
        return Deferred(lambda: self._look(reads), self._take, executor=scans)

    def _full(self) -> bool:
        return len(self._found) >= self._limit or self._size >= PAGE_BYTES

    def _bounds(self) -> Sequence[Bounds]:
        identity, scope, topic = self._where
        return self._broker.topics.bounds(identity, scope, [topic]).get(topic, ())

    def _reads(self) -> list[_Read]:
        """Plans for the next records of every partition that has any."""
        identity, scope, topic = self._where
        bounds = self._bounds()
        open_ones = [partition for partition in self._at if partition not in self._done]
        count = self._limit - len(self._found) if self._matches is None else STEP_RECORDS // max(1, len(open_ones))
        count = max(1, min(count, STEP_RECORDS))
        size = max(LEAST_BYTES, STEP_BYTES // max(1, len(open_ones)))
        reads = []
        for partition in open_ones:
            start, high = bounds[partition]
            if self._backwards:
                end = min(self._at[partition], high)
                first = max(start, end - min(count, self._window.get(partition, count)))
            else:
                first, end = max(self._at[partition], start), high
            if first >= end:
                self._done.add(partition)
                continue
            plan = self._broker.fetch.plan(identity, scope, topic, partition, first, size, min(count, end - first))
            reads.append(_Read(partition, plan, first, end))
        return reads

    def _look(self, reads: list[_Read]) -> list[tuple[_Read, int, list[RecordView]]]:
        """For each read: the matching records, and the offset after the last one examined. Any thread."""
        looked = []
        for read in reads:
            fitting = [
                record
                for part in read.plan.run()
                for record in views(read.partition, part)
                if record.offset < read.end and fits(self._matches, record)
            ]
            looked.append((read, max(read.plan.end, 0), fitting))
        return looked

    def _take(self, looked: list[tuple[_Read, int, list[RecordView]]]) -> Any:
        """Merge the records of this step by time, and continue."""
        merged: list[RecordView] = []
        for read, behind, fitting in looked:
            if self._move(read, behind):
                merged += fitting
        merged.sort(key=lambda record: (record.timestamp, record.partition, record.offset), reverse=self._backwards)
        for index, record in enumerate(merged):
            if self._full():
                self._put_back(merged[index:])
                break
            self._found.append(record)
            self._size += len(record.value) + len(record.key or b"")
        return self.step()

    def _move(self, read: _Read, behind: int) -> bool:
        """Advance in the partition. False if the read ended before the end of its window, so that the newest records
        are missing: then the window is made smaller."""
        partition, first, end = read.partition, read.first, read.end
        if not self._backwards:
            self._at[partition] = max(self._at[partition], behind)
            self._scanned += max(0, behind - first)
            if behind <= first:
                self._done.add(partition)
            return True
        if behind < end and end - first > 1:
            self._window[partition] = max(1, (end - first) // 2)
            return False
        self._at[partition] = first
        self._scanned += end - first
        return True

    def _put_back(self, records: list[RecordView]) -> None:
        """Leave these records for the next page: their partitions continue at the first of them."""
        for record in records:
            at = self._at[record.partition]
            self._at[record.partition] = max(at, record.offset + 1) if self._backwards else min(at, record.offset)

    def _page(self) -> Any:
        bounds = self._bounds()
        if self._backwards:
            left = {partition: at - bounds[partition].start for partition, at in self._at.items()}
        else:
            left = {partition: bounds[partition].high_watermark - at for partition, at in self._at.items()}
        remaining = sum(max(0, count) for count in left.values())
        cursor = encode_cursor(self._at) if remaining or not self._backwards else None
        return self._conclude(RecordPage(self._found, cursor, self._scanned, remaining))


class PositionSearch:
    """Finds the first record at or after a position of the log, in each partition: a binary search, one step for all of
    them at a time. If records have been removed, it starts too early rather than too late."""

    def __init__(
        self,
        broker: Broker,
        where: ScanTarget,
        between: dict[int, tuple[int, int]],
        position: int,
        begin: Callable[[dict[int, int]], Any],
    ) -> None:
        self._broker = broker
        self._where = where
        self._between = between  # by partition: lower and upper bound of the offset
        self._position = position
        self._begin = begin

    def step(self) -> Any:
        identity, scope, topic = self._where
        plans = {
            partition: self._broker.fetch.plan(identity, scope, topic, partition, (low + high) // 2, 1, 1)
            for partition, (low, high) in self._between.items()
            if low < high
        }
        if not plans:
            return self._begin({partition: low for partition, (low, _) in self._between.items()})

        def look() -> dict[int, int | None]:
            found = {partition: plan.run() for partition, plan in plans.items()}
            return {partition: slices[0].position if slices else None for partition, slices in found.items()}

        return Deferred(look, self._narrow)

    def _narrow(self, found: dict[int, int | None]) -> Any:
        for partition, position in found.items():
            low, high = self._between[partition]
            middle = (low + high) // 2
            behind = position is None or position >= self._position
            self._between[partition] = (low, middle) if behind else (middle + 1, high)
        return self.step()


class Tail:
    """The new records of a topic, as JSON lines or Server-Sent Events, each with the cursor after it. It reads only
    after the client has received earlier records: a slow client takes no memory in the broker."""

    endless = True

    def __init__(
        self, broker: Broker, where: ScanTarget, at: dict[int, int], matches: RecordFilter | None, *, events: bool
    ) -> None:
        self._broker = broker
        self._where = where
        self._at = at
        self._matches = matches
        self._events = events
        self._wake: Callable[[], None] = lambda: None
        self._waiters: list[FetchWaiter] = []
        self._quiet_until = 0  # time of the next heartbeat: µs since 1970; 0: not waiting

    def open(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def close(self) -> None:
        for waiter in self._waiters:
            waiter.cancel()
        self._waiters = []

    def pull(self) -> Piece:
        identity, scope, topic = self._where
        bounds = self._broker.topics.bounds(identity, scope, [topic]).get(topic)
        if bounds is None:
            raise TopicNotFound(topic)
        growing = [at for at in self._at if bounds[at].high_watermark > max(self._at[at], bounds[at].start)]
        if not growing:
            return self._wait()
        self._quiet_until = 0
        share = max(1, TAIL_RECORDS // len(growing))
        size = max(LEAST_BYTES, STEP_BYTES // 4 // len(growing))
        plans = [
            (at, self._broker.fetch.plan(identity, scope, topic, at, max(self._at[at], bounds[at].start), size, share))
            for at in growing
        ]
        if self._matches is None and all(plan.ready for _, plan in plans):
            return self._lines(plans)
        scans = None if self._matches is None else self._broker.scan_executor
        return Deferred(lambda: self._lines(plans), lambda piece: piece, executor=scans)

    def _wait(self) -> Piece:
        identity, scope, topic = self._where
        now = self._broker.now()
        if 0 < self._quiet_until <= now:  # for proxies, and to detect a closed connection
            self._quiet_until = 0
            return b": still here\n\n" if self._events else b"\n"
        self._quiet_until = self._quiet_until or now + HEARTBEAT_SECONDS * 1_000_000
        self.close()
        self._waiters = [
            self._broker.fetch.wait(identity, scope, topic, partition, self._quiet_until, self._wake)
            for partition in self._at
        ]
        return WAITING

    def _lines(self, plans: list[tuple[int, VisibleRead]]) -> bytes:
        """Read and encode. Any thread; there is no concurrent pull."""
        found: list[RecordView] = []
        for partition, plan in plans:
            for part in plan.run():
                found += [record for record in views(partition, part) if fits(self._matches, record)]
            self._at[partition] = max(self._at[partition], plan.end)
        found.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
        if not self._events:
            return b"".join(msgspec.json.encode(record) + b"\n" for record in found)
        return b"".join(
            b"id: %d:%d\ndata: %b\n\n" % (record.partition, record.offset, msgspec.json.encode(record))
            for record in found
        )


def fits(matches: RecordFilter | None, record: RecordView) -> bool:
    return matches is None or matches(record)
