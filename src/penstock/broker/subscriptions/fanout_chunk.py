"""What many readers of a partition share: portions of its values, and what protocols made of them.

Nothing here knows the log or a reader. `Broadcasts` brings both together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.log.batch import EXPIRES, RecordSlice

FOREVER: Final = 1 << 62  # µs since 1970
FORMS: Final = 16  # of one portion that are kept; what more readers need is made for each of them again
WINDOW_BYTES: Final = 4 << 20  # kept of one partition
FRESH_BYTES: Final = 8 << 20  # the same, of what was not read but appended just now
ALL_BYTES: Final = 64 << 20  # kept of all partitions together
VALUE_OVERHEAD: Final = 48  # what a value costs in memory beside its bytes
PORTION_OVERHEAD: Final = 640  # the same, for a portion

Run: TypeAlias = tuple[int, list[bytes]]
"""Values without a gap between them, and the offset of the first."""


class Cut(NamedTuple):
    """Where a portion ends at the latest."""

    events: int
    bytes: int  # of keys and values; a larger record is alone


class EncodedChunk:
    """What is live of the offsets from `start` up to, not including, `end`. It never changes."""

    __slots__ = ("cost", "count", "end", "forms", "kept", "runs", "size", "start", "until")

    def __init__(self, start: int, end: int, runs: list[Run], size: int, until: int = FOREVER) -> None:
        self.start = start
        self.end = end
        self.runs = runs  # in order, each behind a gap
        self.count = sum([len(values) for _, values in runs])
        self.size = size  # bytes of all values
        self.until = until  # µs since 1970: when the first of them expires
        self.forms: dict[Hashable, bytes] = {}  # what protocols made of it; only they know what that is
        self.kept: Window | Fresh | None = None
        self.cost = PORTION_OVERHEAD + size + VALUE_OVERHEAD * self.count

    def form(self, key: Hashable, make: Callable[[EncodedChunk], bytes]) -> bytes:
        """What was made of it under this key, or else is made now."""
        data = self.forms.get(key)
        if data is None:
            data = make(self)
            if len(self.forms) >= FORMS:
                self._grow(-len(self.forms.pop(next(iter(self.forms)))))
            self.forms[key] = data
            self._grow(len(data))
        return data

    def _grow(self, size: int) -> None:
        self.cost += size
        if self.kept is not None:
            self.kept.grow(size)

    def between(self, start: int, end: int) -> EncodedChunk:
        """Its part from `start` up to, not including, `end`."""
        runs: list[Run] = []
        for offset, values in self.runs:
            first, last = max(start - offset, 0), min(end - offset, len(values))
            if first < last:
                runs.append((offset + first, values[first:last]))
        return EncodedChunk(start, end, runs, sum([sum(map(len, values)) for _, values in runs]), self.until)


class Budget:
    """How many bytes all windows together hold."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = ALL_BYTES) -> None:
        self.limit = limit
        self.used = 0


class Window:
    """Portions of one partition that are kept for those who are at the same place a little later. What nobody asked for
    longest goes first."""

    __slots__ = ("_budget", "_limit", "_portions", "_starts", "used")

    def __init__(self, budget: Budget, limit: int = WINDOW_BYTES) -> None:
        self._budget = budget
        self._limit = limit
        self._portions: OrderedDict[int, EncodedChunk] = OrderedDict()  # by where they start
        self._starts: list[int] = []  # the same starts, in order
        self.used = 0  # bytes

    def __len__(self) -> int:
        return len(self._portions)

    def get(self, start: int, now: int) -> EncodedChunk | None:
        """The portion that starts there, unless some of it has expired since it was read."""
        portion = self._portions.get(start)
        if portion is None:
            return None
        if portion.until <= now:
            self._drop(start)
            return None
        self._portions.move_to_end(start)
        return portion

    def around(self, offset: int, now: int) -> EncodedChunk | None:
        """A portion that has this offset in its midst."""
        at = bisect_left(self._starts, offset) - 1
        found = self._portions[self._starts[at]] if at >= 0 else None
        return found if found is not None and found.end > offset and found.until > now else None

    def next_start(self, offset: int) -> int | None:
        """Where the next portion starts behind this offset: whoever reads up to there goes on with what is kept."""
        at = bisect_right(self._starts, offset)
        return self._starts[at] if at < len(self._starts) else None

    def put(self, portion: EncodedChunk) -> None:
        assert portion.kept is None, "a portion is kept once"
        if portion.start in self._portions:
            self._drop(portion.start)
        portion.kept = self
        self._portions[portion.start] = portion
        insort(self._starts, portion.start)
        self.grow(portion.cost)

    def grow(self, size: int) -> None:
        self.used += size
        self._budget.used += size
        while len(self._portions) > 1 and (self.used > self._limit or self._budget.used > self._budget.limit):
            self._drop(next(iter(self._portions)))

    def clear(self) -> None:
        while self._portions:
            self._drop(next(iter(self._portions)))

    def _drop(self, start: int) -> None:
        portion = self._portions.pop(start)
        del self._starts[bisect_left(self._starts, start)]
        portion.kept = None
        self.used -= portion.cost
        self._budget.used -= portion.cost


