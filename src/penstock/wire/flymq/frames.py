"""Frames: cuts a byte stream, in whatever pieces it arrives, into frames, and unpacks a compressed payload.

    magic u8 = 0xAF, version u8 = 0x01, opcode u8, flags u8, length u32, then that many bytes of payload

Nothing is read in a payload but, for decision 1, where a PRODUCE ends. Frames that follow each other may be
coalesced into one: see `CoalescingFramer`.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple, Never, Protocol, TypeVar

from penstock.wire import framing
from penstock.wire.flymq.errors import (
    BadMagic,
    BadVersion,
    FrameError,
    FrameTooLarge,
    MalformedPayload,
    PayloadTooLarge,
    UnsupportedCompression,
)
from penstock.wire.flymq.opcodes import (
    COMPRESSION_GZIP,
    COMPRESSION_MASK,
    FLAG_BINARY,
    HEADER_SIZE,
    MAGIC,
    MAX_PAYLOAD,
    VERSION,
)

_HEADER: Final = struct.Struct(">HBBI")  # magic and version in one, opcode, flags, length
_START: Final = MAGIC << 8 | VERSION
_PRODUCE: Final = 0x01
_INPUT_STEP: Final = 64 << 10  # bytes of a compressed payload that are unpacked at once; what is left is copied
_STRAY: Final = 4  # bytes of the partition that the document's PRODUCE example does not count

# As in the original's header constants. It decodes gzip only, and so do we.
_CODECS: Final = {0x04: "lz4", 0x06: "zstd", 0x08: "snappy"}


class Frame(NamedTuple):
    opcode: int
    flags: int
    payload: bytes


class Coalesced(Protocol):
    """Several frames as one. None of them is a PRODUCE that ends with its value."""

    @property
    def byte_size(self) -> int:
        """Of the frames, with their headers."""


C = TypeVar("C", bound=Coalesced)


class CoalescingFramer(framing.Framer[Frame | C, FrameError]):
    """Cuts frames out of a byte stream.

    With `stray`, a PRODUCE may be followed by a partition that its length does not count (decision 1). `coalesce` is
    called for a PRODUCE, with the data and where in them it begins: its result stands for the frames that it covers."""

    __slots__ = ("_coalesce", "_short", "_skip", "_stray")

    def __init__(self, stray: bool = True, coalesce: Callable[[bytes, int], C | None] = lambda *_: None) -> None:
        super().__init__(1)
        self._coalesce = coalesce
        self._stray = stray
        self._short = False  # whether the last frame was a PRODUCE that ended with its value, and nothing came since
        self._skip = 0  # stray bytes that are still to come

    def _cut(self, data: bytes) -> list[Frame | C]:
        frames: list[Frame | C] = []
        append, new, unpack, coalesce = frames.append, tuple.__new__, _HEADER.unpack_from, self._coalesce
        size = len(data)
        start = self._past_stray(data) if self._short or self._skip else 0
        after = -1  # where the last frame ended
        while (body := start + HEADER_SIZE) <= size:
            beginning, opcode, flags, length = unpack(data, start)
            end = body + length
            if end <= size and beginning == _START and length <= MAX_PAYLOAD:
                if opcode == _PRODUCE and (batch := coalesce(data, start)) is not None:
                    append(batch)
                    start = after = start + batch.byte_size
                    continue
                append(new(Frame, (opcode, flags, data[body:end])))
                start = after = end
            # Asked only here, and not behind every PRODUCE: a good header shows that all is well.
            elif start == after and data[start] != MAGIC and self._is_short(frames[-1]):
                start += _STRAY
            else:
                break
        last = frames[-1] if start == after else None
        if start < size or isinstance(last, Frame):
            self._keep(data, start, last)
        return frames

    def _past_stray(self, data: bytes) -> int:
        """The start of the next frame, behind what is left over from the last one."""
        if self._short and data:
            self._short = False
            self._skip = _STRAY if data[0] != MAGIC else 0
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        return skipped

    def _is_short(self, frame: Frame | C) -> bool:
        return self._stray and isinstance(frame, Frame) and ends_with_value(frame)

    def _keep(self, data: bytes, start: int, last: Frame | C | None) -> None:
        """Hold what starts here, unless it shows already that it can be no frame. `last`: the frame that ends here."""
        if last is not None and self._is_short(last):
            self._short = True
            data = data[start:]
            start = self._past_stray(data)
        left = len(data) - start
        if left == 0:
            return
        if data[start] != MAGIC:
            self.error = BadMagic(data[start])
        elif left == 1:
            self._needed = 2
        elif data[start + 1] != VERSION:
            self.error = BadVersion(data[start + 1])
        elif left < HEADER_SIZE:
            self._needed = HEADER_SIZE
        else:
            (_, _, _, length) = _HEADER.unpack_from(data, start)
            self._needed = HEADER_SIZE + length
            if length > MAX_PAYLOAD:
                self.error = FrameTooLarge(length, MAX_PAYLOAD)
        if self.error is None:
            self._buffer += data[start:] if start else data


class Framer(CoalescingFramer[Never]):
    """Every frame by itself."""

    __slots__ = ()


def ends_with_value(frame: Frame) -> bool:
    """True for a PRODUCE that ends right behind its value, where a partition should be."""
    payload = frame.payload
    if frame.opcode != _PRODUCE or frame.flags & COMPRESSION_MASK:
        return False
    key = 2 + int.from_bytes(payload[:2])
    value = key + 4 + int.from_bytes(payload[key : key + 4])
    return value + 4 <= len(payload) == value + 4 + int.from_bytes(payload[value : value + 4])


def frame(opcode: int, payload: bytes, flags: int = FLAG_BINARY) -> bytes:
    """The payload with its header before it."""
    if len(payload) > MAX_PAYLOAD:
        raise PayloadTooLarge(len(payload), MAX_PAYLOAD)
    return _HEADER.pack(_START, opcode, flags, len(payload)) + payload


def content(frame: Frame, limit: int = MAX_PAYLOAD) -> bytes:
    """The payload, decompressed if its flags say that it is compressed."""
    return decompress(frame.payload, limit) if is_compressed(frame) else frame.payload


def is_compressed(frame: Frame) -> bool:
    """Raises UnsupportedCompression if it is, but not by gzip."""
    compression = frame.flags & COMPRESSION_MASK
    if compression and compression != COMPRESSION_GZIP:
        raise UnsupportedCompression(_CODECS.get(compression, f"0x{compression:02X}"))
    return compression != 0


def decompress(payload: bytes, limit: int) -> bytes:
    """The payload without its gzip compression. No more than `limit` bytes are made: a larger result is refused."""
    inflation = Inflation(payload, limit)
    while not inflation.step(limit + 1):
        pass
    return inflation.content()


class Inflation:
    """A gzip payload that is unpacked in steps, each of a bounded size. No more than `limit` bytes are made.

    There must be one member and nothing behind it. Every member costs time, and could be as short as 20 bytes."""

    __slots__ = ("_at", "_content", "_limit", "_payload", "_size", "_unpacker")

    def __init__(self, payload: bytes, limit: int) -> None:
        self._payload = payload
        self._limit = limit
        self._at = 0
        self._size = 0
        self._content = io.BytesIO()  # grows with what is made, and gives it out without a copy
        self._unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def step(self, size: int) -> bool:
        """Read and make no more than about so many bytes; True when all is unpacked. Raises MalformedPayload."""
        unpacker = self._unpacker
        room, unread = size, size
        while room > 0 and unread > 0:
            data = unpacker.unconsumed_tail
            if not data:
                data = self._payload[self._at : self._at + _INPUT_STEP]
                self._at += len(data)
                unread -= _INPUT_STEP
            try:
                part = unpacker.decompress(data, room)
            except zlib.error:
                raise MalformedPayload("invalid gzip data") from None
            room -= len(part)
            self._size += len(part)
            self._content.write(part)
            if self._size > self._limit:
                raise MalformedPayload(f"decompressed payload too large (max: {self._limit} bytes)")
            if unpacker.eof:
                if unpacker.unused_data or self._at < len(self._payload):
                    raise MalformedPayload("invalid gzip data")
                return True
            if not data and not part:
                raise MalformedPayload("invalid gzip data")
        return False

    def content(self) -> bytes:
        return self._content.getvalue()

    def discard(self) -> None:
        """Give up the memory that it takes."""
        self._payload = b""
        self._content = io.BytesIO()
