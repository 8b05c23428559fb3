"""Frames: splits a byte stream into payloads, and prepends headers to payloads. Never looks into a payload.

    magic     u32   "VDB "
    version   u16
    length    u32   of the payload, at most 16 MiB
    checksum  u32   of the payload: CRC-32, or CRC-32C (Castagnoli) as in the specification
    payload

Integers are big-endian. A little-endian peer is detected by the magic, and answered in the same order.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Container
from typing import Final, NamedTuple, TypeAlias

import google_crc32c

from penstock.wire import framing
from penstock.wire.kimberlite.errors import BadMagic, BadVersion, FrameError, FrameTooLarge

MAX_PAYLOAD: Final = 16 * 1024 * 1024
MAX_EVENT: Final = MAX_PAYLOAD - 64  # bytes of an event sent alone: the rest of the message is a few numbers
HEADER_SIZE: Final = 14
MAGIC: Final = 0x56444220

_BIG: Final = struct.Struct(">IHII")  # magic, version, length, checksum
_LITTLE: Final = struct.Struct("<IHII")
_STARTS: Final = {order.pack(MAGIC, 0, 0, 0)[:4]: order for order in (_BIG, _LITTLE)}

Raw: TypeAlias = bytes | bytearray | memoryview
Checksum: TypeAlias = Callable[[Raw], int]


crc32: Final[Checksum] = zlib.crc32


def crc32c(data: Raw) -> int:
    return int(google_crc32c.value(bytes(data)))


class Frame(NamedTuple):
    """The payload is `data[start:end]`, which is not copied: it may be large."""

    version: int
    checksum: int
    data: bytes
    start: int
    end: int


class Framer(framing.PullFramer[Frame]):
    """Splits a byte stream into frames. `next` raises FrameError. `versions` are the accepted ones."""

    __slots__ = ("_order", "little", "versions")

    def __init__(self, versions: Container[int]) -> None:
        super().__init__()
        self.versions = versions
        self._order: struct.Struct | None = None  # known from the first magic on
        self.little = False  # whether the peer's headers are little-endian

    def _cut(self, data: bytes, at: int) -> Frame | None:
        held = len(data) - at
        order = self._order or self._recognise(data, at)
        if order is None or held < HEADER_SIZE:
            self._needed = HEADER_SIZE if order else 4
            return None
        magic, version, length, checksum = order.unpack_from(data, at)
        if magic != MAGIC or version not in self.versions or length > MAX_PAYLOAD:
            raise self._bad(magic, version, length)
        start = at + HEADER_SIZE
        end = start + length
        if end > len(data):
            self._needed = HEADER_SIZE + length
            return None
        self._at = end
        return Frame(version, checksum, data, start, end)

    def _recognise(self, data: bytes, at: int) -> struct.Struct | None:
        """The byte order of the first magic; None if there are too few bytes."""
        if len(data) - at < 4:
            return None
        self._order = _STARTS.get(data[at : at + 4])
        if self._order is None:
            raise BadMagic
        self.little = self._order is _LITTLE
        return self._order

    def _bad(self, magic: int, version: int, length: int) -> FrameError:
        """The error for a bad header; the order of the checks is that of the specification."""
        if magic != MAGIC:
            return BadMagic()
        if version not in self.versions:
            return BadVersion(version)
        return FrameTooLarge(length, MAX_PAYLOAD)


def frame(payload: bytes | bytearray, version: int, checksum: Checksum = crc32, little: bool = False) -> bytes:
    """The payload with its header. The caller must make sure that it is not too long."""
    assert len(payload) <= MAX_PAYLOAD, len(payload)
    order = _LITTLE if little else _BIG
    head = order.pack(MAGIC, version, len(payload), checksum(payload))
    return b"".join((head, payload))
