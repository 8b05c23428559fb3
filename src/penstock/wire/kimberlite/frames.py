"""Frames: cuts a byte stream into payloads, and puts headers before payloads. Never looks into a payload.

    magic     u32   "VDB "
    version   u16
    length    u32   of the payload, at most 16 MiB
    checksum  u32   of the payload: CRC-32, or Castagnoli's as the specification has it
    payload

All are big-endian. Whoever writes them little-endian shows it with the magic, and is answered alike.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Container
from typing import Final, NamedTuple, TypeAlias

import google_crc32c

MAX_PAYLOAD: Final = 16 * 1024 * 1024
HEADER_SIZE: Final = 14
MAGIC: Final = 0x56444220

_BIG: Final = struct.Struct(">IHII")  # magic, version, length, checksum
_LITTLE: Final = struct.Struct("<IHII")
_STARTS: Final = {order.pack(MAGIC, 0, 0, 0)[:4]: order for order in (_BIG, _LITTLE)}

Raw: TypeAlias = bytes | bytearray | memoryview
Checksum: TypeAlias = Callable[[Raw], int]


def crc32(data: Raw) -> int:
    return zlib.crc32(data)


def crc32c(data: Raw) -> int:
    return int(google_crc32c.value(bytes(data)))


class FrameError(Exception):
    """A header that cannot be accepted. The text is for the peer."""


class BadMagic(FrameError):
    def __init__(self) -> None:
        super().__init__("this is no frame: its magic is not 0x56444220")


class BadVersion(FrameError):
    def __init__(self, version: int) -> None:
        super().__init__(f"unsupported protocol version {version}")
        self.version = version


class TooLong(FrameError):
    def __init__(self, length: int) -> None:
        super().__init__(f"a payload of {length} bytes; the most is {MAX_PAYLOAD}")


class Frame(NamedTuple):
    """The payload is `data[start:end]`, and not cut out: it may be large."""

    version: int
    checksum: int
    data: bytes
    start: int
    end: int


class Framer:
    """Collects bytes and gives out frames.

    Pieces that do not complete a frame are only put together when they do, so each byte is copied a fixed number of
    times, however small the pieces are and however long frames stay in here."""

    __slots__ = ("_at", "_data", "_later", "_needed", "_order", "versions")

    def __init__(self, versions: Container[int]) -> None:
        self.versions = versions  # that are accepted
        self._order: struct.Struct | None = None  # known from the first magic on
        self._data = b""  # frames are cut from here,
        self._at = 0  # from here on;
        self._later = bytearray()  # what came since
        self._needed = 0  # bytes from `_at` on, before anything can be done

    @property
    def buffered(self) -> int:
        """Bytes held."""
        return len(self._data) - self._at + len(self._later)

    @property
    def little(self) -> bool:
        """Whether the peer writes headers little-endian."""
        return self._order is _LITTLE

    def feed(self, data: bytes) -> None:
        if self._at == len(self._data) and not self._later:
            self._data, self._at = data, 0
        else:
            self._later += data

    def clear(self) -> None:
        self._data, self._at = b"", 0
        self._later.clear()

    def next(self) -> Frame | None:
        """The next whole frame. Raises FrameError as soon as its header shows that there can be none."""
        data, at = self._data, self._at
        while True:
            held = len(data) - at
            if held < self._needed:
                if held + len(self._later) < self._needed:
                    return None
                data = self._data = data[at:] + self._later
                at = self._at = 0
                self._later.clear()
                continue
            order = self._order or self._recognise(data, at)
            if order is None or held < HEADER_SIZE:
                self._needed = HEADER_SIZE if order else 4
                if held + len(self._later) < self._needed:
                    return None
                continue
            magic, version, length, checksum = order.unpack_from(data, at)
            self._check(magic, version, length)
            if held < HEADER_SIZE + length:
                self._needed = HEADER_SIZE + length
                continue
            start = at + HEADER_SIZE
            self._at = end = start + length
            self._needed = 0
            if end == len(data):
                self._data, self._at = b"", 0
            return Frame(version, checksum, data, start, end)

    def _recognise(self, data: bytes, at: int) -> struct.Struct | None:
        """The byte order that the first magic shows; None if there are too few bytes to tell."""
        if len(data) - at < 4:
            return None
        self._order = _STARTS.get(data[at : at + 4])
        if self._order is None:
            raise BadMagic
        return self._order

    def _check(self, magic: int, version: int, length: int) -> None:
        """In the order that the specification demands."""
        if magic != MAGIC:
            raise BadMagic
        if version not in self.versions:
            raise BadVersion(version)
        if length > MAX_PAYLOAD:
            raise TooLong(length)


def frame(payload: bytes | bytearray, version: int, checksum: Checksum = crc32, little: bool = False) -> bytes:
    """The payload, which is not too long, with its header."""
    assert len(payload) <= MAX_PAYLOAD, len(payload)
    order = _LITTLE if little else _BIG
    head = order.pack(MAGIC, version, len(payload), checksum(payload))
    return b"".join((head, payload))
