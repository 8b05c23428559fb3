"""The event buffer of a subscription: events that were pushed, the position to resume from, and credit.

One credit is one event. The server gets as many as the buffer may hold, and new ones for events that the caller is done
with, which is when it comes for the next. So the memory of a subscription is bounded, and for a member of a group a
credit says that an event need not be given to anybody else. Nothing here does input or output.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Final

from penstock.clients._core.signal import Signal
from penstock.clients.kimberlite.errors import BadReply, SubscriptionEnded
from penstock.clients.kimberlite.results import Event, Page
from penstock.wire.kimberlite import messages as m

MAX_CREDITS: Final = 1 << 20

_RESUMED: Final = {
    m.CloseReason.SERVER_SHUTDOWN: 5,
    m.CloseReason.BACKPRESSURE_TIMEOUT: 5,
    m.CloseReason.PROTOCOL_ERROR: 1,  # a change that could not be kept; or something that no repetition helps against
}
"""Reasons to close after which the client subscribes again, and how often in a row without getting an event."""


class EventBuffer:
    """One subscription over all its connections. `changed` is set when there is something new to take or to know."""

    def __init__(self, stream_id: int, from_offset: int, window: int, group: str | None) -> None:
        if not 1 <= window <= MAX_CREDITS:
            raise ValueError(f"window must be from 1 to {MAX_CREDITS}")
        self.stream_id = stream_id
        self.next_offset = from_offset  # behind the last event that came
        self.group = group
        self.subscription_id: int | None = None  # None: not subscribed at the moment
        self.barren_attempts = 0  # subscriptions in a row that ended without an event
        self.changed = Signal()
        self._window = window
        self._events: deque[Event] = deque()
        self._close_reason: m.CloseReason | None = None
        self._credit = 0  # events that the server may still send
        self._finished = 0  # events that the caller is done with, and no new credit was given for
        self._taken = 0  # events that the caller has and may not be done with: the last one
        self._barren = False  # whether no event has come since it was subscribed
        self._stale = 0  # events of an earlier connection: no credit for them on this one

    def subscribe_request(self) -> m.Subscribe:
        return m.Subscribe(self.stream_id, self.next_offset, self._window, self.group)

    def start_polling(self) -> None:
        """Begin without a subscription, where the protocol has none: see `add_page`."""
        self.on_subscribed(m.SubscribeResponse(0, self.next_offset, self._window))

    # -- called with what the server sends

    def on_subscribed(self, reply: m.SubscribeResponse) -> None:
        self.subscription_id = reply.subscription_id
        self._credit = reply.credits
        self._finished = self._taken = 0
        self._stale = len(self._events)
        self._barren = True
        if self.group is None:
            self.next_offset = reply.start_offset
        self.changed.set()

    def on_events(self, pushed: m.SubscriptionEvents) -> None:
        events = pushed.events
        self.barren_attempts = 0
        self._barren = False
        self._credit -= len(events)
        if self._credit < 0:
            raise BadReply("The server pushed more events than it had credits for")
        self._events.extend(map(Event, count(pushed.start_offset), events))
        self.next_offset = pushed.start_offset + len(events)
        self.changed.set()

    def add_page(self, page: Page) -> None:
        """Events that were read, where the protocol has no pushes."""
        self._events.extend(map(Event, count(self.next_offset), page.events))
        self.next_offset = page.next_offset or self.next_offset + len(page.events)

    def on_closed(self, reason: m.CloseReason) -> None:
        """The server has closed it."""
        if self.barren_attempts + self._barren >= _RESUMED.get(reason, 0):
            self._close_reason = reason
        self.on_lost()

    def on_lost(self) -> None:
        """Its connection is lost. A group gives what it does not know to be finished to the next member that asks."""
        self.subscription_id = None
        self.barren_attempts += self._barren
        self._barren = False
        if self.group is not None and self._close_reason is None:
            self._events.clear()
        self.changed.set()

    # -- called by the subscription

    def __len__(self) -> int:
        return len(self._events)

    def take(self) -> Event | None:
        """The next event, if it has come. SubscriptionEnded behind the last."""
        if self._events:
            self._taken = 1
            return self._events.popleft()
        if self._close_reason is not None:
            raise SubscriptionEnded(self._close_reason)
        return None

    def finish_taken(self) -> None:
        """The caller is done with the event that it took last."""
        if self._stale and self._taken:
            self._stale -= 1
        else:
            self._finished += self._taken
        self._taken = 0

    def credit(self, everything: bool = False) -> m.SubscribeCredit | None:
        """The credit to give to the server now. Not after every event: half of it may well be used up, except that for
        a group what is finished is better said before a pause."""
        due = 1 if everything else max(1, self._window // 2)
        if self.subscription_id is None or self._finished < due:
            return None
        added, self._finished = self._finished, 0
        self._credit += added
        return m.SubscribeCredit(self.subscription_id, added)
