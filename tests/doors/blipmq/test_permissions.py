"""Each frame is denied to one who lacks the permission that the table of handlers names."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.blipmq.peer import Peer
from tests.doors.permissions import without

from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy
from penstock.doors.blipmq.handlers.table import HANDLERS
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f

UNKNOWN = "NACK 1 404 unknown subscription or delivery tag"
OPEN_TO_ALL = {f.HELLO, f.AUTH, f.NACK, f.PING, f.PONG}  # about the connection itself


def test_only_frames_about_the_connection_need_no_permission() -> None:
    assert {kind for kind, handler in HANDLERS.items() if handler.permission is None} == OPEN_TO_ALL


@pytest.mark.parametrize("kind", sorted(HANDLERS.keys() - OPEN_TO_ALL), ids=lambda kind: f.FrameType(kind).name)
def test_a_frame_is_denied_without_its_permission(kind: int) -> None:
    fixture = BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION]))
    fixture.broker.keys.authenticate = lambda *_: ADMINISTRATOR  # type: ignore[method-assign] # keys are tested elsewhere
    peer, permission = Peer(fixture), HANDLERS[kind].permission
    queue = peer.subscribe()
    peer.ask(codec.encode_publish(5, 1, b"t", b"v", None))
    denied = {
        f.PUBLISH: (codec.encode_publish(5, 1, b"t", b"v", None), ["NACK 5 401 'admin@socket' may not write 't'"]),
        f.SUBSCRIBE: (codec.encode_subscribe(6, b"t", 1), ["NACK 6 401 'admin@socket' may not read 't'"]),
        f.POLL: (codec.encode_poll(3, queue), []),  # a POLL of an unknown subscription is silent
        f.ACK: (codec.encode_ack(1, queue), [UNKNOWN]),
    }
    frame, replies = denied[kind]
    assert permission is not None
    if kind == f.ACK:
        peer.ask(codec.encode_poll(3, queue))  # so that there is something to acknowledge
    with without(permission):
        assert peer.ask(frame) == replies
    assert peer.ask(frame) != replies
