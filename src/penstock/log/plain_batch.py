"""A batch of records without keys, headers and expiry, from appends of one record each to its bytes.

The layout is that of `batch`; nothing distinguishes such a batch from any other when it is read.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from penstock.log.batch import (
    BATCH_MAGIC,
    HEADER_SIZE,
    MAX_BATCH_BYTES,
    PADDING,
    RECORD_BYTES,
    TRAILER_SIZE,
    Batch,
    padding,
)
from penstock.log.checksum import crc32c, join_with_checksum
from penstock.log.open_batch import OpenBatch, value_offsets

# `BATCH_HEADER`. Flags, the number of headers, and the sizes of keys and headers are zeros.
_HEAD: Final = struct.Struct("<4sI4xIIIQQI8xI8xqq")
_LARGE_BATCH: Final = 64 << 10  # bytes of all values, and
_LARGE: Final = 1024  # of one on average, from which on copying them twice takes longer than a checksum of each
_END: Final = tuple(bytes((-size & 7) + 4) for size in range(8))  # padding, by size, and the zeros of the trailer
_NO_HEADERS: Final = (0, 0)
_MIXED: Final = -1


class PlainBatch(Batch):
    """A batch of records without keys, headers and expiry: collected in a commit group, then `finish` makes it whole.

    Clients that share a topic and send one record at a time make such a batch of nearly every group: so there is only
    this one object, and its header is not decoded again."""

    __slots__ = ("_length", "_stamps", "_values")

    def __init__(self, partition: int, base_offset: int, value: bytes, stamp: int, door: int) -> None:
        self.partition = partition
        self.base_offset = base_offset
        self.count = 1
        self.door = door
        self.value_bytes = len(value)
        self.min_timestamp = self.max_timestamp = stamp
        self.flags = self.header_count = self._key_bytes = 0
        self._header_bytes = _NO_HEADERS
        self._starts = None
        self.doors = b""
        self._values = [value]
        self._stamps = [stamp]
        self._length = len(value)  # of every value, or `_MIXED`

    @property
    def appended_bytes(self) -> int:
        """About what its records take in the journal."""
        return self.value_bytes + RECORD_BYTES * self.count

    def append(self, value: bytes, stamp: int) -> None:
        size = len(value)
        self._values.append(value)
        self._stamps.append(stamp)
        self.count += 1
        self.value_bytes += size
        if size != self._length:
            self._length = _MIXED
        if stamp > self.max_timestamp:
            self.max_timestamp = stamp
        elif stamp < self.min_timestamp:
            self.min_timestamp = stamp

    def finish(self, position: int) -> None:
        """Encode it; `position` is the global position of its first record."""
        values, partition, count, size = self._values, self.partition, self.count, self.value_bytes
        offsets = value_offsets(values, self._length)
        gap = PADDING[padding(len(offsets))]
        length = HEADER_SIZE + 8 * count + len(offsets) + len(gap) + size + padding(size) + TRAILER_SIZE
        if length > MAX_BATCH_BYTES:
            raise ValueError("a batch of more than 1 GiB")
        head = _HEAD.pack(
            BATCH_MAGIC, length, self.door, partition >> 32, partition & 0xFFFFFFFF, self.base_offset, position,
            count, size, self.min_timestamp, self.max_timestamp,
        )  # fmt: skip
        parts = [head, array("q", self._stamps).tobytes(), offsets, gap, *values, _END[size & 7]]
        if size >= _LARGE_BATCH and size >= _LARGE * count:
            self.data = join_with_checksum(parts)
        else:
            body = b"".join(parts)
            self.data = body + crc32c(body).to_bytes(4, "little")
        self.position = position
        self._values = []
        self._stamps = []

    def reopened(self) -> OpenBatch:
        """The same, for records of any kind; `finish` was not called."""
        batch = OpenBatch(self.partition, self.base_offset, self.door)
        for value, stamp in zip(self._values, self._stamps, strict=True):
            batch.append(value, stamp)
        return batch
