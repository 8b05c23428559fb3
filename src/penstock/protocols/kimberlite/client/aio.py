"""The asyncio client: requests of any number of tasks share one connection, and none waits for the reply to another.

It connects when it first has something to ask, and again when the connection is gone. What can be asked is in
`questions`; which reply belongs to what, and what is asked twice, in `conversation`; what the exceptions mean, in
`errors`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

from penstock.protocols.kimberlite.client import questions as q
from penstock.protocols.kimberlite.client.conversation import (
    Attempts,
    Call,
    Conversation,
    Flight,
    appends,
    handshake,
    result_of,
)
from penstock.protocols.kimberlite.client.errors import (
    BadReply,
    ConnectionFailed,
    KimberliteError,
    ReplyError,
    SubscriptionNotFound,
    TimedOut,
    Unsendable,
)
from penstock.protocols.kimberlite.client.feed import POLL, Feed
from penstock.protocols.kimberlite.client.methods import AsyncMethods
from penstock.protocols.kimberlite.client.options import HEALTH, Address, Addresses, Options, Token, options
from penstock.protocols.kimberlite.client.questions import How, Question
from penstock.protocols.kimberlite.client.results import Appended, Event
from penstock.protocols.retry import RetryPolicy

R = TypeVar("R")


class _Connection(asyncio.Protocol):
    """A connection, and the conversation on it. What is sent in one turn of the event loop goes out as one write."""

    def __init__(self, place: Address, conversation: Conversation) -> None:
        self.place = place
        self.conversation = conversation
        self.lost: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
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
        outgoing, self._outgoing = self._outgoing, []
        if self.lost is None and self._transport is not None:
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


class AsyncKimberliteClient(AsyncMethods):
    """A Kimberlite client for the tasks of one event loop. What it is told and what it guarantees is as for
    `KimberliteClient`: what is asked again if a connection breaks, and what raises `OutcomeUnknown`."""

    def __init__(
        self,
        addresses: str | Sequence[str] | Addresses = "127.0.0.1",
        *,
        tenant: int = 1,
        token: Token = None,
        version: str = "5b",
        castagnoli: bool = False,
        tls: ssl.SSLContext | str | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._options: Options = options(addresses, tenant, token, version, castagnoli, tls, timeout, retry)
        self._sleep = sleep
        self._connection: _Connection | None = None
        self._turn = asyncio.Lock()  # held while a connection is made
        self._failures = 0  # how often connecting was given up, and why the last time
        self._failure: KimberliteError | None = None
        self.connections = 0  # opened so far

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. A later request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def connect(self) -> None:
        """Connect now, and not with the first request: shows at once whether the token is accepted."""
        await self._connected()

    @property
    def waiting(self) -> int:
        """How many replies the server owes us."""
        return 0 if self._connection is None else len(self._connection.conversation)

    async def check(self) -> bool:
        """Whether the connection holds and the server answers on it. If not, it is closed. True if there is none."""
        connection = self._connection
        if connection is None or connection.lost is not None:
            return connection is None
        own = self._options
        call = Call(q.server_info() if own.version.pushes else handshake(own.version, own.credentials()))
        await connection.ask(call)
        if isinstance(call.outcome, Exception) and not isinstance(call.outcome, ReplyError):
            connection.abort(ConnectionResetError("the server does not answer"))
        return connection.lost is None

    # -- asking

    async def ask(self, question: Question[R]) -> R:
        return result_of((await self.pipeline((question,)))[0])  # type: ignore[no-any-return]

    async def pipeline(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask all of this without waiting in between. The answer has, for each question in order, its result or its
        KimberliteError."""
        return await self._ask_all(questions)

    async def _ask_all(
        self,
        questions: Sequence[Question[Any]],
        feed: Feed | None = None,
        tried: Callable[[_Connection], None] | None = None,
    ) -> list[Any]:
        """`tried` is told of every connection on which it is asked."""
        attempts = Attempts(questions, self._options.retry)
        while not attempts.over:
            try:
                connection = await self._connected()
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
                await self._sleep(pause)
        return attempts.outcomes

    async def append(
        self, stream_id: int, events: Sequence[bytes], expected_offset: int | None = None, **how: Unpack[How]
    ) -> Appended:
        """Store events, all or none; the answer says where. With `expected_offset` only if the stream ends there, and
        else `OffsetMismatch`: that is how several writers stay out of each other's way. Without it, where the version
        of the protocol wants one, the length of the stream is asked for first."""
        start = await self._start(stream_id, expected_offset, how)
        return await self.ask(q.append(stream_id, events, start, **how))

    async def append_many(
        self,
        stream_id: int,
        batches: Iterable[Sequence[bytes]],
        expected_offset: int | None = None,
        *,
        window: int = 64,
        window_bytes: int = 8 * 1024 * 1024,
        **how: Unpack[How],
    ) -> list[Appended]:
        """Store batches, each for itself, without waiting for each reply; `window` of them or `window_bytes` at most
        are in flight. The first failure stops the sending; PipelineError then says what became of each batch that was
        sent. About `expected_offset` see `append`; here it is where the first batch goes."""
        flight = Flight(window, window_bytes)
        start = await self._start(stream_id, expected_offset, how)
        connection = await self._connected()
        await self._launch(connection, flight, appends(stream_id, batches, start, how))
        while flight.aloft:
            await connection.step()
        return flight.results()

    @staticmethod
    async def _launch(connection: _Connection, flight: Flight, questions: Iterator[Question[Any]]) -> None:
        """Send all, as fast as the window allows, until one fails."""
        for question in questions:
            call = flight.add(question)
            try:
                connection.tell(call)
            except Unsendable as error:
                call.end(error)
            while not flight.failed and flight.full(connection.conversation):
                await connection.step()
            if not connection.ready:
                await connection.writable()
            if flight.failed:
                break

    async def read(
        self, stream_id: int, from_offset: int = 0, *, page_bytes: int = q.PAGE_BYTES, **how: Unpack[How]
    ) -> AsyncIterator[bytes]:
        """The events from an offset on, to the end of the stream, fetched page by page."""
        at: int | None = from_offset
        while at is not None:
            page = await self.read_page(stream_id, at, page_bytes, **how)
            for event in page.events:
                yield event
            at = page.next_offset

    def subscribe(
        self,
        stream_id: int,
        from_offset: int = 0,
        *,
        group: str | None = None,
        window: int = 1024,
        tenant: int | None = None,
    ) -> AsyncSubscription:
        """Events from an offset on, and those to come: see `AsyncSubscription`. `window` of them at most wait here."""
        if group is not None and not self._options.version.pushes:
            raise Unsendable("Groups can be subscribed to from version 2 on")
        return AsyncSubscription(self, Feed(stream_id, from_offset, window, group), tenant)

    def another(self) -> AsyncKimberliteClient:
        """A client of the same options, with a connection of its own."""
        client = AsyncKimberliteClient(self._options.addresses, sleep=self._sleep)
        client._options = self._options
        return client

    async def _start(self, stream_id: int, expected_offset: int | None, how: How) -> int | None:
        """Where an append has to expect the end of the stream."""
        if expected_offset is None and self._options.version.lengths:
            return await self.stream_info(stream_id, **how)
        return expected_offset

    # -- the connection

    def _go_elsewhere(self, connection: _Connection, attempts: Attempts) -> None:
        self._options.addresses.led_by(attempts.leader, connection.place)
        attempts.elsewhere = False
        if self._connection is connection:
            self._connection = None
        connection.retire()

    async def _connected(self) -> _Connection:
        """The connection, opened if there is none or it is lost, and when it takes more."""
        while True:
            connection = self._connection
            if connection is None or connection.lost is not None:
                connection = await self._made()
            if connection.ready:
                return connection
            await connection.writable()

    async def _made(self) -> _Connection:
        failures = self._failures
        async with self._turn:
            if self._connection is not None and self._connection.lost is None:
                return self._connection
            if failures != self._failures and self._failure is not None:
                # Connecting failed while we waited for our turn. Everybody who waited shares that failure, or else
                # each of them would go through all the attempts, one after the other.
                raise self._failure
            try:
                self._connection = await self._reached()
            except KimberliteError as error:
                self._failures += 1
                self._failure = error
                raise
            self.connections += 1
            return self._connection

    async def _reached(self) -> _Connection:
        own = self._options
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
            await self._sleep(own.retry.delay(attempt - 1))

    async def _open(self, place: Address) -> _Connection:
        own = self._options
        conversation = Conversation(own.version, own.tenant, own.timeout)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(place, conversation), place.host, place.port, ssl=own.tls
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


