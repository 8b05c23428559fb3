"""Timers of all connections of an endpoint, on one timer of the event loop.

Connections move their deadlines with every packet, mostly to later. So an entry stays in the heap; if nothing is due
when it fires, it is added again. When a connection's deadline moves to an earlier time, its old entry becomes stale;
when most entries are stale, they are removed.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable

from penstock.transport.quic.connection import QuicConnection

MAX_DELAY = 3600.0
MIN_ENTRIES = 100  # with fewer, removing stale entries is not worthwhile


class Timers:
    def __init__(self, loop: asyncio.AbstractEventLoop, due: Callable[[QuicConnection, float], None]) -> None:
        self._loop = loop
        self._due = due
        self._entries: list[tuple[float, int, QuicConnection]] = []
        self._number = itertools.count()
        self._max_entries = MIN_ENTRIES
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0.0

    def set(self, connection: QuicConnection, at: float) -> None:
        """Call `due` at this time, or somewhat earlier."""
        if connection.timer_at and connection.timer_at <= at:
            return
        connection.timer_at = at
        heapq.heappush(self._entries, (at, next(self._number), connection))
        if len(self._entries) > self._max_entries:
            self._remove_stale()
        self._arm()

    def discard(self, connection: QuicConnection) -> None:
        """Cancel the timer of a connection."""
        connection.timer_at = 0.0

    def _remove_stale(self) -> None:
        self._entries = [entry for entry in self._entries if entry[2].timer_at == entry[0]]
        heapq.heapify(self._entries)
        self._max_entries = max(2 * len(self._entries), MIN_ENTRIES)

    def _arm(self) -> None:
        if not self._entries:
            return
        at = self._entries[0][0]
        if self._timer is not None:
            if self._armed <= at:
                return
            self._timer.cancel()
        self._armed = at
        self._timer = self._loop.call_later(min(max(at - time.monotonic(), 0), MAX_DELAY), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = time.monotonic()
        due: list[QuicConnection] = []
        while self._entries and self._entries[0][0] <= now:
            at, _, connection = heapq.heappop(self._entries)
            if connection.timer_at == at:  # else it was moved to an earlier time, and has another entry
                connection.timer_at = 0.0
                due.append(connection)
        for connection in due:
            self._due(connection, now)
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._entries.clear()
