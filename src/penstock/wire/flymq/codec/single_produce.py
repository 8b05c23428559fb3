"""Single PRODUCE: one frame without a key that arrives alone, from a client that waits for each reply.

Such a client mostly writes to one topic, so that the beginning of its frames needs to be decoded only once.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final

from penstock.wire.flymq.codec.coalesced_produce import MAX_NAME, CoalescedProduce
from penstock.wire.flymq.opcodes import COMPRESSION_MASK, HEADER_SIZE, MAGIC, VERSION

_PRODUCE: Final = MAGIC << 16 | VERSION << 8 | 0x01
_PARTITION: Final = struct.Struct(">i")
_FIXED: Final = 12  # bytes of a payload besides topic and value: two lengths and the partition


@lru_cache(256)  # a client that writes to many topics changes with every frame, mostly between few lengths
def _unpacker(name_size: int) -> Any:
    """Unpacks what a frame has before and behind a topic of this length, which includes its prefix."""
    return struct.Struct(f">II{name_size}xII").unpack_from


class SingleProduce:
    """One record for one topic."""

    __slots__ = ("byte_size", "partition", "topic", "value")

    def __init__(self, topic: str, value: bytes, partition: int, byte_size: int) -> None:
        self.topic = topic
        self.value = value
        self.partition = partition
        self.byte_size = byte_size  # of the frame

    def coalesced(self) -> CoalescedProduce:
        return CoalescedProduce(self.topic, None, [self.value], [self.partition], self.byte_size)


class SingleProduceDecoder:
    """Remembers the topic of the last frame of its connection."""

    __slots__ = ("_name", "_topic", "_unpack", "_value_at")

    def __init__(self) -> None:
        self._name = b"\0\0"  # with its length: equal topics are equal bytes
        self._topic = ""
        self._value_at = HEADER_SIZE + 2 + 8
        self._unpack: Any = _unpacker(2)

    def decode(self, data: bytes) -> SingleProduce | None:
        """None if the data is not exactly one such frame."""
        size = len(data)
        if not data.startswith(self._name, HEADER_SIZE) and not self._learn(data):
            return None
        at = self._value_at
        if size < at:
            return None
        fields: tuple[int, int, int, int] = self._unpack(data)
        kind, length, key_size, value_size = fields
        if kind >> 8 != _PRODUCE or kind & COMPRESSION_MASK or key_size:
            return None
        end = at + value_size
        if end + 4 != size or length != size - HEADER_SIZE:
            return None
        partition: int = _PARTITION.unpack_from(data, end)[0]
        return SingleProduce(self._topic, data[at:end], partition, size)

    def _learn(self, data: bytes) -> bool:
        """Remember the topic of this frame; False if it has none. With a topic for every frame, every frame takes
        this way."""
        start = HEADER_SIZE + 2
        if len(data) < start:
            return False
        end = start + (data[HEADER_SIZE] << 8 | data[HEADER_SIZE + 1])
        if end > min(len(data), MAX_NAME):
            return False
        try:
            self._topic = data[start:end].decode()
        except UnicodeDecodeError:
            return False
        self._name = data[HEADER_SIZE:end]
        self._value_at = end + 8
        self._unpack = _unpacker(end - HEADER_SIZE)
        return True
