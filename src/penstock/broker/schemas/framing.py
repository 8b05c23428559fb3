"""Confluent's framing: the bytes that its serializers put before a value.

0         magic byte, always 0
1 … 4     id of the schema in the registry, big-endian
5 …       Protobuf only: the index path of the message in the file, as a count and that many indexes, zigzag varints;
          a single 0 stands for the first message
"""

from __future__ import annotations

from typing import Final

CONFLUENT: Final = "confluent"
PREFIX: Final = 5
MAX_INDEXES: Final = 64  # depth of nested messages
MAX_SHIFT: Final = 28  # of a varint: five bytes


def schema_id(data: bytes) -> int | None:
    """The schema id in a framed value; None if it is not framed."""
    return int.from_bytes(data[1:PREFIX], "big") if len(data) >= PREFIX and data[0] == 0 else None


def unframed(data: bytes, *, protobuf: bool) -> bytes | None:
    """The value without its framing; None if it is not framed."""
    if len(data) < PREFIX or data[0] != 0:
        return None
    if not protobuf:
        return data[PREFIX:]
    count, at = _varint(data, PREFIX)
    if count is None or not 0 <= count <= MAX_INDEXES:
        return None
    for _ in range(count):
        index, at = _varint(data, at)
        if index is None:
            return None
    return data[at:]


def _varint(data: bytes, at: int) -> tuple[int | None, int]:
    """A zigzag varint (None if it is invalid), and its end."""
    value = 0
    for shift in range(0, MAX_SHIFT + 1, 7):
        if at >= len(data):
            return None, at
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    return None, at
