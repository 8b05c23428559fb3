"""Chunks of a partition's values that many subscribers share, and their encodings for the protocols.

Independent of the log and of subscribers: `fanout` connects them.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

from penstock.equal_values import EqualValues
from penstock.log.batch import EXPIRES, KEYS, RecordSlice

FOREVER: Final = 1 << 62  # µs since 1970
MAX_ENCODINGS: Final = 16  # cached per chunk; beyond it the oldest is dropped
WINDOW_BYTES: Final = 4 << 20  # cached per partition
APPENDED_BYTES: Final = 8 << 20  # likewise, for chunks that were just appended
ALL_BYTES: Final = 64 << 20  # cached for all partitions together
VALUE_OVERHEAD: Final = 48  # memory of a value in addition to its bytes
CHUNK_OVERHEAD: Final = 640  # likewise, for a chunk

ValueRun: TypeAlias = tuple[int, Sequence[bytes]]
"""Consecutive values, and the offset of the first."""


class ChunkLimits(NamedTuple):
    """The size limits of one chunk."""

    events: int
    bytes: int  # of keys and values; a larger record is in a chunk of its own


class EncodedChunk:
    """The visible values of the offsets from `start` (inclusive) to `end` (exclusive). Immutable."""

    __slots__ = ("cost", "count", "encodings", "end", "kept", "runs", "size", "start", "times", "until")

    def __init__(
        self, start: int, end: int, runs: Sequence[ValueRun], size: int, until: int = FOREVER, times: bytes = b"",
        held: int | None = None,
    ) -> None:  # fmt: skip
        """`held`: bytes that the values keep in memory, if these are not an object for each."""
        self.start = start
        self.end = end
        self.runs = runs  # in order, separated by gaps
        self.count = sum([len(values) for _, values in runs])
        self.size = size  # bytes of all values
        self.times = times  # of all values, µs since 1970, packed; see `timestamps`
        self.until = until  # µs since 1970: time of the first expiry
        self.encodings: dict[Hashable, bytes] = {}  # encoded bytes, by keys private to each protocol
        self.kept: ChunkWindow | AppendedChunks | None = None
        self.cost = CHUNK_OVERHEAD + (size + VALUE_OVERHEAD * self.count if held is None else held + len(times))

    def encoded(self, key: Hashable, make: Callable[[EncodedChunk], bytes]) -> bytes:
        """The cached encoding under this key; made by `make` on first use."""
        data = self.encodings.get(key)
        if data is None:
            data = make(self)
            if len(self.encodings) >= MAX_ENCODINGS:
                self._grow(-len(self.encodings.pop(next(iter(self.encodings)))))
            self.encodings[key] = data
            self._grow(len(data))
        return data

    def timestamps(self) -> memoryview[int]:
        """The timestamps of all values of all runs."""
        return memoryview(self.times).cast("q")

    def _grow(self, size: int) -> None:
        self.cost += size
        if self.kept is not None:
            self.kept.grow(size)

    def between(self, start: int, end: int) -> EncodedChunk:
        """The part from `start` (inclusive) to `end` (exclusive)."""
        runs: list[ValueRun] = []
        times, at = b"", 0
        for offset, values in self.runs:
            first, last = max(start - offset, 0), min(end - offset, len(values))
            if first < last:
                runs.append((offset + first, values[first:last]))
                times += self.times[8 * (at + first) : 8 * (at + last)]
            at += len(values)
        return EncodedChunk(start, end, runs, sum([_size(values) for _, values in runs]), self.until, times)


class MemoryBudget:
    """The bytes held by all windows together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = ALL_BYTES) -> None:
        self.limit = limit
        self.used = 0


