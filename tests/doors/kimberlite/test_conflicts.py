"""Appends that name their offset, while others are on their way to the disk."""

from __future__ import annotations

from tests.broker.broker_fixture import BrokerFixture
from tests.doors.kimberlite.peer import Peer

from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.messages import ErrorCode


def test_nobody_hears_of_a_conflict_before_what_is_in_the_way_is_stored() -> None:
    """A client that repeats an append and is told that its place is taken believes that the first one arrived."""
    fixture = BrokerFixture()
    first, second = Peer(fixture), Peer(fixture, port=50001)
    stream = first.create()
    first.append(stream, b"zero")
    first.feed(m.AppendEvents(stream, [b"one"], 1))
    second.feed(m.AppendEvents(stream, [b"another"], 1))
    assert first.responses() == second.responses() == []
    fixture.commit()
    assert [reply.payload for reply in first.responses()] == [m.AppendEventsResponse(1, 1)]
    (refused,) = second.responses()
    assert isinstance(refused.payload, m.ErrorResponse) and refused.payload.code is ErrorCode.OFFSET_MISMATCH


def test_a_conflict_with_what_is_stored_is_told_at_once() -> None:
    peer = Peer(BrokerFixture())
    stream = peer.create()
    peer.append(stream, b"zero")
    peer.feed(m.AppendEvents(stream, [b"another"], 0))
    (refused,) = peer.responses()
    assert isinstance(refused.payload, m.ErrorResponse) and refused.payload.code is ErrorCode.OFFSET_MISMATCH
