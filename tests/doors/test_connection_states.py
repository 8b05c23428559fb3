"""Every state of a connection with every input, at every door: the table of `doors/session`, and what a peer sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.blipmq.peer import Peer as BlipMqPeer
from tests.doors.felix.peer import Peer as FelixPeer
from tests.doors.felix.peer import frame, publish
from tests.doors.flymq.peer import Peer as FlyMqPeer
from tests.doors.kimberlite.peer import Peer as KimberlitePeer
from tests.doors.rustlog.peer import Peer as RustLogPeer

from penstock.doors.session import TRANSITIONS, ConnectionEvent, ConnectionState
from penstock.wire.blipmq import codec
from penstock.wire.flymq import messages as flymq
from penstock.wire.flymq.codec import requests
from penstock.wire.kimberlite import messages as kimberlite
from penstock.wire.rustlog import messages as rustlog

OPEN, DRAINING, CLOSED = ConnectionState


def rustlog_door(fixture: BrokerFixture) -> tuple[Any, bytes, bytes]:
    peer = RustLogPeer(fixture)
    return peer, peer.encode(rustlog.CreateTopic("t", 1)), b"\0\0\0\0"


def blipmq_door(fixture: BrokerFixture) -> tuple[Any, bytes, bytes]:
    return BlipMqPeer(fixture), codec.encode_subscribe(7, b"t", 1), b"\0\0\0\0"


def flymq_door(fixture: BrokerFixture) -> tuple[Any, bytes, bytes]:
    return FlyMqPeer(fixture), requests.encode(flymq.CreateTopic("t", 1)), b"not a frame"


def kimberlite_door(fixture: BrokerFixture) -> tuple[Any, bytes, bytes]:
    peer = KimberlitePeer(fixture)
    create = kimberlite.CreateStream("t", kimberlite.DataClass.PUBLIC, kimberlite.Everywhere())
    return peer, peer.frame(create), b"not a frame at all"


def felix_door(fixture: BrokerFixture) -> tuple[Any, bytes, bytes]:
    return FelixPeer(fixture).stream(), frame(publish(b"x", 1)), b""


DOORS: dict[str, Callable[[BrokerFixture], tuple[Any, bytes, bytes]]] = {
    "rustlog": rustlog_door,
    "blipmq": blipmq_door,
    "flymq": flymq_door,
    "kimberlite": kimberlite_door,
    "felix": felix_door,
}
"""A peer, a request whose reply waits for a commit, and bytes that are no request (at Felix's door none: there a stream
is not the connection)."""

every_door = pytest.mark.parametrize("name", DOORS)
every_state = pytest.mark.parametrize("state", ConnectionState)


def in_state(name: str, state: ConnectionState) -> tuple[BrokerFixture, Any, bytes, bytes]:
    """A connection with one request that waits for its commit, then in this state."""
    fixture = BrokerFixture()
    peer, request, garbage = DOORS[name](fixture)
    peer.session.receive(request)
    peer.sent.clear()
    if state is not OPEN:
        peer.session.end_of_input()
    if state is CLOSED:
        fixture.commit()
        assert peer.closed
        peer.sent.clear()
    assert peer.session.state is state
    return fixture, peer, request, garbage


@every_door
@every_state
@pytest.mark.parametrize("event", ConnectionEvent)
def test_every_event_leads_where_the_table_says(name: str, state: ConnectionState, event: ConnectionEvent) -> None:
    fixture, peer, _, _ = in_state(name, state)
    session = peer.session
    following = TRANSITIONS[state].get(event)
    if event is ConnectionEvent.DRAINED:
        fixture.commit()  # everything is answered, and the answers are out
        assert session.state is (OPEN if following is None else CLOSED)
        return
    assert following is not None
    if event is ConnectionEvent.END_OF_INPUT:
        session.end_of_input()
    elif event is ConnectionEvent.STOP:
        session.stop()
    elif event is ConnectionEvent.VIOLATION:
        session.reject_input()
    else:
        session.lost()
    assert session.state is following


@every_door
@every_state
def test_input_is_read_only_while_the_connection_is_open(name: str, state: ConnectionState) -> None:
    fixture, peer, request, _ = in_state(name, state)
    held = peer.session.held_bytes
    if state is OPEN:
        peer.session.receive(request)
        assert peer.session.held_bytes > held
    else:
        peer.session.receive(request)
        assert peer.session.held_bytes == held
    fixture.commit()
    assert (peer.sent != []) is (state is not CLOSED)
    assert peer.closed is (state is not OPEN)


@every_door
@every_state
def test_after_a_loss_nothing_is_sent_and_nothing_is_held(name: str, state: ConnectionState) -> None:
    fixture, peer, _, _ = in_state(name, state)
    was_closed = peer.closed
    peer.session.lost()
    fixture.commit()
    peer.session.receive(b"x")
    peer.session.end_of_input()
    peer.session.stop()
    assert (peer.sent, peer.closed, peer.session.held_bytes) == ([], was_closed, 0)


@pytest.mark.parametrize("name", [name for name in DOORS if name != "felix"])
def test_after_bytes_that_are_no_request_what_came_before_is_answered_and_the_connection_closes(name: str) -> None:
    fixture, peer, _, garbage = in_state(name, OPEN)
    peer.session.receive(garbage)
    assert peer.session.state is DRAINING
    assert not peer.closed
    fixture.commit()
    assert peer.sent != []
    assert peer.closed


@every_door
@pytest.mark.parametrize("ending", ["end_of_input", "lost"])
def test_a_connection_that_has_ended_holds_nothing_of_a_frame_that_was_cut_off(name: str, ending: str) -> None:
    fixture = BrokerFixture()
    peer, request, _ = DOORS[name](fixture)
    peer.session.receive(request + request[:-1])
    getattr(peer.session, ending)()
    fixture.commit()
    assert peer.session.state is CLOSED
    assert peer.session.held_bytes == 0
