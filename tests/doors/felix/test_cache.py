"""The cache as both dialects have it, and what it has beyond them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.felix.peer import Peer, Stream, auth, b64, frame, original

from penstock.broker.cache.cache_store import CachePolicy
from penstock.broker.limits import Limits
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.doors.felix.request_context import FelixSettings

SCOPE = {"tenant_id": "t1", "namespace": "default", "cache": "primary"}
JOURNALLED = CachePolicy(journalled=("*/*/primary",))


def put(key: str, value: bytes, request_id: object = None, ttl_ms: object = None, **more: object) -> dict[str, Any]:
    return _message("cache_put", key, request_id, value=b64(value), ttl_ms=ttl_ms, **more)


def get(key: str, request_id: object = None, **more: object) -> dict[str, Any]:
    return _message("cache_get", key, request_id, **more)


def delete(key: str, request_id: object = None, **more: object) -> dict[str, Any]:
    return _message("cache_delete", key, request_id, **more)


def cas(key: str, expected: bytes | None, value: bytes, request_id: object = None, **more: object) -> dict[str, Any]:
    old = None if expected is None else b64(expected)
    return _message("cache_cas", key, request_id, expected=old, value=b64(value), **more)


def increment(key: str, request_id: object = None, **more: object) -> dict[str, Any]:
    return _message("cache_increment", key, request_id, **more)


def _message(kind: str, key: str, request_id: object, **more: object) -> dict[str, Any]:
    message = {"type": kind, "key": key, **more}
    return message if request_id is None else {**message, "request_id": request_id}


def document(settings: FelixSettings | None = None, **options: Any) -> Stream:
    return Peer(BrokerFixture(**options), settings).stream()


def kinds(replies: list[Any]) -> list[tuple[object, ...]]:
    return [(reply["type"], reply.get("request_id")) for reply in replies]


# -- the document's dialect


def test_put_and_get_as_in_the_document() -> None:
    stream = document()
    assert stream.ask(put("k", b"v", "1")) == {"type": "ok", "request_id": "1"}
    assert stream.ask(get("k", "2")) == {"type": "cache_value", "key": "k", "value": b64(b"v"), "request_id": "2"}
    assert stream.ask(get("x", "3")) == {"type": "cache_value", "key": "x", "value": None, "request_id": "3"}


@pytest.mark.parametrize("request_id", ["one", "", 7, 0, None])
def test_an_id_comes_back_as_it_was_and_none_is_answered_too(request_id: object) -> None:
    stream = document()
    replies = stream.all(put("k", b"v", request_id), get("k", request_id), delete("k", request_id))
    assert kinds(replies) == [("ok", request_id), ("cache_value", request_id), ("ok", request_id)]


def test_a_value_is_null_from_the_end_of_its_time_on() -> None:
    stream = document()
    fixture = stream.line.fixture
    stream.ask(put("k", b"v", ttl_ms=100))
    fixture.pass_time(0.099_999)
    assert stream.ask(get("k"))["value"] == b64(b"v")
    fixture.pass_time(0.000_001)
    assert stream.ask(get("k"))["value"] is None
    stream.all(put("k", b"v"), put("k", b"v", ttl_ms=0))
    assert stream.ask(get("k"))["value"] is None


def test_what_came_at_once_is_answered_in_order_in_one_piece() -> None:
    stream = document()
    requests = [put("k", b"%d" % number, number) for number in range(50)] + [get("k", 50), increment("k", 51)]
    replies = stream.all(*requests)
    assert [reply["request_id"] for reply in replies] == list(range(52))  # type: ignore[call-overload]
    assert [reply["value"] for reply in replies[50:]] == [b64(b"49"), b64(b"50")]  # type: ignore[call-overload]
    assert len(stream.sent) == 1


def test_a_client_that_does_not_read_is_not_answered_without_end() -> None:
    stream = document()
    stream.ask(put("k", bytes(200_000)))
    stream.limit = 0
    stream.feed(*[get("k", number) for number in range(100)])
    assert sum(map(len, stream.sent)) < 2_000_000
    stream.limit = None
    assert len(stream.all(b"")) == 100


def test_a_message_that_names_no_scope_means_that_of_the_configuration() -> None:
    stream = document(FelixSettings(cache_tenant="acme", cache_namespace="eu", cache="c"))
    stream.ask(put("k", b"v"))
    named = {"tenant_id": "acme", "namespace": "eu", "cache": "c"}
    assert stream.ask(get("k", **named)) == {"type": "cache_value", **named, "key": "k", "value": b64(b"v")}
    assert stream.ask(get("k", cache="other"))["value"] is None
    assert stream.ask(get("k", cache="c")) == {"type": "cache_value", "cache": "c", "key": "k", "value": b64(b"v")}


def test_scopes_do_not_see_each_others_keys() -> None:
    stream = document()
    scopes = [{**SCOPE, part: "other"} for part in SCOPE] + [SCOPE]
    for number, scope in enumerate(scopes):
        stream.ask(put("k", b"%d" % number, **scope))
    assert [stream.ask(get("k", **scope))["value"] for scope in scopes] == [b64(b"%d" % n) for n in range(4)]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (put("k", b"", 1, tenant_id="no tenant"), "Tenant name 'no tenant'"),
        (put("k", b"", 1, namespace=""), "Namespace name ''"),
        (get("k", 1, cache="a//b"), "Cache name 'a//b'"),
        (put("k", b"", 1, cache="__own"), "the broker's own"),
        (put("k" * 5_000, b"", 1), "The key is longer than 4096 bytes"),
        (put("k", bytes(1_048_577), 1), "The value of 1048577 bytes is larger than the limit"),
        (put("k", b"", 1, ttl_ms=-1), "ttl_ms"),
        (increment("word", 1), "not a number"),
        (increment("most", 1), "64 bits"),
        (increment("most", 1, by=1 << 64), "by"),
    ],
)
def test_what_cannot_be_done_is_told_and_the_stream_goes_on(request_: dict[str, Any], text: str) -> None:
    stream = document()
    stream.all(put("word", b"w"), put("most", str((1 << 63) - 1).encode()))
    reply = stream.ask(request_)
    assert (reply["type"], reply["request_id"]) == ("error", 1)
    assert text in reply["message"]
    assert stream.ask(get("word", 2))["value"] == b64(b"w")


def test_where_tenants_do_not_come_into_being_a_cache_needs_one() -> None:
    stream = document(FelixSettings(auto_create_tenants=False))
    reply = stream.ask(put("k", b"", 1, **SCOPE))
    assert reply == {"type": "error", "request_id": 1, "message": "cache scope not found: t1/default/primary"}
    assert stream.ask(put("k", b"", 2)) == {"type": "ok", "request_id": 2}
    stream.line.fixture.broker.tenants.create(ANONYMOUS, "t1")
    assert stream.ask(put("k", b"", 3, **SCOPE)) == {"type": "ok", "request_id": 3}


def test_a_tenant_that_asks_too_much_is_told_so() -> None:
    stream = document(limits=Limits(tenant_requests=2))
    replies = stream.all(get("k", 1), get("k", 2), get("k", 3))
    assert kinds(replies) == [("cache_value", 1), ("cache_value", 2), ("error", 3)]


# -- the original's dialect


def test_put_and_get_as_the_originals_clients_want_it() -> None:
    stream = original(Peer(BrokerFixture()))
    assert stream.ask(put("k", b"v", 1, **SCOPE)) == {"type": "cache_ok", "request_id": 1}
    assert stream.ask(get("k", 2, **SCOPE)) == {
        "type": "cache_value", **SCOPE, "key": "k", "value": b64(b"v"), "request_id": 2,
    }  # fmt: skip
    assert stream.ask(get("x", 3, **SCOPE))["value"] is None


def test_without_an_id_there_is_an_answer_and_the_stream_goes_on() -> None:
    stream = original(Peer(BrokerFixture()))
    assert stream.ask(put("k", b"v", **SCOPE)) == {"type": "ok"}
    assert stream.ask(get("k", **SCOPE)) == {"type": "cache_value", **SCOPE, "key": "k", "value": b64(b"v")}
    assert not stream.finished
    stream.feed(get("k", **SCOPE))
    stream.end()
    assert kinds(stream.replies()) == [("cache_value", None)]
    assert stream.finished


def test_another_tenant_than_the_streams_own_is_refused_and_no_tenant_means_its_own() -> None:
    fixture = BrokerFixture()
    stream = original(Peer(fixture))
    assert stream.ask(put("k", b"", 1, **{**SCOPE, "tenant_id": "t2"})) == {
        "type": "error", "request_id": 1, "message": "tenant mismatch",
    }  # fmt: skip
    stream.ask(put("k", b"v", 2))
    assert Peer(fixture).stream().ask(get("k", tenant_id="t1"))["value"] == b64(b"v")


# -- beyond both


@pytest.mark.parametrize("dialect", [document, lambda: original(Peer(BrokerFixture()))])
def test_delete_compare_and_set_and_increment(dialect: Any) -> None:
    stream = dialect()
    stored = "ok" if dialect is document else "cache_ok"
    assert stream.all(
        delete("k", 1), cas("k", b"v", b"w", 2), cas("k", None, b"v", 3), cas("k", None, b"w", 4),
        cas("k", b"v", b"w", 5), delete("k", 6), increment("n", 7), increment("n", 8, by=-43), get("n", 9),
    ) == [
        {"type": stored, "request_id": 1, "deleted": False},
        {"type": "cache_cas_ok", "request_id": 2, "key": "k", "stored": False, "value": None},
        {"type": "cache_cas_ok", "request_id": 3, "key": "k", "stored": True, "value": b64(b"v")},
        {"type": "cache_cas_ok", "request_id": 4, "key": "k", "stored": False, "value": b64(b"v")},
        {"type": "cache_cas_ok", "request_id": 5, "key": "k", "stored": True, "value": b64(b"w")},
        {"type": stored, "request_id": 6, "deleted": True},
        {"type": "cache_value", "key": "n", "value": b64(b"1"), "request_id": 7},
        {"type": "cache_value", "key": "n", "value": b64(b"-42"), "request_id": 8},
        {"type": "cache_value", "key": "n", "value": b64(b"-42"), "request_id": 9},
    ]  # fmt: skip


def test_a_number_keeps_the_time_that_it_was_made_with() -> None:
    stream = document()
    fixture = stream.line.fixture
    stream.all(increment("n", ttl_ms=1_000), put("m", b"1"), cas("c", None, b"v", ttl_ms=1_000))
    fixture.pass_time(0.9)
    stream.all(increment("n", ttl_ms=60_000), increment("m", ttl_ms=1))
    fixture.pass_time(0.1)
    values = [reply["value"] for reply in stream.all(get("n"), get("m"), get("c"))]  # type: ignore[call-overload]
    assert values == [None, b64(b"2"), None]


# -- commits


def test_a_put_into_a_journalled_cache_is_answered_when_it_is_committed_and_what_follows_behind_it() -> None:
    fixture = BrokerFixture(caches=JOURNALLED)
    stream, reader = (Peer(fixture, port=port).stream() for port in (50_001, 50_002))
    stream.feed(put("k", b"v", 1, **SCOPE), get("k", 2, **SCOPE), put("k", b"w", 3))
    reader.feed(get("k", 4, **SCOPE))
    reader.feed(get("k", 5))
    assert not stream.sent
    assert not reader.sent
    fixture.commit()
    assert kinds(stream.replies()) == [("ok", 1), ("cache_value", 2), ("ok", 3)]
    assert [reply["value"] for reply in reader.replies()] == [b64(b"v"), b64(b"w")]  # type: ignore[call-overload]


def test_a_cache_in_memory_is_answered_at_once_whatever_else_is_being_committed() -> None:
    fixture = BrokerFixture(caches=JOURNALLED)
    writer, stream = (Peer(fixture, port=port).stream() for port in (50_001, 50_002))
    writer.feed(put("k", b"v", 1, **SCOPE))
    stream.feed(put("k", b"v", 1), get("k", 2), increment("n", 3))
    assert kinds(stream.replies()) == [("ok", 1), ("cache_value", 2), ("cache_value", 3)]
    assert not writer.sent


def test_a_put_that_could_not_be_committed_is_told_as_an_error() -> None:
    fixture = BrokerFixture(caches=JOURNALLED)
    stream = Peer(fixture).stream()
    fault = fixture.fill_disk()
    replies = stream.all(put("k", b"v", 1, **SCOPE), get("k", 2, **SCOPE))
    assert kinds(replies) == [("error", 1), ("error", 2)]
    fixture.free_disk(fault)
    assert stream.ask(get("k", 3, **SCOPE))["value"] is None


def test_values_that_wait_for_their_commit_count_as_held() -> None:
    fixture = BrokerFixture(caches=JOURNALLED)
    stream = Peer(fixture).stream()
    stream.feed(put("k", bytes(100_000), 1, **SCOPE))
    assert stream.session.held_bytes > 100_000
    fixture.commit()
    assert stream.session.held_bytes == 0


def test_large_replies_that_wait_for_a_commit_are_not_made_without_end() -> None:
    fixture = BrokerFixture(caches=JOURNALLED)
    stream = Peer(fixture).stream()
    value = bytes(100_000)
    stream.ask(put("k", value, 0, **SCOPE))
    requests = [put("other", b"", 1, **SCOPE)]
    for number in range(2, 200, 2):
        requests += [get("k", number, **SCOPE), cas("k", b"not this", b"", number + 1, **SCOPE)]
    stream.feed(*requests)
    assert stream.session.held_bytes < 1_000_000
    fixture.commit()
    assert [reply["request_id"] for reply in stream.replies()] == list(range(1, 200))  # type: ignore[call-overload]


def test_a_journalled_cache_survives_a_restart_with_the_time_that_is_left() -> None:
    fixture = BrokerFixture(caches=JOURNALLED)
    Peer(fixture).stream().all(put("k", b"v", ttl_ms=10_000, **SCOPE), put("k", b"v", ttl_ms=10_000))
    fixture.pass_time(4)
    fixture.restart()
    fixture.pass_time(5.999)
    stream = Peer(fixture).stream()
    values = [reply["value"] for reply in stream.all(get("k", **SCOPE), get("k"))]  # type: ignore[call-overload]
    assert values == [b64(b"v"), None]
    fixture.pass_time(0.001)
    assert stream.ask(get("k", **SCOPE))["value"] is None


# -- who may


def test_who_may_read_only_is_told_so_by_either_dialect() -> None:
    grants = [Grant("reader", frozenset({Permission.CACHE_READ}), "t1", "*", "primary")]
    fixture = BrokerFixture(access=AccessPolicy(True, grants))
    stream = Peer(fixture, identity=Identity("reader")).stream()
    assert stream.ask(get("k", 1, **SCOPE))["value"] is None
    for request in (put("k", b"", 2, **SCOPE), delete("k", 2, **SCOPE), cas("k", None, b"", 2, **SCOPE)):
        reply = stream.ask(request)
        assert (reply["type"], reply["request_id"]) == ("error", 2)
        assert "unauthorized" in reply["message"]
    assert "unauthorized" in stream.ask(get("k", 3))["message"]


def test_a_cache_request_has_no_business_on_a_stream_that_is_not_answered() -> None:
    fixture = BrokerFixture()
    stream = Peer(fixture).stream(uni=True)
    stream.feed(frame(put("k", b"v")))
    assert Peer(fixture).stream().ask(get("k"))["value"] is None


def test_a_value_that_fits_no_reply_is_told_and_the_stream_goes_on() -> None:
    """The names that a lookup repeats make the reply longer than what put the value there."""
    stream = document(FelixSettings(max_frame=64 << 10, cache="primary", cache_tenant="t1"), caches=CachePolicy())
    value = bytes(((64 << 10) - 72) // 4 * 3)
    assert stream.ask(put("k", value))["type"] == "ok"
    assert stream.ask(get("k"))["type"] == "cache_value"
    assert stream.ask({**get("k"), **SCOPE}) == {
        "type": "error",
        "message": f"the value has {len(value)} bytes, more than a frame carries",
    }
    assert stream.ask(get("k"))["type"] == "cache_value"


# -- what the original's newer clients ask for


def test_counters_are_the_numbers_of_the_cache() -> None:
    stream = original(Peer(BrokerFixture()))
    assert stream.ask(_message("counter_get", "n", 1)) == {"type": "counter_value", "request_id": 1}
    added = [stream.ask(_message("counter_add", "n", 2, delta=delta)) for delta in (5, -7)]
    assert added == [{"type": "counter_value", "value": value, "request_id": 2} for value in (5, -2)]
    assert stream.ask(_message("counter_get", "n", 3)) == {"type": "counter_value", "value": -2, "request_id": 3}
    assert stream.ask(get("n", 4))["value"] == b64(b"-2")
    stream.ask(put("word", b"x", 5))
    assert "not a number" in stream.ask(_message("counter_get", "word", 6))["message"]


def test_a_deleted_value_is_told_to_who_offered_to_read_it() -> None:
    peer = Peer(BrokerFixture())
    stream = peer.stream()
    stream.ask(auth() | {"client_features": 0x0004})
    stream.ask(put("k", b"v", 1))
    gone = {"type": "cache_value", "key": "k", "request_id": 2}
    assert stream.ask(delete("k", 2)) == {**gone, "value": b64(b"v")}
    assert stream.ask(delete("k", 2)) == {**gone, "value": None}
    assert original(peer).ask(delete("k", 3)) == {"type": "cache_ok", "request_id": 3, "deleted": False}
