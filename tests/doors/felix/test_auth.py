"""Permissions at this door: security on, and `auth` with keys and tokens."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.broker_fixture import START, BrokerFixture
from tests.doors.felix.peer import NAMES, TENANT, Binary, Peer, Stream, ack, auth, batch, publish, values

from penstock.broker.names import Scope
from penstock.broker.security import token_keys
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, Access, Grant, Permission
from penstock.broker.security.audit_event import AuditPolicy, AuditQuery
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.security.token import TokenPolicy

NOW = START // 1_000_000  # s
SHARED = token_keys.read("shared", b"0123456789abcdef0123456789abcdef")
HERE = Scope(TENANT, "default")
READ, WRITE, CREATE = Permission.READ, Permission.WRITE, Permission.CREATE
SUBSCRIBE = {"type": "subscribe", **NAMES}


def secured(*grants: Grant, **options: Any) -> BrokerFixture:
    access = Access(True, [ADMINISTRATION, *grants])
    return BrokerFixture(access=access, tokens=TokenPolicy((SHARED,)), **options)


def key(
    fixture: BrokerFixture, *permissions: Permission, tenant: str = TENANT, topics: tuple[str, ...] = ("*",)
) -> str:
    new, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("test", tenant, permissions, topics))
    fixture.commit()
    return new.secret


def token(*roles: str, tenant: str = TENANT, seconds: int = 3600) -> str:
    claims = {"sub": "alice", "tenant_id": tenant, "roles": roles or ("User",), "exp": NOW + seconds, "iat": NOW}
    return token_keys.sign(claims, SHARED)


def entered(peer: Peer, secret: str, tenant: str = TENANT) -> Stream:
    stream = peer.stream()
    assert stream.ask(auth(tenant, secret))["type"] == "auth_ok"
    return stream


def said(reply: Any) -> str:
    if isinstance(reply, Binary):
        return reply.payload[11:].decode()
    assert reply["type"] in ("error", "publish_error"), reply
    text: str = reply["message"]
    return text


# -- who is let in


def test_a_key_and_a_token_are_taken() -> None:
    fixture = secured()
    for secret in (key(fixture, WRITE, CREATE), token("Admin")):
        stream = entered(Peer(fixture), secret)
        assert stream.ask(publish(b"x", 1)) == {"type": "publish_ok", "request_id": 1}
    assert values(fixture) == [b"x", b"x"]


@pytest.mark.parametrize("secret", ["", "nonsense", "psk_" + "0" * 40, "eyJ.a.b", "x" * 100_000, "\0\ud7ff"])
def test_a_wrong_token_is_refused_and_the_stream_ends(secret: str) -> None:
    peer = Peer(secured())
    stream = peer.stream()
    (reply,) = stream.all(auth(token=secret), publish(b"x", 1))
    assert reply == {"type": "error", "message": "auth failed"}
    assert stream.finished
    uni = peer.stream(uni=True)
    uni.feed(auth(token=secret), batch(b"x"))
    assert (uni.refused_with, uni.finished) == (0, True)
    assert not peer.fixture.broker.topics.exists(HERE, "orders")


def test_a_token_of_another_tenant_is_refused() -> None:
    fixture = secured()
    for secret in (key(fixture, WRITE, CREATE, tenant="t2"), token("Admin", tenant="t2")):
        stream = Peer(fixture).stream()
        assert said(stream.ask(auth(token=secret))) == "auth failed"
        assert stream.finished
        assert entered(Peer(fixture), secret, "t2").ask(publish(b"x", 1, tenant_id="t2"))["type"] == "publish_ok"


def test_a_token_that_has_expired_is_refused_and_one_that_expires_ends_its_rights() -> None:
    fixture = secured()
    assert said(Peer(fixture).stream().ask(auth(token=token(seconds=-100)))) == "auth failed"
    stream = entered(Peer(fixture), token("Admin", seconds=60))
    assert stream.ask(publish(b"x", 1))["type"] == "publish_ok"
    fixture.pass_time(120)
    assert said(stream.ask(publish(b"y", 2))) == "forbidden"


def test_who_tries_too_often_is_locked_out() -> None:
    fixture = secured(lockout=LockoutPolicy(failures=3, seconds=60))
    good = key(fixture, WRITE)
    peer = Peer(fixture)
    for _ in range(3):
        assert said(peer.stream().ask(auth(token="wrong"))) == "auth failed"
    assert said(peer.stream().ask(auth(token="wrong"))).startswith("auth failed: too many wrong tokens")
    entered(peer, good)  # who guesses is hit, and nobody else
    fixture.pass_time(61)
    assert said(peer.stream().ask(auth(token="wrong"))) == "auth failed"


def test_attempts_are_in_the_audit_log() -> None:
    fixture = secured(audit=AuditPolicy(enabled=True))
    peer = Peer(fixture)
    entered(peer, key(fixture, WRITE))
    peer.stream().ask(auth(token="wrong"))
    entered(peer, key(fixture, READ)).ask(publish(b"x", 1))
    fixture.commit()
    found = []
    for tenant in ("default", TENANT):
        work = fixture.broker.audit.query(ADMINISTRATOR, tenant, AuditQuery())
        work.run()
        found += [event.type for event in work.finish().events]
    assert {"auth.success", "auth.failure", "access.denied"} <= set(found)


def test_each_stream_is_let_in_by_itself() -> None:
    fixture = secured()
    peer = Peer(fixture)
    entered(peer, key(fixture, WRITE, CREATE))
    bare = peer.stream()
    assert said(bare.ask(publish(b"x"))).startswith("unauthorized: ")
    assert not fixture.broker.topics.exists(HERE, "orders")


def test_with_security_off_anybody_is_let_in_and_bound_to_the_tenant() -> None:
    fixture = BrokerFixture()
    stream = entered(Peer(fixture), "whatever", "t9")
    assert said(stream.ask(publish(b"x", 1, tenant_id="t8"))) == "tenant mismatch"
    assert stream.ask(publish(b"x", 2, tenant_id="t9"))["type"] == "publish_ok"


# -- what is forbidden: in the original's dialect most of it ends the stream


def test_forbidden_json_is_told_and_ends_the_stream() -> None:
    fixture = secured()
    stream = entered(Peer(fixture), key(fixture, READ))
    (reply,) = stream.all(publish(b"x", 1), publish(b"y", 2), SUBSCRIBE)
    assert reply == {"type": "publish_error", "request_id": 1, "message": "forbidden"}
    assert stream.finished


def test_forbidden_binary_with_an_id_is_told_and_the_stream_goes_on() -> None:
    fixture = secured()
    stream = entered(Peer(fixture), key(fixture, READ))
    assert stream.all(batch(b"x", request_id=1), batch(b"y", request_id=2)) == [
        ack(1, "forbidden"),
        ack(2, "forbidden"),
    ]
    assert not stream.finished


@pytest.mark.parametrize("part", [batch(b"x"), publish(b"x", 1, ack="none")])
def test_forbidden_without_an_acknowledgement_ends_the_stream_silently(part: Any) -> None:
    fixture = secured()
    stream = entered(Peer(fixture), key(fixture, READ))
    assert stream.all(part, part, batch(b"y", request_id=2)) == []
    assert stream.finished


@pytest.mark.parametrize(
    "request_", [SUBSCRIBE, {"type": "cache_get", "key": "k", "tenant_id": TENANT, "request_id": 1}]
)
def test_anything_else_that_is_forbidden_is_an_error_and_ends_the_stream(request_: dict[str, Any]) -> None:
    fixture = secured()
    fixture.broker.topics.create(ADMINISTRATOR, HERE, "orders", 1)
    request = {"namespace": "default", "cache": "c", **request_}
    stream = entered(Peer(fixture), key(fixture, WRITE))
    (reply,) = stream.all(request, request)
    assert (reply["type"], reply["message"]) == ("error", "forbidden")  # type: ignore[call-overload]
    assert stream.finished


@pytest.mark.parametrize("part", [publish(b"x", "a"), batch(b"x"), publish(b"x", ack="none"), SUBSCRIBE])
def test_the_document_says_unauthorized_and_goes_on(part: Any) -> None:
    fixture = secured()
    fixture.broker.topics.create(ADMINISTRATOR, HERE, "orders", 1)
    stream = Peer(fixture).stream()
    replies = stream.all(part, part)
    assert len(replies) == 2
    assert all(said(reply).startswith("unauthorized: 'anonymous' may not ") for reply in replies)
    assert not stream.finished


def test_a_forbidden_stream_without_replies_is_refused() -> None:
    fixture = secured()
    peer = Peer(fixture)
    bare, said_ = peer.stream(uni=True), peer.stream(uni=True)
    bare.feed(batch(b"x"))
    said_.feed(auth(token=key(fixture, READ)), batch(b"x"))
    for stream in (bare, said_):
        assert (stream.refused_with, stream.finished) == (0, True)


def test_what_everyone_may_do_needs_no_auth() -> None:
    fixture = secured(Grant("*", frozenset({WRITE, CREATE}), tenant=TENANT, topic="open*"))
    stream = Peer(fixture).stream()
    assert stream.ask(publish(b"x", stream="open")) == {"type": "ok"}
    assert said(stream.ask(publish(b"x", stream="closed"))).startswith("unauthorized: ")
    assert said(stream.ask(publish(b"x", stream="open", tenant_id="t2"))).startswith("unauthorized: ")
    assert values(fixture, "open") == [b"x"]


def test_what_is_forbidden_says_nothing_of_what_there_is() -> None:
    fixture = secured()
    fixture.broker.topics.create(ADMINISTRATOR, HERE, "there", 2)
    for name in ("there", "missing", "there#1", "there#7", "missing#1"):
        stream = entered(Peer(fixture), key(fixture, WRITE, CREATE, topics=("mine",)))
        assert said(stream.ask(publish(b"x", 1, stream=name))) == "forbidden"
    assert not fixture.broker.topics.exists(HERE, "missing")


def test_who_may_write_but_not_create_makes_nothing() -> None:
    fixture = secured()
    stream = entered(Peer(fixture), key(fixture, WRITE))
    assert stream.ask(batch(b"x", request_id=1)) == ack(1, "forbidden")
    assert not fixture.broker.tenants.exists(TENANT)
    fixture.broker.topics.create(ADMINISTRATOR, HERE, "orders", 1)
    assert stream.ask(batch(b"x", request_id=2)) == ack(2)


def test_no_tenant_comes_into_being_for_a_stream_that_may_not() -> None:
    fixture = secured(Grant("*", frozenset({WRITE})), Grant("*", frozenset({CREATE}), topic="open"))
    stream = Peer(fixture).stream()
    assert said(stream.ask(publish(b"x"))).startswith("unauthorized: ")
    assert not fixture.broker.tenants.exists(TENANT)
    assert stream.ask(publish(b"x", stream="open")) == {"type": "ok"}


def test_an_empty_batch_passes_the_check_too() -> None:
    fixture = secured()
    stream = entered(Peer(fixture), key(fixture, READ))
    assert stream.ask(batch(request_id=1)) == ack(1, "forbidden")


def test_a_key_that_is_revoked_ends_the_rights_of_open_streams() -> None:
    fixture = secured()
    secret = key(fixture, WRITE, CREATE)
    stream = entered(Peer(fixture), secret)
    assert stream.ask(batch(b"x", request_id=1)) == ack(1)
    fixture.broker.keys.revoke(ADMINISTRATOR, fixture.broker.keys.find(ADMINISTRATOR, secret).id)
    assert stream.ask(batch(b"y", request_id=2)) == ack(2, "forbidden")
    assert values(fixture) == [b"x"]
