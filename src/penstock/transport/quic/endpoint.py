"""A UDP socket and the QUIC connections on it: routing of datagrams, turns, timers and sending.

What the connections of one turn have to send goes out at its end, each connection's in one piece. No exception of one
connection reaches another, or the event loop.
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
from penstock.transport.quic.state_machine import CID_BYTES, Address, Header, long_header
from penstock.transport.quic.timers import Timers
from penstock.transport.quic.udp import UdpSocket

logger = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.004  # of work on what has arrived, after which everybody else has a turn
FEED_DATAGRAMS: Final = 16  # handed to a state machine at once,
FEED_BYTES: Final = 32 << 10  # or so many bytes
FLIGHT_BYTES: Final = 512 << 10  # that one connection sends before the next has its turn
SWEEP_SECONDS: Final = 1.0
DEFECT: Final = "%s: closed because of an error in the broker; no other connection is touched"
LONG: Final = 0x80  # bit of the first byte: a long header, which says what it is


class TrafficObserver(Protocol):
    """Observer of datagrams that come and go."""

    def received(self) -> None: ...

    def sent(self) -> None: ...


class TurnScheduler(Protocol):
    """The turns of everybody on the same event loop, whatever their transport; times in ns."""

    @property
    def exhausted(self) -> bool:
        """This turn is used up."""

    def charge(self, nanoseconds: int, worker: Any) -> None:
        """So long was worked."""

    def later(self, callback: Callable[[], None]) -> None:
        """Call back in one of the next turns."""


class QuicEndpoint:
    """One socket. A server's has an `on_unknown`, called with datagrams of no connection, and `turns`, if it shares
    its loop with others."""

    def __init__(
        self, sock: socket.socket, settings: QuicSettings, loop: asyncio.AbstractEventLoop,
        on_unknown: Callable[[bytes, Header | None, Address], QuicConnection | None] | None = None,
        observer: TrafficObserver | None = None, turns: TurnScheduler | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.connections: dict[QuicConnection, None] = {}  # in the order in which they came
        self.half_open = 0
        self._loop = loop
        self._on_unknown = on_unknown
        self._observer = observer
        self._udp = UdpSocket(sock)
        self._routes: dict[bytes, QuicConnection] = {}
        self._dirty: dict[QuicConnection, None] = {}
        self._unfinished: dict[QuicConnection, None] = {}  # in the order in which they have their turn
        self._arrived: deque[tuple[bytes, Address]] = deque()  # datagrams that are not looked at yet,
        self._fed: dict[QuicConnection, Address] = {}  # and connections with some in their inbox
        self._flush_planned = self._continue_planned = False
        self._reading = True
        self._turns = turns
        self._at_work: QuicConnection | None = None  # the last
        self._timers = Timers(loop, self._on_timer)
        times = [SWEEP_SECONDS, settings.handshake_seconds / 4, settings.idle_seconds / 4]
        self._interval = min([*times, settings.keep_alive_seconds / 4] if settings.keep_alive_seconds else times)
        self._sweeper: asyncio.TimerHandle | None = loop.call_later(self._interval, self._sweep)
        self._closed = False
        loop.add_reader(self._udp.fileno(), self._readable)

    # -- what its user calls

    def add(self, connection: QuicConnection, *ids: bytes) -> None:
        self.connections[connection] = None
        self.half_open += 1
        self.route(connection, list(ids), [])

    def send(self, datagram: bytes, address: Address) -> None:
        """One that belongs to no connection."""
        if not self._udp.blocked:
            self._udp.send([datagram], address)
            self._watch_writing()

    def flush(self) -> None:
        """Send now what there is to send."""
        now = time.monotonic()
        while self._dirty and not self._udp.blocked:
            connection = next(iter(self._dirty))
            del self._dirty[connection]
            self._transmit(connection, now)

    def close(self) -> None:
        """Links that are open are closed, as far as one datagram can do that."""
        if self._closed:
            return
        self._closed = True
        for connection in list(self.connections):
            connection.close()
        self.flush()
        for connection in list(self._dirty):  # the system took nothing more: their handlers learn of it all the same
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

    # -- what connections call

    def touch(self, connection: QuicConnection) -> None:
        self._dirty[connection] = None
        if not self._flush_planned and not self._closed:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

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
        """If it was closed here, it stays for a while, to say so again to a peer that has not heard it."""
        if not connection.established:
            self.half_open -= 1
        if connection in self.connections and (connection.machine.over or connection.machine.get_timer() is None):
            self._forget(connection)

    # -- what the event loop calls

    def _readable(self) -> None:
        if self._turns is not None and self._turns.exhausted:
            self._pause_reading()  # first: a continuation that comes at once reads again
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
        """Hand on what has arrived, up to this time; no more is read from the socket before all of it was."""
        arrived, fed = self._arrived, self._fed
        now = time.monotonic()
        while arrived:
            datagram, address = arrived.popleft()
            connection = self._connection_of(datagram, address)
            if connection is not None:
                if fed.setdefault(connection, address) != address:  # it has moved, in the middle of what came
                    while connection.inbox:
                        self._feed(connection, fed[connection], now, until)
                    fed[connection] = address
                connection.inbox.append(datagram)
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
            self._loop.add_reader(self._udp.fileno(), self._readable)

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
        """Only a client learns of it, whose socket has one peer. A connection that is open may survive it."""
        if isinstance(error, ConnectionRefusedError):
            for connection in self.connections:
                if not connection.established:
                    connection.close(0, "nobody listens there, at this UDP port")

    def _feed(self, connection: QuicConnection, address: Address, now: float, until: float) -> None:
        """Some of the datagrams in its inbox: small ones may hold very many frames."""
        inbox, size, count = connection.inbox, 0, 0
        for datagram in inbox[:FEED_DATAGRAMS]:
            size += len(datagram)
            count += 1
            if size >= FEED_BYTES:
                break
        if not count:
            return
        datagrams, connection.inbox = inbox[:count], inbox[count:]
        connection.last_received = now
        self._at_work = connection
        try:
            connection.machine.receive_many_datagrams(datagrams, address, now)
        except Exception as error:  # noqa: BLE001 - whatever a peer can send that the machine does not foresee
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
                self.continue_later(connection)  # and those behind it, which are in there as well
                break
            del self._unfinished[connection]
            self._work(connection, until)
        self._receive(until)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._closed:
            return
        if self._udp.blocked:
            return  # `_writable` plans it again
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
            with contextlib.suppress(Exception):  # the same again, most likely
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

    # -- inside

    def _forget(self, connection: QuicConnection) -> None:
        self.connections.pop(connection, None)
        self._timers.discard(connection)
        for connection_id in connection.routes:
            self._routes.pop(connection_id, None)
        connection.routes.clear()
