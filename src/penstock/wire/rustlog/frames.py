"""Frames: a length of four bytes, big-endian, then that many bytes of payload. Both dialects use them.

This module splits a byte stream, in pieces of any size, into payloads. It never looks into a payload.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from penstock.wire import framing
from penstock.wire.rustlog.errors import FrameError, FrameTooLarge, ReplyTooLarge, ZeroLengthFrame

MAX_FRAME: Final = 10_485_760  # bytes of payload
HEADER_SIZE: Final = 4
_LENGTH: Final = struct.Struct(">I")


class ReadLimit(NamedTuple):
    """The limits of one Fetch's read from the log; more would not fit into one frame."""

    max_bytes: int
    max_records: int


class Framer(framing.Framer[bytes, FrameError]):
    """Splits a byte stream into payloads."""

    __slots__ = ("max_frame",)

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        super().__init__(HEADER_SIZE)
        self.max_frame = max_frame

    def _cut(self, data: bytes) -> list[bytes]:
        payloads: list[bytes] = []
        size = len(data)
        start = 0
        needed = HEADER_SIZE
        while size - start >= HEADER_SIZE:
            (length,) = _LENGTH.unpack_from(data, start)
            if not 0 < length <= self.max_frame:
                self.error = FrameTooLarge(length, self.max_frame) if length else ZeroLengthFrame()
                return payloads
            end = start + HEADER_SIZE + length
            if end > size:
                needed = HEADER_SIZE + length
                break
            payloads.append(data[start + HEADER_SIZE : end])
            start = end
        self._needed = needed
        if start < size:
            self._buffer += data[start:]
        return payloads


def frame(payload: bytes) -> bytes:
    """The payload after its length. Raises ReplyTooLarge."""
    if not 0 < len(payload) <= MAX_FRAME:
        raise ReplyTooLarge(len(payload), MAX_FRAME)
    return _LENGTH.pack(len(payload)) + payload
