"""A QUIC connection to the server: request streams that the client opens, and event streams that the server opens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.clients.felix import errors
from penstock.clients.felix.errors import ClientClosed, FelixError, StreamLost, TimedOut
from penstock.clients.felix.event_buffer import EventBuffer
from penstock.clients.felix.options import MIB, Options
from penstock.clients.felix.request_stream import RequestStream
from penstock.transport.quic.client import connect
from penstock.transport.quic.errors import CertificateRefused, ConnectionClosed, StreamsUsedUp
from penstock.transport.quic.settings import QuicSettings

if TYPE_CHECKING:
    from penstock.transport.quic.connection import QuicConnection, Stream, StreamReceiver

MAX_UNCLAIMED: Final = 1024  # event streams that arrive before their subscription claims them

Connector: TypeAlias = "Callable[[Options, Connection], Awaitable[QuicConnection]]"
"""Connects, with the `Connection` as the owner of the QUIC connection. Raises ConnectFailed."""


class Connection:
    """The owner of a QUIC connection and all its streams."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._quic: QuicConnection | None = None
        self._streams: set[RequestStream] = set()
        self._buffers: set[EventBuffer] = set()
        self._full: set[EventBuffer] = set()  # their readers do not keep up
        self._unclaimed: dict[int | str, EventBuffer] = {}
        self._expected: set[int | str | None] = set()  # requested subscriptions; None matches any
        self._waiters: dict[int | str | None, asyncio.Future[EventBuffer]] = {}
        self._last_id = 0
        self.subscribing = asyncio.Lock()  # one at a time, if the server does not identify event streams
        self.crowded = False  # the server allows no more subscriptions on this connection
        self.lost: FelixError | None = None
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._closed = asyncio.Event()

    # -- called by the QUIC connection

    def connected(self, quic: QuicConnection) -> None:
        self._quic = quic

    def accepted(self, stream: Stream) -> StreamReceiver:
        buffer = EventBuffer(self, stream, self._options.limits.frame, self._options.limits.queue)
        self._buffers.add(buffer)
        return buffer

    def closed(self, code: int, reason: str) -> None:
        self._fail(StreamLost(f"the connection was lost: {reason or 'closed by the server'} (code {code})"))
        self._closed.set()

    # -- request streams

    async def open_stream(self) -> RequestStream:
        """A new stream, authenticated. Raises StreamLost or ReplyError."""
        request_stream = RequestStream(self._options)
        if self._quic is None or self.lost is not None:
            raise self.lost or StreamLost("not connected")
        try:
            request_stream.stream = self._quic.open(request_stream, bidirectional=True)
        except ConnectionClosed as error:
            raise StreamLost(str(error)) from error
        except StreamsUsedUp as error:
            raise StreamLost(f"the server allows no more streams on a connection: {error}") from error
        self._streams = {known for known in self._streams if not known.ended}
        self._streams.add(request_stream)
        try:
            await request_stream.authenticate()
        except BaseException:
            request_stream.abort(StreamLost("the greeting failed"))
            self._streams.discard(request_stream)
            raise
        return request_stream

    # -- event streams

    @property
    def subscribable(self) -> bool:
        """False if the server allows no more subscriptions, or if reading is paused because a reader does not keep
        up."""
        return not self._full and not self.crowded

    @property
    def subscriptions(self) -> int:
        return len(self._buffers)

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    @contextlib.contextmanager
    def expecting(self, subscription_id: int | None) -> Iterator[None]:
        """Within this context the event stream of this subscription will be claimed; None if the server chooses the
        id."""
        self._expected.add(subscription_id)
        try:
            yield
        finally:
            self._expected.discard(subscription_id)
            unclaimed = None if subscription_id is None else self._unclaimed.pop(subscription_id, None)
            if unclaimed is not None:
                unclaimed.cancel(StreamLost("the subscription was given up"))

    async def claim(self, subscription_id: int | str | None) -> EventBuffer:
        """The event stream of this subscription; any one, if the server does not identify them. Raises TimedOut or
        StreamLost."""
        if subscription_id is None:
            subscription_id = next(iter(self._unclaimed), None)
        buffer = None if subscription_id is None else self._unclaimed.pop(subscription_id, None)
        if buffer is not None:
            if buffer.full:
                self.on_full(buffer)
            return buffer
        if self.lost is not None:
            raise self.lost
        future: asyncio.Future[EventBuffer] = self._loop.create_future()
        self._waiters[subscription_id] = future
        try:
            async with asyncio.timeout(self._options.timeout):
                return await future
        except TimeoutError:
            seconds = self._options.timeout
            raise TimedOut(f"the server opened no event stream in {seconds:g} seconds") from None
        finally:
            self._waiters.pop(subscription_id, None)

    # -- called by the event buffers

    def on_hello(self, buffer: EventBuffer) -> None:
        assert buffer.id is not None
        future = self._waiters.get(buffer.id) or self._waiters.get(None)
        if future is not None and not future.done():
            future.set_result(buffer)
        elif len(self._unclaimed) < MAX_UNCLAIMED and buffer.id not in self._unclaimed:
            self._unclaimed[buffer.id] = buffer
        else:
            buffer.cancel(StreamLost("no subscription has this event stream"))

    def on_full(self, buffer: EventBuffer) -> None:
        """Apply back-pressure. Pausing the whole connection stops the sender, but also everyone else on it. So if there
        are others, the event stream is cancelled instead, and its subscription resumes at its position once the reader
        has caught up. A Subscribe whose reply is still due counts as one of the others."""
        if buffer.id is not None and self._unclaimed.get(buffer.id) is buffer:
            if buffer.resumable or not self._is_expected(buffer):
                buffer.cancel(StreamLost("there was no reader yet"))
        elif len(self._buffers) > 1 and buffer.resumable:
            buffer.cancel(StreamLost("the reader did not keep up"))
        elif self._quic is not None:
            self._full.add(buffer)
            self._quic.pause()

    def on_drained(self, buffer: EventBuffer) -> None:
        if buffer in self._full:
            self._full.discard(buffer)
            if not self._full and self._quic is not None and self.lost is None:
                self._quic.resume()

    def forget(self, buffer: EventBuffer) -> None:
        self._buffers.discard(buffer)
        self.crowded = False
        if buffer.id is not None and not self._is_expected(buffer):
            self._unclaimed.pop(buffer.id, None)
        self.on_drained(buffer)

    def _is_expected(self, buffer: EventBuffer) -> bool:
        return buffer.id in self._expected or None in self._expected

    # -- end of the connection

    async def close(self, seconds: float) -> None:
        """Close gracefully: requests in flight are answered first."""
        if self._quic is not None and self.lost is None:
            for buffer in list(self._buffers):
                buffer.cancel(ClientClosed("the client was closed"))
            await asyncio.gather(*[stream.close(seconds) for stream in self._streams])
            self._fail(ClientClosed("the client was closed"))
            self._quic.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._closed.wait()

    def _fail(self, reason: FelixError) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        for stream in list(self._streams):
            stream.fail(reason)
        for buffer in list(self._buffers):
            buffer.fail(reason)
        for future in self._waiters.values():
            if not future.done():
                future.set_exception(reason)
        self.over.set_result(None)


def quic_settings(options: Options) -> QuicSettings:
    """Settings of the transport. A lost server is detected by its silence, so it is probed three times before the
    timeout."""
    trust = options.trust
    return QuicSettings(
        connection_window=max(16 * MIB, options.limits.frame),
        stream_window=max(4 * MIB, min(options.limits.frame, 16 * MIB)),
        idle_seconds=options.idle,
        keep_alive_seconds=options.idle / 3,
        handshake_seconds=options.timeout,
        server_name=trust.server_name or "",
        ca_file=trust.ca or "",
        fingerprint=trust.fingerprint or "",
        verify=not trust.insecure,
    )


async def quic_connect(options: Options, connection: Connection) -> QuicConnection:
    """The connector of real clients. Raises ConnectFailed, or `errors.CertificateRefused`."""
    try:
        return await connect(options.server.host, options.server.port, quic_settings(options), connection)
    except CertificateRefused as error:
        raise errors.CertificateRefused(f"No connection to {error}") from error
