"""Busy polling: after activity, the event loop polls its sockets for a moment instead of going to sleep.

A client that waits for each reply before it sends again would otherwise pay for two wake-ups per request. A callback
that reschedules itself makes the loop poll without waiting. `spin_budget` decides whether this pays off; an idle loop
sleeps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from penstock.transport.spin_budget import SpinBudget


class BusyPoll:
    """The busy poll of one event loop, for all its connections. `clock` is in seconds; the loop's own has ms
    resolution."""

    __slots__ = ("_budget", "_call_soon", "_clock", "_end", "_extended", "_polling", "_received")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._call_soon = loop.call_soon
        self._clock = clock
        self._budget = SpinBudget(seconds, clock)
        self._polling = False
        self._received = False  # bytes arrived while polling
        self._extended = False  # polling time restarts
        self._end = 0.0

    def received(self) -> None:
        """Called when bytes arrive: more may follow soon."""
        if self._polling:
            self._received = True
        else:
            self._start()

    def sent(self) -> None:
        """Called when bytes are sent: the answer may arrive soon."""
        if self._polling:
            self._extended = True
        else:
            self._start()

    def _start(self) -> None:
        if self._budget.begin():
            self._polling = self._extended = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        if self._received or self._extended:
            received, self._received, self._extended = self._received, False, False
            if received and not self._budget.hit():
                self._polling = False
                return
            self._end = self._clock() + self._budget.seconds
        elif self._clock() >= self._end:
            self._polling = False
            self._budget.miss()
            return
        self._call_soon(self._turn)
