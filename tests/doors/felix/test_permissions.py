"""Tokens as Felix's own issuer makes them, at its door: each action of `perms`, where it holds and where not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.broker_fixture import START, BrokerFixture
from tests.doors.felix.peer import TENANT, Peer, Stream, auth, b64, batch

from penstock.broker.names import Scope
from penstock.broker.security import token_keys
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy, Grant, Identity, Permission
from penstock.broker.security.token import TokenPolicy

NOW = START // 1_000_000  # s
PAIR = token_keys.new_key_pair()
SIGNER = token_keys.read("issuer", PAIR.private, signing=True)
PUBLIC = token_keys.read("issuer", PAIR.public)


def names(kind: str, tenant: str = TENANT, namespace: str = "default", name: str = "orders") -> dict[str, Any]:
    return {"tenant_id": tenant, "namespace": namespace, kind: name}


def requests(**where: str) -> dict[str, dict[str, Any]]:
    """The actions that requests take, in the original."""
    stream, cache = names("stream", **where), names("cache", **where)
    return {
        "stream.publish": {"type": "publish", **stream, "payload": b64(b"x"), "request_id": 1},
        "stream.subscribe": {"type": "subscribe", **stream},
        "cache.read": {"type": "cache_get", **cache, "key": "k", "request_id": 2},
        "cache.write": {"type": "cache_put", **cache, "key": "k", "value": b64(b"v"), "request_id": 3, "ttl_ms": None},
    }


def kind_of(action: str) -> str:
    return action.partition(".")[0]


def token(*perms: str, **changed: Any) -> str:
    claims = {"iss": "felix-auth", "aud": "felix-broker", "sub": "alice", "tid": TENANT, "exp": NOW + 3600, "iat": NOW,
              "perms": list(perms), **changed}  # fmt: skip
    return token_keys.sign(claims, SIGNER)


def fixture() -> BrokerFixture:
    made = BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION]), tokens=TokenPolicy((PUBLIC,)))
    for tenant, namespace, name in ((TENANT, "default", "orders"), (TENANT, "default", "other"),
                                    (TENANT, "n2", "orders"), ("t2", "default", "orders")):  # fmt: skip
        made.broker.topics.create(ADMINISTRATOR, Scope(tenant, namespace), name, 1)
    made.commit()
    return made


def entered(peer: Peer, secret: str) -> Stream:
    stream = peer.stream()
    assert stream.ask(auth(TENANT, secret)) == {"type": "auth_ok", "server_flags": 63}
    return stream


ELSEWHERE: list[dict[str, str]] = [{"name": "other"}, {"namespace": "n2"}, {"tenant": "t2"}]


@pytest.mark.parametrize("action", requests())
def test_an_action_is_allowed_where_the_token_says_and_nothing_else_is(action: str) -> None:
    peer = Peer(fixture())
    secret = token(f"{action}:{kind_of(action)}:{TENANT}/default/orders")
    for asked, request in requests().items():
        reply = entered(peer, secret).ask(request)
        refused = reply.get("message") == "forbidden" if isinstance(reply, dict) else True
        assert refused is (asked != action), reply
    for where in ELSEWHERE:
        reply = entered(peer, secret).ask(requests(**where)[action])
        assert reply["message"] == ("tenant mismatch" if "tenant" in where else "forbidden")


@pytest.mark.parametrize("action", requests())
@pytest.mark.parametrize("pattern", ["{kind}:t1/default/*", "{kind}:t1/*", "{kind}:t1/*/orders", "{kind}:*", "*"])
def test_a_pattern_reaches_as_far_as_it_says(action: str, pattern: str) -> None:
    peer = Peer(fixture())
    secret = token(f"{action}:{pattern.format(kind=kind_of(action))}")
    assert "message" not in entered(peer, secret).ask(requests()[action])
    other = entered(peer, secret).ask(requests(namespace="n2", name="other")[action])
    assert ("message" in other) is (pattern in ("{kind}:t1/default/*", "{kind}:t1/*/orders") or action == MAKES_NONE)


MAKES_NONE = "stream.subscribe"  # there is no n2/other, and who only reads does not make it


def test_who_may_publish_makes_the_stream_and_its_tenant_also_in_a_namespace_of_its_own() -> None:
    peer = Peer(fixture())
    stream = peer.stream()
    stream.ask(auth("t9", token("stream.publish:stream:t9/n9/*", tid="t9")))
    request = requests(tenant="t9", namespace="n9")["stream.publish"]
    assert stream.ask(request) == {"type": "publish_ok", "request_id": 1}
    assert peer.fixture.broker.topics.exists(Scope("t9", "n9"), "orders")


def test_nothing_is_allowed_once_the_token_has_expired_on_streams_that_are_open_either() -> None:
    peer = Peer(fixture())
    secret = token("stream.publish:*", "cache.write:*", exp=NOW + 10)
    streams = [entered(peer, secret) for _ in range(3)]
    assert streams[0].ask(requests()["stream.publish"])["type"] == "publish_ok"
    peer.fixture.pass_time(70)  # and the leeway
    for stream, action in zip(streams, ("stream.publish", "stream.publish", "cache.write"), strict=True):
        assert stream.ask(requests()[action])["message"] == "forbidden"
    assert peer.stream().ask(auth(TENANT, secret)) == {"type": "error", "message": "auth failed"}


def test_a_token_of_another_tenant_opens_nothing() -> None:
    peer = Peer(fixture())
    for tenant, tid in ((TENANT, "t2"), ("t2", TENANT)):
        reply = peer.stream().ask(auth(tenant, token("stream.publish:*", tid=tid)))
        assert reply == {"type": "error", "message": "auth failed"}


def test_a_batch_is_checked_like_a_message() -> None:
    peer = Peer(fixture())
    stream = entered(peer, token("stream.publish:stream:t1/default/orders"))
    good, bad = stream.all(batch(b"x", request_id=1), batch(b"x", request_id=2, stream="other"))
    assert (good.payload[0], bad.payload[0], bad.payload[11:]) == (0, 1, b"forbidden")  # type: ignore[union-attr]


def test_an_empty_batch_takes_permission_too() -> None:
    peer = Peer(fixture())
    stream = entered(peer, token("stream.publish:stream:t1/default/orders"))
    good, bad = stream.all(batch(request_id=1), batch(request_id=2, stream="other"))
    assert (good.payload[0], bad.payload[0], bad.payload[11:]) == (0, 1, b"forbidden")  # type: ignore[union-attr]


def test_no_tenant_comes_into_being_for_a_stream_that_may_not() -> None:
    grants = [
        ADMINISTRATION,
        Grant("bob", frozenset({Permission.WRITE}), "t9"),
        Grant("bob", frozenset({Permission.CREATE}), "t9", topic="other*"),
    ]
    peer = Peer(BrokerFixture(access=AccessPolicy(True, grants)), identity=Identity("bob"))
    asked = requests(tenant="t9")["stream.publish"]
    assert "unauthorized" in peer.stream().ask(asked)["message"]
    assert not peer.fixture.broker.tenants.exists("t9")
    assert peer.stream().ask({**asked, "stream": "other"})["type"] == "ok"
