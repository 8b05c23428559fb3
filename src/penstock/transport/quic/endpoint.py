"""A UDP socket and the QUIC connections on it: who gets which datagram, when each has its turn, and what it sends.

What the links of one turn have to send goes out at its end, each link's in one piece. No exception of one link reaches
another, or the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from typing import Final, Protocol

from penstock.transport.quic.connection import QuicConnection
from penstock.transport.quic.settings import QuicSettings
from penstock.transport.quic.state_machine import CID_BYTES, Address, Header, long_header
from penstock.transport.quic.timers import Timers
from penstock.transport.quic.udp import UdpSocket

logger = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.02  # of work on what has arrived, after which everybody else has a turn
FLIGHT_BYTES: Final = 512 << 10  # that one link sends before the next has its turn
SWEEP_SECONDS: Final = 1.0
LONG: Final = 0x80  # bit of the first byte: a long header, which says what it is


class Watcher(Protocol):
    """Who wants to know when datagrams come and go."""

    def received(self) -> None: ...

    def sent(self) -> None: ...


class Endpoint:
    """One socket. A server's has a `stranger`, who is asked about datagrams of no connection."""

    def __init__(
        self, own: socket.socket, settings: QuicSettings, loop: asyncio.AbstractEventLoop,
        stranger: Callable[[bytes, Header | None, Address], QuicConnection | None] | None = None,
        watcher: Watcher | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.links: dict[QuicConnection, None] = {}  # in the order in which they came
        self.half_open = 0
        self._loop = loop
        self._stranger = stranger
        self._watcher = watcher
        self._udp = UdpSocket(own)
        self._routes: dict[bytes, QuicConnection] = {}
        self._dirty: dict[QuicConnection, None] = {}
        self._unfinished: dict[QuicConnection, None] = {}  # in the order in which they have their turn
        self._flush_planned = self._go_on_planned = False
        self._alarms = Timers(loop, self._alarm)
        times = [SWEEP_SECONDS, settings.handshake_seconds / 4, settings.idle_seconds / 4]
        self._interval = min([*times, settings.keep_alive_seconds / 4] if settings.keep_alive_seconds else times)
        self._sweeper: asyncio.TimerHandle | None = loop.call_later(self._interval, self._sweep)
        self._closed = False
        loop.add_reader(self._udp.fileno(), self._readable)

    # -- what its user calls

    def add(self, link: QuicConnection, *ids: bytes) -> None:
        self.links[link] = None
        self.half_open += 1
        self.route(link, list(ids), [])

    def send(self, datagram: bytes, address: Address) -> None:
        """One that belongs to no connection."""
        if not self._udp.blocked:
            self._udp.send([datagram], address)
            self._watch_writing()

    def flush(self) -> None:
        """Send now what there is to send."""
        now = time.monotonic()
        while self._dirty and not self._udp.blocked:
            link = next(iter(self._dirty))
            del self._dirty[link]
            self._transmit(link, now)

    def close(self) -> None:
        """Links that are open are closed, as far as one datagram can do that."""
        if self._closed:
            return
        self._closed = True
        for link in list(self.links):
            link.close()
        self.flush()
        for link in list(self._dirty):  # the system took nothing more: they are told all the same
            link.flushed()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._alarms.close()
        self._loop.remove_reader(self._udp.fileno())
        self._loop.remove_writer(self._udp.fileno())
        self._udp.close()
        self.links.clear()
        self._routes.clear()

    # -- what links call

    def touch(self, link: QuicConnection) -> None:
        self._dirty[link] = None
        if not self._flush_planned and not self._closed:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def continue_later(self, link: QuicConnection) -> None:
        self._unfinished[link] = None
        if not self._go_on_planned:
            self._go_on_planned = True
            self._loop.call_soon(self._go_on)

    def route(self, link: QuicConnection, issued: list[bytes], retired: list[bytes]) -> None:
        for connection_id in issued:
            if self._routes.setdefault(connection_id, link) is link:
                link.routes.add(connection_id)
        for connection_id in retired:
            if connection_id in link.routes:
                link.routes.discard(connection_id)
                del self._routes[connection_id]

    def ended(self, link: QuicConnection) -> None:
        """If it was closed here, it stays for a while, to say so again to a peer that has not heard it."""
        if not link.established:
            self.half_open -= 1
        if link in self.links and (link.machine.over or link.machine.get_timer() is None):
            self._forget(link)

    # -- what the event loop calls

    def _readable(self) -> None:
        datagrams, error = self._udp.receive()
        if error is not None:
            self._refused(error)
        if not datagrams:
            return
        if self._watcher is not None:
            self._watcher.received()
        now = time.monotonic()
        until = now + TURN_SECONDS
        arrived: dict[QuicConnection, Address] = {}
        for datagram, address in datagrams:
            link = self._whose(datagram, address)
            if link is None:
                continue
            if arrived.setdefault(link, address) != address:  # it has moved, in the middle of what came
                self._feed(link, arrived[link], now, until)
                arrived[link] = address
            link.inbox.append(datagram)
        for link, address in arrived.items():
            self._feed(link, address, now, until)

    def _whose(self, datagram: bytes, address: Address) -> QuicConnection | None:
        if len(datagram) <= CID_BYTES:
            return None
        header = None
        if datagram[0] < LONG:
            link = self._routes.get(datagram[1 : 1 + CID_BYTES])
        else:
            header = long_header(datagram)
            if header is None:
                return None
            link = self._routes.get(header.destination)
        if link is None and self._stranger is not None:
            return self._stranger(datagram, header, address)
        return link

    def _refused(self, error: OSError) -> None:
        """Only a client learns of it, whose socket has one peer. A connection that is open may survive it."""
        if isinstance(error, ConnectionRefusedError):
            for link in self.links:
                if not link.established:
                    link.close(0, "nobody listens there, at this UDP port")

    def _feed(self, link: QuicConnection, address: Address, now: float, until: float) -> None:
        datagrams, link.inbox = link.inbox, []
        if not datagrams:
            return
        link.heard = now
        try:
            link.machine.receive_many_datagrams(datagrams, address, now)
        except Exception as error:  # noqa: BLE001 - whatever a peer can send that the machine does not foresee
            logger.debug("%s: %s: %s", link.peer, type(error).__name__, error)
            link.fail("what was received could not be handled")
        self._work(link, until)

    def _work(self, link: QuicConnection, until: float) -> None:
        half_open = not link.established
        try:
            link.work(until)
        except Exception:
            logger.exception("%s: closed because of an error in the broker; no other connection is touched", link.peer)
            link.fail("internal error")
        if half_open and link.established:
            self.half_open -= 1
        self.touch(link)

    def _go_on(self) -> None:
        self._go_on_planned = False
        if self._closed:
            return
        until = time.monotonic() + TURN_SECONDS
        for link in list(self._unfinished):
            if time.monotonic() >= until:
                self.continue_later(link)  # and those behind it, which are in there as well
                break
            del self._unfinished[link]
            self._work(link, until)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._closed:
            return
        if self._udp.blocked:
            return  # `_writable` plans it again
        dirty, self._dirty = self._dirty, {}
        now = time.monotonic()
        for link in dirty:
            self._transmit(link, now)

    def _transmit(self, link: QuicConnection, now: float) -> None:
        if self._udp.blocked:
            self._dirty[link] = None
            return
        machine = link.machine
        try:
            most = max(FLIGHT_BYTES // machine.configuration.max_datagram_size, 1)
            datagrams = machine.datagrams(now, most)
            if datagrams:
                self._send(datagrams)
            if len(datagrams) == most:
                self.touch(link)
            link.flushed()
            at = machine.get_timer()
        except Exception:
            logger.exception("%s: closed because of an error in the broker; no other connection is touched", link.peer)
            self._forget(link)
            with contextlib.suppress(Exception):  # the same again, most likely
                link.give_up()
            return
        if at is not None and link in self.links:
            self._alarms.set(link, at)

    def _send(self, datagrams: list[tuple[bytes, Address]]) -> None:
        address = datagrams[0][1]
        same = [datagram for datagram, to in datagrams if to == address]
        self._udp.send(same, address)
        if len(same) < len(datagrams):
            for datagram, to in datagrams:
                if to != address:
                    self._udp.send([datagram], to)
        self._watch_writing()
        if self._watcher is not None:
            self._watcher.sent()

    def _watch_writing(self) -> None:
        if self._udp.blocked:
            self._loop.add_writer(self._udp.fileno(), self._writable)

    def _writable(self) -> None:
        self._udp.go_on()
        if not self._udp.blocked:
            self._loop.remove_writer(self._udp.fileno())
            if self._dirty and not self._flush_planned:
                self._flush_planned = True
                self._loop.call_soon(self._flush)

    def _alarm(self, link: QuicConnection, now: float) -> None:
        if link not in self.links:
            return
        machine = link.machine
        try:
            at = machine.get_timer()
            if at is not None and at > now:
                self._alarms.set(link, at)
                return
            machine.handle_timer(now)
        except Exception as error:  # noqa: BLE001 - as above
            logger.debug("%s: %s: %s", link.peer, type(error).__name__, error)
            link.fail("internal error")
        if link.closed and machine.over:
            self._forget(link)
        else:
            self._work(link, now + TURN_SECONDS)

    def _sweep(self) -> None:
        self._sweeper = self._loop.call_later(self._interval, self._sweep)
        now = time.monotonic()
        for link in list(self.links):
            if link.closed:
                continue
            if not link.established:
                if now - link.began > self.settings.handshake_seconds:
                    link.close(0, "the handshake took too long")
            elif self.settings.keep_alive_seconds:
                self._keep_alive(link, now)

    def _keep_alive(self, link: QuicConnection, now: float) -> None:
        pause = self.settings.keep_alive_seconds
        theirs = link.machine.peer_idle_seconds
        if theirs:
            pause = min(pause, theirs / 3)
        if now - max(link.heard, link.pinged) >= pause - self._interval / 2:
            link.pinged = now
            link.machine.ping()
            self.touch(link)

    # -- inside

    def _forget(self, link: QuicConnection) -> None:
        self.links.pop(link, None)
        self._alarms.forget(link)
        for connection_id in link.routes:
            self._routes.pop(connection_id, None)
        link.routes.clear()
