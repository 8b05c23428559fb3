"""The asyncio client: requests of any number of tasks go out in the order of the calls, without waiting for replies.

It connects when it first has something to send, and again when the connection is gone. What may be repeated and
what an exception means is in `outcome`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar, cast

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.rustlog.outcome import (
    REPEATABLE,
    BadReply,
    ConnectionFailed,
    OutcomeUnknown,
    RustLogError,
    check_window,
    expect,
    framed,
    reply_of,
    settled,
)
from penstock.wire.rustlog.codec.dialect import DIALECTS
from penstock.wire.rustlog.frames import Framer
from penstock.wire.rustlog.messages import (
    CreateTopic,
    CreateTopicResponse,
    DescribePartition,
    DescribePartitionResponse,
    DescribeTopic,
    DescribeTopicResponse,
    Fetch,
    FetchResponse,
    ListTopics,
    ListTopicsResponse,
    MetricsFetch,
    MetricsFetchResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    Ping,
    Pong,
    Produce,
    ProduceResponse,
    Request,
    TopicSummary,
)

R = TypeVar("R")


class _Connection(asyncio.Protocol):
    """A connection, and the requests that wait for their replies on it, oldest first."""

    def __init__(self) -> None:
        self._framer = Framer()
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()
        self.lost: Exception | None = None

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        for payload in self._framer.feed(data):
            if not self._waiting:
                self.abort(BadReply("The server sent a reply that nobody asked for"))
                return
            future = self._waiting.popleft()
            if not future.done():  # its caller may have been cancelled
                future.set_result(payload)
        if self._framer.error is not None:
            self.abort(BadReply(f"The server sent a bad frame: {self._framer.error}"))

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

    def send(self, data: bytes) -> asyncio.Future[bytes]:
        assert self._transport is not None
        future = self._loop.create_future()
        self._waiting.append(future)
        self._transport.write(data)
        return future

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

    def _lose(self, reason: Exception) -> None:
        if self.lost is None:
            self.lost = reason
        self._writable.set()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(self.lost)
                future.exception()  # known to be looked at: a cancelled pipeline must not be reported as forgotten


class AsyncClient:
    """A RustLog client for the tasks of one event loop.

    `timeout` is the longest wait in seconds: for the connection, or for a reply. `sleep` is for tests.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9092,
        *,
        dialect: str = "json",
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._address = (host, port)
        self._dialect = DIALECTS[dialect]
        self._tls = tls
        self._timeout = timeout
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._connection: _Connection | None = None
        self._turn = asyncio.Lock()  # held while a request is sent, so that requests go out in the order of the calls
        self._failures = 0  # how often connecting was given up

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

    # -- requests

    async def create_topic(self, topic: str, partition_count: int = 1) -> CreateTopicResponse:
        return await self._call(CreateTopic(topic, partition_count), CreateTopicResponse)

    async def produce(self, topic: str, partition: int, records: Iterable[bytes]) -> ProduceResponse:
        """Append the records, all or none, one behind the other."""
        return await self._call(Produce(topic, partition, list(records)), ProduceResponse)

    async def produce_many(self, requests: Iterable[Produce], *, window: int = 64) -> list[ProduceResponse]:
        """Send the requests without waiting for each reply, `window` of them in flight. The first failure stops the
        sending; PipelineError then holds what became of each request that was sent."""
        check_window(window)
        results: list[ProduceResponse | RustLogError] = []
        waiting: deque[asyncio.Future[bytes]] = deque()
        connection: _Connection | None = None
        for request in requests:
            data = framed(self._dialect, request)
            try:
                connection, future = await self._send(data, connection)
            except OSError:
                break
            waiting.append(future)
            if len(waiting) == window:
                results.append(await self._outcome(connection, waiting.popleft()))
            if results and isinstance(results[-1], RustLogError):
                break
        while connection is not None and waiting:
            if results and isinstance(results[-1], OutcomeUnknown):
                results.append(results[-1])  # behind a reply that is lost, none can be relied on
                waiting.popleft()
            else:
                results.append(await self._outcome(connection, waiting.popleft()))
        return settled(results)

    async def fetch(
        self, topic: str, partition: int, offset: int, max_bytes: int = 1_048_576, group_id: str = ""
    ) -> FetchResponse:
        """Records from `offset`. Through the binary dialect, a group's committed offset goes before `offset`."""
        return await self._call(Fetch(topic, partition, offset, max_bytes, group_id), FetchResponse)

    async def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> bool:
        """Store the next offset to process. False if there is no such topic or partition."""
        return (await self._call(OffsetCommit(group, topic, partition, offset), OffsetCommitResponse)).success

    async def fetch_offset(self, group: str, topic: str, partition: int) -> int | None:
        return (await self._call(OffsetFetch(group, topic, partition), OffsetFetchResponse)).offset

    async def list_topics(self) -> list[TopicSummary]:
        return (await self._call(ListTopics(), ListTopicsResponse)).topics

    async def describe_topic(self, topic: str) -> DescribeTopicResponse:
        return await self._call(DescribeTopic(topic), DescribeTopicResponse)

    async def describe_partition(self, topic: str, partition: int) -> DescribePartitionResponse:
        return await self._call(DescribePartition(topic, partition), DescribePartitionResponse)

    async def metrics(self) -> str:
        """The server's metrics as Prometheus text."""
        return (await self._call(MetricsFetch(), MetricsFetchResponse)).metrics

    async def ping(self) -> None:
        await self._call(Ping(), Pong)

    # -- the connection

    async def _call(self, request: Request, kind: type[R]) -> R:
        data = framed(self._dialect, request)
        attempt = 0
        while True:
            connection, future = await self._send(data)
            try:
                return await self._reply(connection, future, kind)
            except OSError as error:
                if not isinstance(request, REPEATABLE):
                    raise OutcomeUnknown(f"The connection was lost: {error}") from error
                attempt += 1
                if attempt >= self._retry.attempts:
                    raise ConnectionFailed(f"The connection was lost {attempt} times: {error}") from error
            await self._sleep(self._retry.delay(attempt - 1))

    async def _reply(self, connection: _Connection, future: asyncio.Future[bytes], kind: type[R]) -> R:
        """Wait for the reply. Raises OSError if the connection is lost before it comes."""
        try:
            async with asyncio.timeout(self._timeout):
                payload = await future
        except TimeoutError:
            problem = TimeoutError(f"no reply in {self._timeout:g} seconds")
            connection.abort(problem)  # a reply that came now would be taken for that of another request
            raise problem from None
        try:
            return expect(reply_of(self._dialect, payload), kind)
        except BadReply as error:
            connection.abort(error)
            raise

    async def _outcome(self, connection: _Connection, future: asyncio.Future[bytes]) -> ProduceResponse | RustLogError:
        try:
            return await self._reply(connection, future, ProduceResponse)
        except (OSError, BadReply) as error:
            unknown = OutcomeUnknown(f"The connection was lost: {error}")
            unknown.__cause__ = error
            return unknown
        except RustLogError as error:
            return error

    async def _send(self, data: bytes, only: _Connection | None = None) -> tuple[_Connection, asyncio.Future[bytes]]:
        """Put the request on the wire; the future becomes the payload of its reply. With `only`, on this connection or
        not at all (OSError): a second one could carry later requests of a pipeline past earlier ones."""
        failures = self._failures
        async with self._turn:
            if failures != self._failures:
                # Connecting failed while we waited for our turn. Everybody who waited shares that failure, or else
                # each of them would go through all the attempts, one after the other.
                raise ConnectionFailed(self._no_connection)
            while True:
                connection = only or await self._connected()
                await connection.writable()
                if connection.lost is None:
                    return connection, connection.send(data)
                if only is not None:
                    raise ConnectionResetError("the connection was lost")

    @property
    def _no_connection(self) -> str:
        host, port = self._address
        return f"No connection to {host}:{port}"

    async def _connected(self) -> _Connection:
        """The connection, opened if there is none or it is lost."""
        if self._connection is not None and self._connection.lost is None:
            return self._connection
        loop = asyncio.get_running_loop()
        host, port = self._address
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(self._timeout):
                    _, connection = await loop.create_connection(_Connection, host, port, ssl=self._tls)
                self._connection = connection
                return connection
            except OSError as error:
                attempt += 1
                if attempt >= self._retry.attempts or isinstance(error, ssl.SSLCertVerificationError):
                    self._failures += 1
                    raise ConnectionFailed(f"{self._no_connection}: {error}") from error
            await self._sleep(self._retry.delay(attempt - 1))
