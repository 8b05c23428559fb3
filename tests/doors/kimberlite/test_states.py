"""Every state of a connection with every kind of request: before the handshake nothing is served."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.kimberlite.asking import ABOUT, Target
from tests.doors.kimberlite.peer import TENANT, Peer

from penstock.broker.security.access import ADMINISTRATION, AccessPolicy
from penstock.doors.kimberlite.states import TABLE, Action, Input, State
from penstock.wire.kimberlite import messages as m


def peer_in(state: State, *, enforced: bool = False) -> Peer:
    fixture = BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION])) if enforced else BrokerFixture()
    peer = Peer(fixture, greets=state is State.GREETED)
    assert peer.session._context.state is state  # type: ignore[attr-defined]
    return peer


def test_the_table_has_every_state_and_every_input() -> None:
    assert TABLE.keys() == set(State)
    assert all(row.keys() == set(Input) for row in TABLE.values())


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", ABOUT, ids=lambda kind: kind.__name__)
def test_every_request_in_every_state(state: State, kind: type[m.Message]) -> None:
    peer = peer_in(state)
    action = TABLE[state][Input.HANDSHAKE if kind is m.Handshake else Input.REQUEST]
    reply = peer.ask(ABOUT[kind](Target(TENANT, 1))[0])
    refused = isinstance(reply, m.ErrorResponse) and reply.message == "handshake required"
    assert refused is (action is Action.REFUSE)
    greeted = state is State.GREETED or action is Action.GREET
    assert peer.session._context.state is (State.GREETED if greeted else State.NEW)  # type: ignore[attr-defined]
    assert not peer.closed


def test_a_handshake_that_is_not_accepted_changes_no_state() -> None:
    peer = peer_in(State.NEW, enforced=True)
    for token in ("psk_9_wrong", None):
        peer.ask(m.Handshake(5, token))
        assert peer.session._context.state is State.NEW  # type: ignore[attr-defined]
        refused = peer.refused(m.GetServerInfo())
        assert (refused.code, refused.message) == (m.ErrorCode.AUTHENTICATION_FAILED, "authentication required")
