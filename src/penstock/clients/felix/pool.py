"""Pools of connections and request streams: each is opened when needed, and reopened when lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from penstock.clients._core.backoff import AsyncBackoff, AsyncSleep
from penstock.clients.felix.connection import Connection, Connector
from penstock.clients.felix.errors import (
    CertificateRefused,
    ClientClosed,
    ConnectionFailed,
    FelixError,
    StreamLost,
)
from penstock.clients.felix.options import Options
from penstock.clients.felix.request_stream import Outcome, RequestStream
from penstock.clients.felix.requests import RequestSpec
from penstock.transport.quic.errors import ConnectFailed

R = TypeVar("R")


class Losable(Protocol):
    lost: FelixError | None


T = TypeVar("T", bound=Losable)


class Slot(Generic[T]):
    """A slot for one connection or stream of a pool."""

    __slots__ = ("_content", "_failure", "_failures", "_lock")

    def __init__(self) -> None:
        self._content: T | None = None
        self._lock = asyncio.Lock()
        self._failure: FelixError | None = None
        self._failures = 0

    @property
    def usable(self) -> T | None:
        return self._content if self._content is not None and self._content.lost is None else None

    async def fill(self, make: Callable[[], Awaitable[T]]) -> T:
        failures = self._failures
        async with self._lock:
            content = self.usable
            if content is not None:
                return content
            if failures != self._failures and self._failure is not None:
                # It failed while we waited for the lock. All waiters share that failure; otherwise each would go
                # through all the attempts, one after the other.
                raise self._failure
            try:
                content = self._content = await make()
            except FelixError as error:
                self._failures += 1
                self._failure = error
                raise
            return content


class ConnectionPool:
    """Several connections for one kind of work."""

    def __init__(self, options: Options, size: int, connector: Connector, sleep: AsyncSleep) -> None:
        self._options = options
        self._slots: list[Slot[Connection]] = [Slot() for _ in range(size)]
        self._connector = connector
        self._sleep = sleep
        self.opened = 0  # so far
        self.closed = False

    def __len__(self) -> int:
        return len(self._slots)

    async def get(self, index: int) -> Connection:
        """The connection in this slot. Raises ConnectionFailed."""
        return self._slots[index].usable or await self._slots[index].fill(self._connect)

    def least_subscribed(self) -> int:
        """The slot with the fewest subscriptions, of those that accept another; a new slot if none does: on a
        connection where reading is paused, a new subscriber would have to wait for another's reader."""
        held = [(slot.usable, index) for index, slot in enumerate(self._slots)]
        loads = [(each.subscriptions if each else 0, index) for each, index in held if not each or each.subscribable]
        if not loads:
            self._slots.append(Slot())
            return len(self._slots) - 1
        return min(loads)[1]

    async def close(self, seconds: float) -> None:
        self.closed = True
        connections = [slot.usable for slot in self._slots]
        await asyncio.gather(*[connection.close(seconds) for connection in connections if connection is not None])

    async def _connect(self) -> Connection:
        options = self._options
        backoff = AsyncBackoff(options.retry, self._sleep)
        while True:
            if self.closed:
                raise ClientClosed("the client was closed")
            connection = Connection(options)
            try:
                async with asyncio.timeout(options.timeout):
                    quic = await self._connector(options, connection)
                if not self.closed:
                    connection.connected(quic)
                    self.opened += 1
                    return connection
                quic.close()
                continue
            except TimeoutError:
                failure: Exception = TimeoutError(f"no answer in {options.timeout:g} seconds")
            except CertificateRefused:
                raise
            except (ConnectFailed, OSError) as error:
                failure = error
            if not await backoff.retry():
                raise ConnectionFailed(f"No connection to {options.server}: {failure}") from failure


class RequestStreamPool:
    """Request streams, several on each of the connections."""

    def __init__(self, options: Options, connections: ConnectionPool, streams: int, sleep: AsyncSleep) -> None:
        self._options = options
        self._connections = connections
        self._slots: list[Slot[RequestStream]] = [Slot() for _ in range(len(connections) * streams)]
        self._sleep = sleep
        self._last = 0

    def __len__(self) -> int:
        return len(self._slots)

    async def get(self, index: int) -> RequestStream:
        """The stream in this slot, opened if there is none or it is lost. Raises ConnectionFailed or ReplyError."""
        slot = self._slots[index]
        return slot.usable or await slot.fill(lambda: self._open(index % len(self._connections)))

    async def call(self, index: int, spec: RequestSpec[R]) -> R:
        """The result of a request on the stream in this slot. Idempotent requests are retried after a lost
        connection."""
        backoff = AsyncBackoff(self._options.retry, self._sleep)
        while True:
            outcome = await (await self.send(index, spec))
            if not isinstance(outcome, FelixError):
                return spec.result(outcome)
            if not isinstance(outcome, StreamLost) or not spec.idempotent:
                raise spec.failure(outcome) from outcome
            if not await backoff.retry():
                raise ConnectionFailed(f"the connection was lost {backoff.failures} times: {outcome}") from outcome

    async def call_next(self, spec: RequestSpec[R]) -> R:
        """`call` on the next slot, in round-robin order."""
        self._last = (self._last + 1) % len(self._slots)
        return await self.call(self._last, spec)

    async def send(self, index: int, spec: RequestSpec[R]) -> asyncio.Future[Outcome]:
        """Send as soon as there is room. The future gets the outcome. Raises the error if sending is impossible."""
        while True:
            stream = self._slots[index].usable or await self.get(index)
            request_id = stream.next_id()
            data = spec.encode(request_id, stream.flags)
            if stream.full:
                await stream.wait_for_room()
            if stream.lost is None:
                return stream.send(request_id, data)

    async def send_unacknowledged(self, index: int, data: bytes) -> None:
        while True:
            stream = self._slots[index].usable or await self.get(index)
            if stream.full:
                await stream.wait_for_room()
            if stream.lost is None:
                stream.send_unacknowledged(data)
                return

    async def _open(self, index: int) -> RequestStream:
        """A new stream. Retried if the connection is lost meanwhile."""
        backoff = AsyncBackoff(self._options.retry, self._sleep)
        while True:
            connection = await self._connections.get(index)
            try:
                return await connection.open_stream()
            except StreamLost as error:
                if not await backoff.retry():
                    raise ConnectionFailed(f"No stream to {self._options.server}: {error}") from error