class ChunkWindow:
    """Chunks of one partition, cached for subscribers that reach the same offset a little later. LRU eviction."""

    __slots__ = ("_budget", "_chunks", "_limit", "_starts", "used")

    def __init__(self, budget: MemoryBudget, limit: int = WINDOW_BYTES) -> None:
        self._budget = budget
        self._limit = limit
        self._chunks: OrderedDict[int, EncodedChunk] = OrderedDict()  # by start offset
        self._starts: list[int] = []  # the same offsets, in order
        self.used = 0  # bytes

    def __len__(self) -> int:
        return len(self._chunks)

    def get(self, start: int, now: int) -> EncodedChunk | None:
        """The chunk with this start, unless some of it has expired since it was read."""
        chunk = self._chunks.get(start)
        if chunk is None:
            return None
        if chunk.until <= now:
            self._drop(start)
            return None
        self._chunks.move_to_end(start)
        return chunk

    def around(self, offset: int, now: int) -> EncodedChunk | None:
        """A chunk that contains this offset, but does not start there."""
        at = bisect_left(self._starts, offset) - 1
        found = self._chunks[self._starts[at]] if at >= 0 else None
        return found if found is not None and found.end > offset and found.until > now else None

    def next_start(self, offset: int) -> int | None:
        """The start of the next chunk after this offset: a read up to there continues with cached chunks."""
        at = bisect_right(self._starts, offset)
        return self._starts[at] if at < len(self._starts) else None

    def put(self, chunk: EncodedChunk) -> None:
        assert chunk.kept is None, "a chunk is kept once"
        if chunk.start in self._chunks:
            self._drop(chunk.start)
        chunk.kept = self
        self._chunks[chunk.start] = chunk
        insort(self._starts, chunk.start)
        self.grow(chunk.cost)

    def grow(self, size: int) -> None:
        self.used += size
        self._budget.used += size
        while len(self._chunks) > 1 and (self.used > self._limit or self._budget.used > self._budget.limit):
            self._drop(next(iter(self._chunks)))

    def clear(self) -> None:
        while self._chunks:
            self._drop(next(iter(self._chunks)))

    def _drop(self, start: int) -> None:
        chunk = self._chunks.pop(start)
        del self._starts[bisect_left(self._starts, start)]
        chunk.kept = None
        self.used -= chunk.cost
        self._budget.used -= chunk.cost


class AppendedChunks:
    """Chunks of records that were just appended, for subscribers that were waiting for them: these need no read. FIFO
    eviction.
    """

    __slots__ = ("_budget", "_chunks", "_limit", "used", "wanted")

    def __init__(self, budget: MemoryBudget, limit: int = APPENDED_BYTES) -> None:
        self._budget = budget
        self._limit = limit
        self._chunks: dict[int, EncodedChunk] = {}  # by start offset, in log order
        self.used = 0  # bytes
        self.wanted = False  # chunks were taken from here, and none has been evicted unused since

    def get(self, start: int) -> EncodedChunk | None:
        chunk = self._chunks.get(start)
        if chunk is not None:
            self.wanted = True
        return chunk

    def around(self, offset: int) -> EncodedChunk | None:
        """A chunk that contains this offset, but does not start there."""
        if not self._chunks or offset < next(iter(self._chunks)):  # as for all subscribers that are further behind
            return None
        starts = list(self._chunks)
        found = self._chunks[starts[bisect_left(starts, offset) - 1]]
        return found if found.start < offset < found.end else None

    def next_start(self, offset: int) -> int | None:
        """The start of the next chunk after this offset, as in `ChunkWindow`."""
        first = next(iter(self._chunks), None)
        if first is None or first > offset:
            return first
        return min([start for start in self._chunks if start > offset], default=None)

    def put(self, chunks: Sequence[EncodedChunk]) -> None:
        for chunk in chunks:
            chunk.kept = self
            self._chunks[chunk.start] = chunk
        self.grow(sum([chunk.cost for chunk in chunks]))

    def grow(self, size: int) -> None:
        self.used += size
        self._budget.used += size
        while self._chunks and (self.used > self._limit or self._budget.used > self._budget.limit):
            self._drop()

    def clear(self) -> None:
        while self._chunks:
            self._drop()

    def release(self, chunk: EncodedChunk) -> None:
        """Drop a chunk of these, which was used."""
        self._remove(chunk.start)

    def _drop(self) -> None:
        if not self._remove(next(iter(self._chunks))).encodings:
            self.wanted = False

    def _remove(self, start: int) -> EncodedChunk:
        chunk = self._chunks.pop(start)
        chunk.kept = None
        self.used -= chunk.cost
        self._budget.used -= chunk.cost
        return chunk


