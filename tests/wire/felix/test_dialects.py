"""The two dialects: what each says to every request, as JSON that was written down by hand from the documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.felix.single_frame import only_frame

from penstock.wire.felix import features
from penstock.wire.felix.codec.binary import Ack, Events, decode_ack, decode_events
from penstock.wire.felix.codec.dialects import DOCUMENT, ORIGINAL, Dialect, Original
from penstock.wire.felix.errors import Advice, ErrorCode, Retry
from penstock.wire.felix.frames import ACK, EVENTS, OFFSETS, SHARED
from penstock.wire.felix.messages import CacheCas, CacheGet, CacheIncrement, CachePut

NAMES = ("t1", "default", "demo")
SCOPED = CacheGet(tenant_id="t1", namespace="default", cache="primary", key="k", request_id=7)


def told(data: bytes) -> Any:
    flags, payload = only_frame(data)
    assert flags == 0
    return json.loads(payload)


def test_names() -> None:
    assert (DOCUMENT.name, ORIGINAL.name) == ("document", "original")


# -- as the document says


@pytest.mark.parametrize("request_id", ["r1", 7, 0, ""])
def test_the_document_echoes_every_id(request_id: int | str) -> None:
    ok = {"type": "ok", "request_id": request_id}
    error = {"type": "error", "request_id": request_id, "message": "no"}
    cas = CacheCas(key="k", expected=None, value=b"", request_id=request_id)

    assert told(DOCUMENT.published(request_id, binary=False)) == ok
    assert told(DOCUMENT.publish_failed(request_id, "no", binary=False)) == error
    assert told(DOCUMENT.failed("no", request_id)) == error
    assert told(DOCUMENT.cache_stored(request_id)) == ok
    assert told(DOCUMENT.cache_deleted(request_id, True)) == ok | {"deleted": True}
    assert told(DOCUMENT.cache_deleted(request_id, False)) == ok | {"deleted": False}
    assert told(DOCUMENT.subscribed(3, request_id)) == ok | {"subscription_id": "3"}
    assert told(DOCUMENT.cache_value(CacheGet(key="k", request_id=request_id), b"v1")) == {
        "type": "cache_value", "request_id": request_id, "key": "k", "value": "djE="
    }  # fmt: skip
    assert told(DOCUMENT.cache_compared(cas, True, b"v1")) == {
        "type": "cache_cas_ok", "request_id": request_id, "key": "k", "stored": True, "value": "djE="
    }  # fmt: skip


def test_the_document_without_ids() -> None:
    assert told(DOCUMENT.published(None, binary=False)) == {"type": "ok"}
    assert told(DOCUMENT.publish_failed(None, "no", binary=False)) == {"type": "error", "message": "no"}
    assert told(DOCUMENT.failed("no")) == {"type": "error", "message": "no"}
    assert told(DOCUMENT.cache_stored(None)) == {"type": "ok"}
    assert told(DOCUMENT.subscribed(3)) == {"type": "ok", "subscription_id": "3"}
    assert told(DOCUMENT.cache_value(CacheGet(key="k"), None)) == {"type": "cache_value", "key": "k", "value": None}
    assert told(DOCUMENT.hello(3)) == {"type": "event_stream_hello", "subscription_id": "3"}
    assert told(DOCUMENT.authenticated()) == {"type": "ok"}


def test_the_document_never_answers_in_binary() -> None:
    assert told(DOCUMENT.published(7, binary=True)) == {"type": "ok", "request_id": 7}
    assert told(DOCUMENT.publish_failed(None, "no", binary=True)) == {"type": "error", "message": "no"}


@pytest.mark.parametrize("flags", [None, 0, 7, 63])
def test_events_of_the_document_are_json(flags: int | None) -> None:
    scope = {"tenant_id": "t1", "namespace": "default", "stream": "demo"}

    one = DOCUMENT.events(NAMES, [b"hello"], 42, 3, flags)
    several = DOCUMENT.events(NAMES, (b"a", b"", b"abc"), 42, 3, flags)

    assert told(one) == {"type": "event", **scope, "payload": "aGVsbG8="}
    assert told(several) == {"type": "event_batch", **scope, "payloads": ["YQ==", "", "YWJj"]}


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("too_old", "cannot start at offset 5: the oldest event that is kept is at 8"),
        ("in_future", "cannot start at offset 5: the next event is at 8"),
    ],
)
def test_the_document_tells_in_words_where_a_subscription_can_start(reason: str, message: str) -> None:
    assert told(DOCUMENT.cursor_error(reason, 5, 8)) == {"type": "error", "message": message}
    assert told(DOCUMENT.cursor_error(reason, 5, 8, "r")) == {"type": "error", "request_id": "r", "message": message}


# -- as the original does


def test_the_original_acknowledges_as_it_was_asked() -> None:
    assert told(ORIGINAL.published(7, binary=False)) == {"type": "publish_ok", "request_id": 7}
    assert told(ORIGINAL.publish_failed(7, "no", binary=False)) == {
        "type": "publish_error", "request_id": 7, "message": "no"
    }  # fmt: skip
    for data, ack in (
        (ORIGINAL.published(7, binary=True), Ack(7, None)),
        (ORIGINAL.publish_failed(7, "no", binary=True), Ack(7, "no")),
        (ORIGINAL.publish_failed(0, "é" * 300, binary=True), Ack(0, "é" * 256)),
    ):
        flags, payload = only_frame(data)
        assert flags == ACK
        assert decode_ack(payload) == ack


def test_the_original_without_an_id() -> None:
    for binary in (False, True):
        assert told(ORIGINAL.publish_failed(None, "no", binary=binary)) == {"type": "error", "message": "no"}
    assert told(ORIGINAL.cache_stored(None)) == {"type": "ok"}
    assert told(ORIGINAL.cache_deleted(None, True)) == {"type": "ok", "deleted": True}


def test_auth_is_answered_by_what_the_client_offered() -> None:
    assert told(ORIGINAL.authenticated()) == {"type": "ok"}
    for flags, served in ((0, 0), (25, 25), (0x3F, 0x3F), (0xFFFF, 0x5E7F)):
        assert told(Original(flags).authenticated()) == {"type": "auth_ok", "server_flags": served}
    served = told(Original(0, 0x7FFF_FFFF).authenticated())
    assert served == {"type": "auth_ok", "server_flags": 0, "server_features": features.SERVED}
    assert told(Original(0, 0, 0xFFFF_FFFF).authenticated()) == {**served, "server_features": 0}
    assert told(Original(0, 0xFFFF_FFFF, 0xFFFF_FFFF).authenticated()) == {
        **served, "server_features": features.SERVED | 0x8000_0000, "server_features_hi": 8,
    }  # fmt: skip


def test_what_a_client_did_not_offer_is_not_sent_to_it() -> None:
    advice = Advice(ErrorCode.OVERLOADED, Retry.RETRY_AFTER, 1000)
    for flags in (None, 0, 0x3F, 0x5E7F & ~0x1600):
        for offered in (None, 0, 0xFFFF_FFFF & ~(features.ERROR_CODES | features.UNSUPPORTED)):
            old = Original(flags, offered)
            assert old.published(7, binary=True, offset=42) == ORIGINAL.published(7, binary=True)
            assert old.published(7, binary=False, offset=42) == ORIGINAL.published(7, binary=False)
            for binary in (True, False):
                assert old.publish_failed(7, "no", binary=binary, advice=advice) == ORIGINAL.publish_failed(
                    7, "no", binary=binary
                )
            assert old.failed("no", 7, advice) == ORIGINAL.failed("no", 7)
            assert old.unsupported("no", "dance", 7) == ORIGINAL.failed("no", 7)
            assert old.events(NAMES, [b"x"], 5, 1, flags, 2, [9]) == ORIGINAL.events(NAMES, [b"x"], 5, 1, flags) or (
                flags is not None and flags & 0x4800
            )


def test_what_a_client_offered_is_told() -> None:
    advice = Advice(ErrorCode.OVERLOADED, Retry.RETRY_AFTER, 1000)
    new = Original(0x5E7F, 0xFFFF_FFFF)
    assert only_frame(new.published(7, binary=True, offset=42)).flags == 0x1010
    assert told(new.published(7, binary=False, offset=42)) == {"type": "publish_ok", "request_id": 7, "offset": 42}
    assert only_frame(new.publish_failed(7, "no", binary=True, advice=advice)).flags == 0x0610
    assert only_frame(Original(0x0210).publish_failed(7, "no", binary=True, advice=advice)).flags == 0x0210
    coded = {"code": "overloaded", "retry": "retry_after", "detail": {"retry_after_ms": 1000}}
    assert told(new.publish_failed(7, "no", binary=False, advice=advice)) == {
        "type": "publish_error", "request_id": 7, "message": "no", **coded,
    }  # fmt: skip
    assert told(new.failed("no", None, advice)) == {"type": "error", "message": "no", **coded}
    fatal = Advice(ErrorCode.NOT_FOUND, Retry.FATAL)
    assert told(new.failed("no", None, fatal)) == {
        "type": "error", "message": "no", "code": "not_found", "retry": "fatal",
    }  # fmt: skip
    assert told(new.unsupported("no", "dance", 7)) == {"type": "unsupported", "request_type": "dance", "request_id": 7}


def test_subscriptions_of_the_original() -> None:
    assert told(ORIGINAL.subscribed(3)) == {"type": "subscribed", "subscription_id": 3}
    assert told(ORIGINAL.subscribed(3, 7)) == {"type": "subscribed", "subscription_id": 3}
    assert told(ORIGINAL.hello(3)) == {"type": "event_stream_hello", "subscription_id": 3}
    assert told(ORIGINAL.cursor_error("too_old", 5, 8)) == {
        "type": "subscribe_cursor_error", "reason": "too_old", "requested": 5, "available": 8
    }  # fmt: skip
    assert told(ORIGINAL.cursor_error("in_future", 9, 8, 7)) == {
        "type": "subscribe_cursor_error", "reason": "in_future", "requested": 9, "available": 8
    }  # fmt: skip


def test_the_cache_of_the_original() -> None:
    scope = {"tenant_id": "t1", "namespace": "default", "cache": "primary"}

    assert told(ORIGINAL.cache_stored(0)) == {"type": "cache_ok", "request_id": 0}
    assert told(ORIGINAL.cache_deleted(7, False)) == {"type": "cache_ok", "request_id": 7, "deleted": False}
    assert told(ORIGINAL.cache_value(SCOPED, b"v1")) == {
        "type": "cache_value", **scope, "key": "k", "value": "djE=", "request_id": 7
    }  # fmt: skip
    assert told(ORIGINAL.cache_value(SCOPED, None))["value"] is None
    assert told(ORIGINAL.failed("no", 7)) == {"type": "error", "request_id": 7, "message": "no"}


@pytest.mark.parametrize("dialect", [DOCUMENT, ORIGINAL], ids=["document", "original"])
def test_only_the_scope_that_was_sent_comes_back(dialect: Dialect) -> None:
    partly = CacheIncrement(namespace="n", key="k")

    assert told(dialect.cache_value(partly, b"5")) == {
        "type": "cache_value", "namespace": "n", "key": "k", "value": "NQ=="
    }  # fmt: skip
    assert told(dialect.cache_value(CachePut(key="k", value=b""), b"")) == {
        "type": "cache_value", "key": "k", "value": ""
    }  # fmt: skip
    assert told(dialect.cache_compared(CacheCas(key="k", expected=b"", value=b""), False, None)) == {
        "type": "cache_cas_ok", "key": "k", "stored": False, "value": None
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "base_offset", "expected", "events"),
    [
        (63, 42, SHARED | OFFSETS, Events(None, 42, [b"a", b"b"])),
        (63, None, SHARED, Events(None, None, [b"a", b"b"])),
        (31, 42, SHARED, Events(None, None, [b"a", b"b"])),
        (7, 42, SHARED, Events(None, None, [b"a", b"b"])),  # offered: not the same as silence
        (25, 42, SHARED, Events(None, None, [b"a", b"b"])),
        (0, 42, SHARED, Events(None, None, [b"a", b"b"])),
        (None, 42, EVENTS, Events(3, None, [b"a", b"b"])),
        (None, None, EVENTS, Events(3, None, [b"a", b"b"])),
        (0x22, 42, EVENTS | OFFSETS, Events(3, 42, [b"a", b"b"])),
    ],
)
def test_events_of_the_original_are_what_the_client_reads(
    flags: int | None, base_offset: int | None, expected: int, events: Events
) -> None:
    frame = only_frame(ORIGINAL.events(NAMES, (b"a", b"b"), base_offset, 3, flags))

    assert frame.flags == expected
    assert decode_events(*frame) == events


SUBSCRIBERS = st.tuples(
    st.tuples(st.just("t"), st.just("n"), st.sampled_from(["s", "s#0"])),
    st.integers(1, 3),
    st.sampled_from([None, 0, 2, 4, 7, 25, 31, 34, 63]),
    st.booleans(),
)


@pytest.mark.parametrize("dialect", [DOCUMENT, ORIGINAL], ids=["document", "original"])
@given(one=SUBSCRIBERS, other=SUBSCRIBERS)
def test_who_has_the_same_key_gets_the_same_bytes(dialect: Dialect, one: Any, other: Any) -> None:
    def key_and_bytes(subscriber: Any) -> tuple[object, bytes]:
        names, subscription_id, flags, offsets = subscriber
        data = dialect.events(names, [b"a", b"b"], 42 if offsets else None, subscription_id, flags)
        return dialect.events_key(names, subscription_id, flags, offsets=offsets), data

    (key, data), (other_key, other_data) = key_and_bytes(one), key_and_bytes(other)

    assert (key == other_key) is (data == other_data)
    assert key != other_key or hash(key) == hash(other_key)
