"""Frames: splits a byte stream, in pieces of any size, into frames, and decompresses payloads.

    magic u8 = 0xAF, version u8 = 0x01, opcode u8, flags u8, length u32, then that many bytes of payload

Payloads are not decoded, except, for decision 1, to find the end of a PRODUCE. Consecutive frames may be coalesced into
one: see `CoalescingFramer`.
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

_HEADER: Final = struct.Struct(">HBBI")  # magic and version together, opcode, flags, length
_START: Final = MAGIC << 8 | VERSION
_PRODUCE: Final = 0x01
_INPUT_STEP: Final = 64 << 10  # bytes of a compressed payload per decompression call; the unconsumed rest is copied
_STRAY: Final = 4  # bytes of the partition that the length in the specification's PRODUCE example does not include

# As in the original's header constants. It only decodes gzip, and so do we.
_CODECS: Final = {0x04: "lz4", 0x06: "zstd", 0x08: "snappy"}


class Frame(NamedTuple):
    opcode: int
    flags: int
    payload: bytes


class Coalesced(Protocol):
    """Several frames as one. None of them is a PRODUCE that ends with its value."""

    @property
    def byte_size(self) -> int:
        """Of the frames, including their headers."""


C = TypeVar("C", bound=Coalesced)


class CoalescingFramer(framing.Framer[Frame | C, FrameError]):
    """Splits a byte stream into frames.

    With `stray`, a PRODUCE may be followed by a partition that its length does not include (decision 1). `coalesce` is
    called for a PRODUCE, with the data and its start there: the result replaces the frames that it covers."""

    __slots__ = ("_coalesce", "_short", "_skip", "_stray")

    def __init__(self, stray: bool = True, coalesce: Callable[[bytes, int], C | None] = lambda *_: None) -> None:
        super().__init__(1)
        self._coalesce = coalesce
        self._stray = stray
        self._short = False  # the last frame was a PRODUCE that ended with its value, and no data has arrived since
        self._skip = 0  # stray bytes still to arrive

    @property
    def between_frames(self) -> bool:
        """Whether the next byte begins a frame."""
        return not (self.buffered or self._short or self._skip)

    def _cut(self, data: bytes) -> list[Frame | C]:
        frames: list[Frame | C] = []
        append, new, unpack, coalesce = frames.append, tuple.__new__, _HEADER.unpack_from, self._coalesce
        size = len(data)
        start = self._past_stray(data) if self._short or self._skip else 0
        after = -1  # end of the last frame
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
            # Checked only here, not after every PRODUCE: a valid header means that there are no stray bytes.
            elif start == after and data[start] != MAGIC and self._is_short(frames[-1]):
                start += _STRAY
            else:
                break
        last = frames[-1] if start == after else None
        if start < size or isinstance(last, Frame):
            self._keep(data, start, last)
        return frames

    def _past_stray(self, data: bytes) -> int:
        """The start of the next frame, after any stray bytes of the last one."""
        if self._short and data:
            self._short = False
            self._skip = _STRAY if data[0] != MAGIC else 0
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        return skipped

    def _is_short(self, frame: Frame | C) -> bool:
        return self._stray and isinstance(frame, Frame) and ends_with_value(frame)

    def _keep(self, data: bytes, start: int, last: Frame | C | None) -> None:
        """Buffer the data from `start` on, or set `error` if it cannot begin a frame. `last`: the frame that ends
        there."""
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
    """Every frame separately."""

    __slots__ = ()


def ends_with_value(frame: Frame) -> bool:
    """True for a PRODUCE that ends directly after its value, without a partition."""
    payload = frame.payload
    if frame.opcode != _PRODUCE or frame.flags & COMPRESSION_MASK:
        return False
    key = 2 + int.from_bytes(payload[:2])
    value = key + 4 + int.from_bytes(payload[key : key + 4])
    return value + 4 <= len(payload) == value + 4 + int.from_bytes(payload[value : value + 4])


def frame(opcode: int, payload: bytes, flags: int = FLAG_BINARY) -> bytes:
    """The payload with its header. Raises PayloadTooLarge."""
    if len(payload) > MAX_PAYLOAD:
        raise PayloadTooLarge(len(payload), MAX_PAYLOAD)
    return _HEADER.pack(_START, opcode, flags, len(payload)) + payload


def content(frame: Frame, limit: int = MAX_PAYLOAD) -> bytes:
    """The payload, decompressed if its flags say so."""
    return decompress(frame.payload, limit) if is_compressed(frame) else frame.payload


def is_compressed(frame: Frame) -> bool:
    """Whether the payload is compressed. Raises UnsupportedCompression for anything but gzip."""
    compression = frame.flags & COMPRESSION_MASK
    if compression and compression != COMPRESSION_GZIP:
        raise UnsupportedCompression(_CODECS.get(compression, f"0x{compression:02X}"))
    return compression != 0


def decompress(payload: bytes, limit: int) -> bytes:
    """The decompressed gzip payload. A result larger than `limit` bytes is refused, and never produced."""
    inflation = Inflation(payload, limit)
    while not inflation.step(limit + 1):
        pass
    return inflation.content()


class Inflation:
    """A gzip payload that is decompressed in bounded steps, to at most `limit` bytes.

    There must be a single member and nothing after it. Every member costs time, and could be as short as 20 bytes."""

    __slots__ = ("_at", "_content", "_limit", "_payload", "_size", "_unpacker")

    def __init__(self, payload: bytes, limit: int) -> None:
        self._payload = payload
        self._limit = limit
        self._at = 0
        self._size = 0
        self._content = io.BytesIO()  # grows with the output, and returns it without a copy
        self._unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def step(self, size: int) -> bool:
        """Read and produce no more than about `size` bytes; True when finished. Raises MalformedPayload."""
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
        """Release its memory."""
        self._payload = b""
        self._content = io.BytesIO()
