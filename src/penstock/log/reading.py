"""Read plans: from memory, or from segments on any thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from threading import Lock
from typing import Final

from penstock.log.batch import Batch, BatchDamaged, RecordSlice, check
from penstock.log.engine import Bounds
from penstock.log.errors import LogDamaged
from penstock.log.index import BatchRange
from penstock.log.segment import Segment
from penstock.log.slice_collector import SliceCollector

_READ_BYTES: Final = 4 << 20  # maximum of one read from a file
_GAP_BYTES: Final = 64 << 10  # small batches this close to each other are read together
_SMALL_BYTES: Final = 16 << 10  # a larger batch is read separately: a system call costs less than copying it once more


class BatchCache:
    """The most recent batches read from disk: a reader with small fetches reads a large batch only once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._batches: OrderedDict[tuple[int, int], Batch] = OrderedDict()
        self._lock = Lock()

    def get(self, sequence: int, position: int) -> Batch | None:
        with self._lock:
            batch = self._batches.get((sequence, position))
            if batch is not None:
                self._batches.move_to_end((sequence, position))
            return batch

    def put(self, sequence: int, position: int, batch: Batch) -> None:
        with self._lock:
            if (sequence, position) in self._batches:
                return
            self._batches[sequence, position] = batch
            self._size += len(batch.data)
            while self._size > self._limit and len(self._batches) > 1:
                self._size -= len(self._batches.popitem(last=False)[1].data)


class ReadyPlan:
    """A read from memory, already done."""

    __slots__ = ("_slices",)
    ready = True

    def __init__(self, slices: list[RecordSlice]) -> None:
        self._slices = slices

    def run(self) -> list[RecordSlice]:
        return self._slices


class DiskPlan:
    """A read from segments: `files` hold the partition from `offset` on without gaps."""

    __slots__ = ("_cache", "_end", "_files", "_max_bytes", "_max_records", "_offset", "_on_damage", "_partition")
    ready = False

    def __init__(
        self,
        files: list[Segment],
        partition: int,
        offset: int,
        end: int,
        max_bytes: int,
        max_records: int,
        cache: BatchCache,
        on_damage: Callable[[Exception], None],
    ) -> None:
        self._files = files
        self._partition = partition
        self._offset = offset
        self._end = end
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._cache = cache
        self._on_damage = on_damage

    def run(self) -> list[RecordSlice]:
        try:
            return self._read(self._max_bytes, self._max_records)
        except LogDamaged as error:
            self._on_damage(error)
            raise

    def run_within(self, max_bytes: int, max_records: int) -> list[RecordSlice]:
        """`run` with the rest of the limits after another read; may return nothing."""
        if max_bytes <= 0 or max_records <= 0:
            return []
        self._max_bytes, self._max_records = max_bytes, max_records
        found = self.run()
        return [] if found and found[0].byte_size() > max_bytes else found

    def _read(self, max_bytes: int, max_records: int) -> list[RecordSlice]:
        slices = SliceCollector(self._offset, max_bytes, max_records)
        for file, batch in self._batches():
            if batch.partition != self._partition or not batch.base_offset <= slices.offset < batch.end_offset:
                reason = f"offsets {batch.base_offset} to {batch.end_offset} where offset {slices.offset} belongs"
                raise LogDamaged(file.path, 0, reason)
            if not slices.add(batch, self._end) or slices.offset >= self._end:
                break
        return slices.found

    def _batches(self) -> Iterator[tuple[Segment, Batch]]:
        wanted = self._max_bytes
        for file in self._files:
            index = file.index.partition(self._partition)
            if index is None:
                continue
            for run in runs(index.from_offset(self._offset), wanted):
                for batch in read_batches(file, run, self._cache):
                    wanted -= batch.value_bytes
                    yield file, batch


def runs(ranges: Iterator[BatchRange], wanted: int) -> Iterator[list[BatchRange]]:
    """Runs of adjacent batches, to be read together."""
    run: list[BatchRange] = []
    for span in ranges:
        if run:
            start, end = run[0].position, run[-1].position + run[-1].length
            size = span.position + span.length - start
            apart = span.position - end > _GAP_BYTES or max(span.length, run[-1].length) > _SMALL_BYTES
            if apart or size > min(max(wanted, _GAP_BYTES), _READ_BYTES):
                yield run
                run = []
        run.append(span)
    if run:
        yield run


def read_batches(file: Segment, ranges: list[BatchRange], cache: BatchCache) -> Iterator[Batch]:
    """The batches at these adjacent ranges, with one read. Raises LogDamaged."""
    if len(ranges) == 1 and (cached := cache.get(file.sequence, ranges[0].position)) is not None:
        yield cached
        return
    start = ranges[0].position
    data = file.file.read(start, ranges[-1].position + ranges[-1].length - start)
    for position, length in ranges:
        at = position - start
        try:
            batch = check(data if len(ranges) == 1 else data[at : at + length])
        except BatchDamaged as error:
            raise LogDamaged(file.path, position, str(error)) from None
        if len(ranges) == 1:
            cache.put(file.sequence, position, batch)
        yield batch


def files_from(segments: Sequence[Segment], partition: int, offset: int) -> tuple[list[Segment], int]:
    """The files that hold the partition from `offset` on, or from their own beginning if that is later, and the first
    offset in them."""
    files: list[Segment] = []
    first = 0
    for segment in reversed(segments):
        extent = segment.index.extent(partition)
        if extent is not None:
            files.append(segment)
            first = extent.first_offset
            if first <= offset:
                break
    return files[::-1], first


def first_at(
    segments: Sequence[Segment],
    unwritten: Iterable[Batch],
    partition: int,
    timestamp: int,
    bounds: Bounds,
    cache: BatchCache,
) -> int | None:
    """The first offset in these files, or in batches behind them, within `bounds`, whose record is not older than
    `timestamp`."""
    for batch in chain(_batches_from_time(segments, partition, timestamp, bounds, cache), unwritten):
        if batch.end_offset <= bounds.start:
            continue
        first = max(batch.base_offset, bounds.start)
        found = batch.slice(first, batch.end_offset, len(batch.data), batch.count).first_at(timestamp)
        if found is not None:
            return found if found < bounds.high_watermark else None
    return None


def _batches_from_time(
    segments: Sequence[Segment], partition: int, timestamp: int, bounds: Bounds, cache: BatchCache
) -> Iterator[Batch]:
    for segment in segments:
        extent = segment.index.extent(partition)
        if extent is None or extent.max_timestamp < timestamp or extent.end_offset <= bounds.start:
            continue
        index = segment.index.partition(partition)
        assert index is not None
        for span in index.from_time(timestamp):
            yield from read_batches(segment, [span], cache)
