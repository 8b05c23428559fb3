"""Frames: a length of four bytes, big-endian, then that many bytes of payload. Both dialects use them.

This module cuts a byte stream, in whatever pieces it arrives, into payloads. It never looks into a payload.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from penstock.wire.rustlog.errors import FrameError, FrameTooLarge, ReplyTooLarge, ZeroLengthFrame

MAX_FRAME: Final = 10_485_760  # bytes of payload
HEADER_SIZE: Final = 4
_LENGTH: Final = struct.Struct(">I")


class ReadLimit(NamedTuple):
    """How much to read from the log for one Fetch; more could not be sent in one frame."""

    max_bytes: int
    max_records: int


class Framer:
    """Collects bytes and gives out payloads. After a bad length it gives out nothing more: see `error`."""

    __slots__ = ("_buffer", "_needed", "error", "max_frame")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        self.error: FrameError | None = None  # set as soon as a bad length was read; later input is dropped
        self._buffer = bytearray()
        self._needed = HEADER_SIZE  # bytes that the buffer must hold before anything can be done with it

    @property
    def buffered(self) -> int:
        """Bytes held."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that `data` completes, in order. Look at `error` after handling them."""
        if self.error is not None:
            return []
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return []
            # The buffer held no whole frame before, so what remains after this is no longer than `data`: each byte
            # is copied a fixed number of times, however small the pieces are.
            data = bytes(self._buffer)
            self._buffer.clear()
        return self._cut(data)

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
        self._buffer += data[start:]
        return payloads


def frame(payload: bytes) -> bytes:
    """The payload with its length before it."""
    if not 0 < len(payload) <= MAX_FRAME:
        raise ReplyTooLarge(len(payload), MAX_FRAME)
    return _LENGTH.pack(len(payload)) + payload
