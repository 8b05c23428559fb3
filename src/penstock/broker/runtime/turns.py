"""Turns: how the connections of a broker share its event loop, so that none of them can keep it.

Whoever works for a connection charges the time that it took (`charge`). When all of them together have used up a turn,
input that arrives is only kept, and the loop looks at its sockets again before it goes on: that bounds how long a
request waits that has just arrived, however many others send at once. Those who wait are served in order, but those
with little to do come first. Within a turn each connection has a share of its own, a `Turn`: so many requests, bytes
decoded and nanoseconds. It is smaller for strangers: clients that have not logged in although they should.

Time is told by `timer`. Nothing is measured for one request at a time but what the transport measures anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.broker.runtime.scheduler import Scheduler

MILLISECOND: Final = 1_000_000  # ns
TURN: Final = 8 * MILLISECOND  # of work for all connections, after which the loop looks at its sockets
SHARE: Final = 4 * MILLISECOND  # of these for one connection,
STRANGER_SHARE: Final = MILLISECOND  # or for one that has not logged in
NOTICEABLE: Final = MILLISECOND // 2  # less need not be spread over turns
MAX_PER_TURN: Final = 256  # requests of one connection: what tests can count
MAX_BYTES_PER_TURN: Final = 4 << 20  # bytes decoded for one connection
SMALL: Final = 4 << 10  # bytes of input that are served before those who have more


class Worker(Protocol):
    """Somebody who works in a turn, for the log line about one that took too long."""

    def describe_work(self) -> dict[str, str]:
        """Door, peer, and the kind of the last request."""


OnSlow = Callable[[int, Worker], None]
"""Told of work that took so many ns at once."""


def _ignore(nanoseconds: int, worker: Worker) -> None:
    """The shape of `Turns.on_slow`."""


class Turns:
    """The turns of one event loop."""

    __slots__ = (
        "_few",
        "_many",
        "_planned",
        "_scheduler",
        "_spent",
        "exhausted",
        "on_slow",
        "on_turn",
        "slow",
        "timer",
    )

    def __init__(self, scheduler: Scheduler, timer: Callable[[], int]) -> None:
        self.timer = timer  # ns
        self.exhausted = False  # this turn is used up: what arrives now waits for the next
        self.slow = 1 << 62  # ns of work at once that `on_slow` is told of
        self.on_slow: OnSlow = _ignore
        self.on_turn: OnSlow | None = None  # told of all work, if somebody wants to know
        self._scheduler = scheduler
        self._spent = 0  # ns, since the turn began
        self._planned = False
        self._few: deque[Callable[[], None]] = deque()  # wait, and have little to do
        self._many: deque[Callable[[], None]] = deque()

    def charge(self, nanoseconds: int, worker: Worker) -> None:
        """Work of so long was done."""
        self._spent += nanoseconds
        if self.on_turn is not None:
            self.on_turn(nanoseconds, worker)
        if self._spent >= NOTICEABLE:
            if self._spent >= TURN:
                self.exhausted = True
            self._plan()
            if nanoseconds >= self.slow:
                self.on_slow(nanoseconds, worker)

    def later(self, callback: Callable[[], None], *, little: bool = False) -> None:
        """Call back in one of the next turns; before most others, if it has `little` to do."""
        (self._few if little else self._many).append(callback)
        self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._scheduler.call_soon(self._begin)

    def _begin(self) -> None:
        """The sockets were looked at: a new turn."""
        self._planned = False
        self._spent = 0
        self.exhausted = False
        try:
            self._serve(self._few, self._many)
        finally:  # also if somebody fails: the others must not wait for ever
            if self._few or self._many:
                self._plan()

    def _serve(self, few: deque[Callable[[], None]], many: deque[Callable[[], None]]) -> None:
        """Call those back who wait, until the turn is used up. Somebody with much to do is served in every turn."""
        count = len(many)  # those that join them now have had their turn
        for _ in range(len(few)):
            if self.exhausted:
                break
            few.popleft()()
        if count:
            self.exhausted = False
            many.popleft()()
            count -= 1
        while count and not self.exhausted and many:
            many.popleft()()
            count -= 1


class Turn:
    """The share of one connection. For a new one, set `begun` to False; then ask `over` before each request, and
    `give_way` if it is. `resume` is called when it may go on."""

    __slots__ = ("_end", "_resume", "_turns", "begun", "bytes", "requests", "stranger", "yielding")

    def __init__(self, turns: Turns, resume: Callable[[], None]) -> None:
        self.yielding = False  # others have their turn
        self.stranger = False  # has not logged in, and should
        self.begun = False
        self.requests = MAX_PER_TURN  # that are left
        self.bytes = MAX_BYTES_PER_TURN
        self._turns = turns
        self._resume = resume
        self._end = 0  # when its time is over; 0: not known yet

    def over(self) -> bool:
        """Whether it is used up. The clock is first read for the second request: most have no more than one."""
        turns = self._turns
        if not self.begun:
            self.begun = True
            self.requests = MAX_PER_TURN
            self.bytes = MAX_BYTES_PER_TURN
            self._end = 0
            return turns.exhausted
        if turns.exhausted or self.requests <= 0 or self.bytes <= 0:
            return True
        if self._end:
            return turns.timer() >= self._end
        self._end = turns.timer() + (STRANGER_SHARE if self.stranger else SHARE)
        return False

    def give_way(self) -> None:
        """Let others have their turn; `resume` is called after it, perhaps at once."""
        self.begun = False
        self.yielding = True
        self._turns.later(self._go_on)

    def _go_on(self) -> None:
        self.yielding = False
        self._resume()
