"""Before a login that is needed, a client may ask a few times, at every door that has one; then it is closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.blipmq.peer import HELLO
from tests.doors.blipmq.peer import Peer as BlipMqPeer
from tests.doors.felix.peer import Peer as FelixPeer
from tests.doors.felix.peer import frame, publish
from tests.doors.flymq.peer import Peer as FlyMqPeer
from tests.doors.kimberlite.peer import Peer as KimberlitePeer
from tests.doors.rustlog.peer import Peer as RustLogPeer

from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy, Grant, Permission
from penstock.broker.security.key import KeyTerms
from penstock.doors.login_allowance import LOGINS
from penstock.wire.blipmq import codec
from penstock.wire.flymq import messages as flymq
from penstock.wire.flymq.codec import requests
from penstock.wire.kimberlite import messages as m
from penstock.wire.rustlog import messages as rustlog

REQUESTS = Limits().login_requests
WRONG = "a-token-that-nobody-has-made-0123456789"


def secured(*grants: Grant) -> BrokerFixture:
    return BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION, *grants]))


def test_flymq_tells_why_and_closes() -> None:
    peer = FlyMqPeer(secured())
    replies = peer.all(*[flymq.WhoAmI()] * (REQUESTS + 10))
    assert len(replies) == REQUESTS + 1 and peer.closed
    assert isinstance(replies[-2], flymq.CurrentUser)
    assert replies[-1] == flymq.Failure("authentication required")


def test_flymq_has_no_limit_for_those_who_are_known() -> None:
    fixture = secured()
    peer = FlyMqPeer(fixture, ADMINISTRATOR)
    assert len(peer.all(*[flymq.WhoAmI()] * (2 * REQUESTS))) == 2 * REQUESTS and not peer.closed


def test_strangers_that_have_grants_are_not_closed() -> None:
    for grant in (Grant("anonymous", frozenset({Permission.READ})), Grant("*", frozenset({Permission.DESCRIBE}))):
        peer = FlyMqPeer(secured(grant))
        assert len(peer.all(*[flymq.WhoAmI()] * (2 * REQUESTS))) == 2 * REQUESTS and not peer.closed


def test_with_security_off_nobody_is_closed() -> None:
    peer = FlyMqPeer(BrokerFixture())
    assert len(peer.all(*[flymq.WhoAmI()] * (2 * REQUESTS))) == 2 * REQUESTS and not peer.closed


def test_a_frame_that_is_larger_than_all_logins_is_not_even_received() -> None:
    peer = FlyMqPeer(secured())
    frame = requests.encode(flymq.Produce("t", None, bytes(1 << 20)))
    for at in range(0, len(frame), 100_000):
        if not peer.closed:
            peer.feed(frame[at : at + 100_000])
    assert peer.closed and peer.session.held_bytes == 0 and at >= Limits().login_bytes


def test_blipmq_tells_why_and_closes() -> None:
    peer = BlipMqPeer(secured(), version=0)
    replies = peer.ask(HELLO, *[codec.encode_ping(number) for number in range(REQUESTS + 10)])
    assert len(replies) == REQUESTS + 1 and peer.closed
    assert replies[-1].startswith("NACK") and "login required" in replies[-1]


def test_blipmq_has_no_limit_after_a_login_that_came_with_requests() -> None:
    fixture = secured()
    new, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("k", DEFAULT_SCOPE.tenant, [Permission.READ]))
    fixture.commit()
    peer = BlipMqPeer(fixture, version=0)
    pings = [codec.encode_ping(number) for number in range(20_000)]
    assert len(peer.ask(HELLO, codec.encode_auth(2, new.secret), *pings)) == 20_002 and not peer.closed


def test_kimberlite_tells_why_and_closes() -> None:
    peer = KimberlitePeer(secured(), greets=False)
    replies = peer.all(*[m.GetServerInfo()] * (REQUESTS + 10))
    assert len(replies) == REQUESTS + 1 and peer.closed
    assert isinstance(replies[-1], m.ErrorResponse) and replies[-1].code is m.ErrorCode.AUTHENTICATION_FAILED
    assert "login required" in replies[-1].message


def test_felix_closes_the_connection_for_what_all_its_streams_ask() -> None:
    peer = FelixPeer(secured())
    for number in range(REQUESTS + 1):
        assert not peer.line.dead
        peer.stream().send_all(frame(publish(b"x", number)))
    assert peer.line.dead


@pytest.mark.parametrize("grants", [(), (Grant("anonymous", frozenset({Permission.READ})),)])
def test_rustlog_has_no_login_and_is_only_served_more_slowly(grants: tuple[Grant, ...]) -> None:
    peer = RustLogPeer(secured(*grants))
    assert peer.ask_all(*[rustlog.Ping()] * (10 * REQUESTS)) == [rustlog.Pong()] * (10 * REQUESTS)
    assert not peer.closed


# -- logins in vain: to check a secret takes longer than anything else that a stranger may ask


def flymq_logins(fixture: BrokerFixture) -> tuple[int, bool]:
    peer = FlyMqPeer(fixture)
    for _ in range(3 * LOGINS):
        if not peer.closed:
            peer.feed(flymq.Authenticate("alice", "wrong"))
            fixture.commit()
    return len(peer.frames()), peer.closed


def blipmq_logins(fixture: BrokerFixture) -> tuple[int, bool]:
    peer = BlipMqPeer(fixture, version=0)
    replies = peer.ask(HELLO, *[codec.encode_auth(number, WRONG) for number in range(2, 3 * LOGINS)])
    return len(replies) - 1, peer.closed  # the first is for HELLO


def kimberlite_logins(fixture: BrokerFixture) -> tuple[int, bool]:
    peer = KimberlitePeer(fixture, greets=False)
    return len(peer.all(*[m.Handshake(peer.wire.version, WRONG)] * (3 * LOGINS))), peer.closed


def felix_logins(fixture: BrokerFixture) -> tuple[int, bool]:
    peer, asked = FelixPeer(fixture), 0
    for _ in range(3 * LOGINS):
        if not peer.line.dead:
            peer.stream().send_all(frame({"type": "auth", "tenant_id": "t1", "token": WRONG, "client_flags": 0}))
            asked += 1
    return asked, peer.line.dead


@pytest.mark.parametrize("grants", [(), (Grant("anonymous", frozenset({Permission.READ})),)])
@pytest.mark.parametrize("door", [flymq_logins, blipmq_logins, kimberlite_logins, felix_logins])
def test_a_connection_that_logs_in_again_and_again_in_vain_is_closed(
    door: Callable[[BrokerFixture], tuple[int, bool]], grants: tuple[Grant, ...]
) -> None:
    answered, closed = door(secured(*grants))
    assert closed and answered <= LOGINS + 1


def test_mistakes_before_a_login_are_forgotten() -> None:
    fixture = secured()
    new, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("k", DEFAULT_SCOPE.tenant, [Permission.READ]))
    fixture.commit()
    peer = BlipMqPeer(fixture, version=0)
    wrong = [codec.encode_auth(number, WRONG) for number in range(2, 5)]
    replies = peer.ask(HELLO, *wrong, codec.encode_auth(9, new.secret), *[codec.encode_ping(10)] * (2 * REQUESTS))
    assert len(replies) == 5 + 2 * REQUESTS and not peer.closed
