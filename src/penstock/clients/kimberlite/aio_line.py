"""The asyncio client's line to a server: one connection at a time, made when it is needed, and anew when it is gone."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

from penstock.clients.kimberlite import questions as q
from penstock.clients.kimberlite.conversation import Attempts, Call, Conversation, failed, handshake, probe, result_of
from penstock.clients.kimberlite.errors import (
    BadReply,
    ConnectionFailed,
    KimberliteError,
    ReplyError,
    TimedOut,
    Unsendable,
)
from penstock.clients.kimberlite.feed import Feed
from penstock.clients.kimberlite.options import HEALTH, Address, Options
from penstock.clients.kimberlite.questions import Question

_WRITE: Final = 64 * 1024  # bytes that go out at once


class AsyncConnection(asyncio.Protocol):
    """A connection, and the conversation on it. What is sent in one turn of the event loop goes out as one write."""

    def __init__(self, place: Address, conversation: Conversation) -> None:
        self.place = place
        self.conversation = conversation
        self.lost: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._held = 0  # bytes in it
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()
        self._heard: list[asyncio.Future[None]] = []  # of those who wait for anything to come
        self._watch: asyncio.TimerHandle | None = None
        self._retired = False

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.conversation.heard = self._loop.time()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self.lost is not None:
            return
        try:
            self.conversation.feed(data, self._loop.time())
        except (BadReply, ReplyError) as error:
            self.abort(error)
        self._wake()
        if self._retired:
            self.retire()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc or ConnectionResetError("the server closed the connection"))
        self._closed.set()

    # -- called by the client

    @property
    def ready(self) -> bool:
        return self.lost is None and self._writable.is_set()

    async def writable(self) -> None:
        """Wait until the socket takes more, or is lost."""
        await self._writable.wait()

    async def step(self) -> None:
        """Wait until something has come, or the connection is lost."""
        if self.lost is not None:
            return
        future = self._loop.create_future()
        self._heard.append(future)
        await future

    def tell(self, call: Call) -> None:
        """Ask, without waiting. Raises Unsendable."""
        if self.lost is not None:
            call.end(self.lost)
            return
        data = self.conversation.begin(call, self._loop.time())
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(data)
        self._held += len(data)
        if self._held >= _WRITE:  # no use in waiting for more
            self._flush()
        self._look_at(call.due)

    def ask(self, call: Call) -> asyncio.Future[None]:
        """Ask. The future is done when the call has its outcome."""
        future = self._loop.create_future()

        def ended(_call: Call) -> None:
            if not future.done():  # else its caller was cancelled
                future.set_result(None)

        call.on_end = ended
        try:
            self.tell(call)
        except Unsendable as error:
            call.end(error)
        return future

    def retire(self) -> None:
        """Close it as soon as nobody needs it any more."""
        self._retired = True
        if not self.conversation and not self.conversation.listening and self._transport is not None:
            self._transport.close()

    def abort(self, reason: Exception) -> None:
        """Give up the connection; all who wait for a reply get the reason."""
        self._lose(reason)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        if self._transport is not None:
            self._lose(ConnectionAbortedError("the client was closed"))
            self._transport.close()
            await self._closed.wait()

    def look_after(self) -> None:
        """From now on see to it that the server is there, even if it owes us nothing: pushes may be due."""
        self._look_at(self._loop.time() + HEALTH)

    def _flush(self) -> None:
        outgoing, self._outgoing, self._held = self._outgoing, [], 0
        if outgoing and self.lost is None and self._transport is not None:
            self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def _look_at(self, moment: float) -> None:
        """One timer for all requests."""
        if self._watch is not None:
            if self._watch.when() <= moment:
                return
            self._watch.cancel()
        self._watch = self._loop.call_at(moment, self._look)

    def _look(self) -> None:
        """Is a reply overdue? Is anybody there?"""
        self._watch = None
        now, conversation = self._loop.time(), self.conversation
        try:
            conversation.expire(now)
        except TimeoutError as error:
            self.abort(error)
            return
        self._wake()
        if conversation.listening:
            if now >= conversation.heard + HEALTH and not conversation:
                self.tell(Call(q.server_info()))
            self._look_at(max(now, conversation.heard) + HEALTH)
        due = conversation.due()
        if due is not None:
            self._look_at(due)

    def _wake(self) -> None:
        waiting, self._heard = self._heard, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _lose(self, reason: Exception) -> None:
        if self.lost is None:
            self.lost = reason
            self.conversation.lose(reason)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._writable.set()
        self._wake()


class AsyncLine:
    """For the tasks of one event loop."""

    def __init__(self, options: Options, sleep: Callable[[float], Awaitable[None]]) -> None:
        self.options = options
        self.sleep = sleep
        self.connection: AsyncConnection | None = None
        self.connections = 0  # opened so far
        self._turn = asyncio.Lock()  # held while a connection is made
        self._failures = 0  # how often connecting was given up, and why the last time
        self._failure: KimberliteError | None = None

    def another(self) -> AsyncLine:
        """A line of the same options, with a connection of its own."""
        return AsyncLine(self.options, self.sleep)

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def check(self) -> bool:
        """Whether the connection holds and the server answers on it. If not, it is closed. True if there is none."""
        connection, own = self.connection, self.options
        if connection is None:
            return True
        call = Call(probe(own.version, own.credentials))
        await connection.ask(call)
        if failed(call):
            connection.abort(ConnectionResetError("the server does not answer"))
        if connection.lost is not None and self.connection is connection:
            self.connection = None
        return connection.lost is None

    async def ask_all(
        self,
        questions: Sequence[Question[Any]],
        feed: Feed | None = None,
        tried: Callable[[AsyncConnection], None] | None = None,
    ) -> list[Any]:
        """`tried` is told of every connection on which it is asked."""
        attempts = Attempts(questions, self.options.retry)
        while not attempts.over:
            try:
                connection = await self.connected()
            except KimberliteError as error:
                attempts.unreachable(error)
                break
            if tried is not None:
                tried(connection)
            asked = [(at, Call(question, feed)) for at, question in attempts.next()]
            for answered in [connection.ask(call) for _, call in asked]:
                await answered
            pause = attempts.take(asked)
            if attempts.elsewhere:
                self._go_elsewhere(connection, attempts)
            if pause and not attempts.over:
                await self.sleep(pause)
        return attempts.outcomes

    def _go_elsewhere(self, connection: AsyncConnection, attempts: Attempts) -> None:
        self.options.addresses.led_by(attempts.leader, connection.place)
        attempts.elsewhere = False
        if self.connection is connection:
            self.connection = None
        connection.retire()

    async def connected(self) -> AsyncConnection:
        """The connection, opened if there is none or it is lost, and when it takes more."""
        while True:
            connection = self.connection
            if connection is None or connection.lost is not None:
                connection = await self._made()
            if connection.ready:
                return connection
            await connection.writable()

    async def _made(self) -> AsyncConnection:
        failures = self._failures
        async with self._turn:
            if self.connection is not None and self.connection.lost is None:
                return self.connection
            if failures != self._failures and self._failure is not None:
                # Connecting failed while we waited for our turn. Everybody who waited shares that failure, or else
                # each of them would go through all the attempts, one after the other.
                raise self._failure
            try:
                self.connection = await self._reached()
            except KimberliteError as error:
                self._failures += 1
                self._failure = error
                raise
            self.connections += 1
            return self.connection

    async def _reached(self) -> AsyncConnection:
        own = self.options
        attempt = 0
        while True:
            for place in own.addresses.ordered():
                try:
                    async with asyncio.timeout(own.timeout):
                        return await self._open(place)
                except (OSError, ReplyError) as error:
                    own.addresses.failed(place)
                    failure: Exception = error
                    if isinstance(error, ReplyError) and not error.retryable:
                        raise
                    if isinstance(error, ssl.SSLCertVerificationError):
                        raise ConnectionFailed(f"No connection to {place}: {error}") from error
            attempt += 1
            if attempt >= own.retry.attempts:
                raise ConnectionFailed(f"No connection to {place}: {failure}") from failure
            await self.sleep(own.retry.delay(attempt - 1))

    async def _open(self, place: Address) -> AsyncConnection:
        own = self.options
        conversation = Conversation(own.version, own.tenant, own.timeout)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: AsyncConnection(place, conversation), place.host, place.port, ssl=own.tls
        )
        try:
            call = Call(handshake(own.version, own.credentials()))
            await connection.ask(call)
            if isinstance(call.outcome, TimedOut):
                raise TimeoutError(f"no reply in {own.timeout:g} seconds")
            result_of(call.outcome)
        except BaseException:
            connection.abort(ConnectionAbortedError("the handshake failed"))
            raise
        return connection
