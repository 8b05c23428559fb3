"""Connections to the server under test: send and receive whole frames.

The length of a frame is decoded here, by a separate table, because the codecs may be under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import struct
import zlib
from typing import Final, NamedTuple, Protocol

MAIN: Final = "main"  # the only stream of a TCP connection


class Unreachable(Exception):
    """The server cannot be reached, or does not behave like one. The text is for the user."""


class Unexpected(Exception):
    """The server did not do what was expected. The text says what it did."""


class Framing(NamedTuple):
    """The size of a protocol's header, and the position of the payload's length in it (u32)."""

    header: int
    length_at: int
    max_payload: int = 64 << 20  # no reply is longer: a larger length is a decoding error


FRAMINGS: Final = {
    "rustlog": Framing(4, 0),
    "blipmq": Framing(4, 0),
    "flymq": Framing(8, 4),
    "kimberlite": Framing(14, 6),
    "felix": Framing(12, 8),
}


class Connection(Protocol):
    """One connection. Only QUIC has streams besides `main`."""

    async def send(self, stream: str, data: bytes, *, end: bool, one_way: bool) -> None: ...

    async def frame(self, stream: str) -> bytes | None:
        """The next whole frame; None if the stream has ended. Raises Unexpected if it ended within a frame."""

    async def accept(self, label: str) -> None:
        """Wait for a stream that the server opens, and give it this label."""

    async def ended(self, stream: str) -> None:
        """Wait for the stream's end. Raises Unexpected if anything precedes it."""

    async def wait_closed(self) -> int | None:
        """Wait for the connection's end, dropping everything before it. Returns the close code, if there is one."""

    def reset(self, stream: str, code: int) -> None:
        """Abort the stream, in both directions."""

    async def close(self) -> None: ...


class FrameReader:
    """The bytes of one stream, as frames."""

    def __init__(self, protocol: str) -> None:
        self._framing = FRAMINGS[protocol]
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data

    @property
    def held(self) -> bytes:
        return bytes(self._data)

    def next(self) -> bytes | None:
        header, at, max_payload = self._framing
        if len(self._data) < header:
            return None
        (length,) = struct.unpack_from(">I", self._data, at)
        if length > max_payload:
            raise Unexpected(f"a frame of {length} bytes: {self.held[:header].hex()}")
        if len(self._data) < header + length:
            return None
        found = bytes(self._data[: header + length])
        del self._data[: header + length]
        _check_sum(self._framing, found)
        return found


def _check_sum(framing: Framing, frame: bytes) -> None:
    """Check the checksum, if the protocol has one. Our side always uses CRC-32, so the server must too. Raises
    Unexpected."""
    if framing is not FRAMINGS["kimberlite"]:
        return
    (said,) = struct.unpack_from(">I", frame, 10)
    if said != zlib.crc32(frame[14:]):
        raise Unexpected(f"the checksum of a reply is {said:08x}, and {zlib.crc32(frame[14:]):08x} expected")


def _reason(error: OSError | TimeoutError, seconds: float) -> str:
    if isinstance(error, TimeoutError) and not error.errno:
        return f"nothing within {seconds:g} s"
    known = error.errno is not None and error.errno > 0
    return os.strerror(error.errno or 0) if known else error.strerror or str(error)


class TcpConnection:
    """A TCP connection, with a single stream."""

    def __init__(self, protocol: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(protocol)

    @classmethod
    async def connect(
        cls, protocol: str, host: str, port: int, tls: ssl.SSLContext | None, seconds: float
    ) -> TcpConnection:
        try:
            async with asyncio.timeout(seconds):
                return cls(protocol, *await asyncio.open_connection(host, port, ssl=tls))
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"no server answers at {host}:{port}: {_reason(error, seconds)}") from None

    async def send(self, stream: str, data: bytes, *, end: bool, one_way: bool) -> None:
        if stream != MAIN or one_way:
            raise Unexpected("a TCP connection has one stream only")
        try:
            self._writer.write(data)
            await self._writer.drain()
            if end:
                self._writer.write_eof()
        except OSError as error:
            raise Unexpected(f"the server has closed the connection: {error}") from None

    async def frame(self, stream: str) -> bytes | None:  # noqa: ARG002 - there is one
        while True:
            found = self._frames.next()
            if found is not None:
                return found
            data = await self._read()
            if not data:
                if self._frames.held:
                    raise Unexpected(f"the connection ended within a frame: {self._frames.held.hex()}")
                return None
            self._frames.feed(data)

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(1 << 16)
        except OSError:
            return b""  # a reset also ends the stream

    async def accept(self, label: str) -> None:
        raise Unexpected(f"a TCP connection has one stream only, and no {label}")

    async def ended(self, stream: str) -> None:
        found = await self.frame(stream)
        if found is not None:
            raise Unexpected(f"one more frame came: {found.hex()}")

    async def wait_closed(self) -> int | None:
        while await self._read():
            pass
        return None

    def reset(self, stream: str, code: int) -> None:  # noqa: ARG002
        raise Unexpected("a TCP connection has one stream only")

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 1)
