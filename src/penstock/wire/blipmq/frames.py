"""Frames: splits a byte stream into frames, and prepends headers to payloads. `codec` handles the payloads.

    length             u32   of everything after it: 9 to 16,777,216
    type               u8
    correlation id     u64
    payload

Integers are big-endian.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, TypeAlias

from penstock.wire import framing
from penstock.wire.blipmq.errors import EmptyFrame, FrameError, FrameTooLarge, FrameTooShort, UnknownFrameType

MAX_FRAME: Final = 16 * 1024 * 1024  # the largest length
MIN_FRAME: Final = 9  # the smallest: a type and a correlation id
HEADER_SIZE: Final = 13  # length, type, correlation id
MAX_PAYLOAD: Final = MAX_FRAME - MIN_FRAME


class FrameType(enum.IntEnum):
    HELLO = 0x01
    AUTH = 0x02
    PUBLISH = 0x03
    SUBSCRIBE = 0x04
    ACK = 0x05
    NACK = 0x06
    PING = 0x07
    PONG = 0x08
    POLL = 0x09
    DELIVER = 0x0A


# As plain integers: comparing a byte with an enum member is several times slower.
HELLO: Final = 0x01
AUTH: Final = 0x02
PUBLISH: Final = 0x03
SUBSCRIBE: Final = 0x04
ACK: Final = 0x05
NACK: Final = 0x06
PING: Final = 0x07
PONG: Final = 0x08
POLL: Final = 0x09
DELIVER: Final = 0x0A

Frame: TypeAlias = tuple[int, int, bytes]
"""Type, correlation id, payload. A plain tuple, because a named one takes twice as long to create."""

_MANY: Final = 8  # frames of one length, from which on processing them together pays off
_LENGTH: Final = struct.Struct(">I")
HEADER: Final = struct.Struct(">IBQ")  # length, type, correlation id


class Framer(framing.Framer[Frame, FrameError]):
    """Splits a byte stream into frames. `last_type` is the largest type that the other side may send."""

    __slots__ = ("_last_type",)

    def __init__(self, last_type: int = POLL) -> None:
        super().__init__(_LENGTH.size)
        self._last_type = last_type

    def _cut(self, data: bytes) -> list[Frame]:
        frames = self._cut_equal(data)
        if frames is not None:
            return frames
        frames = []
        size = len(data)
        last_type = self._last_type
        start = 0
        body = HEADER_SIZE  # where the payload starts
        while body <= size:
            length, kind, correlation = HEADER.unpack_from(data, start)
            if not MIN_FRAME <= length <= MAX_FRAME:
                break
            end = start + 4 + length
            if end > size:
                break
            if not 0 < kind <= last_type:
                self.error = UnknownFrameType(kind)
                return frames
            frames.append((kind, correlation, data[body:end]))
            start = end
            body = end + HEADER_SIZE
        if start < size:
            self._keep(data, start)
        else:
            self._needed = 4
        return frames

    def _cut_equal(self, data: bytes) -> list[Frame] | None:
        """A fast path of `_cut` for many whole frames of one length, as sent by clients with many requests in flight: a
        few calls for all. None if the data is anything else."""
        size = len(data)
        if size < HEADER_SIZE:
            return None
        step = 4 + int.from_bytes(data[:4], "big")
        if not HEADER_SIZE <= step <= min(size // _MANY, MAX_FRAME + 4) or size % step:
            return None
        count = size // step
        if any(data[at::step] != data[at : at + 1] * count for at in (3, 2, 1, 0)):
            return None
        kinds = data[4::step]
        if not 0 < min(kinds) <= max(kinds) <= self._last_type:
            return None
        return list(struct.iter_unpack(f">4xBQ{step - HEADER_SIZE}s", data))

    def _keep(self, data: bytes, start: int) -> None:
        """Buffer the incomplete frame at `start`, or set `error` if its length is invalid."""
        if len(data) - start < 4:
            self._needed = 4
        else:
            (length,) = _LENGTH.unpack_from(data, start)
            if not MIN_FRAME <= length <= MAX_FRAME:
                self.error = bad_length(length)
                return
            self._needed = 4 + length
        self._buffer += data[start:] if start else data


def bad_length(length: int) -> FrameError:
    """The error for an invalid length; the order of the checks matters."""
    if length == 0:
        return EmptyFrame()
    if length > MAX_FRAME:
        return FrameTooLarge(length, MAX_FRAME)
    return FrameTooShort(length, MIN_FRAME)


def encode_frame(kind: int, correlation: int, payload: bytes) -> bytes:
    """Encode any frame. The caller must reject payloads larger than `MAX_PAYLOAD` first."""
    assert len(payload) <= MAX_PAYLOAD, len(payload)
    return HEADER.pack(MIN_FRAME + len(payload), kind, correlation) + payload