class AsyncSubscription:
    """Events of a stream as they come; iterate over it, or call `next`. What it guarantees is as for `Subscription`.

    It is for one task. It shares the connection of its client with any number of others, except for a member of a
    group, whose connection is its own."""

    def __init__(self, client: AsyncKimberliteClient, feed: Feed, tenant: int | None) -> None:
        # Who leaves a group by saying so is taken to be done with all that is on its way to it. To be gone is safer.
        self._client = client if feed.group is None else client.another()
        self._feed = feed
        self._tenant = tenant
        self._connection: _Connection | None = None  # that it is subscribed on
        self._subscribing: asyncio.Task[None] | None = None  # goes on if its caller is cancelled, or does not wait
        self._change = asyncio.Event()
        self._closed = False
        feed.on_change = self._change.set

    async def __aenter__(self) -> Self:
        if self._feed.id is None:
            await self._subscribe()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._feed.finished()
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next(self, timeout: float | None = None) -> Event | None:  # noqa: ASYNC109  (it is no error here)
        """The next event. None if none has come in so many seconds, or if this was closed."""
        feed = self._feed
        feed.finished()
        try:
            async with asyncio.timeout(timeout) as limit:
                while not self._closed:
                    self._top_up()
                    event = feed.take()
                    if event is not None:
                        return event
                    if feed.id is None:
                        await self._subscribe()
                    else:
                        await self._await()
        except TimeoutError:
            if not limit.expired():
                raise
        return None

    async def close(self) -> None:
        """End it. What a group's member has not finished goes to the others."""
        if self._closed:
            return
        self._closed = True
        self._change.set()
        if self._subscribing is not None:
            with contextlib.suppress(KimberliteError):
                await self._subscribe()
        feed, connection, number = self._feed, self._connection, self._feed.id
        if number is not None and connection is not None and connection.lost is None:
            connection.conversation.forget(feed)
            credit = feed.credit(everything=True)
            if feed.group is None:
                await connection.ask(Call(q.unsubscribe(number, tenant=self._tenant)))
            elif credit is not None:
                await connection.ask(Call(q.subscription_credit(credit, tenant=self._tenant)))
        if feed.group is not None:
            await self._client.close()

    async def _subscribe(self) -> None:
        """A caller who gives up does not end this: a subscription must not be made twice, nor without our knowing."""
        if self._subscribing is None:
            self._subscribing = asyncio.create_task(self._subscribed())
        try:
            await asyncio.shield(self._subscribing)
        finally:
            if self._subscribing.done():
                self._subscribing = None

    async def _subscribed(self) -> None:
        if self._feed.fruitless:
            await self._client._sleep(self._client._options.retry.delay(self._feed.fruitless - 1))
        question = q.subscription(self._feed.request(), tenant=self._tenant)
        result_of((await self._client._ask_all([question], self._feed, self._carried_by))[0])
        if self._connection is not None:
            self._connection.look_after()

    def _carried_by(self, connection: _Connection) -> None:
        if self._client._options.version.pushes:
            self._connection = connection

    def _top_up(self, everything: bool = False) -> None:
        credit = self._feed.credit(everything)
        if credit is not None and self._connection is not None:
            call = Call(q.subscription_credit(credit, tenant=self._tenant))
            call.on_end = self._acknowledged
            self._connection.tell(call)

    def _acknowledged(self, call: Call) -> None:
        if isinstance(call.outcome, SubscriptionNotFound):
            self._feed.lost()

    async def _await(self) -> None:
        """Wait for something to happen."""
        feed = self._feed
        if not self._client._options.version.pushes:
            page = await self._client.read_page(feed.stream_id, feed.next_offset, tenant=self._tenant)
            feed.read(page)
            if not page.events:
                await self._client._sleep(POLL)
            return
        self._top_up(everything=feed.group is not None)
        self._change.clear()
        if not feed.waiting and feed.id is not None:
            await self._change.wait()
