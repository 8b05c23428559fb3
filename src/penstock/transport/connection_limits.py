"""All open connections together: how many there may be, how much they may hold, how long they may be idle, and how they
are brought to an end. What one connection does is in `tcp_connection`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.broker.runtime.metrics import Metrics

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 1.0
STALL_SECONDS: Final = 5.0
REOPEN_AT: Final = 0.75  # of the limit: reading stops at the limit and resumes here, so that it does not flap


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections: int
    connection_bytes: int
    total_bytes: int
    idle_seconds: float
    handshake_seconds: float


class TrackedConnection(Protocol):
    """A connection, as the gate sees it."""

    held: int  # bytes, as last reported to `ConnectionTracker.account`

    @property
    def peer(self) -> str: ...

    def apply_backpressure(self) -> None:
        """Look again at whether to read."""

    def sweep(self, now: float) -> None:
        """Close if a deadline has passed."""

    def stop(self) -> None:
        """Answer what was accepted, then close."""

    def abort(self) -> None:
        """Close at once."""


class ConnectionTracker:
    def __init__(self, limits: ConnectionLimits, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self.limits = limits
        self.metrics = metrics
        self.held = 0  # bytes, by all connections
        self.full = False
        self._guests: set[TrackedConnection] = set()
        self._full_since = 0.0
        self._stopping = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._loop = loop
        self._interval = min(SWEEP_SECONDS, limits.idle_seconds / 4, limits.handshake_seconds / 4)
        self._timer: asyncio.TimerHandle | None = loop.call_later(self._interval, self._sweep)

    def __len__(self) -> int:
        return len(self._guests)

    @property
    def stopping(self) -> bool:
        return self._stopping

    def admit(self, guest: TrackedConnection) -> bool:
        """False if there is no room: the caller closes the connection at once."""
        if self._stopping or len(self._guests) >= self.limits.connections:
            self.metrics.connections_refused += 1
            return False
        self._guests.add(guest)
        self._empty.clear()
        self.metrics.active_connections += 1
        return True

    def leave(self, guest: TrackedConnection) -> None:
        self._guests.remove(guest)
        self.account(guest, 0)
        self.metrics.active_connections -= 1
        if not self._guests:
            self._empty.set()

    def account(self, guest: TrackedConnection, held: int) -> None:
        """`guest` holds this many bytes now. When all of them hold too much together, those that hold more than their
        share are not read from for a while; the others notice nothing."""
        self.held += held - guest.held
        self.metrics.held_bytes = self.held
        guest.held = held
        if not self.full and self.held > self.limits.total_bytes:
            self.full = True
            self._full_since = self._loop.time()
            self._regulate_later()
        elif self.full and self.held <= self.limits.total_bytes * REOPEN_AT:
            self.full = False
            self._regulate_later()

    @property
    def share(self) -> int:
        """Bytes that each connection may hold when there is not enough for all."""
        return self.limits.total_bytes // max(len(self._guests), 1)

    def _regulate_later(self) -> None:
        # Not at once: this is called from inside one connection's own accounting.
        self._loop.call_soon(self._regulate_all)

    def _regulate_all(self) -> None:
        for guest in list(self._guests):
            guest.apply_backpressure()

    def _sweep(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(self._interval, self._sweep)
        for guest in list(self._guests):
            guest.sweep(now)
        if self.full and now - self._full_since > STALL_SECONDS:
            self._make_room()

    def _make_room(self) -> None:
        """What is held are halves of requests whose other halves nobody may send. Those who hold most have to go."""
        room = self.limits.total_bytes * REOPEN_AT
        held, total = 0, self.held
        for guest in sorted(self._guests, key=lambda guest: guest.held, reverse=True):
            if total - held <= room:
                break
            held += guest.held
            logger.warning(
                "clients hold %d bytes, over limits.total_bytes, and no request gets done: closing %s, which holds %d",
                total,
                guest.peer,
                guest.held,
            )
            guest.abort()

    async def drain(self, seconds: float) -> int:
        """Let every connection answer what it accepted, for so long; returns how many had to be cut off."""
        self._stopping = True
        for guest in list(self._guests):
            guest.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), seconds)
        left = list(self._guests)
        for guest in left:
            guest.abort()
        if left:
            await asyncio.wait_for(self._empty.wait(), 1)
        return len(left)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
