"""A Felix client that owes nothing to Penstock: frames by struct, JSON and base64, over aioquic.

It knows no dialect and keeps no rules: tests say what is sent, byte by byte if they like, and look at what comes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

from aioquic.quic import events as quic_events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

SECONDS = 20.0  # that a whole test may take

Message = dict[str, Any]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, SECONDS))


async def until(happened: Callable[[], bool]) -> None:
    """Wait for something that nobody tells."""
    while not happened():  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0.02)


# -- frames


class Frame(NamedTuple):
    flags: int
    payload: bytes

    @property
    def message(self) -> Message:
        assert self.flags == 0, f"a frame with flags {self.flags:#06x} is no JSON: {self.payload!r}"
        found = json.loads(self.payload)
        assert isinstance(found, dict)
        return found


class Events(NamedTuple):
    """A frame of binary events."""

    flags: int
    subscription_id: int | None
    base_offset: int | None
    payloads: list[bytes]


class Ack(NamedTuple):
    """A frame that acknowledges in binary."""

    status: int
    request_id: int
    text: str


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unb64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def frame(payload: bytes, flags: int = 0, *, magic: int = 0x464C5831, version: int = 1) -> bytes:
    return struct.pack(">IHHI", magic, version, flags, len(payload)) + payload


def say(kind: str, /, **fields: object) -> bytes:
    """A JSON message as a frame."""
    return frame(json.dumps({"type": kind, **fields}, separators=(",", ":")).encode())


def batch(names: tuple[str, str, str], payloads: Sequence[bytes]) -> bytes:
    """The body of a binary publish batch."""
    parts = []
    for name in names:
        encoded = name.encode()
        parts.append(struct.pack(">H", len(encoded)) + encoded)
    parts.append(struct.pack(">I", len(payloads)))
    parts += [struct.pack(">I", len(payload)) + payload for payload in payloads]
    return b"".join(parts)


def acked_batch(request_id: int, names: tuple[str, str, str], payloads: Sequence[bytes], mode: int = 2) -> bytes:
    """The whole frame, 0x0009."""
    return frame(struct.pack(">QB", request_id, mode) + batch(names, payloads), 0x0009)


def ack(found: Frame | None) -> Ack:
    assert found is not None and found.flags == 0x0010, found
    status, request_id, length = struct.unpack_from(">BQH", found.payload)
    assert len(found.payload) == 11 + length
    return Ack(status, request_id, found.payload[11:].decode())


def events(found: Frame | None) -> Events:
    assert found is not None and found.flags in (0x0002, 0x0004, 0x0022, 0x0024), found
    flags, payload, at = found.flags, found.payload, 0
    subscription_id = base_offset = None
    if flags & 0x0002:
        subscription_id, at = struct.unpack_from(">Q", payload)[0], 8
    if flags & 0x0020:
        base_offset, at = struct.unpack_from(">Q", payload, at)[0], at + 8
    (count,) = struct.unpack_from(">I", payload, at)
    at += 4
    payloads = []
    for _ in range(count):
        (length,) = struct.unpack_from(">I", payload, at)
        payloads.append(payload[at + 4 : at + 4 + length])
        at += 4 + length
    assert at == len(payload)
    return Events(flags, subscription_id, base_offset, payloads)


# -- QUIC


class Closed(NamedTuple):
    """The end of a connection."""

    code: int
    application: bool  # the code is one of the protocol on top, not QUIC's own
    reason: str


class ConnectionLost(Exception):
    pass


class StreamReset(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"the stream was reset with code {code:#x}")
        self.code = code


class Stream:
    """One stream, whoever opened it. What comes on it is cut into frames."""

    def __init__(self, link: Link, number: int) -> None:
        self.number = number
        self.stopped: int | None = None  # with this code the server wants nothing more here
        self._link = link
        self._data = bytearray()
        self._ended = False
        self._reset: int | None = None
        self._news = asyncio.Event()

    def send(self, *frames: bytes, end: bool = False, at_once: bool = True) -> None:
        self._link.quic.send_stream_data(self.number, b"".join(frames), end_stream=end)
        if at_once:
            self._link.transmit()

    def reset(self, code: int) -> None:
        self._link.quic.reset_stream(self.number, code)
        self._link.transmit()

    def stop(self, code: int = 0) -> None:
        """STOP_SENDING."""
        self._link.quic.stop_stream(self.number, code)
        self._link.transmit()

    async def frame(self) -> Frame | None:
        """The next one; None at the end. Raises StreamReset or ConnectionLost."""
        while True:
            if len(self._data) >= 12:
                magic, version, flags, length = struct.unpack_from(">4sHHI", self._data)
                assert (magic, version) == (b"FLX1", 1)
                if len(self._data) >= 12 + length:
                    payload = bytes(self._data[12 : 12 + length])
                    del self._data[: 12 + length]
                    return Frame(flags, payload)
            if self._reset is not None:
                raise StreamReset(self._reset)
            if self._ended:
                assert not self._data, "the stream ended in the midst of a frame"
                return None
            if self._link.closed is not None:
                raise ConnectionLost(str(self._link.closed))
            await self._news.wait()
            self._news.clear()

    async def message(self) -> Message:
        """The next one, which is there and JSON."""
        found = await self.frame()
        assert found is not None, "the stream has ended"
        return found.message

    async def ask(self, *frames: bytes, end: bool = False) -> Message:
        self.send(*frames, end=end)
        return await self.message()

    async def rest(self) -> list[Frame]:
        """All that comes until the server ends the stream."""
        found = []
        while (each := await self.frame()) is not None:
            found.append(each)
        return found

    async def was_stopped(self) -> int:
        await until(lambda: self.stopped is not None)
        return cast(int, self.stopped)

    def heard(self, event: quic_events.QuicEvent) -> None:
        match event:
            case quic_events.StreamDataReceived():
                self._data += event.data
                self._ended |= event.end_stream
            case quic_events.StreamReset():
                self._reset = event.error_code
            case quic_events.StopSendingReceived():
                self.stopped = event.error_code
        self.wake()

    def wake(self) -> None:
        """Whoever waits is to look again."""
        self._news.set()


class Link(asyncio.DatagramProtocol):
    """One connection. Nothing is read ahead of the events, nothing is sent again but by QUIC itself."""

    def __init__(self, quic: QuicConnection, server: tuple[str, int], lose: int = 0) -> None:
        self.quic = quic
        self.alpn: str | None = None  # that was agreed on
        self.connected = asyncio.Event()  # or closed
        self.closed: Closed | None = None
        self.opened: asyncio.Queue[Stream] = asyncio.Queue()  # by the server
        self._server = server
        self._lose = lose
        self._crossed = 0  # datagrams, in either direction
        self._streams: dict[int, Stream] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._transport: asyncio.DatagramTransport

    def open(self, *, bidirectional: bool = True) -> Stream:
        number = self.quic.get_next_available_stream_id(is_unidirectional=not bidirectional)
        stream = self._streams[number] = Stream(self, number)
        self.quic.send_stream_data(number, b"")  # the number is used from now on
        return stream

    async def accept(self) -> Stream:
        """The next stream that the server opens."""
        return await self.opened.get()

    async def ended(self) -> Closed:
        await self._over.wait()
        assert self.closed is not None
        return self.closed

    def transmit(self) -> int:
        """The number of datagrams it took."""
        datagrams = self.quic.datagrams_to_send(now=self._loop.time())
        for data, _ in datagrams:
            if self._arrives():
                self._transport.sendto(data)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (at := self.quic.get_timer()) is not None:
            self._timer = self._loop.call_at(at, self._alarm)
        return len(datagrams)

    def close(self) -> None:
        if self.closed is None and not self._transport.is_closing():
            self._lose = 0  # else the server would wait for more
            self.quic.close()
            self.transmit()
        self.vanish()

    def vanish(self) -> None:
        """Be gone without a word."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()

    async def bind(self) -> None:
        """Get a socket, and with it a port of one's own."""
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        own.setblocking(False)
        own.connect(self._server)
        await self._loop.create_datagram_endpoint(lambda: self, sock=own)

    async def move(self) -> None:
        """Go on from another port, as behind a router that forgot which one it gave us."""
        old = self._transport
        await self.bind()
        old.close()

    async def begin(self) -> None:
        """Shake hands. Raises ConnectionLost."""
        await self.bind()
        self.quic.connect(self._server, now=self._loop.time())
        self.transmit()
        await self.connected.wait()
        if self.closed is not None:
            raise ConnectionLost(str(self.closed))

    # -- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        del addr  # as aioquic knows it, from the connect: the socket takes from nobody else
        if self._arrives():
            self.quic.receive_datagram(data, self._server, now=self._loop.time())
            self._listen()

    def error_received(self, exc: Exception) -> None:
        """Nobody is at the server's port any more."""
        self._ended(Closed(0, False, str(exc)))

    def _arrives(self) -> bool:
        self._crossed += 1
        return not self._lose or self._crossed % self._lose != 0

    def _alarm(self) -> None:
        self._timer = None
        self.quic.handle_timer(now=self._loop.time())
        self._listen()

    def _listen(self) -> None:
        while (event := self.quic.next_event()) is not None:
            self._heard(event)
        self.transmit()

    def _heard(self, event: quic_events.QuicEvent) -> None:
        match event:
            case quic_events.HandshakeCompleted():
                self.alpn = event.alpn_protocol
                self.connected.set()
            case quic_events.ConnectionTerminated():
                self._ended(Closed(event.error_code, event.frame_type is None, event.reason_phrase))
            case quic_events.StreamDataReceived() | quic_events.StreamReset() | quic_events.StopSendingReceived():
                if event.stream_id not in self._streams:
                    stream = self._streams[event.stream_id] = Stream(self, event.stream_id)
                    self.opened.put_nowait(stream)
                self._streams[event.stream_id].heard(event)

    def _ended(self, how: Closed) -> None:
        self.closed = self.closed or how
        self.connected.set()
        self._over.set()
        for stream in self._streams.values():
            stream.wake()


@asynccontextmanager
async def connect(
    server: tuple[str, int], *, alpn: Sequence[str] | None = None, certificate: str | None = None,
    idle_seconds: float = 30.0, window: int = 1 << 20, lose: int = 0,
) -> AsyncIterator[Link]:  # fmt: skip
    """A connection. `certificate`: a file with the one that the server has to have; without it any will do. `window`:
    bytes of each stream that the server may send at first. `lose`: each so many-th datagram, of either side."""
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=None if alpn is None else list(alpn),
        server_name="localhost",
        idle_timeout=idle_seconds,
        verify_mode=ssl.CERT_NONE if certificate is None else ssl.CERT_REQUIRED,
        cafile=certificate,
        max_stream_data=window,
    )
    link = Link(QuicConnection(configuration=configuration), server, lose)
    try:
        await link.begin()
        yield link
    finally:
        link.close()
        await asyncio.sleep(0)  # the transport closes its socket in a later turn
