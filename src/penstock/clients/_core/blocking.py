"""The blocking driver: for one thread at a time, on non-blocking sockets and `poll`."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from penstock.clients._core.address import Address
from penstock.clients._core.binding import Binding
from penstock.clients._core.channel import Channel, ConnectOptions
from penstock.clients._core.closing import Closing
from penstock.clients._core.connection import Connection
from penstock.clients._core.errors import PenstockError
from penstock.clients._core.inflight import InFlightRequests
from penstock.clients._core.procedure import Connected, Drain, Open, Procedure, Step, Wait
from penstock.clients._core.requests import PENDING, RequestBatch, RequestSpec, result_of
from penstock.clients._core.signal import Signal
from penstock.transport.spin_budget import SocketBusyPoll

RECEIVE_SIZE: Final = 256 * 1024
_READABLE: Final = select.POLLIN | select.POLLHUP | select.POLLERR

T = TypeVar("T")


class BlockingConnection(Connection):
    """A socket and its requests in flight."""

    def __init__(
        self, sock: socket.socket, address: Address, requests: InFlightRequests[Any], busy_poll: float = 0.0
    ) -> None:
        super().__init__(address, requests)
        if not address.is_path:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setblocking(False)
        requests.heard = time.monotonic()
        self._socket = sock
        self._encrypted = isinstance(sock, ssl.SSLSocket)
        self._spin = SocketBusyPoll(sock, busy_poll) if busy_poll else None
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._any = select.poll()
        self._any.register(sock, select.POLLIN | select.POLLOUT)

    def send(self, batch: RequestBatch) -> None:
        if self.lost is not None:
            batch.lose(self.lost)
            return
        self.write(self.requests.begin(batch, time.monotonic()))

    def write(self, data: bytes) -> None:
        """Send all of `data`. Replies are received meanwhile: the server may stop reading until it can send them."""
        if self.lost is not None:
            return
        try:
            left: bytes | memoryview = data
            while left:
                try:
                    sent = self._socket.send(left)
                    left = memoryview(left)[sent:] if sent < len(left) else b""
                except (BlockingIOError, ssl.SSLWantWriteError):
                    if self._poll(self._any) & _READABLE:
                        self._receive()
                except ssl.SSLWantReadError:
                    self._poll(self._readable)
        except (OSError, PenstockError) as error:
            self.fail(error)
        except BaseException:
            self.fail(ConnectionAbortedError("interrupted"))  # perhaps in the middle of a frame
            raise

    def wait(self, signal: Signal, until: float | None = None) -> bool:
        """Receive until the signal is set, until this time, or until the connection is lost. Returns whether the signal
        is set."""
        try:
            while not signal.is_set and self.lost is None:
                if until is not None and time.monotonic() >= until:
                    break
                self._step(until)
        except (OSError, PenstockError) as error:
            self.fail(error)
        except BaseException:
            # Later replies could not be matched to requests.
            self.fail(ConnectionAbortedError("interrupted"))
            raise
        return signal.is_set

    def alive(self) -> bool:
        """Whether the connection still seems open. Processes what has been received."""
        if self.lost is not None:
            return False
        try:
            while self.requests.accepting and self._readable.poll(0) and self._receive():
                pass
        except (OSError, PenstockError) as error:
            self.fail(error)
        return self.lost is None

    def fail(self, reason: Exception) -> None:
        if self.lost is None:
            self.lost = reason
            with contextlib.suppress(OSError):
                self._socket.close()
            self.requests.lose(reason)

    def retire(self) -> None:
        self.fail(ConnectionAbortedError("another server is the leader"))

    def _step(self, until: float | None) -> None:
        """Wait for data, and process it."""
        if self._encrypted and self._receive():  # TLS may have buffered data
            return
        if (self._spin is not None and self._spin.poll()) or self._poll(self._readable, until):
            self._receive()

    def _poll(self, events: select.poll, until: float | None = None) -> int:
        """The events that occurred. At the deadline, overdue requests are given up; without a deadline and `until`,
        silence for the length of the timeout ends the connection."""
        deadline = self.requests.deadline()
        now = time.monotonic()
        if deadline is None:
            end = now + self.requests.timeout if until is None else until
        else:
            end = deadline if until is None else min(deadline, until)
        ready = events.poll(max(end - now, 0) * 1000 + 1)
        if ready:
            return ready[0][1]
        if deadline is not None:
            probe = self.requests.expire(time.monotonic())
            if probe is not None:
                self.send(probe)
        elif until is None:
            raise TimeoutError(f"no reply in {self.requests.timeout:g} seconds")
        return 0

    def _receive(self) -> bool:
        """Process received data. False if there is none."""
        try:
            data = self._socket.recv(RECEIVE_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except ssl.SSLWantWriteError:
            self._poll(self._any)
            return False
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self.requests.feed(data, time.monotonic())
        return True


class BlockingDriver(Channel[BlockingConnection]):
    """Runs procedures by blocking the thread."""

    def __init__(self, binding: Binding, options: ConnectOptions, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(binding, options)
        self.sleep = sleep

    def another(self) -> BlockingDriver:
        """A driver with the same options and its own connection."""
        return BlockingDriver(self.binding, self.options, self.sleep)

    def run(self, procedure: Procedure[T]) -> T:
        """Execute the steps of a procedure, and return its result."""
        try:
            step = next(procedure)
            while True:
                try:
                    result = self._take(step)
                except BaseException as error:  # noqa: BLE001 (the procedure raises or handles it)
                    step = procedure.throw(error)
                else:
                    step = procedure.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def call(self, spec: RequestSpec[T]) -> T:
        """The result of one request. The fast path without a procedure, which is only needed to connect, or after a
        failure."""
        specs = (spec,)
        connection = self.ready
        if connection is None:
            return result_of(self.run(self.call_all(specs))[0])  # type: ignore[no-any-return]
        batch = self.binding.batch(specs)
        connection.send(batch)
        connection.wait(batch)
        outcome = batch.outcomes[0]
        if outcome is PENDING or isinstance(outcome, PenstockError):
            outcome = result_of(self.run(self.call_all(specs, attempted=(connection, batch)))[0])
        return outcome  # type: ignore[no-any-return]

    @property
    def ready(self) -> BlockingConnection | None:
        connection = self.connection
        return connection if connection is not None and connection.alive() else None

    def connected(self) -> BlockingConnection:
        """The connection, opened if there is none or the server closed it."""
        connection = self.ready
        if connection is None:
            connection = self.connection = self.run(self.open())
        return connection

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.fail(ConnectionAbortedError("the client was closed"))

    def _take(self, step: Step) -> Any:
        match step:
            case Wait():
                assert isinstance(step.connection, BlockingConnection)
                return step.connection.wait(step.signal, step.until)
            case Connected():
                return self.connected()
            case Open():
                return self._open(step.address)
            case Drain():
                return None  # `write` returns after everything is sent
            case list():
                return self.run(self.call_all(step))
            case seconds:
                return self.sleep(seconds)

    def _open(self, address: Address) -> BlockingConnection:
        options = self.options
        sock = _connected(address, options.timeout)
        try:
            if options.tls is not None:
                sock = options.tls.wrap_socket(sock, server_hostname=address.host)
            connection = BlockingConnection(sock, address, self.binding.in_flight(), options.busy_poll)
        except BaseException:
            sock.close()
            raise
        try:
            self.run(self.binding.login(connection))
            if connection.lost is not None:
                raise connection.lost
        except BaseException:
            connection.fail(ConnectionAbortedError("the login failed"))
            raise
        return connection


def _connected(address: Address, timeout: float) -> socket.socket:
    if not address.is_path:
        return socket.create_connection(address, timeout)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(address.host)
    except BaseException:
        sock.close()
        raise
    return sock


class BlockingClient(Closing):
    """The common base of all blocking clients. For one thread at a time."""

    def __init__(self, driver: BlockingDriver) -> None:
        self._driver = driver

    @property
    def connections(self) -> int:
        """The number of connections opened so far."""
        return self._driver.connections

    def connect(self) -> None:
        """Connect now instead of with the first request, to find out at once whether the login is accepted."""
        self._driver.connected()

    def close(self) -> None:
        """Close the connection. A later request opens another."""
        self._driver.close()

    def call(self, spec: RequestSpec[T]) -> T:
        """The result of a request. Raises its error."""
        return self._driver.call(spec)

    def pipeline(self, specs: Sequence[RequestSpec[Any]]) -> list[Any]:
        """Send requests without waiting in between. Returns the result or the error of each, in order."""
        return self._driver.run(self._driver.call_all(specs))

    def run(self, procedure: Procedure[T]) -> T:
        """Execute the steps of a procedure, and return its result."""
        return self._driver.run(procedure)
