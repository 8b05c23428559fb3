"""A cursor: the position of subscribers that share a partition, and the records that each of them holds. Pure rules,
without a log.

A subscriber claims a span of offsets, reads it, and then holds the records it was given until it has settled them.
Those that it does not get, or gives up, go to the next claim, lowest first. So every record is held by one subscriber
at a time, and `lowest` is the first unsettled offset: starting there later misses nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.log.engine import Bounds

MAX_SPANS: Final = 1_024  # most spans of one subscriber; adjacent ones are merged


class OffsetRange(NamedTuple):
    """Offsets from `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int


class Holding:
    """The spans of one subscriber: at most one that it is reading, and those that it was given, in this order."""

    __slots__ = ("given", "reading")

    def __init__(self) -> None:
        self.reading: OffsetRange | None = None
        self.given: deque[OffsetRange] = deque()

    @property
    def full(self) -> bool:
        """Whether it holds so many unsettled spans that it gets no more for now."""
        return len(self.given) >= MAX_SPANS

    def spans(self) -> Iterator[OffsetRange]:
        if self.reading is not None:
            yield self.reading
        yield from self.given

    def give(self, spans: Iterable[OffsetRange]) -> None:
        for span in spans:
            if self.given and self.given[-1].end == span.start:
                span = OffsetRange(self.given.pop().start, span.end)
            self.given.append(span)

    def settle(self, count: int) -> bool:
        """Settle the oldest `count` records that it holds, or all if there are fewer. False if there were none."""
        given = self.given
        before = count
        while count > 0 and given:
            start, end = given.popleft()
            if count < end - start:
                given.appendleft(OffsetRange(start + count, end))
            count -= end - start
        return count < before


class Cursor:
    """With `remembers`, records are held until they are settled. Otherwise they are settled when they are given."""

    __slots__ = ("holdings", "next", "remembers", "returned")

    def __init__(self, start: int, *, remembers: bool) -> None:
        self.next = start  # the first offset that was never claimed
        self.returned: list[OffsetRange] = []  # claimed and freed again, ordered by offset
        self.holdings: list[Holding] = []
        self.remembers = remembers

    @property
    def lowest(self) -> int:
        spans = [min(holding.spans()).start for holding in self.holdings if holding.reading or holding.given]
        return min(self.next, *spans, self.returned[0].start if self.returned else self.next)

    def available(self, bounds: Bounds) -> int:
        """The approximate number of records that can be claimed."""
        waiting = max(0, bounds.high_watermark - max(self.next, bounds.start))
        return waiting + sum([end - start for start, end in self.returned]) if self.returned else waiting

    def claim(self, holding: Holding, count: int, bounds: Bounds) -> OffsetRange | None:
        """Claim the lowest free span, of at most `count` offsets. Records removed by retention are skipped. None if
        there are none.
        """
        assert holding.reading is None and count > 0
        while self.returned:
            start, end = self.returned.pop(0)
            start = max(start, bounds.start)
            if start < end:
                if count < end - start:
                    self.returned.insert(0, OffsetRange(start + count, end))
                holding.reading = OffsetRange(start, min(end, start + count))
                return holding.reading
        start = max(self.next, bounds.start)
        if start >= bounds.high_watermark:
            return None
        self.next = min(start + count, bounds.high_watermark)
        holding.reading = OffsetRange(start, self.next)
        return holding.reading

    def give(self, holding: Holding, spans: Iterable[OffsetRange], end: int) -> None:
        """The subscriber has read its claim up to `end` and found the records of these spans. The rest of the claim is
        freed. Records that it did not find do not exist for anyone.
        """
        claimed, holding.reading = holding.reading, None
        if claimed is None:
            return  # the cursor was moved meanwhile
        assert claimed.start <= end <= claimed.end
        if self.remembers:
            holding.give(spans)
        self._free(OffsetRange(end, claimed.end))

    def release(self, holding: Holding) -> None:
        """Free everything that the subscriber holds."""
        spans = list(holding.spans())
        holding.reading = None
        holding.given.clear()
        for span in spans:
            self._free(span)

    def move(self, offset: int) -> None:
        """Continue from this offset; all subscribers lose what they hold."""
        self.next = offset
        self.returned.clear()
        for holding in self.holdings:
            holding.given.clear()
            holding.reading = None

    def _free(self, span: OffsetRange) -> None:
        """Insert the span into `returned`, merged with its neighbours."""
        start, end = span
        if start == end:
            return
        index = bisect_left(self.returned, span)
        if index and self.returned[index - 1].end == start:
            index -= 1
            start = self.returned.pop(index).start
        if end == self.next:
            self.next = start
        elif index < len(self.returned) and self.returned[index].start == end:
            self.returned[index] = OffsetRange(start, self.returned[index].end)
        else:
            self.returned.insert(index, OffsetRange(start, end))
