"""FlyMQ frames as bytes, made before the clock runs, and replies, checked without taking them apart.

Written from the protocol document and not with the broker's own codec, for the reason given in `wire`.
"""

from __future__ import annotations

import struct
from typing import Final

from benchmarks.wire import BadReply, text

PRODUCE, FETCH = 0x01, 0x07
HEADER: Final = struct.Struct(">BBBBI")
_NEXT_OFFSET: Final = struct.Struct(">Q")


def frame(opcode: int, payload: bytes) -> bytes:
    return HEADER.pack(0xAF, 1, opcode, 1, len(payload)) + payload


def produce(topic: str, value: bytes, partition: int = -1) -> bytes:
    """Without a key."""
    return frame(PRODUCE, text(topic) + struct.pack(f">II{len(value)}si", 0, len(value), value, partition))


def produced(topic: str, size: int, partition: int = 0, offset: int = 0) -> bytes:
    """The reply to `produce` of a value of this size; all of a topic have one length."""
    return frame(PRODUCE, text(topic) + struct.pack(">iQqii", partition, offset, 1_700_000_000_000, -1, size))


def fetch(topic: str, partition: int, offset: int, records: int) -> bytes:
    return frame(FETCH, text(topic) + struct.pack(">iQi", partition, offset, records))


def fetched(first: int, values: list[bytes]) -> bytes:
    """The reply to `fetch`, in the order of the document."""
    records = [struct.pack(f">II{len(v)}sQ", 0, len(v), v, first + n) for n, v in enumerate(values)]
    return frame(FETCH, struct.pack(">I", len(values)) + b"".join(records) + _NEXT_OFFSET.pack(first + len(values)))


class Replies:
    """Takes whole replies to PRODUCE off what was received, and says how many there were."""

    __slots__ = ("_head", "_rest", "_size")

    def __init__(self, topic: str) -> None:
        reply = produced(topic, 0)
        self._size = len(reply)
        self._head = reply[: HEADER.size]
        self._rest = b""

    def count(self, data: bytes) -> int:
        """Raises BadReply. One reply of another kind or length shifts all behind it, and is seen."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        size = self._size
        count, left = divmod(len(data), size)
        if left:
            self._rest = data[-left:]
        if count == 1:
            if not data.startswith(self._head):
                raise BadReply(repr(data[:200]))
        elif any(data[at : count * size : size] != self._head[at : at + 1] * count for at in (0, 2, 7)):
            raise BadReply(repr(data[:200]))
        return count


def records_in(reply: memoryview) -> tuple[int, int]:
    """Of a whole reply to FETCH: (how many records, the next offset). Raises BadReply."""
    if reply[2] != FETCH:
        raise BadReply(repr(bytes(reply[:200])))
    return int.from_bytes(reply[8:12]), int.from_bytes(reply[-8:])
