"""Single Produce: a binary frame with one record that arrives alone, from a client that waits for each reply.

Such a client mostly writes to one topic, so that the beginning of its frames needs to be decoded only once.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final

from penstock.wire.rustlog.codec.binary_dialect import PRODUCE
from penstock.wire.rustlog.frames import HEADER_SIZE

_NAME_AT: Final = HEADER_SIZE + 1  # where the topic's length is
_PRODUCED: Final = struct.Struct(">IBQI")  # a whole frame: length, type, base offset, count


@lru_cache(256)  # a client that writes to many topics changes with every frame, mostly between few lengths
def _unpacker(name_size: int) -> Any:
    """Unpacks what a frame has before and behind a topic of this length, which includes its prefix."""
    return struct.Struct(f">IB{name_size}xIII").unpack_from


class SingleProduce:
    """One record for one topic."""

    __slots__ = ("byte_size", "partition", "topic", "value")

    def __init__(self, topic: str, partition: int, value: bytes, byte_size: int) -> None:
        self.topic = topic
        self.partition = partition
        self.value = value
        self.byte_size = byte_size  # of the frame


class SingleProduceDecoder:
    """Remembers the topic of the last frame of its connection."""

    __slots__ = ("_name", "_topic", "_unpack", "_value_at")

    def __init__(self) -> None:
        self._name = b"\0\0"  # with its length: equal topics are equal bytes
        self._topic = ""
        self._value_at = _NAME_AT + 2 + 12
        self._unpack: Any = _unpacker(2)

    def decode(self, data: bytes) -> SingleProduce | None:
        """None if the data is not exactly one such frame."""
        size = len(data)
        if not data.startswith(self._name, _NAME_AT) and not self._learn(data):
            return None
        at = self._value_at
        if size < at:
            return None
        fields: tuple[int, int, int, int, int] = self._unpack(data)
        length, kind, partition, count, value_size = fields
        if kind != PRODUCE or count != 1 or length != size - HEADER_SIZE or value_size != size - at:
            return None
        return SingleProduce(self._topic, partition, data[at:], size)

    def _learn(self, data: bytes) -> bool:
        """Remember the topic of this frame; False if it has none. With a topic for every frame, every frame takes
        this way."""
        start = _NAME_AT + 2
        if len(data) < start:
            return False
        end = start + (data[_NAME_AT] << 8 | data[_NAME_AT + 1])
        if end > len(data):
            return False
        try:
            self._topic = data[start:end].decode()
        except UnicodeDecodeError:
            return False
        self._name = data[_NAME_AT:end]
        self._value_at = end + 12
        self._unpack = _unpacker(end - _NAME_AT)
        return True


def encode_single_produced(offset: int) -> bytes:
    """The reply frame."""
    return _PRODUCED.pack(13, PRODUCE, offset, 1)
