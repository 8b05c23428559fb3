"""The asyncio client: for any number of tasks of one event loop, on one connection.

It connects when it first has something to send, and again when the connection is gone; its subscriptions go on by
their old ids. Which reply belongs to what is in `conversation`; what the exceptions mean is in `outcome`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar, cast

from penstock.clients.blipmq.conversation import Box, Conversation, Ledger, Reply, Round
from penstock.clients.blipmq.outcome import (
    BadReply,
    ConnectionFailed,
    Message,
    OutcomeUnknown,
    Refusal,
    check_key,
    check_prefetch,
    check_values,
    check_version,
    checked_prefix,
)
from penstock.clients.blipmq.pace import ACK_BATCH, HELD_LIMIT, WRITE_SIZE, chunks, idle_delay, refill
from penstock.retry import RetryPolicy

W = TypeVar("W", Reply, Round)


class _Connection(asyncio.Protocol):
    """A connection, the conversation on it, and those who wait for its next turn."""

    def __init__(self, ledger: Ledger) -> None:
        self.conversation = Conversation(ledger)
        self.lost: Exception | None = None
        self._ledger = ledger
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[None]] = []
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()
        self._paused = False

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self.lost is not None:
            return
        try:
            self.conversation.feed(data)
        except BadReply as error:
            self.abort(error)
            return
        if self._waiting:
            self._wake()
        elif self._ledger.held_bytes >= HELD_LIMIT and self._transport is not None:
            self._transport.pause_reading()  # until somebody takes the messages, or waits for a reply behind them
            self._paused = True

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc or ConnectionResetError("the server closed the connection"))
        self._closed.set()

    # -- called by the client

    async def writable(self) -> None:
        """Wait until the socket takes more, or is lost."""
        await self._writable.wait()

    def send(self, data: bytes) -> None:
        """Raises OSError if the connection is lost."""
        if self.lost is not None or self._transport is None:
            raise ConnectionResetError("the connection was lost") from self.lost
        self._transport.write(data)

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait until this holds. Raises OSError, or BadReply, if the connection is lost before."""
        while not ready():
            if self.lost is not None:
                raise self.lost
            if self._paused and self._transport is not None:
                self._paused = False
                self._transport.resume_reading()
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    def abort(self, reason: Exception) -> None:
        self._lose(reason)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        self._lose(ConnectionAbortedError("the client was closed"))
        if self._transport is not None:
            self._transport.close()
            await self._closed.wait()

    def _lose(self, reason: Exception) -> None:
        if self.lost is None:
            self.lost = reason
            self.conversation.lose()
        self._writable.set()
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():  # its task may have been cancelled
                waiter.set_result(None)


