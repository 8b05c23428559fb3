"""Frames: splits the bytes of a stream into frames, and prepends headers to payloads. Never looks into a payload.

    magic     u32   "FLX1"
    version   u16   1
    flags     u16   encoding of the payload: see Flag
    length    u32   of the payload, at most the configured limit (16 MiB)
    payload

Integers are big-endian.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from penstock.wire import framing

MAGIC: Final = b"FLX1"
VERSION: Final = 1
HEADER_SIZE: Final = 12
MAX_FRAME: Final = 16 << 20  # bytes of payload, unless another limit is configured

_HEADER: Final = struct.Struct(">4sHHI")  # magic, version, flags, length
_JSON: Final = _HEADER.pack(MAGIC, VERSION, 0, 0)[:8]  # the start of every frame of JSON


class Flag(enum.IntFlag):
    """Without any of these a payload is JSON. The specification only has the first."""

    BATCH = 0x0001  # payloads to publish, binary
    EVENTS = 0x0002  # events, binary, after the id of their subscription
    SHARED = 0x0004  # events, binary, without an id
    ACKED = 0x0008  # with BATCH: begins with a request id and a mode, and requests an acknowledgement
    ACK = 0x0010  # an acknowledgement, binary
    OFFSETS = 0x0020  # with EVENTS or SHARED: has the offset of the first event
    KEYED = 0x0040  # with BATCH: a key precedes the names
    ACK_CODE = 0x0200  # with ACK, for a refusal: a code and a retry class follow the text
    ACK_DETAIL = 0x0400  # with ACK_CODE: a reason and a retry delay follow these
    SKIPPED = 0x0800  # with OFFSETS: has the number of offsets before the first event without one
    ACK_OFFSET = 0x1000  # with ACK, if stored: ends with the offset of the first payload
    TIMESTAMPS = 0x4000  # with EVENTS or SHARED: each event has its timestamp


KNOWN: Final = 0x5E7F  # all flags

# As plain integers: arithmetic with enum members is many times slower.
BATCH: Final = 0x0001
EVENTS: Final = 0x0002
SHARED: Final = 0x0004
ACKED: Final = 0x0008
ACK: Final = 0x0010
OFFSETS: Final = 0x0020
KEYED: Final = 0x0040
ACK_CODE: Final = 0x0200
ACK_DETAIL: Final = 0x0400
SKIPPED: Final = 0x0800
ACK_OFFSET: Final = 0x1000
TIMESTAMPS: Final = 0x4000


class Code(enum.IntEnum):
    """Application error codes with which a connection is closed. After one of the first three errors, the start of the
    next frame is unknown. The protocol defines no codes; these are our own. 0 is a graceful end."""

    BAD_MAGIC = 0x1
    BAD_VERSION = 0x2
    TOO_LARGE = 0x3
    LOGIN_NEEDED = 0x4


class BadFrame(Exception):
    """An invalid header. The text is for the peer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Frame(NamedTuple):
    flags: int
    payload: bytes


class Framer(framing.PullFramer[Frame]):
    """Splits the bytes of a stream into frames. `next` raises BadFrame."""

    __slots__ = ("max_frame",)

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        super().__init__()
        self.max_frame = max_frame

    @property
    def started(self) -> bool:
        """True if the buffer holds the start of a frame: if `next` returns none, it is incomplete."""
        return self.buffered > 0

    @property
    def in_payload(self) -> bool:
        """Like `started`, but with a complete header."""
        return self.buffered >= HEADER_SIZE

    def _cut(self, data: bytes, at: int) -> Frame | None:
        held = len(data) - at
        if held < HEADER_SIZE:
            _recognise(data[at : at + 4])
            self._needed = HEADER_SIZE if held >= 4 else held + 1  # each byte of the magic is checked
            return None
        magic, version, flags, length = _HEADER.unpack_from(data, at)
        if magic != MAGIC or version != VERSION or length > self.max_frame:
            raise self._bad(magic, version, length)
        start = at + HEADER_SIZE
        end = start + length
        if end > len(data):
            self._needed = HEADER_SIZE + length
            return None
        self._at = end
        return Frame(flags, data[start:end])

    def _join(self, parts: list[framing.Piece]) -> Frame | None:
        first = parts[0]
        if len(first) < HEADER_SIZE:
            return None
        _, _, flags, _ = _HEADER.unpack_from(first)  # which `_cut` has checked
        parts[0] = memoryview(first)[HEADER_SIZE:]
        return Frame(flags, b"".join(parts))

    def _bad(self, magic: bytes, version: int, length: int) -> BadFrame:
        if magic != MAGIC:
            return _bad_magic()
        if version != VERSION:
            return BadFrame(Code.BAD_VERSION, f"unsupported protocol version {version}; the only one is {VERSION}")
        return BadFrame(Code.TOO_LARGE, f"a frame of {length} bytes; the most is {self.max_frame}")


def _recognise(start: bytes) -> None:
    """Reject other protocols early: their clients may wait for a reply to less than a header."""
    if not MAGIC.startswith(start):
        raise _bad_magic()


def _bad_magic() -> BadFrame:
    return BadFrame(Code.BAD_MAGIC, "this is no Felix frame: it does not begin with FLX1")


def is_whole(data: bytes) -> bool:
    """Whether these bytes, which are longer than a header, are exactly one frame of JSON."""
    return data.startswith(_JSON) and int.from_bytes(data[8:HEADER_SIZE]) == len(data) - HEADER_SIZE


def frame(payload: bytes, flags: int = 0) -> bytes:
    """The payload with its header. The caller must make sure that it is not too long for the peer."""
    return _HEADER.pack(MAGIC, VERSION, flags, len(payload)) + payload


def header(length: int, flags: int = 0) -> bytes:
    """The header of a payload of this length, for callers that join it from many pieces."""
    return _HEADER.pack(MAGIC, VERSION, flags, length)
