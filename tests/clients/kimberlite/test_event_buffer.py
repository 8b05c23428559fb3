"""The event buffer of a subscription, without a socket."""

from __future__ import annotations

import pytest

from penstock.clients.kimberlite import BadReply, Event
from penstock.clients.kimberlite.event_buffer import EventBuffer
from penstock.wire.kimberlite import messages as m


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def test_the_room_stays_the_same_over_connections() -> None:
    """Events of an earlier connection give no credit on a later one."""
    buffer = EventBuffer(1, 0, 4, None)
    for round_ in range(3):
        buffer.on_subscribed(m.SubscribeResponse(9, buffer.next_offset, 4))
        buffer.on_events(m.SubscriptionEvents(9, buffer.next_offset, numbers(round_ * 4, round_ * 4 + 4), 0))
        buffer.on_lost()
    buffer.on_subscribed(m.SubscribeResponse(9, 12, 4))
    for number in range(12):
        assert buffer.take() == Event(number, b"%d" % number)
        buffer.finish_taken()
    assert buffer.credit(everything=True) is None
    buffer.on_events(m.SubscriptionEvents(9, 12, numbers(12, 16), 0))
    for _ in range(4):
        assert buffer.take()
        buffer.finish_taken()
    assert buffer.credit() == m.SubscribeCredit(9, 4)


def test_a_server_that_pushes_too_much() -> None:
    buffer = EventBuffer(1, 0, 4, None)
    buffer.on_subscribed(m.SubscribeResponse(9, 0, 4))
    with pytest.raises(BadReply, match="more events"):
        buffer.on_events(m.SubscriptionEvents(9, 0, numbers(0, 5), 0))


def test_what_waits_for_a_member_goes_with_its_connection() -> None:
    """The group gives it to somebody again: it would be there twice. Who is alone gets it from here, and only here."""
    for group, left in (("readers", None), (None, Event(1, b"1"))):
        buffer = EventBuffer(1, 0, 4, group)
        buffer.on_subscribed(m.SubscribeResponse(9, 0, 4))
        buffer.on_events(m.SubscriptionEvents(9, 0, numbers(0, 3), 1))
        assert buffer.take() == Event(0, b"0")
        buffer.on_lost()
        assert buffer.take() == left
