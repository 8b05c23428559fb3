"""When each link wants to be called, with one timer of the event loop for all of them.

Links move their times with every packet, mostly to later. So an entry stays where it is; if there is nothing to do when
its time has come, it is entered again. One whose link was moved to an earlier time means nothing any more; when most
are of that kind, they are cleared away.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable

from penstock.transport.quic.connection import QuicConnection

LONGEST = 3600.0
FEW = 100  # entries: not worth a look at which of them still mean something


class Timers:
    def __init__(self, loop: asyncio.AbstractEventLoop, due: Callable[[QuicConnection, float], None]) -> None:
        self._loop = loop
        self._due = due
        self._entries: list[tuple[float, int, QuicConnection]] = []
        self._number = itertools.count()
        self._most = FEW
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0.0

    def set(self, link: QuicConnection, at: float) -> None:
        """Call `due` at this time, or somewhat earlier than that."""
        if link.alarm and link.alarm <= at:
            return
        link.alarm = at
        heapq.heappush(self._entries, (at, next(self._number), link))
        if len(self._entries) > self._most:
            self._clear_away()
        self._arm()

    def forget(self, link: QuicConnection) -> None:
        """It is over."""
        link.alarm = 0.0

    def _clear_away(self) -> None:
        self._entries = [entry for entry in self._entries if entry[2].alarm == entry[0]]
        heapq.heapify(self._entries)
        self._most = max(2 * len(self._entries), FEW)

    def _arm(self) -> None:
        if not self._entries:
            return
        at = self._entries[0][0]
        if self._timer is not None:
            if self._armed <= at:
                return
            self._timer.cancel()
        self._armed = at
        self._timer = self._loop.call_later(min(max(at - time.monotonic(), 0), LONGEST), self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = time.monotonic()
        due: list[QuicConnection] = []
        while self._entries and self._entries[0][0] <= now:
            at, _, link = heapq.heappop(self._entries)
            if link.alarm == at:  # else it was moved to an earlier time, and is in here once more
                link.alarm = 0.0
                due.append(link)
        for link in due:
            self._due(link, now)
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._entries.clear()
