"""A cursor: the position of subscribers who share a partition, and the records that each of them holds. Rules alone,
without a log.

A subscriber claims a span of offsets, reads it, and then holds what it was given of it until it has settled it. What it
does not get, and what it gives up, goes to whoever claims next, the lowest first. So every record is held by one
subscriber at a time, and `lowest` is the first offset that is not settled: whoever starts there later misses nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.log.engine import Bounds

MAX_SPANS: Final = 1_024  # that one subscriber may hold: neighbouring ones are one


class Span(NamedTuple):
    """Offsets from `start` up to, not including, `end`."""

    start: int
    end: int


class Holding:
    """The spans of one subscriber: at most one that it is reading, and those that it was given, in this order."""

    __slots__ = ("given", "reading")

    def __init__(self) -> None:
        self.reading: Span | None = None
        self.given: deque[Span] = deque()

    @property
    def full(self) -> bool:
        """It has been given so many pieces without being done with any that it gets no more for now."""
        return len(self.given) >= MAX_SPANS

    def spans(self) -> Iterator[Span]:
        if self.reading is not None:
            yield self.reading
        yield from self.given

    def give(self, spans: Iterable[Span]) -> None:
        for span in spans:
            if self.given and self.given[-1].end == span.start:
                span = Span(self.given.pop().start, span.end)
            self.given.append(span)

    def settle(self, count: int) -> bool:
        """It is done with the oldest `count` records that it holds, or all if there are fewer. False: with none."""
        given = self.given
        before = count
        while count > 0 and given:
            start, end = given.popleft()
            if count < end - start:
                given.appendleft(Span(start + count, end))
            count -= end - start
        return count < before


class Cursor:
    """`remembers`: what was given is held until it is settled. Else it is done with as soon as it is given."""

    __slots__ = ("holdings", "next", "remembers", "returned")

    def __init__(self, start: int, *, remembers: bool) -> None:
        self.next = start  # nobody has claimed this one, or any behind it
        self.returned: list[Span] = []  # claimed once and free again, by offset
        self.holdings: list[Holding] = []
        self.remembers = remembers

    @property
    def lowest(self) -> int:
        spans = [min(holding.spans()).start for holding in self.holdings if holding.reading or holding.given]
        return min(self.next, *spans, self.returned[0].start if self.returned else self.next)

    def available(self, bounds: Bounds) -> int:
        """About how many records can be claimed."""
        waiting = max(0, bounds.high_watermark - max(self.next, bounds.start))
        return waiting + sum([end - start for start, end in self.returned]) if self.returned else waiting

    def claim(self, holding: Holding, count: int, bounds: Bounds) -> Span | None:
        """The lowest span that is free and has at most `count` offsets. What retention has removed is passed over."""
        assert holding.reading is None and count > 0
        while self.returned:
            start, end = self.returned.pop(0)
            start = max(start, bounds.start)
            if start < end:
                if count < end - start:
                    self.returned.insert(0, Span(start + count, end))
                holding.reading = Span(start, min(end, start + count))
                return holding.reading
        start = max(self.next, bounds.start)
        if start >= bounds.high_watermark:
            return None
        self.next = min(start + count, bounds.high_watermark)
        holding.reading = Span(start, self.next)
        return holding.reading

    def give(self, holding: Holding, spans: Iterable[Span], end: int) -> None:
        """The subscriber has read its claim up to `end` and found the records of these spans. The rest of the claim is
        free again. Records that it did not find are not there for anybody."""
        claimed, holding.reading = holding.reading, None
        if claimed is None:
            return  # the cursor was moved meanwhile
        assert claimed.start <= end <= claimed.end
        if self.remembers:
            holding.give(spans)
        self._free(Span(end, claimed.end))

    def release(self, holding: Holding) -> None:
        """Everything that the subscriber holds is free again."""
        spans = list(holding.spans())
        holding.reading = None
        holding.given.clear()
        for span in spans:
            self._free(span)

    def move(self, offset: int) -> None:
        """Go on from here, whatever anyone holds: that is nobody's any more."""
        self.next = offset
        self.returned.clear()
        for holding in self.holdings:
            holding.given.clear()
            holding.reading = None

    def _free(self, span: Span) -> None:
        """Put the span where it belongs, as one with its neighbours."""
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
            self.returned[index] = Span(start, self.returned[index].end)
        else:
            self.returned.insert(index, Span(start, end))
