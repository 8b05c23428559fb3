"""Keeps the event loop looking at its sockets for a moment after something happened, instead of going to sleep.

A client that waits for each reply before it sends again would otherwise pay for two wake-ups with every request. A
callback that schedules itself makes the loop poll without waiting. When that pays is told by `spin_budget`; an idle
loop sleeps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from penstock.transport.spin_budget import Patience


class BusyPoll:
    """Of one event loop, for all its connections. `clock` in seconds: the loop's own has a resolution of a ms."""

    __slots__ = ("_call_soon", "_clock", "_end", "_extended", "_found", "_patience", "_turning")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._call_soon = loop.call_soon
        self._clock = clock
        self._patience = Patience(seconds)
        self._turning = False
        self._found = False  # bytes came while it was turning
        self._extended = False  # from now on, once more
        self._end = 0.0

    def received(self) -> None:
        """Bytes came in: more may follow soon."""
        if self._turning:
            self._found = True
        else:
            self._start()

    def sent(self) -> None:
        """Bytes went out: the answer may come soon."""
        if self._turning:
            self._extended = True
        else:
            self._start()

    def _start(self) -> None:
        if self._patience.begin():
            self._turning = self._extended = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        if self._found or self._extended:
            paid, self._found, self._extended = self._found, False, False
            if paid and not self._patience.paid():
                self._turning = False
                return
            self._end = self._clock() + self._patience.seconds
        elif self._clock() >= self._end:
            self._turning = False
            self._patience.vain()
            return
        self._call_soon(self._turn)
