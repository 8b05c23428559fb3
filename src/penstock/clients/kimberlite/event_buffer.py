"""The event buffer of a subscription: pushed events, the position to resume from, and credit.

One credit is one event. The server gets as many as the buffer may hold, and further ones for events that the caller has
processed, which means that it asked for the next. So the memory of a subscription is bounded, and in a group a credit
confirms that an event need not go to another member. No I/O.
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
    m.CloseReason.PROTOCOL_ERROR: 1,  # a change that could not be stored, or a permanent error
}
"""Reasons to close after which the client subscribes again, and how often in a row without getting an event."""


class EventBuffer:
    """One subscription across its connections. `changed` is set when there are new events or its state has changed."""

    def __init__(self, stream_id: int, from_offset: int, window: int, group: str | None) -> None:
        if not 1 <= window <= MAX_CREDITS:
            raise ValueError(f"window must be from 1 to {MAX_CREDITS}")
        self.stream_id = stream_id
        self.next_offset = from_offset  # after the last event received
        self.group = group
        self.subscription_id: int | None = None  # None: currently not subscribed
        self.barren_attempts = 0  # consecutive subscriptions that ended without an event
        self.changed = Signal()
        self._window = window
        self._events: deque[Event] = deque()
        self._close_reason: m.CloseReason | None = None
        self._credit = 0  # events that the server may still send
        self._finished = 0  # processed events for which no new credit was given yet
        self._taken = 0  # events that the caller may still be processing: 0 or 1
        self._barren = False  # no event has arrived since it was subscribed
        self._stale = 0  # events from an earlier connection, for which this one gives no credit

    def subscribe_request(self) -> m.Subscribe:
        return m.Subscribe(self.stream_id, self.next_offset, self._window, self.group)

    def start_polling(self) -> None:
        """Begin without a subscription, if the protocol has none: see `add_page`."""
        self.on_subscribed(m.SubscribeResponse(0, self.next_offset, self._window))

    # -- called with received messages

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
        """Add events that were read, if the protocol has no pushes."""
        self._events.extend(map(Event, count(self.next_offset), page.events))
        self.next_offset = page.next_offset or self.next_offset + len(page.events)

    def on_closed(self, reason: m.CloseReason) -> None:
        """Record that the server closed the subscription."""
        if self.barren_attempts + self._barren >= _RESUMED.get(reason, 0):
            self._close_reason = reason
        self.on_lost()

    def on_lost(self) -> None:
        """Record that the connection is lost. A group redelivers events that are not known to be processed to another
        member."""
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
        """The next event received, or None. Raises SubscriptionEnded after the last."""
        if self._events:
            self._taken = 1
            return self._events.popleft()
        if self._close_reason is not None:
            raise SubscriptionEnded(self._close_reason)
        return None

    def finish_taken(self) -> None:
        """Record that the caller has processed the event that it took last."""
        if self._stale and self._taken:
            self._stale -= 1
        else:
            self._finished += self._taken
        self._taken = 0

    def credit(self, everything: bool = False) -> m.SubscribeCredit | None:
        """The credit to give to the server now, or None. Normally given only for half of the window, to save requests;
        with `everything`, for all processed events, which a group's member reports before it waits."""
        due = 1 if everything else max(1, self._window // 2)
        if self.subscription_id is None or self._finished < due:
            return None
        added, self._finished = self._finished, 0
        self._credit += added
        return m.SubscribeCredit(self.subscription_id, added)
