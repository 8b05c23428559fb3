"""A batch of a single record without key, headers and expiry, from the append to its bytes.

The layout is that of `batch`; nothing distinguishes such a batch from any other when it is read.
"""

from __future__ import annotations

import struct
from typing import Final

from penstock.log.batch import BATCH_MAGIC, MAX_BATCH_BYTES, TRAILER_SIZE, Batch
from penstock.log.checksum import crc32c, join_with_checksum
from penstock.log.plain_batch import PlainBatch

# Everything before the value: `BATCH_HEADER`, a timestamp and two offsets. Flags, the number of headers, the sizes of
# keys and headers, and the first offset are zeros.
_HEAD: Final = struct.Struct("<4sI4xIIIQQI8xI8xqqq4xi")
_LARGE: Final = 8 << 10  # bytes of a value from which on copying it twice takes longer than checksums of three parts
_END: Final = tuple(bytes((-size & 7) + 4) for size in range(8))  # padding, by size, and the zeros of the trailer
_NO_HEADERS: Final = (0, 0)


class SingleBatch(Batch):
    """A batch of one record without key, headers and expiry: collected in a commit group, then `finish` makes it whole.

    A client that does not batch, or many topics, make a batch of nearly every record: so there is only this one object,
    and its header is not decoded again."""

    __slots__ = ("_value",)

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
        self._value = value

    def finish(self, position: int) -> None:
        """Encode it; `position` is the global position of the record."""
        value, partition, stamp = self._value, self.partition, self.max_timestamp
        size = len(value)
        length = _HEAD.size + size + (-size & 7) + TRAILER_SIZE
        if length > MAX_BATCH_BYTES:
            raise ValueError("a batch of more than 1 GiB")
        head = _HEAD.pack(
            BATCH_MAGIC, length, self.door, partition >> 32, partition & 0xFFFFFFFF, self.base_offset, position,
            1, size, stamp, stamp, stamp, size,
        )  # fmt: skip
        if size < _LARGE:
            body = b"".join((head, value, _END[size & 7]))
            self.data = body + crc32c(body).to_bytes(4, "little")
        else:
            self.data = join_with_checksum((head, value, _END[size & 7]))
        self.position = position
        self._value = b""

    def reopened(self) -> PlainBatch:
        """The same, for more records; `finish` was not called."""
        return PlainBatch(self.partition, self.base_offset, self._value, self.max_timestamp, self.door)
