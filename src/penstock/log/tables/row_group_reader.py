"""Reads single records from tables, for the engine: records below the journal, at the same offsets.

A consumer that catches up reads sequentially, so whole row groups are decoded, and the most recent ones cached.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final

import pyarrow as pa

from penstock.log.arrow import STORED, UnusableColumns, stored_batch
from penstock.log.batch import Batch, RecordSlice
from penstock.log.engine import PartitionId, number_of, topic_of
from penstock.log.errors import TableDamaged, TableUnreadable
from penstock.log.slice_collector import SliceCollector
from penstock.log.tables.errors import unreadable
from penstock.log.tables.location import TableRef
from penstock.log.tables.part_reader import FAILURES, PartReader, TableFile
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table

CACHE_BYTES: Final = 64 << 20
_FOOTERS: Final = 256


class RowGroupReader:
    """Implements `penstock.log.engine.TieredReader`. `find` returns the table of a topic, or None if it has none."""

    def __init__(self, find: Callable[[int], TableRef | None], *, cache_bytes: int = CACHE_BYTES) -> None:
        self._find = find
        self._cache_bytes = cache_bytes
        self._lock = Lock()
        self._tables: dict[int, Table] = {}
        self._firsts: OrderedDict[tuple[int, str], list[int]] = OrderedDict()  # offsets of a file's row groups
        self._batches: OrderedDict[tuple[int, str, int], Batch] = OrderedDict()
        self._size = 0

    def read(
        self, partition: PartitionId, offset: int, end: int, max_bytes: int, max_records: int
    ) -> list[RecordSlice]:
        """Records from `offset` on, below `end`: at least one, otherwise up to both limits. Raises TableUnreadable."""
        slices = SliceCollector(offset, max_bytes, max_records)
        while slices.offset < end:
            try:
                batch = self._batch(partition, slices.offset)
            except TableDamaged:
                if slices.found:  # serve records before the damage; the next read fails
                    break
                raise
            if not slices.add(batch, end):
                break
        return slices.found

    def offset_at(self, partition: PartitionId, timestamp: int, start: int) -> int | None:
        """Uses the newest version, since it may have more records."""
        return self._open(topic_of(partition), again=True).offset_at(number_of(partition), timestamp, start)

    def close(self) -> None:
        with self._lock:
            self._tables.clear()
            self._firsts.clear()
            self._batches.clear()
            self._size = 0

    def _batch(self, partition: PartitionId, offset: int) -> Batch:
        """The row group with this offset."""
        topic, number = topic_of(partition), number_of(partition)
        for again in (False, True):  # it may be in a newer version
            table = self._open(topic, again=again)
            file = table.file_at(number, offset)
            if file is None:
                continue
            try:
                return self._decoded(table, file, partition, offset)
            except FileNotFoundError:
                continue
            except TableDamaged:
                if again:
                    raise
                continue  # it may have been repaired, or compacted before the damage
            except FAILURES as error:
                raise unreadable(table.ref, f"{file.path}: {error}") from error
        raise unreadable(self._open(topic).ref, f"offset {offset} of partition {number} is not in it")

    def _open(self, topic: int, *, again: bool = False) -> Table:
        with self._lock:
            table = None if again else self._tables.get(topic)
        if table is None:
            ref = self._find(topic)
            if ref is None:
                raise TableUnreadable(f"there is no table for topic {topic}")
            table = _open(ref)
            if table is None:
                raise unreadable(ref, "there is no table")
            table.partitions()  # loads the list of files now, on one thread
            with self._lock:
                self._tables[topic] = table
        return table

    def _decoded(self, table: Table, file: TableFile, partition: PartitionId, offset: int) -> Batch:
        topic = topic_of(partition)
        with self._lock:
            firsts = self._firsts.get((topic, file.path))
            if firsts is not None:
                self._firsts.move_to_end((topic, file.path))
                key = (topic, file.path, bisect_right(firsts, offset) - 1)
                if (batch := self._batches.get(key)) is not None:
                    self._batches.move_to_end(key)
                    return batch
        with PartReader(table.store, file, verify=table.verify) as part:
            firsts = [group.first for group in part.groups]
            number = bisect_right(firsts, offset) - 1
            group = part.groups[number]
            rows = list(part.batches(group, STORED.names))
            try:
                batch = stored_batch(rows[0] if len(rows) == 1 else pa.concat_batches(rows), partition)
            except UnusableColumns as error:
                raise part.damaged(group.first, group.end, str(error)) from error
            if not batch.base_offset <= offset < batch.end_offset:
                reason = f"it has offsets {batch.base_offset} to {batch.end_offset} for {offset}"
                raise part.damaged(group.first, group.end, reason)
        with self._lock:
            self._keep(topic, file.path, number, firsts, batch)
        return batch

    def _keep(self, topic: int, path: str, number: int, firsts: list[int], batch: Batch) -> None:
        self._firsts[topic, path] = firsts
        if len(self._firsts) > _FOOTERS:
            self._firsts.popitem(last=False)
        before = self._batches.pop((topic, path, number), None)
        self._size += len(batch.data) - (0 if before is None else len(before.data))
        self._batches[topic, path, number] = batch
        while self._size > self._cache_bytes and len(self._batches) > 1:
            self._size -= len(self._batches.popitem(last=False)[1].data)


def _open(ref: TableRef) -> Table | None:
    try:
        return Table.open(ref)
    except TableUnreadable:
        TableStore(ref).mend()  # there may have been a loss of power since the last change
        return Table.open(ref)
