"""Authentication over HTTP: passwords, keys, tokens or nothing, with the lock-out and the audit of all doors."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.http.peer import Peer, basic

from penstock.broker.limits import Limits
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy, Permission
from penstock.broker.security.audit import AuditPolicy
from penstock.broker.security.audit_event import AuditQuery
from penstock.broker.security.key import KeyTerms
from penstock.doors.http.replies import HttpReply, Outcome
from penstock.doors.http.router import Request, Route, Router

WORD = "correct horse"


def whoami(request: Request) -> Outcome:
    return HttpReply(200, f"{request.identity.name} of {request.identity.tenant} in {request.tenant}".encode())


@pytest.fixture
def fixture() -> BrokerFixture:
    one = BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION]), audit=AuditPolicy(enabled=True))
    for tenant in ("default", "acme"):
        work = one.broker.users.create(ADMINISTRATOR, tenant, "alice", WORD, ("admin",))
        work.run()
        work.finish()
    one.commit()
    return one


def connect(fixture: BrokerFixture) -> Peer:
    route = Route("GET", "/who", whoami, "Who is asking.")

    def only_known(request: Request) -> Outcome:
        fixture.broker.users.list(request.identity, request.tenant)
        return HttpReply(200, b"")

    return Peer(fixture, Router(fixture.broker, [route, Route("GET", "/users", only_known, "All users.")]))


def said(fixture: BrokerFixture, tenant: str = "default") -> list[str]:
    fixture.broker.audit.flush()
    fixture.commit()
    work = fixture.broker.audit.query(ADMINISTRATOR, tenant, AuditQuery())
    work.run()
    return [event.type for event in work.finish().events if event.type.startswith("auth.")]


def test_a_user_is_looked_for_in_the_tenant_of_the_address(fixture: BrokerFixture) -> None:
    peer = connect(fixture)
    assert peer.ask("GET", "/who", authorization=basic("alice", WORD)).body == b"user:alice of default in default"
    assert peer.ask("GET", "/who?tenant=acme", authorization=basic("alice", WORD)).body == b"user:alice of acme in acme"
    assert peer.ask("GET", "/who?tenant=none", authorization=basic("alice", WORD)).status == 401


def test_a_login_is_audited_once_for_a_connection(fixture: BrokerFixture) -> None:
    peer = connect(fixture)
    for _ in range(3):
        assert peer.ask("GET", "/who", authorization=basic("alice", WORD)).status == 200
    assert said(fixture) == ["auth.success"]
    assert peer.ask("GET", "/who", authorization=basic("alice", "battery staple")).status == 401
    assert "auth.failure" in said(fixture)


@pytest.mark.parametrize("header", ["authorization", "x_api_key"])
def test_a_key_is_taken_in_two_headers_and_brings_its_tenant(fixture: BrokerFixture, header: str) -> None:
    new, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("k", "acme", [Permission.READ]))
    fixture.commit()
    value = f"Bearer {new.secret}" if header == "authorization" else str(new.secret)
    assert connect(fixture).ask("GET", "/who", **{header: value}).body == b"key:1 of acme in acme"
    answer = connect(fixture).ask("GET", "/who", **{header: value + "x"})
    assert answer.status == 401 and answer.code == "wrong_credentials"
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_revoked_key_may_do_nothing_on_a_connection_that_remembers_it(fixture: BrokerFixture) -> None:
    new, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("k", "default", [Permission.ADMIN]))
    fixture.commit()
    peer = connect(fixture)
    assert peer.ask("GET", "/users", x_api_key=str(new.secret)).status == 200
    fixture.broker.keys.revoke(ADMINISTRATOR, new.key.id)
    fixture.commit()
    assert peer.ask("GET", "/users", x_api_key=str(new.secret)).status == 403


def test_nobody_may_ask_a_few_times_and_is_then_closed(fixture: BrokerFixture) -> None:
    peer = connect(fixture)
    for _ in range(Limits().login_requests):
        answer = peer.ask("GET", "/users")
        assert (answer.status, answer.code) == (401, "login_required") and not peer.closed
    assert peer.ask("GET", "/users").status == 401
    assert peer.closed


def test_wrong_passwords_lock_out_and_close(fixture: BrokerFixture) -> None:
    statuses = [connect(fixture).ask("GET", "/who", authorization=basic("alice", f"x{n}")).status for n in range(30)]
    assert statuses[0] == 401 and statuses[-1] == 429
    peer = connect(fixture)
    assert peer.ask("GET", "/who", authorization=basic("alice", WORD)).code == "locked_out"
    assert "auth.lockout" in said(fixture) or "auth.failure" in said(fixture)


@pytest.mark.parametrize(
    ("value", "status"), [("Basic !!", 400), ("Basic YWxpY2U=", 400), ("Digest x", 401), ("Bearer", 401), ("x", 401)]
)
def test_credentials_that_are_none_are_refused(fixture: BrokerFixture, value: str, status: int) -> None:
    assert connect(fixture).ask("GET", "/who", authorization=value).status == status


def test_with_security_off_everybody_is_taken() -> None:
    peer = connect(BrokerFixture())
    assert peer.ask("GET", "/who").body == b"anonymous of None in default"
    assert peer.ask("GET", "/who", authorization=basic("x", "y")).body == b"anonymous of None in default"
