"""Collects slices of consecutive batches, up to the limits of a read."""

from __future__ import annotations

from penstock.log.batch import Batch, RecordSlice


class SliceCollector:
    """The result of one read: at least one record, otherwise up to both limits. `offset` is the next to read."""

    __slots__ = ("_bytes_left", "_records_left", "found", "offset")

    def __init__(self, offset: int, max_bytes: int, max_records: int) -> None:
        self.offset = offset
        self.found: list[RecordSlice] = []
        self._bytes_left = max_bytes
        self._records_left = max_records

    def add(self, batch: Batch, end: int) -> bool:
        """Add the unread part of the batch, below `end`. Returns whether there is room for the next one."""
        part = batch.slice(self.offset, end, self._bytes_left, self._records_left)
        size = part.byte_size()
        if self.found and size > self._bytes_left:
            return False
        self.found.append(part)
        self.offset = part.end_offset
        self._bytes_left -= size
        self._records_left -= len(part)
        return self._bytes_left > 0 and self._records_left > 0 and self.offset >= batch.end_offset
