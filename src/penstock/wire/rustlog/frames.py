"""Frames: a length of four bytes, big-endian, then that many bytes of payload. Both dialects use them.

This module cuts a byte stream, in whatever pieces it arrives, into payloads. It never looks into a payload.
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
    """The bounds of one Fetch's read from the log; more could not be sent in one frame."""

    max_bytes: int
    max_records: int


class Framer(framing.Framer[bytes, FrameError]):
    """Cuts payloads out of a byte stream."""

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
    """The payload with its length before it."""
    if not 0 < len(payload) <= MAX_FRAME:
        raise ReplyTooLarge(len(payload), MAX_FRAME)
    return _LENGTH.pack(len(payload)) + payload
