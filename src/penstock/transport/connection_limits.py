"""Connection limits: the number of connections, the bytes that they hold together, idle timeouts, and draining. Single
connections are in `tcp_connection` and `quic_sessions`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import time
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.broker.runtime.metrics import Metrics
from penstock.broker.security.lockout import host_of
from penstock.broker.tenancy.fair_share import allowance

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 1.0
STALL_SECONDS: Final = 5.0
REOPEN_AT: Final = 0.75  # of the limit: reading stops at the limit and resumes here (hysteresis)


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """TCP keep-alive: the kernel probes a silent peer, and closes the connection if it does not answer. Idle clients
    and those that wait for a push stay connected; those whose machine is gone do not."""

    seconds: float = 60  # of silence before the first probe; 0: none are sent
    interval_seconds: float = 15  # between probes
    probes: int = 4  # unanswered ones until the peer counts as gone

    def apply(self, sock: socket.socket) -> None:
        """Set the options on a listening socket; accepted connections inherit them."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(self.seconds > 0))
        if self.seconds > 0:
            options = {"TCP_KEEPIDLE": self.seconds, "TCP_KEEPINTVL": self.interval_seconds, "TCP_KEEPCNT": self.probes}
            for name, value in options.items():
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), max(1, math.ceil(value)))


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections: int
    connection_bytes: int
    total_bytes: int
    idle_seconds: float
    handshake_seconds: float
    address_share: float = 1.0  # of `connections`, for one address; see `broker.tenancy.fair_share`
    keepalive: KeepAlive = KeepAlive()


class TrackedConnection(Protocol):
    """The connection tracker's view of a connection."""

    held: int  # bytes, as last reported to `ConnectionTracker.account`
    received: int  # bytes
    sent: int

    @property
    def peer(self) -> str: ...

    @property
    def encrypted(self) -> bool: ...

    def describe_work(self) -> dict[str, str]:
        """Door, identity, and the kind of the last request."""

    def apply_backpressure(self) -> None:
        """Pause or resume reading, depending on the bytes held by this connection and by all."""

    def sweep(self, now: float) -> None:
        """Close if a deadline has passed."""

    def stop(self) -> None:
        """Answer all accepted requests, then close."""

    def abort(self) -> None:
        """Close at once."""


class ConnectionTracker:
    """All open connections of a broker, and the bytes they hold."""

    def __init__(self, limits: ConnectionLimits, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self.limits = limits
        self.metrics = metrics
        self.held = 0  # bytes, of all connections
        self.full = False
        self._connections: dict[TrackedConnection, tuple[int, int]] = {}  # number, and time of opening in µs since 1970
        self._last_number = 0
        self._shared = limits.address_share < 1
        self._hosts: dict[TrackedConnection, str] = {}
        self._by_host: dict[str, int] = {}
        self._full_since = 0.0
        self._stopping = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._loop = loop
        self._interval = min(SWEEP_SECONDS, limits.idle_seconds / 4, limits.handshake_seconds / 4)
        self._timer: asyncio.TimerHandle | None = loop.call_later(self._interval, self._sweep)

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def stopping(self) -> bool:
        return self._stopping

    def admit(self, connection: TrackedConnection) -> bool:
        """Add a connection. False if a limit is reached: the caller closes the connection at once."""
        if self._stopping or len(self._connections) >= self.limits.connections or not self._admit_host(connection):
            self.metrics.connections_refused += 1
            return False
        self._last_number += 1
        self._connections[connection] = self._last_number, time.time_ns() // 1000
        self._empty.clear()
        self.metrics.active_connections += 1
        return True

    def _admit_host(self, connection: TrackedConnection) -> bool:
        """False if the address has reached its share of all connections."""
        if not self._shared:
            return True
        host, limits = host_of(connection.peer), self.limits
        mine = self._by_host.get(host, 0)
        if mine >= allowance(limits.connections, len(self._connections) - mine, limits.address_share):
            return False
        self._hosts[connection] = host
        self._by_host[host] = mine + 1
        return True

    def _leave_host(self, connection: TrackedConnection) -> None:
        host = self._hosts.pop(connection, None)
        if host is not None:
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]

    def leave(self, connection: TrackedConnection) -> None:
        del self._connections[connection]
        self._leave_host(connection)
        self.account(connection, 0)
        self.metrics.active_connections -= 1
        if not self._connections:
            self._empty.set()

    def all(self) -> list[tuple[int, int, TrackedConnection]]:
        """Every connection as (number, time of opening in µs since 1970, connection)."""
        return [(number, since, connection) for connection, (number, since) in self._connections.items()]

    def close_one(self, number: int) -> bool:
        """Close the connection with this number at once; False if there is none."""
        found = next((connection for connection, known in self._connections.items() if known[0] == number), None)
        if found is not None:
            found.abort()
        return found is not None

    def account(self, connection: TrackedConnection, held: int) -> None:
        """Record that `connection` now holds `held` bytes. While all together exceed the limit, connections above their
        fair share are not read from; the others are unaffected."""
        change, connection.held = held - connection.held, held
        self.add(change)

    def add(self, change: int) -> None:
        """The same for a connection that keeps its own account."""
        self.held += change
        self.metrics.held_bytes = self.held
        if not self.full and self.held > self.limits.total_bytes:
            self.full = True
            self._full_since = self._loop.time()
            self._apply_backpressure_later()
        elif self.full and self.held <= self.limits.total_bytes * REOPEN_AT:
            self.full = False
            self._apply_backpressure_later()

    @property
    def fair_share(self) -> int:
        """Bytes that each connection may hold while the total limit is exceeded."""
        return self.limits.total_bytes // max(len(self._connections), 1)

    def _apply_backpressure_later(self) -> None:
        # Deferred: this is called from within a connection's own accounting.
        self._loop.call_soon(self._apply_backpressure_to_all)

    def _apply_backpressure_to_all(self) -> None:
        for connection in list(self._connections):
            connection.apply_backpressure()

    def _sweep(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(self._interval, self._sweep)
        for connection in list(self._connections):
            connection.sweep(now)
        if self.full and now - self._full_since > STALL_SECONDS:
            self._make_room()

    def _make_room(self) -> None:
        """Abort the connections that hold most. All memory is in incomplete requests, which may never be completed."""
        room = self.limits.total_bytes * REOPEN_AT
        held, total = 0, self.held
        for connection in sorted(self._connections, key=lambda connection: connection.held, reverse=True):
            if total - held <= room:
                break
            held += connection.held
            logger.warning(
                "clients hold %d bytes, over limits.total_bytes, and no request gets done: closing %s, which holds %d",
                total,
                connection.peer,
                connection.held,
                extra={"peer": connection.peer},
            )
            connection.abort()

    async def drain(self, seconds: float) -> int:
        """Let every connection answer its accepted requests, for up to `seconds`; returns how many had to be
        aborted."""
        self._stopping = True
        for connection in list(self._connections):
            connection.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), seconds)
        left = list(self._connections)
        for connection in left:
            connection.abort()
        if left:
            await asyncio.wait_for(self._empty.wait(), 1)
        return len(left)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
