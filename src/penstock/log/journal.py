"""The journal as its readers see it: segments, the bounds of each partition, and what only tables still have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.log.engine import Bounds, ClosedFile, PartitionId, ReadPlan, TieredReader
from penstock.log.errors import OffsetOutOfRange
from penstock.log.open_group import PendingGroup
from penstock.log.partition import PartitionLog
from penstock.log.reading import BatchCache, DiskPlan, ReadyPlan, files_from, first_at
from penstock.log.segment import Segment
from penstock.log.tiered_read import TieredReadPlan, offset_in_table
from penstock.log.tiering_state import TableEnds, closed_files, usage

_EMPTY: Final = PartitionLog()


class Journal:
    """The reading half of `penstock.log.engine.Engine`. Whoever writes moves the bounds, and adds and removes
    segments; what readers on other threads may have, segments and groups, is replaced, never shortened."""

    def __init__(
        self,
        segments: list[Segment],
        ranges: Mapping[int, tuple[int, int]],
        dropped: set[int],
        table_ends: TableEnds,
        cache: BatchCache,
        on_damage: Callable[[Exception], None],
    ) -> None:
        self._segments = segments
        self._unwritten: tuple[PendingGroup, ...] = ()  # groups that are readable before a segment has them, in order
        self._partitions: dict[int, PartitionLog] = {
            partition: PartitionLog(start, end) for partition, (start, end) in ranges.items()
        }
        self._dropped = dropped
        self._table_ends = table_ends
        self._tiered: TieredReader | None = None
        self._cache = cache
        self._on_damage = on_damage

    def _partition(self, partition: PartitionId) -> PartitionLog:
        log = self._partitions.get(partition)
        if log is None:
            log = self._partitions[partition] = PartitionLog()
        return log

    def bounds(self, partition: PartitionId) -> Bounds:
        log = self._partitions.get(partition)
        return Bounds(log.start, log.high_watermark) if log else Bounds(0, 0)

    def next_offset(self, partition: PartitionId) -> int:
        log = self._partitions.get(partition)
        return log.next_offset if log else 0

    def read(self, partition: PartitionId, offset: int, max_bytes: int, max_records: int) -> ReadPlan:
        log = self._partitions.get(partition) or _EMPTY
        if offset < log.start:
            raise OffsetOutOfRange(offset, log.start, log.high_watermark)
        if offset >= log.high_watermark or max_records <= 0:
            return ReadyPlan([])
        slices = log.slices(offset, max_bytes, max_records)
        if slices is not None:
            return ReadyPlan(slices)
        files, first = files_from(self._segments, partition, offset)
        table_end = self._table_ends.get(partition).offset
        in_table = offset < table_end and (not files or offset < first)
        plan = DiskPlan(
            files,
            partition,
            first if in_table else offset,
            log.high_watermark,
            max_bytes,
            max_records,
            self._cache,
            self._on_damage,
        )
        if not in_table:
            return plan
        seam = first if files else table_end
        return TieredReadPlan(self._tiered, partition, offset, seam, max_bytes, max_records, plan if files else None)

    def offset_at(self, partition: PartitionId, timestamp: int) -> int | None:
        # In this order: a group leaves `_unwritten` when its segment has it.
        bounds, groups = self.bounds(partition), self._unwritten
        segments = list(self._segments)
        if bounds.start < self._table_ends.get(partition).offset:
            files, first = files_from(segments, partition, bounds.start)
            if not files or bounds.start < first:
                found = offset_in_table(self._tiered, partition, timestamp, bounds.start)
                if found is not None:
                    return found
        unwritten = [batch for group in groups for batch in group.batches if batch.partition == partition]
        return first_at(segments, unwritten, partition, timestamp, bounds, self._cache)

    def read_tiered_from(self, tiered: TieredReader) -> None:
        self._tiered = tiered

    def watch(self, partition: PartitionId, callback: Callable[[], None]) -> None:
        log = self._partition(partition)
        if log.watchers is None:
            log.watchers = [callback]
        else:
            log.watchers.append(callback)

    def unwatch(self, partition: PartitionId, callback: Callable[[], None]) -> None:
        log = self._partitions.get(partition)
        if log is not None and log.watchers is not None:  # otherwise it was dropped meanwhile
            log.watchers.remove(callback)
            log.watchers = log.watchers or None

    def segment_count(self, partition: PartitionId) -> int:
        start, end = self.bounds(partition)
        extents = [segment.index.extent(partition) for segment in self._segments]
        held = [extent for extent in extents if extent is not None and extent.end_offset > start]
        only_in_table = start < (held[0].first_offset if held else end)
        return len(held) + only_in_table

    def closed_files(self) -> list[ClosedFile]:
        starts = {partition: log.start for partition, log in self._partitions.items()}
        return closed_files(self._segments[:-1], self._table_ends, starts, self._dropped)

    def table_end(self, partition: PartitionId) -> int:
        return self._table_ends.get(partition).offset

    def stored_bytes(self, partition: PartitionId, offset: int) -> int:
        extents = (segment.index.extent(partition) for segment in self._segments)
        return sum(extent.byte_size for extent in extents if extent is not None and extent.first_offset >= offset)

    def usage(self) -> dict[int, int]:
        starts = {partition: log.start for partition, log in self._partitions.items()}
        return usage(self._segments, self._table_ends, starts)
