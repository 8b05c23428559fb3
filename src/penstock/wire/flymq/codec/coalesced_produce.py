"""Coalesced PRODUCE: consecutive frames to one topic, decoded directly from the byte stream into columns.

For a client that sends without waiting, all of them cost one pass over the bytes, one append and one reply.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

from msgspec import Struct

from penstock.wire.flymq.messages import Produce
from penstock.wire.flymq.opcodes import COMPRESSION_MASK, HEADER_SIZE

_LENGTH: Final = struct.Struct(">I")
_PARTITION: Final = struct.Struct(">i")
MAX_NAME: Final = 1024  # bytes of a frame up to the end of its topic; longer names are refused anyway
_FIXED: Final = 12  # bytes of a payload besides topic, key and value: two lengths and the partition


class CoalescedProduce(Struct, frozen=True, gc=False):
    """The records of one or more PRODUCE frames to one topic."""

    topic: str
    keys: list[bytes | None] | None  # None if no record has a key
    values: list[bytes]
    partitions: list[int]
    byte_size: int  # of all frames

    @property
    def count(self) -> int:
        return len(self.values)

    def request(self) -> Produce:
        """The request, if there is only one frame."""
        assert self.count == 1
        return Produce(self.topic, self.keys[0] if self.keys else None, self.values[0], self.partitions[0])

    def split(self) -> list[CoalescedProduce]:
        """One object for each frame."""
        others = HEADER_SIZE + 2 + len(self.topic.encode()) + _FIXED
        keys: Any = repeat(None) if self.keys is None else self.keys
        return [
            CoalescedProduce(
                self.topic, [key] if key else None, [value], [partition], others + len(key or b"") + len(value)
            )
            for key, value, partition in zip(keys, self.values, self.partitions, strict=False)
        ]


def coalesce_produce(data: bytes, start: int, max_bytes: int) -> CoalescedProduce | None:
    """The frames from the PRODUCE at `start` on, which must be complete with a valid header. All of them are complete,
    have the same flags without compression, the same topic, and nothing after the partition; together they have at most
    `max_bytes`, except that the first may be larger. None if already the first does not qualify."""
    topic_end = start + HEADER_SIZE + 2 + int.from_bytes(data[start + HEADER_SIZE : start + HEADER_SIZE + 2])
    if topic_end - start > MAX_NAME:
        return None
    name = data[start + HEADER_SIZE : topic_end]  # with its length: equal topics are equal bytes
    try:
        topic = name[2:].decode()
        first, behind = _layout(len(name))
        kind, length, found, key_size, value_size = first(data, start)
    except (UnicodeDecodeError, struct.error):
        return None
    if kind & COMPRESSION_MASK:
        return None
    limit = min(len(data), start + max(max_bytes, HEADER_SIZE + length))
    last = len(data) - _PARTITION.size - HEADER_SIZE - len(name) - 8  # a value that ends after this has no next frame
    fixed, step = len(name) + _FIXED, len(name) + HEADER_SIZE + _FIXED
    keys: list[bytes | None] = []
    values: list[bytes] = []
    partitions: list[int] = []
    word, at, done = kind, topic_end + 8, start  # `at`: start of the value
    while word == kind and found == name:
        if key_size:
            at += key_size
            if at > limit:
                break
            (value_size,) = _LENGTH.unpack_from(data, at - 4)
        end = at + value_size
        if length != fixed + key_size + value_size or end + 4 > limit:
            break
        if key_size:
            keys += repeat(None, len(values) - len(keys))
            keys.append(data[at - 4 - key_size : at - 4])
        values.append(data[at:end])
        done = end + 4
        if end > last:
            partitions += _PARTITION.unpack_from(data, end)
            break
        partition, word, length, found, key_size, value_size = behind(data, end)
        partitions.append(partition)
        at = end + step
    if not values:
        return None
    if keys:
        keys += repeat(None, len(values) - len(keys))
    return CoalescedProduce(topic, keys or None, values, partitions, done - start)


@lru_cache(maxsize=MAX_NAME)
def _layout(size: int) -> tuple[Callable[[bytes, int], Any], Callable[[bytes, int], Any]]:
    """Unpackers of the fields up to the value's length, for records without a key: of the first frame, and of the
    partition after a value with the next frame. `size`: of the topic with its length."""
    frame = f"II{size}sII"
    return struct.Struct(f">{frame}").unpack_from, struct.Struct(f">i{frame}").unpack_from