class AsyncClient:
    """A BlipMQ client for the tasks of one event loop.

    With `version` 1 it polls for messages; with 2 the server sends them. `timeout` is the longest wait in seconds: for
    the connection, or for a reply. `sleep` is for tests.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 5555,
        *,
        key: str,
        version: int = 1,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        check_version(version)
        self._address = (host, port)
        self._key = check_key(key)
        self._version = version
        self._tls = tls
        self._timeout = timeout
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._ledger = Ledger(version)
        self._connection: _Connection | None = None
        self._turn = asyncio.Lock()  # held while connecting
        self._failures = 0  # how often connecting was given up

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. A later call opens another, on which the subscriptions go on."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def connect(self) -> None:
        """Connect now, and not with the first call that needs it: shows at once whether the key is accepted."""
        await self._connected()

    # -- publishing

    async def publish(self, topic: str, value: bytes, *, qos: int = 1, ttl_ms: int | None = None) -> int:
        """Send a message, and do not wait: `flush` tells what became of it. The result is its id in a refusal."""
        return (await self.publish_many(topic, (value,), qos=qos, ttl_ms=ttl_ms))[0]

    async def publish_many(
        self, topic: str, values: Iterable[bytes], *, qos: int = 1, ttl_ms: int | None = None
    ) -> list[int]:
        """Send messages in large writes, and do not wait. The ids are those of the messages, in order.

        OutcomeUnknown if the connection breaks: it counts all messages since the last `flush`."""
        prefix = checked_prefix(self._version, topic, qos, ttl_ms)
        ids: list[int] = []
        for chunk in chunks(values, len(prefix), WRITE_SIZE):
            check_values(prefix, chunk)
            connection = await self._connected()
            data, sent = connection.conversation.publish(prefix, chunk)
            connection.send(data)
            ids.extend(sent)
            await connection.writable()
            if connection.lost is not None:
                raise OutcomeUnknown(self._ledger.take_doubtful()) from connection.lost
        return ids

    async def flush(self) -> None:
        """Wait until the server has dealt with everything sent so far.

        PublishRefused if it did not store some of it; OutcomeUnknown if the connection was lost since the last
        `flush`, and it is not known what became of some of it."""
        await self._run(lambda conversation: conversation.barrier())
        self._ledger.settle()

    def refusals(self) -> list[Refusal]:
        """What was refused since the last time, and has been in no exception: most likely ACKs that came too late."""
        return self._ledger.take_refusals()

    # -- subscriptions

    async def subscribe(self, topic: str, qos: int = 1) -> AsyncSubscription:
        """A subscription to what is published from now on. If the connection breaks meanwhile, it is asked for again;
        then the server may have made one that nobody polls, which it ends by itself."""
        box = self._ledger.open(topic, qos)
        try:
            reply = await self._run(lambda conversation: conversation.subscribe(box))
            reply.check()
        except BaseException:
            self._ledger.discard(box)
            raise
        return AsyncSubscription(self, box)

    async def resume(self, subscription: int, topic: str, qos: int = 1) -> AsyncSubscription:
        """The subscription that was given this id some time ago, perhaps to another client. The server does not say if
        there is none any more: it then looks empty."""
        box = self._ledger.open(topic, qos)
        box.id = subscription
        if self._version == 2 and self._connection is not None:
            await self._say(lambda conversation: conversation.attach(box))
        return AsyncSubscription(self, box)

    # -- the connection; also used by AsyncSubscription

    async def _run(self, begin: Callable[[Conversation], tuple[bytes, W]]) -> W:
        """Send what `begin` gives, and wait for it; again if the connection is lost."""
        attempt = 0
        while True:
            connection = await self._connected()
            try:
                data, awaited = begin(connection.conversation)
                connection.send(data)
                await self._wait(connection, awaited)
                return awaited
            except OSError as error:
                attempt += 1
                if attempt >= self._retry.attempts:
                    raise ConnectionFailed(f"The connection was lost {attempt} times: {error}") from error
            await self._sleep(self._retry.delay(attempt - 1))

    async def _wait(self, connection: _Connection, awaited: Reply | Round) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await connection.until(lambda: awaited.ready)
        except TimeoutError:
            problem = TimeoutError(f"no reply in {self._timeout:g} seconds")
            connection.abort(problem)
            raise problem from None

    async def _say(self, begin: Callable[[Conversation], bytes]) -> None:
        """Send what `begin` gives. If the connection is lost, the next call finds out."""
        connection = await self._connected()
        connection.send(begin(connection.conversation))
        await connection.writable()

    async def _connected(self) -> _Connection:
        """The connection, opened if there is none or it is lost. No task gets a turn between this and what follows."""
        if self._connection is not None and self._connection.lost is None:
            return self._connection
        failures = self._failures
        async with self._turn:
            if failures != self._failures:
                # Connecting failed while we waited for our turn. Everybody who waited shares that failure, or else
                # each of them would go through all the attempts, one after the other.
                raise ConnectionFailed(self._no_connection)
            while self._connection is None or self._connection.lost is not None:
                self._connection = await self._reconnected()
            return self._connection

    @property
    def _no_connection(self) -> str:
        host, port = self._address
        return f"No connection to {host}:{port}"

    async def _reconnected(self) -> _Connection:
        attempt = 0
        while True:
            try:
                return await self._open()
            except OSError as error:
                attempt += 1
                if attempt >= self._retry.attempts or isinstance(error, ssl.SSLCertVerificationError):
                    self._failures += 1
                    raise ConnectionFailed(f"{self._no_connection}: {error}") from error
            await self._sleep(self._retry.delay(attempt - 1))

    async def _open(self) -> _Connection:
        loop = asyncio.get_running_loop()
        host, port = self._address
        async with asyncio.timeout(self._timeout):
            _, connection = await loop.create_connection(lambda: _Connection(self._ledger), host, port, ssl=self._tls)
            try:
                data, hello, auth = connection.conversation.greet(self._key)
                connection.send(data)
                await connection.until(lambda: hello.ready and auth.ready)
                hello.check()
                auth.check()
                connection.send(connection.conversation.resume())
            except BaseException:
                connection.abort(ConnectionAbortedError("the handshake failed"))
                raise
        return connection


class AsyncSubscription:
    """A subscription of a client. It lives on at the server until nobody has asked for its messages for long."""

    def __init__(self, client: AsyncClient, box: Box) -> None:
        self._client = client
        self._box = box

    @property
    def id(self) -> int:
        return self._box.id

    @property
    def topic(self) -> str:
        return self._box.topic

    @property
    def qos(self) -> int:
        return self._box.qos

    async def poll(self) -> Message | None:
        """The next message; None if there is none now."""
        if not self._box.messages:
            await self._ask(1, eager=True)
        return self._box.take() if self._box.messages else None

    async def poll_many(self, count: int) -> list[Message]:
        """Up to `count` messages in one round trip."""
        check_prefetch(count)
        if len(self._box.messages) < count:
            await self._ask(count - len(self._box.messages), eager=False)
        return [self._box.take() for _ in range(min(count, len(self._box.messages)))]

    async def ack(self, *tags: int) -> None:
        """Acknowledge deliveries. If it is too late for that, they come again; see `AsyncClient.refusals`."""
        self._box.acks.extend(tags)
        await self._client._say(lambda conversation: conversation.acknowledge(self._box))

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def messages(self, *, prefetch: int = 1, stop_when_empty: bool = False) -> AsyncIterator[Message]:
        """Messages as they come. Each is acknowledged when the next one is asked for, in the same write as the next
        POLL: leave the loop by an exception or `break`, and the last one comes again.

        In version 1, `prefetch` POLLs are in flight. What has been prefetched must be worked off before the server
        loses patience and delivers it again."""
        check_prefetch(prefetch)
        box, client = self._box, self._client
        current: Round | None = None
        idle = 0
        try:
            while True:
                if not box.messages and current is not None:
                    await self._await(current)
                if not box.messages:
                    current = await self._ask(prefetch, eager=True)
                if not box.messages:
                    if stop_when_empty:
                        return
                    await self._pause(idle)
                    idle += 1
                    continue
                idle = 0
                message = box.take()
                yield message
                if message.qos:
                    box.acks.append(message.tag)
                if client._version == 1 and (count := refill(box, prefetch)):
                    current = await self._ask_ahead(count)
                elif len(box.acks) >= ACK_BATCH:
                    await client._say(lambda conversation: conversation.acknowledge(box))
        finally:
            connection = client._connection
            if box.acks and connection is not None and connection.lost is None:
                connection.send(connection.conversation.acknowledge(box))

    async def _ask(self, count: int, *, eager: bool) -> Round:
        asked = await self._client._run(lambda conversation: conversation.poll(self._box, count, eager=eager))
        if asked.error is not None:
            raise asked.error
        return asked

    async def _ask_ahead(self, count: int) -> Round | None:
        """Ask for more while there are messages left to work on."""
        connection = await self._client._connected()
        data, new = connection.conversation.poll(self._box, count, eager=True)
        connection.send(data)
        return new

    async def _await(self, current: Round) -> None:
        """Wait for the answers to what was asked ahead. If they are lost, they are asked for anew."""
        connection = self._client._connection
        if connection is None or current.lost:
            return
        try:
            await self._client._wait(connection, current)
        except OSError:
            return
        if current.error is not None:
            raise current.error

    async def _pause(self, idle: int) -> None:
        """Nothing is there: in version 1 wait a little, in version 2 until something comes or the timeout has passed;
        a PING then shows whether the server is still there."""
        client, connection = self._client, self._client._connection
        if client._version == 1 or connection is None:
            await client._sleep(idle_delay(idle))
            return
        try:
            async with asyncio.timeout(client._timeout):
                await connection.until(lambda: bool(self._box.messages))
        except OSError:  # the timeout among them
            return