def appended_chunks(base: int, values: Sequence[bytes], limits: ChunkLimits, timestamp: int) -> list[EncodedChunk]:
    """The values appended at `base`, with one timestamp, divided into chunks. All of them are visible."""
    time = timestamp.to_bytes(8, sys.byteorder, signed=True)
    if isinstance(values, EqualValues):
        return _equal_chunks(base, values, limits, time)
    made: list[EncodedChunk] = []
    sizes = list(accumulate(map(len, values), initial=0))  # of all values before each
    at, count = 0, len(values)
    while at < count:
        fit = bisect_right(sizes, sizes[at] + limits.bytes, at, min(at + limits.events, count) + 1) - 1
        end = max(fit, at + 1)
        run = (base + at, list(values[at:end]))
        size = sizes[end] - sizes[at]
        made.append(EncodedChunk(base + at, base + end, [run], size, FOREVER, time * (end - at)))
        at = end
    return made


def _equal_chunks(base: int, values: EqualValues, limits: ChunkLimits, time: bytes) -> list[EncodedChunk]:
    """`appended_chunks` for values of one length, which are not cut out. `time`: of all values, packed."""
    count, fit = len(values), max(min(limits.events, limits.bytes // values.length), 1)
    if count <= fit:
        return [_equal_chunk(base, values, time)]
    # Some of them are evicted before others: a chunk must not keep a frame in memory of which it is a small part.
    parts = [(at, values.part(at, at + fit).compact()) for at in range(0, count, fit)]
    return [_equal_chunk(base + at, part, time) for at, part in parts]


def _equal_chunk(start: int, values: EqualValues, time: bytes) -> EncodedChunk:
    count = len(values)
    return EncodedChunk(start, start + count, [(start, values)], values.size, FOREVER, time * count, values.held_bytes)


def _size(values: Sequence[bytes]) -> int:
    """Bytes of all values."""
    return values.size if isinstance(values, EqualValues) else sum(map(len, values))


def chunks_of_read(
    found: Sequence[RecordSlice], start: int, end: int, limits: ChunkLimits, lifetime: int = 0, *, more: bool = False
) -> list[EncodedChunk]:
    """The records from `start` to `end`, divided into at least one chunk, without gaps between chunks. `lifetime`: µs
    after which the topic's records expire. With `more` records after `end`, a last chunk that may not be full is left
    out, if there are others: its end would depend on where this read ended, and other readers could not share it.
    """
    made = _ChunkBuilder(start, limits)
    for part in found:
        at, part_end = part.base_offset, part.end_offset
        while at < part_end:
            at = made.add(part, at, lifetime)
    return made.finish(end, more=more)


class _ChunkBuilder:
    """Builds chunks from slices of records."""

    def __init__(self, start: int, limits: ChunkLimits) -> None:
        self._limits = limits
        self._done: list[EncodedChunk] = []
        self._begin(start)

    def _begin(self, start: int) -> None:
        self._start = self._at = start
        self._runs: list[tuple[int, list[bytes]]] = []
        self._left = self._limits.events
        self._room = self._limits.bytes
        self._size = 0
        self._until = FOREVER
        self._times: list[bytes] = []

    def add(self, part: RecordSlice, at: int, lifetime: int) -> int:
        """Add as much of the part from `at` on as there is room for; returns where to continue."""
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
        self._times.append(taken.packed_timestamps())
        self._at = taken.end_offset
        self._left -= len(values)
        self._room -= size
        self._size += sum(map(len, values)) if taken.batch.flags & KEYS else size
        if lifetime or taken.batch.flags & EXPIRES:
            self._until = min(self._until, _expires_first(taken, lifetime))
        if self._left <= 0 or self._room <= 0:
            self._end(self._at)
        return self._at

    def _end(self, end: int) -> None:
        times = b"".join(self._times)
        self._done.append(EncodedChunk(self._start, end, self._runs, self._size, self._until, times))
        self._begin(end)

    def finish(self, end: int, *, more: bool) -> list[EncodedChunk]:
        if end > self._start and not (more and self._done):
            self._end(end)
        return self._done


def _expires_first(part: RecordSlice, lifetime: int) -> int:
    """The time (µs since 1970) of the first expiry among these records."""
    first = FOREVER
    if part.batch.flags & EXPIRES:
        first = min([at for at in part.expires() if at > 0], default=FOREVER)
    return min(first, min(part.timestamps()) + lifetime) if lifetime else first
