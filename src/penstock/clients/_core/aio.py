"""The asyncio driver: requests of any number of tasks are sent in the order of the calls, without waiting for
replies."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar, cast

from penstock.clients._core.address import Address
from penstock.clients._core.binding import Binding
from penstock.clients._core.channel import Channel, ConnectOptions
from penstock.clients._core.closing import AsyncClosing
from penstock.clients._core.connection import Connection
from penstock.clients._core.errors import PenstockError
from penstock.clients._core.inflight import InFlightRequests
from penstock.clients._core.procedure import Connected, Drain, Open, Procedure, Step, Wait
from penstock.clients._core.requests import PENDING, RequestBatch, RequestSpec, result_of
from penstock.clients._core.signal import Signal

WRITE_SIZE: Final = 64 * 1024  # bytes written at once; smaller writes are collected for one turn of the event loop

T = TypeVar("T")


class AsyncConnection(Connection, asyncio.Protocol):
    """A connection and its requests in flight. While there are some, everything sent in one turn of the event loop is
    combined into one write."""

    def __init__(self, address: Address, requests: InFlightRequests[Any]) -> None:
        super().__init__(address, requests)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._wakers: set[Callable[[], None]] = set()  # of waiting tasks
        self._paused = False
        self._listening = False
        self._retired = False

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.requests.heard = time.monotonic()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self.lost is not None:
            return
        requests = self.requests
        try:
            requests.feed(data, time.monotonic())
        except PenstockError as error:
            self.fail(error)
            return
        listening = requests.listening
        if listening and not self._listening:  # from now on, a silent server is probed
            self._schedule(requests.deadline())
        self._listening = listening
        if not self._wakers and not requests.accepting and self._transport is not None:
            self._transport.pause_reading()  # until a task waits for something
            self._paused = True
        if self._retired:
            self.retire()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc or ConnectionResetError("the server closed the connection"))
        self._closed.set()

    # -- called by procedures and the driver

    @property
    def ready(self) -> bool:
        return self.lost is None and self._writable.is_set()

    @property
    def congested(self) -> bool:
        return not self._writable.is_set()

    async def drain(self) -> None:
        """Wait until the socket accepts more data, or is lost."""
        await self._writable.wait()

    def send(self, batch: RequestBatch) -> None:
        if self.lost is not None:
            batch.lose(self.lost)
            return
        idle = not self.requests.bytes_in_flight
        data = self.requests.begin(batch, time.monotonic())
        if idle and not self._outgoing and self._transport is not None:
            self._transport.write(data)  # waiting for others would only cost a turn
        else:
            self.write(data)
        if not batch.is_set:
            self._schedule(batch.deadline)

    def write(self, data: bytes) -> None:
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(data)
        self._outgoing_bytes += len(data)
        if self._outgoing_bytes >= WRITE_SIZE:
            self._flush()

    async def wait(self, signal: Signal, until: float | None = None) -> bool:
        """Wait until the signal is set, until this time, or until the connection is lost. Returns whether the signal is
        set."""
        if signal.is_set or self.lost is not None:
            return signal.is_set
        if self._paused and self._transport is not None:
            self._paused = False
            self.requests.heard = time.monotonic()  # data sent meanwhile is still unread
            self._transport.resume_reading()
        if self._timer is None:
            self._schedule(self.requests.deadline())
        future = self._loop.create_future()

        def wake() -> None:
            if not future.done():  # else its task was cancelled
                future.set_result(None)

        timer = None if until is None else self._loop.call_later(max(until - time.monotonic(), 0), wake)
        signal.add_listener(wake)
        self._wakers.add(wake)
        try:
            await future
        finally:
            self._wakers.discard(wake)
            if timer is not None:
                timer.cancel()
            signal.remove_listener(wake)
        return signal.is_set

    def fail(self, reason: Exception) -> None:
        self._lose(reason)
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        self._retired = True
        if not len(self.requests) and not self.requests.listening:
            self._close_transport()

    async def close(self) -> None:
        """Close after everything is sent."""
        if self._transport is not None:
            self._flush()
            self._lose(ConnectionAbortedError("the client was closed"))
            self._close_transport()
            await self._closed.wait()

    def _close_transport(self) -> None:
        """Once only: a TLS transport of Python 3.11.2 that is closed twice cannot be aborted."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def _flush(self) -> None:
        outgoing, self._outgoing, self._outgoing_bytes = self._outgoing, [], 0
        if outgoing and self.lost is None and self._transport is not None:
            self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def _schedule(self, moment: float | None) -> None:
        """Set the one timer that all requests share."""
        if moment is None or self.lost is not None:
            return
        if self._timer is not None:
            if self._timer_at <= moment:
                return
            self._timer.cancel()
        self._timer_at = moment
        self._timer = self._loop.call_later(max(moment - time.monotonic(), 0), self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.lost is not None:
            return
        try:
            probe = self.requests.expire(time.monotonic())
        except TimeoutError as error:
            self.fail(error)
            return
        if probe is not None:
            self.send(probe)
        self._schedule(self.requests.deadline())

    def _lose(self, reason: Exception) -> None:
        if self.lost is None:
            self.lost = reason
            self.requests.lose(reason)
            for wake in tuple(self._wakers):
                wake()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._writable.set()


class AsyncDriver(Channel[AsyncConnection]):
    """Runs procedures as tasks of one event loop."""

    def __init__(
        self,
        binding: Binding,
        options: ConnectOptions,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(binding, options)
        self.sleep = sleep
        self._turn = asyncio.Lock()  # held while connecting, or until the connection accepts more
        self._queued = 0  # tasks waiting for their turn: newcomers queue behind them
        self._failures = 0  # number of failed attempts to connect; `_failure` is the latest error
        self._failure: PenstockError | None = None

    def another(self) -> AsyncDriver:
        """A driver with the same options and its own connection."""
        return AsyncDriver(self.binding, self.options, self.sleep)

    async def run(self, procedure: Procedure[T]) -> T:
        """Execute the steps of a procedure, and return its result."""
        try:
            step = next(procedure)
            while True:
                try:
                    result = await self._take(step)
                except BaseException as error:  # noqa: BLE001 (the procedure raises or handles it)
                    step = procedure.throw(error)
                else:
                    step = procedure.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def call(self, spec: RequestSpec[T]) -> T:
        """The result of one request. The fast path without a procedure, which is only needed to connect, or after a
        failure."""
        specs = (spec,)
        connection = self.ready
        if connection is None:
            return result_of((await self.run(self.call_all(specs)))[0])  # type: ignore[no-any-return]
        batch = self.binding.batch(specs)
        connection.send(batch)
        await connection.wait(batch)
        outcome = batch.outcomes[0]
        if outcome is PENDING or isinstance(outcome, PenstockError):
            outcome = result_of((await self.run(self.call_all(specs, attempted=(connection, batch))))[0])
        return outcome  # type: ignore[no-any-return]

    @property
    def ready(self) -> AsyncConnection | None:
        connection = self.connection
        return connection if connection is not None and connection.ready and not self._queued else None

    async def connected(self) -> AsyncConnection:
        """The connection, once it is writable; opened if there is none or it is lost. The caller can send before any
        other task runs."""
        connection = self.ready
        if connection is not None:
            return connection
        failures = self._failures
        self._queued += 1
        try:
            async with self._turn:
                while True:
                    connection = self.connection
                    if connection is None or connection.lost is not None:
                        connection = self.connection = await self._opened(failures)
                    if connection.ready:
                        return connection
                    await connection.drain()
        finally:
            self._queued -= 1

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def _take(self, step: Step) -> Any:
        match step:
            case Wait():
                assert isinstance(step.connection, AsyncConnection)
                return await step.connection.wait(step.signal, step.until)
            case Connected():
                return await self.connected()
            case Open():
                async with asyncio.timeout(self.options.timeout):
                    return await self._open(step.address)
            case Drain():
                assert isinstance(step.connection, AsyncConnection)
                return await step.connection.drain()
            case list():
                return await self.run(self.call_all(step))
            case seconds:
                return await self.sleep(seconds)

    async def _opened(self, failures: int) -> AsyncConnection:
        if failures != self._failures and self._failure is not None:
            # Connecting failed while this task waited for its turn. All waiting tasks share that failure; otherwise
            # each would go through all the attempts, one after the other.
            raise self._failure
        try:
            return await self.run(self.open())
        except PenstockError as error:
            self._failures += 1
            self._failure = error
            raise

    async def _open(self, address: Address) -> AsyncConnection:
        loop = asyncio.get_running_loop()
        host, port = address

        def made() -> AsyncConnection:
            return AsyncConnection(address, self.binding.in_flight())

        if address.is_path:
            _, connection = await loop.create_unix_connection(made, host)
        else:
            _, connection = await loop.create_connection(made, host, port, ssl=self.options.tls)
        try:
            await self.run(self.binding.login(connection))
            if connection.lost is not None:
                raise connection.lost
        except BaseException:
            connection.fail(ConnectionAbortedError("the login failed"))
            raise
        return connection


class AsyncClientCore(AsyncClosing):
    """The common base of all asyncio clients. For the tasks of one event loop."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver

    @property
    def connections(self) -> int:
        """The number of connections opened so far."""
        return self._driver.connections

    async def connect(self) -> None:
        """Connect now instead of with the first request, to find out at once whether the login is accepted."""
        await self._driver.connected()

    async def close(self) -> None:
        """Close the connection. A later request opens another."""
        await self._driver.close()

    async def call(self, spec: RequestSpec[T]) -> T:
        """The result of a request. Raises its error."""
        return await self._driver.call(spec)

    async def pipeline(self, specs: Sequence[RequestSpec[Any]]) -> list[Any]:
        """Send requests without waiting in between. Returns the result or the error of each, in order."""
        return await self._driver.run(self._driver.call_all(specs))

    async def run(self, procedure: Procedure[T]) -> T:
        """Execute the steps of a procedure, and return its result."""
        return await self._driver.run(procedure)
