"""Both sides of QUIC connections for tests: our server with a handler that notes what happens, and two kinds of
clients: our own, and aioquic's, which is somebody else's idea of QUIC."""

from __future__ import annotations

import asyncio
import datetime
import functools
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aioquic.asyncio.client import connect as aioquic_connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic import events as aioquic_events
from aioquic.quic.configuration import QuicConfiguration

from penstock.transport.quic.certificate import Certificate, kept
from penstock.transport.quic.client import connect
from penstock.transport.quic.connection import QuicConnection, Stream
from penstock.transport.quic.server import QuicServer
from penstock.transport.quic.settings import QuicSettings


@functools.cache
def certificate() -> Certificate:
    """One for all tests of this process."""
    return kept(tempfile.mkdtemp(prefix="penstock-quic-"), datetime.datetime.now(datetime.UTC))


class RecordingReceiver:
    """A receiver that notes everything. `echo`: and sends it back."""

    def __init__(self, stream: Stream | None = None, *, echo: bool = False) -> None:
        self.stream = stream
        self.echo = echo
        self.data = bytearray()
        self.calls: list[tuple[str, int]] = []
        self.pieces = 0
        self.ended = asyncio.Event()

    def received(self, data: bytes, end: bool) -> None:
        self.data += data
        self.pieces += 1
        if self.echo and self.stream is not None:
            self.stream.send(data)
            if end:
                self.stream.finish()
        if end:
            self.calls.append(("end", 0))
            self.ended.set()

    def reset(self, code: int) -> None:
        self.calls.append(("reset", code))

    def refused(self, code: int) -> None:
        self.calls.append(("refused", code))

    def drained(self) -> None:
        self.calls.append(("drained", 0))


class RecordingHandler:
    """A handler that notes everything."""

    def __init__(self, connection: QuicConnection | None = None, *, echo: bool = False) -> None:
        self.connection = connection
        self.echo = echo
        self.greeted = 0
        self.receivers: list[RecordingReceiver] = []
        self.endings: list[tuple[int, str]] = []

    def connected(self, connection: QuicConnection) -> None:
        self.connection = connection
        self.greeted += 1

    def accepted(self, stream: Stream) -> RecordingReceiver:
        self.receivers.append(RecordingReceiver(stream, echo=self.echo and stream.bidirectional))
        return self.receivers[-1]

    def closed(self, code: int, reason: str) -> None:
        self.endings.append((code, reason))


class QuicFixture:
    """Our server, and who lives in it."""

    def __init__(self, settings: QuicSettings, *, echo: bool, port: int = 0, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        own = socket.socket(family, socket.SOCK_DGRAM)
        try:
            own.bind((host, port))
        except OSError:
            own.close()
            raise
        self.handlers: list[RecordingHandler] = []
        self._echo = echo
        self.server = QuicServer(own, settings, certificate(), self._move_in, asyncio.get_running_loop())
        self.host = host
        self.port: int = self.server.address[1]

    def _move_in(self, connection: QuicConnection) -> RecordingHandler:
        self.handlers.append(RecordingHandler(connection, echo=self._echo))
        return self.handlers[-1]

    @property
    def only(self) -> RecordingHandler:
        (handler,) = self.handlers
        return handler

    @property
    def connection(self) -> QuicConnection:
        connection = self.only.connection
        assert connection is not None
        return connection

    async def call(self, **settings: Any) -> tuple[QuicConnection, RecordingHandler]:
        """Our own client."""
        handler = RecordingHandler()
        given = {"fingerprint": certificate().fingerprint} | settings
        return await connect(self.host, self.port, QuicSettings(**given), handler), handler


@asynccontextmanager
async def quic_fixture(
    settings: QuicSettings | None = None, *, echo: bool = False, **more: Any
) -> AsyncIterator[QuicFixture]:
    made = QuicFixture(settings or QuicSettings(), echo=echo, **more)
    try:
        yield made
    finally:
        for handler in made.handlers:
            if handler.connection is not None:
                handler.connection.close()
        made.server.close()
        await asyncio.sleep(0)


class AioquicClient(QuicConnectionProtocol):
    """aioquic's client, with all that happens to it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.data: dict[int, bytearray] = {}
        self.ends: set[int] = set()
        self.events: list[Any] = []

    def quic_event_received(self, event: Any) -> None:
        if isinstance(event, aioquic_events.StreamDataReceived):
            self.data.setdefault(event.stream_id, bytearray()).extend(event.data)
            if event.end_stream:
                self.ends.add(event.stream_id)
        else:
            self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def send(self, data: bytes, *, end: bool = False, unidirectional: bool = False, stream: int | None = None) -> int:
        if stream is None:
            stream = self._quic.get_next_available_stream_id(unidirectional)
        self._quic.send_stream_data(stream, data, end)
        self.transmit()
        return stream

    @property
    def quic(self) -> Any:
        return self._quic


@asynccontextmanager
async def aioquic(port: int, alpn: list[str] | None = None, **more: Any) -> AsyncIterator[AioquicClient]:
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=alpn, verify_mode=ssl.CERT_NONE, server_name="localhost", **more
    )
    async with aioquic_connect(
        "127.0.0.1", port, configuration=configuration, create_protocol=AioquicClient
    ) as protocol:
        assert isinstance(protocol, AioquicClient)
        yield protocol


async def until(holds: Callable[[], object], seconds: float = 10) -> None:
    """Wait for something that happens soon."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, "it did not happen"
        await asyncio.sleep(0.005)
