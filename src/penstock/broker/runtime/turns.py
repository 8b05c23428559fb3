"""Turns: how connections share the event loop, so that none can monopolize it.

Code that works for a connection charges the time it used (`charge`). Once all connections together have used up a turn,
arriving input is only buffered, and the loop polls its sockets before it continues. That bounds how long a new request
waits, however many others arrive at once. Waiting connections are served in order, but those with little to do come
first. Within a turn each connection has a share, a `Turn`: a number of requests, of decoded bytes and of nanoseconds.
The share is smaller for clients that are required to log in and have not.

Time is measured with `timer`. No single request is timed, apart from what the transport measures anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.broker.runtime.scheduler import Scheduler

MILLISECOND: Final = 1_000_000  # ns
TURN: Final = 8 * MILLISECOND  # of work for all connections, after which the loop polls its sockets
SHARE: Final = 4 * MILLISECOND  # of this for one connection,
UNAUTHENTICATED_SHARE: Final = MILLISECOND  # or for one that has not logged in
NOTICEABLE: Final = MILLISECOND // 2  # less is not worth starting a new turn for
MAX_PER_TURN: Final = 256  # requests of one connection; unlike time, tests can count them
MAX_BYTES_PER_TURN: Final = 4 << 20  # bytes decoded for one connection
SMALL: Final = 4 << 10  # bytes of input; connections with no more are served before others


class TurnOwner(Protocol):
    """The connection or job that a piece of work was for, described in the log line about slow ones."""

    def describe_work(self) -> dict[str, str]:
        """The door, the peer, and the kind of the last request."""


OnWork = Callable[[int, TurnOwner], None]
"""Called with the ns of one uninterrupted piece of work."""


def _ignore(nanoseconds: int, owner: TurnOwner) -> None:
    """The default of `report_slow`."""


class Turns:
    """The turns of one event loop."""

    __slots__ = (
        "_few",
        "_many",
        "_on_slow",
        "_on_work",
        "_planned",
        "_scheduler",
        "_slow",
        "_spent",
        "exhausted",
        "timer",
    )

    def __init__(self, scheduler: Scheduler, timer: Callable[[], int]) -> None:
        self.timer = timer  # ns
        self.exhausted = False  # this turn is used up: new input waits for the next
        self._slow = 1 << 62  # ns of uninterrupted work from which `_on_slow` is called
        self._on_slow: OnWork = _ignore
        self._on_work: OnWork | None = None  # called for all work, if set
        self._scheduler = scheduler
        self._spent = 0  # ns, since the turn began
        self._planned = False
        self._few: deque[Callable[[], None]] = deque()  # waiting callbacks with little to do
        self._many: deque[Callable[[], None]] = deque()

    def report_slow(self, nanoseconds: int, on_slow: OnWork) -> None:
        """Report uninterrupted work of at least this duration."""
        self._slow, self._on_slow = nanoseconds, on_slow

    def report_all(self, on_work: OnWork) -> None:
        """Report all work."""
        self._on_work = on_work

    def charge(self, nanoseconds: int, owner: TurnOwner) -> None:
        """Account for uninterrupted work of this duration."""
        self._spent += nanoseconds
        if self._on_work is not None:
            self._on_work(nanoseconds, owner)
        if self._spent >= NOTICEABLE:
            if self._spent >= TURN:
                self.exhausted = True
            self._plan()
            if nanoseconds >= self._slow:
                self._on_slow(nanoseconds, owner)

    def later(self, callback: Callable[[], None], *, little: bool = False) -> None:
        """Call back in one of the next turns; ahead of most others if there is `little` to do."""
        (self._few if little else self._many).append(callback)
        self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._scheduler.call_soon(self._begin)

    def _begin(self) -> None:
        """Start a new turn: the sockets have been polled."""
        self._planned = False
        self._spent = 0
        self.exhausted = False
        try:
            self._serve(self._few, self._many)
        finally:  # even if a callback raises: the others must not wait forever
            if self._few or self._many:
                self._plan()

    def _serve(self, few: deque[Callable[[], None]], many: deque[Callable[[], None]]) -> None:
        """Run waiting callbacks until the turn is used up. At least one of `many` runs in every turn."""
        count = len(many)  # callbacks added from now on have already run in this turn
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
    """The share of one connection. To start a new share, set `begun` to False; check `over` before each request, and
    call `give_way` when it is True. `resume` is called when the connection may continue.
    """

    __slots__ = ("_end", "_resume", "_turns", "begun", "bytes", "requests", "unauthenticated", "yielding")

    def __init__(self, turns: Turns, resume: Callable[[], None]) -> None:
        self.yielding = False  # waiting for its next turn
        self.unauthenticated = False  # is required to log in and has not
        self.begun = False
        self.requests = MAX_PER_TURN  # left in this share
        self.bytes = MAX_BYTES_PER_TURN
        self._turns = turns
        self._resume = resume
        self._end = 0  # end of its time; 0: not read yet

    def over(self) -> bool:
        """Whether the share is used up. The clock is first read for the second request, as most shares have
        only one.
        """
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
        self._end = turns.timer() + (UNAUTHENTICATED_SHARE if self.unauthenticated else SHARE)
        return False

    def give_way(self) -> None:
        """Yield to other connections; `resume` is called in a later turn, or immediately by an inline scheduler."""
        self.begun = False
        self.yielding = True
        self._turns.later(self._go_on)

    def _go_on(self) -> None:
        self.yielding = False
        self._resume()