class Fresh:
    """Portions of what was appended just now, for those who have been waiting for it: they need not be read. The oldest
    goes first, whoever has asked for it."""

    __slots__ = ("_budget", "_limit", "_portions", "used", "wanted")

    def __init__(self, budget: Budget, limit: int = FRESH_BYTES) -> None:
        self._budget = budget
        self._limit = limit
        self._portions: dict[int, EncodedChunk] = {}  # by where they start, in the order of the log
        self.used = 0  # bytes
        self.wanted = False  # somebody has taken what was put here, and nothing has gone since that nobody took

    def get(self, start: int) -> EncodedChunk | None:
        portion = self._portions.get(start)
        if portion is not None:
            self.wanted = True
        return portion

    def put(self, portions: Sequence[EncodedChunk]) -> None:
        for portion in portions:
            portion.kept = self
            self._portions[portion.start] = portion
        self.grow(sum([portion.cost for portion in portions]))

    def grow(self, size: int) -> None:
        self.used += size
        self._budget.used += size
        while self._portions and (self.used > self._limit or self._budget.used > self._budget.limit):
            self._drop()

    def clear(self) -> None:
        while self._portions:
            self._drop()

    def _drop(self) -> None:
        portion = self._portions.pop(next(iter(self._portions)))
        portion.kept = None
        if not portion.forms:
            self.wanted = False
        self.used -= portion.cost
        self._budget.used -= portion.cost


def fresh(base: int, values: Sequence[bytes], cut: Cut) -> list[EncodedChunk]:
    """What was appended from `base` on, cut. All of it is live."""
    made: list[EncodedChunk] = []
    at, count = 0, len(values)
    while at < count:
        part = list(values[at : at + cut.events])
        size = sum(map(len, part))
        while size > cut.bytes and len(part) > 1:
            del part[-(len(part) // 2) :]
            size = sum(map(len, part))
        made.append(EncodedChunk(base + at, base + at + len(part), [(base + at, part)], size))
        at += len(part)
    return made


def portions(
    found: Sequence[RecordSlice], start: int, end: int, cut: Cut, lifetime: int = 0, *, more: bool = False
) -> list[EncodedChunk]:
    """What was found from `start` up to `end`, cut; with no gap between the portions, and at least one. `lifetime`: µs
    after which the topic's records expire. With `more` behind `end`, a last portion that is perhaps not full is left
    out, if there are others: it would end where this read did, and not where the next reader's does."""
    made = _Portions(start, cut)
    for part in found:
        at, part_end = part.base_offset, part.end_offset
        while at < part_end:
            at = made.add(part, at, lifetime)
    return made.finish(end, more=more)


class _Portions:
    """Portions in the making."""

    def __init__(self, start: int, cut: Cut) -> None:
        self._cut = cut
        self._done: list[EncodedChunk] = []
        self._begin(start)

    def _begin(self, start: int) -> None:
        self._start = self._at = start
        self._runs: list[Run] = []
        self._left = self._cut.events
        self._room = self._cut.bytes
        self._size = 0
        self._until = FOREVER

    def add(self, part: RecordSlice, at: int, lifetime: int) -> int:
        """As much of the part from `at` on as there is room for; and where to go on."""
        taken = part.batch.slice(at, part.end_offset, self._room, self._left)
        size = taken.byte_size()
        if self._runs and size > self._room:
            self._end(at)
            return at
        values = taken.values()
        if self._runs and at == self._at:
            self._runs[-1][1].extend(values)
        else:
            self._runs.append((at, values))
        self._at = taken.end_offset
        self._left -= len(values)
        self._room -= size
        self._size += sum(map(len, values))
        if lifetime or taken.batch.flags & EXPIRES:
            self._until = min(self._until, _expires_first(taken, lifetime))
        if self._left <= 0 or self._room <= 0:
            self._end(self._at)
        return self._at

    def _end(self, end: int) -> None:
        self._done.append(EncodedChunk(self._start, end, self._runs, self._size, self._until))
        self._begin(end)

    def finish(self, end: int, *, more: bool) -> list[EncodedChunk]:
        if end > self._start and not (more and self._done):
            self._end(end)
        return self._done


def _expires_first(part: RecordSlice, lifetime: int) -> int:
    """When (µs since 1970) the first of these records expires."""
    first = FOREVER
    if part.batch.flags & EXPIRES:
        first = min([at for at in part.expires() if at > 0], default=FOREVER)
    return min(first, min(part.timestamps()) + lifetime) if lifetime else first
