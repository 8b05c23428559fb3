"""A UDP socket and the QUIC connections on it: routing of datagrams, turns, timers and sending.

All output of a turn is sent at its end, one connection after the other. An exception in one connection never reaches
another connection or the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.transport.quic.connection import QuicConnection
from penstock.transport.quic.settings import QuicSettings
from penstock.transport.quic.state_machine import CID_BYTES, Address, Header, long_header, split
from penstock.transport.quic.timers import Timers
from penstock.transport.quic.udp import READ_BYTES, Received, UdpSocket

logger = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.004  # of work on received datagrams, before others get a turn
FEED_DATAGRAMS: Final = 16  # passed to a state machine at once,
FEED_BYTES: Final = 32 << 10  # or this many bytes, or those that the kernel has joined
FLIGHT_BYTES: Final = 512 << 10  # that one connection may send before the next gets its turn
EARLY_DATAGRAMS: Final = 4  # that one connection may send in the middle of its work
SWEEP_SECONDS: Final = 1.0
DEFECT: Final = "%s: closed because of an error in the broker; no other connection is touched"
LONG: Final = 0x80  # bit of the first byte: a long header, with version and type


class TrafficObserver(Protocol):
    """Observer of received and sent datagrams."""

    def received(self) -> None: ...

    def sent(self) -> None: ...


class TurnScheduler(Protocol):
    """The turns that all transports on the event loop share; times are in ns."""

    @property
    def exhausted(self) -> bool:
        """Whether this turn is used up."""

    def charge(self, nanoseconds: int, worker: Any) -> None:
        """Record the time spent on work in this turn."""

    def later(self, callback: Callable[[], None]) -> None:
        """Call `callback` in one of the next turns."""


class QuicEndpoint:
    """One socket. `on_unknown` is called with datagrams that belong to no connection; `turns` is for loops shared with
    other transports."""

    def __init__(
        self, sock: socket.socket, settings: QuicSettings, loop: asyncio.AbstractEventLoop,
        on_unknown: Callable[[bytes, Header | None, Address], QuicConnection | None] | None = None,
        observer: TrafficObserver | None = None, turns: TurnScheduler | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.connections: dict[QuicConnection, None] = {}  # in order of arrival
        self.half_open = 0
        self._loop = loop
        self._on_unknown = on_unknown
        self._observer = observer
        self._udp = UdpSocket(sock)
        self._routes: dict[bytes, QuicConnection] = {}
        self._dirty: dict[QuicConnection, None] = {}
        self._unfinished: dict[QuicConnection, None] = {}  # in the order of their turns
        self._arrived: deque[Received] = deque()  # datagrams that are not routed yet,
        self._fed: dict[QuicConnection, Address] = {}  # and connections with datagrams in their inbox
        self._flush_planned = self._continue_planned = False
        self._reading = True
        self._turns = turns
        self._at_work: QuicConnection | None = None  # the latest one
        self._timers = Timers(loop, self._on_timer)
        times = [SWEEP_SECONDS, settings.handshake_seconds / 4, settings.idle_seconds / 4]
        self._interval = min([*times, settings.keep_alive_seconds / 4] if settings.keep_alive_seconds else times)
        self._sweeper: asyncio.TimerHandle | None = loop.call_later(self._interval, self._sweep)
        self._closed = False
        loop.add_reader(self._udp.fileno(), self._readable)

    # -- called by its user

    def add(self, connection: QuicConnection, *ids: bytes) -> None:
        self.connections[connection] = None
        self.half_open += 1
        self.route(connection, list(ids), [])

    def send(self, datagram: bytes, address: Address) -> None:
        """Send a datagram that belongs to no connection."""
        if not self._udp.blocked:
            self._udp.send([datagram], address)
            self._watch_writing()

    def flush(self) -> None:
        """Send everything that is pending now."""
        now = time.monotonic()
        while self._dirty and not self._udp.blocked:
            connection = next(iter(self._dirty))
            del self._dirty[connection]
            self._transmit(connection, now)

    def close(self) -> None:
        """Close all connections, with one best-effort datagram for each, and the socket."""
        if self._closed:
            return
        self._closed = True
        for connection in list(self.connections):
            connection.close()
        self.flush()
        for connection in list(self._dirty):  # the socket's buffer is full: their handlers are told anyway
            connection.flushed()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._timers.close()
        if self._reading:
            self._loop.remove_reader(self._udp.fileno())
        self._loop.remove_writer(self._udp.fileno())
        self._udp.close()
        self.connections.clear()
        self._routes.clear()

    # -- called by connections

    def touch(self, connection: QuicConnection) -> None:
        self._dirty[connection] = None
        if not self._flush_planned and not self._closed:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def send_early(self, connection: QuicConnection) -> None:
        if not self._udp.blocked:
            datagrams = connection.machine.datagrams(time.monotonic(), EARLY_DATAGRAMS)
            if datagrams:
                self._send(datagrams)

    def continue_later(self, connection: QuicConnection) -> None:
        self._unfinished[connection] = None
        self._plan_continuation()

    def route(self, connection: QuicConnection, issued: list[bytes], retired: list[bytes]) -> None:
        for connection_id in issued:
            if self._routes.setdefault(connection_id, connection) is connection:
                connection.routes.add(connection_id)
        for connection_id in retired:
            if connection_id in connection.routes:
                connection.routes.discard(connection_id)
                del self._routes[connection_id]

    def ended(self, connection: QuicConnection) -> None:
        """Remove a connection that is over. One that was closed locally stays for a while, to repeat the close to its
        peer."""
        if not connection.established:
            self.half_open -= 1
        if connection in self.connections and (connection.machine.over or connection.machine.get_timer() is None):
            self._forget(connection)

    # -- called by the event loop

    def _readable(self) -> None:
        if self._turns is not None and self._turns.exhausted:
            self._pause_reading()  # first, because an immediate continuation resumes reading
            self._plan_continuation()
            return
        datagrams, error = self._udp.receive()
        if error is not None:
            self._refused(error)
        if not datagrams:
            return
        if self._observer is not None:
            self._observer.received()
        self._arrived.extend(datagrams)
        self._take_turn(self._receive)

    def _take_turn(self, work: Callable[[float], None]) -> None:
        began = time.monotonic()
        work(began + TURN_SECONDS)
        if self._turns is not None:
            self._turns.charge(int((time.monotonic() - began) * 1e9), self)

    def describe_work(self) -> dict[str, str]:
        return {"door": "quic", "peer": "?" if self._at_work is None else self._at_work.peer}

    def _receive(self, until: float) -> None:
        """Deliver received datagrams until this time, but not many more bytes than connections are sent meanwhile, or
        subscribers would fall behind publishers. Nothing more is read from the socket before all are delivered."""
        arrived, fed = self._arrived, self._fed
        now = time.monotonic()
        size = READ_BYTES if fed else 0  # those that were routed before come first
        while arrived and size < READ_BYTES:
            data, segment, address = arrived.popleft()
            if len(data) > segment and not self._are_of_one(data, segment):
                arrived.extendleft([(datagram, segment, address) for datagram in reversed(split(data, segment))])
                continue
            size += len(data)
            connection = self._connection_of(data, address)
            if connection is not None:
                if fed.setdefault(connection, address) != address:  # the peer's address changed within these datagrams
                    while connection.inbox:
                        self._feed(connection, fed[connection], now, until)
                    fed[connection] = address
                connection.inbox.append((data, segment))
            if not len(arrived) % FEED_DATAGRAMS and time.monotonic() >= until:
                break
        while fed and (now := time.monotonic()) < until:
            connection = next(iter(fed))
            address = fed.pop(connection)
            self._feed(connection, address, now, until)
            if connection.inbox:
                fed[connection] = address  # behind the others
        if arrived or fed:
            self._pause_reading()
            self._plan_continuation()
        else:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if self._reading and not self._closed:
            self._reading = False
            self._loop.remove_reader(self._udp.fileno())

    def _resume_reading(self) -> None:
        if not self._reading and not self._closed:
            self._reading = True
            self._loop.call_soon(self._read_again)  # after what is sent because of what was just delivered

    def _read_again(self) -> None:
        if self._reading and not self._closed:
            self._loop.add_reader(self._udp.fileno(), self._readable)

    def _are_of_one(self, data: bytes, segment: int) -> bool:
        """Whether all of these datagrams belong to one connection."""
        cid = data[1 : 1 + CID_BYTES]
        return cid in self._routes and all(
            data[at] < LONG and data[at + 1 : at + 1 + CID_BYTES] == cid for at in range(0, len(data), segment)
        )

    def _connection_of(self, datagram: bytes, address: Address) -> QuicConnection | None:
        if len(datagram) <= CID_BYTES:
            return None
        header = None
        if datagram[0] < LONG:
            connection = self._routes.get(datagram[1 : 1 + CID_BYTES])
        else:
            header = long_header(datagram)
            if header is None:
                return None
            connection = self._routes.get(header.destination)
        if connection is None and self._on_unknown is not None:
            return self._on_unknown(datagram, header, address)
        return connection

    def _refused(self, error: OSError) -> None:
        """A port unreachable error. Only a client's socket gets it, since it has a single peer. An established
        connection may survive it."""
        if isinstance(error, ConnectionRefusedError):
            for connection in self.connections:
                if not connection.established:
                    connection.close(0, "nobody listens there, at this UDP port")

    def _feed(self, connection: QuicConnection, address: Address, now: float, until: float) -> None:
        """Pass some datagrams of its inbox to the state machine: not all, as even small ones may hold many frames."""
        inbox = connection.inbox
        if not inbox:
            return
        data, segment = inbox[0]
        joined = len(data) > segment
        datagrams = [data] if joined else _first_datagrams(inbox)
        connection.inbox = inbox[len(datagrams) :]
        connection.last_received = now
        self._at_work = connection
        try:
            if joined:
                connection.machine.receive_joined_datagrams(data, segment, address, now)
            else:
                connection.machine.receive_many_datagrams(datagrams, address, now)
        except Exception as error:  # noqa: BLE001 - input that the machine does not expect
            logger.debug("%s: %s: %s", connection.peer, type(error).__name__, error)
            connection.fail("what was received could not be handled")
        if not connection.inbox:
            self._work(connection, until)

    def _work(self, connection: QuicConnection, until: float) -> None:
        half_open = not connection.established
        try:
            connection.work(until)
        except Exception:
            logger.exception(
                "%s: closed because of an error in the broker; no other connection is touched", connection.peer
            )
            connection.fail("internal error")
        if half_open and connection.established:
            self.half_open -= 1
        self.touch(connection)

    def _plan_continuation(self) -> None:
        if not self._continue_planned:
            self._continue_planned = True
            if self._turns is None:
                self._loop.call_soon(self._continue)
            else:
                self._turns.later(self._continue)

    def _continue(self) -> None:
        self._continue_planned = False
        if not self._closed:
            self._take_turn(self._go_on)

    def _go_on(self, until: float) -> None:
        for connection in list(self._unfinished):
            if time.monotonic() >= until:
                self.continue_later(connection)  # and all behind it, which are still in the dict
                break
            del self._unfinished[connection]
            self._work(connection, until)
        self._receive(until)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._closed:
            return
        if self._udp.blocked:
            return  # `_writable` schedules it again
        dirty, self._dirty = self._dirty, {}
        now = time.monotonic()
        for connection in dirty:
            self._transmit(connection, now)

    def _transmit(self, connection: QuicConnection, now: float) -> None:
        if self._udp.blocked:
            self._dirty[connection] = None
            return
        machine = connection.machine
        try:
            limit = max(FLIGHT_BYTES // machine.configuration.max_datagram_size, 1)
            datagrams = machine.datagrams(now, limit)
            if datagrams:
                self._send(datagrams)
            if len(datagrams) == limit:
                self.touch(connection)
            connection.flushed()
            at = machine.get_timer()
        except Exception:
            logger.exception(
                "%s: closed because of an error in the broker; no other connection is touched", connection.peer
            )
            self._forget(connection)
            with contextlib.suppress(Exception):  # probably fails in the same way
                connection.give_up()
            return
        if at is not None and connection in self.connections:
            self._timers.set(connection, at)

    def _send(self, datagrams: list[tuple[bytes, Address]]) -> None:
        address = datagrams[0][1]
        same = [datagram for datagram, to in datagrams if to == address]
        self._udp.send(same, address)
        if len(same) < len(datagrams):
            for datagram, to in datagrams:
                if to != address:
                    self._udp.send([datagram], to)
        self._watch_writing()
        if self._observer is not None:
            self._observer.sent()

    def _watch_writing(self) -> None:
        if self._udp.blocked:
            self._loop.add_writer(self._udp.fileno(), self._writable)

    def _writable(self) -> None:
        self._udp.resume()
        if not self._udp.blocked:
            self._loop.remove_writer(self._udp.fileno())
            if self._dirty and not self._flush_planned:
                self._flush_planned = True
                self._loop.call_soon(self._flush)

    def _on_timer(self, connection: QuicConnection, now: float) -> None:
        if connection not in self.connections:
            return
        machine = connection.machine
        try:
            at = machine.get_timer()
            if at is not None and at > now:
                self._timers.set(connection, at)
                return
            machine.handle_timer(now)
        except Exception as error:  # noqa: BLE001 - as above
            logger.debug("%s: %s: %s", connection.peer, type(error).__name__, error)
            connection.fail("internal error")
        if connection.closed and machine.over:
            self._forget(connection)
        else:
            self._work(connection, now + TURN_SECONDS)

    def _sweep(self) -> None:
        self._sweeper = self._loop.call_later(self._interval, self._sweep)
        now = time.monotonic()
        for connection in list(self.connections):
            if connection.closed:
                continue
            if not connection.established:
                if now - connection.started > self.settings.handshake_seconds:
                    connection.close(0, "the handshake took too long")
            elif self.settings.keep_alive_seconds:
                self._keep_alive(connection, now)

    def _keep_alive(self, connection: QuicConnection, now: float) -> None:
        pause = self.settings.keep_alive_seconds
        theirs = connection.machine.peer_idle_seconds
        if theirs:
            pause = min(pause, theirs / 3)
        if now - max(connection.last_received, connection.last_ping) >= pause - self._interval / 2:
            connection.last_ping = now
            connection.machine.ping()
            self.touch(connection)

    # -- internal

    def _forget(self, connection: QuicConnection) -> None:
        self.connections.pop(connection, None)
        self._timers.discard(connection)
        for connection_id in connection.routes:
            self._routes.pop(connection_id, None)
        connection.routes.clear()


def _first_datagrams(inbox: list[tuple[bytes, int]]) -> list[bytes]:
    """The datagrams that are passed on at once, up to the next joined ones."""
    found: list[bytes] = []
    size = 0
    for data, segment in inbox[:FEED_DATAGRAMS]:
        if size >= FEED_BYTES or len(data) > segment:
            break
        found.append(data)
        size += len(data)
    return found
