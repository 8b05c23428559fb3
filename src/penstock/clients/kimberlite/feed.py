"""A subscription without a socket: what was pushed, from where to go on, and when to ask for more.

One credit is one event. The server gets as many as the client is ready to hold, and new ones for those events that the
caller is done with, which is when it comes for the next. So the memory of a subscription is bounded, and for a member
of a group a credit says that an event need not be given to anybody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final

from penstock.clients.kimberlite.errors import BadReply, SubscriptionEnded
from penstock.clients.kimberlite.results import Event, Page
from penstock.wire.kimberlite import messages as m

_RESUMED: Final = {
    m.CloseReason.SERVER_SHUTDOWN: 5,
    m.CloseReason.BACKPRESSURE_TIMEOUT: 5,
    m.CloseReason.PROTOCOL_ERROR: 1,  # a change that could not be kept; or something that no repetition helps against
}
"""Reasons to close after which the client subscribes again, and how often in a row without getting an event."""

MOST_CREDITS: Final = 1 << 20
POLL: Final = 0.1  # seconds between two looks, where the protocol has no pushes


class Feed:
    """One subscription over all its connections."""

    def __init__(self, stream_id: int, from_offset: int, window: int, group: str | None) -> None:
        if not 1 <= window <= MOST_CREDITS:
            raise ValueError(f"window must be from 1 to {MOST_CREDITS}")
        self.stream_id = stream_id
        self.next_offset = from_offset  # behind the last event that came
        self.group = group
        self.id: int | None = None  # None: not subscribed at the moment
        self.fruitless = 0  # how often in a row it was subscribed, and ended without an event
        self.on_change: Callable[[], None] | None = None  # told that there is something new to take or to know
        self._window = window
        self._events: deque[Event] = deque()
        self._reason: m.CloseReason | None = None
        self._granted = 0  # events that the server may still send
        self._done = 0  # events that the caller is done with, and no new credit was given for
        self._handed = 0  # events that the caller has and may not be done with: the last one
        self._fresh = False  # whether no event has come since it was subscribed
        self._old = 0  # events of an earlier connection, which this one has nothing to do with

    def request(self) -> m.Subscribe:
        return m.Subscribe(self.stream_id, self.next_offset, self._window, self.group)

    def begin(self) -> None:
        """Where there is nobody to ask for it: see `read`."""
        self.started(m.SubscribeResponse(0, self.next_offset, self._window))

    # -- what comes

    def started(self, reply: m.SubscribeResponse) -> None:
        self.id = reply.subscription_id
        self._granted = reply.credits
        self._done = self._handed = 0
        self._old = len(self._events)
        self._fresh = True
        if self.group is None:
            self.next_offset = reply.start_offset
        self._changed()

    def push(self, pushed: m.SubscriptionEvents) -> None:
        events = pushed.events
        self.fruitless = 0
        self._fresh = False
        self._granted -= len(events)
        if self._granted < 0:
            raise BadReply("The server pushed more events than it had credits for")
        self._events.extend(map(Event, count(pushed.start_offset), events))
        self.next_offset = pushed.start_offset + len(events)
        self._changed()

    def read(self, page: Page) -> None:
        """Events that were asked for, where the protocol has no pushes."""
        self._events.extend(map(Event, count(self.next_offset), page.events))
        self.next_offset = page.next_offset or self.next_offset + len(page.events)

    def ended(self, reason: m.CloseReason) -> None:
        """The server has closed it."""
        if self.fruitless + self._fresh >= _RESUMED.get(reason, 0):
            self._reason = reason
        self.lost()

    def lost(self) -> None:
        """It is gone with its connection. A group gives what it does not know to be done to whoever asks next."""
        self.id = None
        self.fruitless += self._fresh
        self._fresh = False
        if self.group is not None and self._reason is None:
            self._events.clear()
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    # -- what the caller takes

    @property
    def waiting(self) -> bool:
        """Whether there is something to take."""
        return bool(self._events)

    def take(self) -> Event | None:
        """The next event, if it has come. SubscriptionEnded behind the last."""
        if self._events:
            self._handed = 1
            return self._events.popleft()
        if self._reason is not None:
            raise SubscriptionEnded(self._reason)
        return None

    def finished(self) -> None:
        """The caller is done with the event that it took last."""
        if self._old and self._handed:
            self._old -= 1
        else:
            self._done += self._handed
        self._handed = 0

    def credit(self, everything: bool = False) -> m.SubscribeCredit | None:
        """What to tell the server now. Not after every event: half of the credits may well be used up, except that
        for a group what is done is better said before a pause."""
        due = 1 if everything else max(1, self._window // 2)
        if self.id is None or self._done < due:
            return None
        added, self._done = self._done, 0
        self._granted += added
        return m.SubscribeCredit(self.id, added)
