"""QUIC connections for conversations. Streams have the labels that conversations give them."""

from __future__ import annotations

import asyncio
from collections import deque

from penstock.conformance.connection import FrameReader, Unexpected, Unreachable
from penstock.transport.quic.client import connect
from penstock.transport.quic.connection import QuicConnection, Stream, StreamReceiver
from penstock.transport.quic.errors import ConnectFailed, QuicError
from penstock.transport.quic.settings import QuicSettings


class QuicStream:
    """A stream, and its received data."""

    def __init__(self, protocol: str) -> None:
        self.stream: Stream | None = None
        self._frames = FrameReader(protocol)
        self._finished = False  # gracefully
        self._broken = ""  # how it ended otherwise
        self._changed = asyncio.Event()

    # -- called by the QUIC connection

    def received(self, data: bytes, end: bool) -> None:
        self._frames.feed(data)
        self._finished = self._finished or end
        self._changed.set()

    def reset(self, code: int) -> None:
        self.broken(f"the stream was reset with code {code}")

    def refused(self, code: int) -> None: ...

    def drained(self) -> None: ...

    def broken(self, how: str) -> None:
        self._broken = self._broken or how
        self._changed.set()

    # -- called by conversations

    async def frame(self) -> bytes | None:
        while True:
            found = self._frames.next()
            if found is not None:
                return found
            if self._finished:
                if self._frames.held:
                    raise Unexpected(f"the stream ended within a frame: {self._frames.held.hex()}")
                return None
            if self._broken:
                raise Unexpected(self._broken)
            self._changed.clear()
            await self._changed.wait()

    async def ended(self) -> None:
        found = await self.frame()
        if found is not None:
            raise Unexpected(f"one more frame came: {found.hex()}")


class StreamsConnection:
    """A QUIC connection; the handler of its `QuicConnection`."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._quic: QuicConnection | None = None
        self._streams: dict[str, QuicStream] = {}
        self._unnamed: deque[QuicStream] = deque()  # opened by the server, but not requested yet
        self._opened = asyncio.Event()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @classmethod
    async def connect(cls, protocol: str, host: str, port: int, settings: QuicSettings) -> StreamsConnection:
        connection = cls(protocol)
        try:
            connection._quic = await connect(host, port, settings, connection)
        except ConnectFailed as error:
            raise Unreachable(f"no connection over QUIC: {error}") from None
        return connection

    # -- called by the QUIC connection

    def connected(self, connection: QuicConnection) -> None: ...

    def accepted(self, stream: Stream) -> StreamReceiver:
        opened = QuicStream(self._protocol)
        opened.stream = stream
        self._unnamed.append(opened)
        self._opened.set()
        return opened

    def closed(self, code: int, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(code)
        self._opened.set()
        for each in (*self._streams.values(), *self._unnamed):
            each.broken(f"the connection was closed with code {code}: {reason or 'no reason given'}")

    # -- called by conversations

    async def send(self, stream: str, data: bytes, *, end: bool, one_way: bool) -> None:
        known = self._streams.get(stream) or self._open(stream, one_way)
        assert known.stream is not None
        if data:
            known.stream.send(data)
        if end:
            known.stream.finish()

    def _open(self, label: str, one_way: bool) -> QuicStream:
        assert self._quic is not None
        opened = QuicStream(self._protocol)
        try:
            opened.stream = self._quic.open(opened, bidirectional=not one_way)
        except QuicError as error:
            raise Unexpected(f"no stream could be opened: {error}") from None
        self._streams[label] = opened
        return opened

    def _stream(self, label: str) -> QuicStream:
        try:
            return self._streams[label]
        except KeyError:
            raise Unexpected(f"there is no stream {label} yet") from None

    async def frame(self, stream: str) -> bytes | None:
        return await self._stream(stream).frame()

    async def accept(self, label: str) -> None:
        while not self._unnamed:
            if self._ended.done():
                raise Unexpected("the connection ended before the server opened a stream")
            self._opened.clear()
            await self._opened.wait()
        self._streams[label] = self._unnamed.popleft()

    async def ended(self, stream: str) -> None:
        await self._stream(stream).ended()

    async def wait_closed(self) -> int | None:
        return await asyncio.shield(self._ended)

    def reset(self, stream: str, code: int) -> None:
        known = self._stream(stream).stream
        if known is not None:
            known.refuse(code)
            known.reset(code)

    async def close(self) -> None:
        if self._quic is not None and not self._quic.closed:
            self._quic.close()
            await asyncio.wait((self._ended,), timeout=1)
