"""The two dialects side by side, as the reference has them in section 5: what differs, and what is served to both.

The rows about `auth`, ids, acknowledgements, flags and bad frames are in `test_session` and `test_publish`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.felix.peer import NAMES, TENANT, Peer, Stream, b64, batch, frames, original, publish, values

SUBSCRIBE = {"type": "subscribe", **NAMES}
SCOPE = {"tenant_id": TENANT, "namespace": "default", "cache": "primary"}


@pytest.fixture
def peer() -> Peer:
    return Peer(BrokerFixture())


def events(stream: Stream) -> list[Any]:
    return frames(b"".join(stream.sent))


# -- rows 5, 6: the reply to a subscription, and its id


def test_the_document_is_answered_by_ok_and_a_string(peer: Peer) -> None:
    reply = peer.stream().ask({**SUBSCRIBE, "request_id": "r"})
    assert reply == {"type": "ok", "request_id": "r", "subscription_id": "1"}
    assert events(peer.line.opened[0]) == [{"type": "event_stream_hello", "subscription_id": "1"}]


def test_the_original_is_answered_by_subscribed_and_a_number(peer: Peer) -> None:
    assert original(peer).ask(SUBSCRIBE) == {"type": "subscribed", "subscription_id": 1}
    assert original(peer).ask({**SUBSCRIBE, "subscription_id": 77}) == {"type": "subscribed", "subscription_id": 77}
    numbers = [events(stream)[0]["subscription_id"] for stream in peer.line.opened]
    assert numbers == [1, 77]


# -- row 7: the form of events


@pytest.mark.parametrize(("offered", "flags"), [(None, 0x0002), (7, 0x0004), (63, 0x0024)])
def test_events_in_the_form_that_the_client_reads(peer: Peer, offered: int | None, flags: int) -> None:
    original(peer, client_flags=offered).ask(SUBSCRIBE)
    peer.stream().ask(publish(b"x"))
    (_, sent) = events(peer.line.opened[0])
    assert sent.flags == flags
    assert sent.payload.endswith(b"\x00\x00\x00\x01\x00\x00\x00\x01x")


def test_the_document_gets_json_only(peer: Peer) -> None:
    peer.stream().ask(SUBSCRIBE)
    peer.stream().all(batch(b"x", b"y"))
    peer.stream().ask(publish(b"z"))
    assert events(peer.line.opened[0])[1:] == [
        {"type": "event_batch", **NAMES, "payloads": [b64(b"x"), b64(b"y")]},
        {"type": "event", **NAMES, "payload": b64(b"z")},
    ]


# -- rows 8, 9, 10: the cache


def test_the_documents_cache_messages_name_only_a_key(peer: Peer) -> None:
    stream = peer.stream()
    replies = stream.all(
        {"type": "cache_put", "request_id": "1", "key": "k", "value": b64(b"v"), "ttl_ms": None},
        {"type": "cache_get", "request_id": "2", "key": "k"},
        {"type": "cache_get", "request_id": 3, "key": "missing"},
    )
    assert replies == [
        {"type": "ok", "request_id": "1"},
        {"type": "cache_value", "request_id": "2", "key": "k", "value": b64(b"v")},
        {"type": "cache_value", "request_id": 3, "key": "missing", "value": None},
    ]


def test_the_originals_cache_messages_name_the_scope_and_get_it_back(peer: Peer) -> None:
    stream = original(peer)
    put = {"type": "cache_put", **SCOPE, "key": "k", "value": b64(b"v"), "ttl_ms": None}
    get = {"type": "cache_get", **SCOPE, "key": "k"}
    value = {"type": "cache_value", **SCOPE, "key": "k", "value": b64(b"v")}
    assert stream.all({**put, "request_id": 1}, {**get, "request_id": 2}, put, get) == [
        {"type": "cache_ok", "request_id": 1},
        {**value, "request_id": 2},
        {"type": "ok"},
        value,
    ]
    assert not stream.finished


def test_requests_of_all_kinds_are_answered_in_order(peer: Peer) -> None:
    stream = original(peer)
    get = {"type": "cache_get", **SCOPE, "key": "k"}
    replies: Any = stream.all(
        {**get, "request_id": 1}, publish(b"x", 2), {**get, "request_id": 3}, SUBSCRIBE, publish(b"y", 4)
    )
    assert [reply.get("request_id") for reply in replies] == [1, 2, 3, None, 4]


# -- rows 16, 17: after a subscription, and where one begins


@pytest.mark.parametrize("speaks", ["document", "original"])
def test_the_stream_is_usable_after_a_subscription(peer: Peer, speaks: str) -> None:
    stream = peer.stream() if speaks == "document" else original(peer)
    replies: Any = stream.all(SUBSCRIBE, publish(b"x", 5), {**SUBSCRIBE, "stream": "other"})
    assert [reply["type"] for reply in replies] == (
        ["ok"] * 3 if speaks == "document" else ["subscribed", "publish_ok", "subscribed"]
    )
    assert len(peer.line.opened) == 2
    stream.end()
    assert stream.finished
    peer.stream().ask(publish(b"after the end of the control stream"))
    assert len(events(peer.line.opened[0])) == 3  # hello, and both events
    assert not peer.line.opened[0].finished


def test_a_subscription_begins_at_the_end_unless_it_says_where(peer: Peer) -> None:
    """Events that the same stream published earlier come before it."""
    stream = original(peer)
    stream.all(publish(b"a", 1), SUBSCRIBE, {**SUBSCRIBE, "start": "earliest"}, {**SUBSCRIBE, "start": {"offset": 1}})
    stream.ask(publish(b"b", 2))
    found = [b"".join(part.payload for part in events(each)[1:]) for each in peer.line.opened]
    assert [b"a" in data for data in found] == [False, True, False]
    assert all(data.endswith(b"b") for data in found)
    ahead: Any = stream.ask({**SUBSCRIBE, "start": {"offset": 9}})
    assert ahead == {"type": "subscribe_cursor_error", "reason": "in_future", "requested": 9, "available": 2}
    assert values(peer.fixture) == [b"a", b"b"]


# -- the original's own conformance runner (reference, section 4)


def test_the_steps_of_the_originals_conformance_runner(peer: Peer) -> None:
    """Each with a stream of its own, ended by the client at once, without `client_flags`."""
    subscriber = original(peer, client_flags=None)
    subscriber.feed(SUBSCRIBE)
    subscriber.end()
    peer.fixture.commit()
    assert subscriber.replies() == [{"type": "subscribed", "subscription_id": 1}]
    for number, payload in enumerate((b"alpha", b"beta")):
        stream = original(peer, client_flags=None)
        stream.feed(publish(payload, number, ack="per_message"))
        stream.end()
        peer.fixture.commit()
        assert stream.replies() == [{"type": "publish_ok", "request_id": number}]
        assert stream.finished
    hello, *sent = events(peer.line.opened[0])
    assert hello == {"type": "event_stream_hello", "subscription_id": 1}
    assert [part.payload[-len(payload) :] for part, payload in zip(sent, (b"alpha", b"beta"), strict=True)] == [
        b"alpha",
        b"beta",
    ]
    put = original(peer, client_flags=None)
    put.feed({"type": "cache_put", **SCOPE, "key": "k", "value": b64(b"v"), "ttl_ms": 100})
    put.end()
    assert put.replies() == [{"type": "ok"}]
    assert put.finished
    for seconds, value in ((0, b64(b"v")), (0.15, None)):
        peer.fixture.pass_time(seconds)
        get = original(peer, client_flags=None)
        get.feed({"type": "cache_get", **SCOPE, "key": "k"})
        get.end()
        (reply,) = get.replies()
        assert reply["value"] == value  # type: ignore[call-overload]
