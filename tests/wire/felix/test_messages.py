"""Messages: what both dialects read, what each refuses, and that whatever else arrives is `Malformed`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.felix.codec.requests import decode_request
from penstock.wire.felix.errors import Malformed
from penstock.wire.felix.frames import HEADER_SIZE
from penstock.wire.felix.messages import (
    Auth,
    AuthOk,
    CacheCas,
    CacheCasOk,
    CacheDelete,
    CacheGet,
    CacheIncrement,
    CacheOk,
    CachePut,
    CacheValue,
    Error,
    Event,
    EventBatch,
    EventStreamHello,
    From,
    Message,
    Ok,
    Publish,
    PublishBatch,
    PublishError,
    PublishOk,
    Subscribe,
    SubscribeCursorError,
    Subscribed,
    decode_reply,
    encode,
)

SCOPE = {"tenant_id": "t", "namespace": "n"}
STREAM = {**SCOPE, "stream": "s"}
PUBLISH = {"type": "publish", **STREAM, "payload": "aGVsbG8="}
SUBSCRIBE = {"type": "subscribe", **STREAM}
PUT = {"type": "cache_put", "key": "k", "value": "djE="}


def written(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def refused(payload: bytes, *, original: bool = False) -> Malformed:
    with pytest.raises(Malformed) as problem:
        decode_request(payload, original=original)
    return problem.value


# -- what is read

DOCUMENTED: list[tuple[dict[str, Any], Message]] = [
    (PUBLISH | {"ack": "none"}, Publish("t", "n", "s", b"hello", ack="none")),
    (PUBLISH | {"ack": "per_message"}, Publish("t", "n", "s", b"hello", ack="per_message")),
    (
        {"type": "publish_batch", **STREAM, "payloads": ["YQ==", "", "YWJj"], "ack": "per_batch"},
        PublishBatch("t", "n", "s", [b"a", b"", b"abc"], ack="per_batch"),
    ),
    (SUBSCRIBE, Subscribe("t", "n", "s")),
    (PUT | {"request_id": "r1", "ttl_ms": None}, CachePut(key="k", value=b"v1", request_id="r1")),
    (PUT | {"request_id": "r1", "ttl_ms": 5}, CachePut(key="k", value=b"v1", request_id="r1", ttl_ms=5)),
    ({"type": "cache_get", "request_id": "r1", "key": "k"}, CacheGet(key="k", request_id="r1")),
]

EXTENSIONS: list[tuple[dict[str, Any], Message]] = [
    ({"type": "cache_delete", "request_id": 1, "key": "k"}, CacheDelete(key="k", request_id=1)),
    (
        {"type": "cache_cas", "request_id": 1, "key": "k", "expected": None, "value": "djE=", "ttl_ms": 9},
        CacheCas(key="k", expected=None, value=b"v1", request_id=1, ttl_ms=9),
    ),
    (
        {"type": "cache_cas", "key": "k", "expected": "djE=", "value": ""},
        CacheCas(key="k", expected=b"v1", value=b""),
    ),
    ({"type": "cache_increment", "request_id": 1, "key": "k"}, CacheIncrement(key="k", by=1, request_id=1)),
    (
        {"type": "cache_increment", "tenant_id": "t", "cache": "c", "key": "k", "by": -(2**63)},
        CacheIncrement(tenant_id="t", cache="c", key="k", by=-(2**63)),
    ),
]

ORIGINAL: list[tuple[dict[str, Any], Message]] = [
    ({"type": "auth", "tenant_id": "t", "token": "x"}, Auth("t", "x")),
    ({"type": "auth", "tenant_id": "t", "token": "x", "client_flags": 65535}, Auth("t", "x", 65535)),
    (PUBLISH | {"request_id": 2**64 - 1}, Publish("t", "n", "s", b"hello", 2**64 - 1)),
    (PUBLISH | {"ack": "per_batch", "request_id": None}, Publish("t", "n", "s", b"hello", ack="per_batch")),
    (SUBSCRIBE | {"subscription_id": 2**64 - 1}, Subscribe("t", "n", "s", 2**64 - 1)),
    (SUBSCRIBE | {"start": "latest"}, Subscribe("t", "n", "s", start="latest")),
    (SUBSCRIBE | {"start": "earliest"}, Subscribe("t", "n", "s", start="earliest")),
    (SUBSCRIBE | {"start": {"offset": 2**64 - 1}}, Subscribe("t", "n", "s", start=From(2**64 - 1))),
    (SUBSCRIBE | {"start": None, "subscription_id": None}, Subscribe("t", "n", "s")),
    (
        PUT | SCOPE | {"cache": "c", "request_id": 0, "ttl_ms": None},
        CachePut(tenant_id="t", namespace="n", cache="c", key="k", value=b"v1", request_id=0),
    ),
    (PUT, CachePut(key="k", value=b"v1")),
]


@pytest.mark.parametrize(("fields", "message"), DOCUMENTED + EXTENSIONS + ORIGINAL)
def test_the_document_s_dialect_reads(fields: dict[str, Any], message: Message) -> None:
    assert decode_request(written(**fields), original=False) == message


@pytest.mark.parametrize(("fields", "message"), ORIGINAL + EXTENSIONS)
def test_the_original_s_dialect_reads(fields: dict[str, Any], message: Message) -> None:
    assert decode_request(written(**fields), original=True) == message


@pytest.mark.parametrize("ack", ["none", "per_message", "per_batch", None])
def test_absent_ack_asks_for_one(ack: Any) -> None:
    for request in (Publish("t", "n", "s", b"", ack=ack), PublishBatch("t", "n", "s", [], ack=ack)):
        assert request.acked is (ack != "none")


@pytest.mark.parametrize("request_id", ["", "7", 7, -1, 0, -(2**63), 2**64 - 1, "é\n"])
def test_ids_keep_their_type_in_the_document_s_dialect(request_id: int | str) -> None:
    for fields in (PUBLISH, SUBSCRIBE, PUT, {"type": "publish_batch", **STREAM, "payloads": []}):
        request = decode_request(written(**fields, request_id=request_id), original=False)

        assert not isinstance(request, Auth)
        assert request.request_id == request_id
        assert type(request.request_id) is type(request_id)


@pytest.mark.parametrize("request_id", ["", "7", -1, 2**64, 1.0, True, [], {}])
def test_ids_are_u64_in_the_original_s_dialect(request_id: Any) -> None:
    problem = refused(written(**PUBLISH, request_id=request_id), original=True)

    assert problem.text.startswith("field 'request_id': expected ")
    assert problem.request_id is None


@pytest.mark.parametrize("request_id", [2**64, -(2**63) - 1, 1.0, False, []])
def test_ids_that_are_neither_strings_nor_integers_of_64_bits(request_id: Any) -> None:
    assert refused(written(**PUBLISH, request_id=request_id)).text.startswith("field 'request_id': expected ")


def test_type_may_come_last_and_unknown_fields_are_ignored() -> None:
    fields = {**STREAM, "payload": "aGVsbG8=", "later": {"a": [1, None, {}], "type": "x"}, "type": "publish"}

    assert decode_request(written(**fields), original=True) == Publish("t", "n", "s", b"hello")


# -- what is not

TEXTS = {
    b"": "malformed JSON: input data was truncated",
    b"{": "malformed JSON: input data was truncated",
    b"\x00": "malformed JSON: invalid character (byte 0)",
    b"nul": "malformed JSON: ",
    b"[]": "malformed message: expected object, got array",
    b"null": "malformed message: expected object, got null",
    b'"publish"': "malformed message: expected object, got str",
    b"{}": "missing field 'type'",
    b'{"type":7}': "field 'type': expected str",
    b'{"type":null}': "field 'type': expected str",
    b'{"type":"pubIish"}': "unknown message type 'pubIish'",
    b'{"type":"' + b"x" * 10_000 + b'"}': f"unknown message type '{'x' * 64}'",
    b'{"type":"ok"}': "unexpected message type 'ok'",
    b'{"type":"event_batch"}': "unexpected message type 'event_batch'",
    b'{"type":"subscribe","tenant_id":"t","namespace":"n"}': "missing field 'stream'",
    b'{"type":"subscribe","tenant_id":"t","namespace":"n","stream":null}': "field 'stream': expected str, got null",
    b'{"type":"cache_get","key":"k"} x': "malformed JSON: trailing characters",
    b'{"type":"cache_get","key":"k","x":NaN}': "malformed JSON: invalid character",
    b'{"type":"cache_get","key":NaN}': "malformed JSON: invalid character",
    b'{"type":"cache_get","key":"\xff"}': "malformed JSON: invalid UTF-8 at byte 27",
    b'{"type":"cache_get","key":"k","x":"\xff"}': "malformed JSON: invalid UTF-8 at byte 35",
    b'\xef\xbb\xbf{"type":"cache_get","key":"k"}': "malformed JSON: invalid character",
    '{"type":"cache_get","key":"k"}'.encode("utf-16"): "malformed JSON: invalid UTF-8 at byte 0",
    b'{"type":"cache_get","key":"\\ud800\\u0041"}': "malformed JSON: invalid utf-16 surrogate pair",
    b'{"type":"cache_get","key":"\\udc00"}': "malformed JSON: invalid utf-16 surrogate pair",
    b'{"type":"cache_get","key":"a\nb"}': "malformed JSON: invalid character",
    b'{"type":"cache_get","key":' + b"[" * 1_000_000 + b"}": "",
    b'{"type":"cache_get","key":"k","x":' + b"[" * 1_000_000: "malformed JSON: nested too deeply",
    b'{"type":"cache_get","key":"k","x":' + b'{"a":' * 50_000: "malformed JSON: nested too deeply",
    b'{"type":"cache_get","key":"k","x":' + b'{"a":' * 1_000_000: "too many strings in a message; a batch has at most",
}


@pytest.mark.parametrize("payload", TEXTS, ids=range(len(TEXTS)))
def test_what_is_no_message_is_refused_with_a_short_text(payload: bytes) -> None:
    for original in (False, True):
        problem = refused(payload, original=original)

        assert problem.text.startswith(TEXTS[payload])
        assert len(problem.text) < 120
        assert problem.request_id is None


HUGE = int("1" + "0" * 400)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (PUBLISH | {"ack": "all"}, "field 'ack': "),
        (PUBLISH | {"payload": 7}, "field 'payload': expected "),
        (PUBLISH | {"payload": None}, "field 'payload': expected "),
        ({"type": "publish_batch", **STREAM, "payloads": "YQ=="}, "field 'payloads': expected array"),
        ({"type": "publish_batch", **STREAM, "payloads": ["YQ==", 7]}, "field 'payloads[1]': expected "),
        ({"type": "auth", "tenant_id": "t", "token": "x", "client_flags": 65536}, "field 'client_flags': expected "),
        ({"type": "auth", "tenant_id": "t", "token": "x", "client_flags": -1}, "field 'client_flags': expected "),
        (SUBSCRIBE | {"start": "tail"}, "field 'start': "),
        (SUBSCRIBE | {"start": 7}, "field 'start': expected "),
        (SUBSCRIBE | {"start": {}}, "field 'start': object missing required field offset"),
        (SUBSCRIBE | {"start": {"offset": "7"}}, "field 'start.offset': expected int"),
        (SUBSCRIBE | {"start": {"offset": -1}}, "field 'start.offset': expected "),
        (SUBSCRIBE | {"start": {"offset": 2**64}}, "field 'start.offset': expected a u64"),
        (SUBSCRIBE | {"start": {"offset": 1, "and": 2}}, "field 'start': "),
        (SUBSCRIBE | {"subscription_id": "7"}, "field 'subscription_id': expected "),
        (SUBSCRIBE | {"subscription_id": 2**64}, "field 'subscription_id': expected a u64"),
        (PUT | {"ttl_ms": -1}, "field 'ttl_ms': expected "),
        (PUT | {"ttl_ms": 1.5}, "field 'ttl_ms': expected "),
        (PUT | {"ttl_ms": "5"}, "field 'ttl_ms': expected "),
        (PUT | {"ttl_ms": 2**64}, "field 'ttl_ms': expected a u64"),
        (PUT | {"ttl_ms": HUGE}, "field 'ttl_ms': "),
        ({"type": "cache_cas", "key": "k", "value": ""}, "missing field 'expected'"),
        ({"type": "cache_increment", "key": "k", "by": 2**63}, "field 'by': expected "),
        ({"type": "cache_increment", "key": "k", "by": HUGE}, "field 'by': "),
    ],
)
def test_fields_that_are_wrong_are_named_and_the_id_is_known(fields: dict[str, Any], text: str) -> None:
    for original in (False, True):
        problem = refused(written(**fields, request_id=7), original=original)

        assert problem.text.startswith(text)
        assert len(problem.text) < 120
        assert problem.request_id == 7
    assert refused(written(**fields, request_id="r7")).request_id == "r7"
    assert refused(written(**fields, request_id="r7"), original=True).request_id is None


@pytest.mark.parametrize(
    "text",
    ["aGVsbG8", "aGVsbG8==", "aGVs bG8=", "aGVs\nbG8=", "aGV_", "aGV-", "=", "====", "a", "YQ=", "aG=s", "YR==",
     "aGVsbG9="],
)  # fmt: skip
def test_base64_is_of_the_standard_alphabet_and_padded(text: str) -> None:
    batch = {"type": "publish_batch", **STREAM, "payloads": ["YQ==", text]}
    for fields in (PUBLISH | {"payload": text}, batch, PUT | {"value": text}):
        problem = refused(written(**fields, request_id=7))

        assert "invalid base64 encoded string" in problem.text
        assert problem.request_id == 7


# -- any message

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
U64 = st.integers(0, 2**64 - 1)
IDS = st.none() | U64 | TEXT
VALUE = st.binary(max_size=30)
ACKS: st.SearchStrategy[Any] = st.sampled_from([None, "none", "per_message", "per_batch"])
TTL = st.none() | U64
STARTS: st.SearchStrategy[Any] = st.none() | st.sampled_from(["latest", "earliest"]) | st.builds(From, U64)
CACHE: dict[str, st.SearchStrategy[Any]] = {
    "tenant_id": st.none() | TEXT, "namespace": st.none() | TEXT, "cache": st.none() | TEXT,
    "key": TEXT, "request_id": IDS,
}  # fmt: skip
REQUESTS: st.SearchStrategy[Any] = st.one_of(
    st.builds(Auth, TEXT, TEXT, st.none() | st.integers(0, 65535)),
    st.builds(Publish, TEXT, TEXT, TEXT, VALUE, IDS, ACKS),
    st.builds(PublishBatch, TEXT, TEXT, TEXT, st.lists(VALUE, max_size=6), IDS, ACKS),
    st.builds(Subscribe, TEXT, TEXT, TEXT, st.none() | U64, STARTS, IDS),
    st.builds(CachePut, value=VALUE, ttl_ms=TTL, **CACHE),
    st.builds(CacheGet, **CACHE),
    st.builds(CacheDelete, **CACHE),
    st.builds(CacheCas, expected=st.none() | VALUE, value=VALUE, ttl_ms=TTL, **CACHE),
    st.builds(CacheIncrement, by=st.integers(-(2**63), 2**63 - 1), ttl_ms=TTL, **CACHE),
)
REPLIES: st.SearchStrategy[Any] = st.one_of(
    st.builds(AuthOk, st.integers(0, 65535)),
    st.builds(Ok, IDS, IDS, st.none() | st.booleans()),
    st.builds(Error, request_id=IDS, message=TEXT),
    st.builds(PublishOk, U64),
    st.builds(PublishError, U64, TEXT),
    st.builds(Subscribed, U64),
    st.builds(SubscribeCursorError, st.sampled_from(["too_old", "in_future"]), U64, U64),
    st.builds(EventStreamHello, U64 | TEXT),
    st.builds(Event, TEXT, TEXT, TEXT, VALUE, st.none() | U64),
    st.builds(EventBatch, TEXT, TEXT, TEXT, st.lists(VALUE, max_size=6), st.none() | U64),
    st.builds(CacheOk, U64, st.none() | st.booleans()),
    st.builds(CacheValue, value=st.none() | VALUE, **CACHE),
    st.builds(CacheCasOk, request_id=IDS, key=TEXT, stored=st.booleans(), value=st.none() | VALUE),
)


@given(REQUESTS, st.booleans())
def test_requests_come_back(request: Any, spaced: bool) -> None:
    payload = encode(request)[HEADER_SIZE:]
    if spaced:  # as other encoders write it
        payload = json.dumps(json.loads(payload), ensure_ascii=True, sort_keys=True).encode()

    assert decode_request(payload, original=False) == request


@given(REPLIES)
def test_replies_come_back(reply: Any) -> None:
    assert decode_reply(encode(reply)[HEADER_SIZE:]) == reply


def test_a_value_that_is_not_there_is_written_as_null() -> None:
    assert encode(CacheValue(key="k"))[HEADER_SIZE:] == b'{"type":"cache_value","key":"k","value":null}'
    assert encode(CacheCasOk(key="k", stored=False))[HEADER_SIZE:] == (
        b'{"type":"cache_cas_ok","key":"k","stored":false,"value":null}'
    )
    assert encode(CachePut(key="k", value=b""))[HEADER_SIZE:] == (
        b'{"type":"cache_put","key":"k","value":"","ttl_ms":null}'
    )


def test_clients_accept_what_newer_servers_add() -> None:
    assert decode_reply(b'{"type":"auth_ok","server_flags":63,"server_features":1,"more":2}') == AuthOk(63, 1)
    assert decode_reply(b'{"type":"cache_value","key":"k"}') == CacheValue(key="k")
    with pytest.raises(Malformed, match="unexpected message type 'publish'"):
        decode_reply(encode(Publish("t", "n", "s", b""))[HEADER_SIZE:])


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.just("YQ=="),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["tenant_id", "namespace", "stream", "cache", "key", "value", "payload", "payloads", "request_id", "ack",
          "ttl_ms", "start", "by", "expected", "token", "client_flags", "subscription_id"]  # fmt: skip
TYPES = ["auth", "publish", "publish_batch", "subscribe", "cache_put", "cache_get", "cache_delete", "cache_cas",
         "cache_increment"]  # fmt: skip
NEARLY = st.builds(
    lambda kind, fields: json.dumps({"type": kind, **fields}).encode(),
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(FIELDS), JSON),
)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()) | NEARLY, st.booleans())
def test_anything_else_is_malformed(payload: bytes, original: bool) -> None:
    try:
        decode_request(payload, original=original)
    except Malformed as problem:
        assert 0 < len(problem.text) < 200
    try:
        decode_reply(payload)
    except Malformed as problem:
        assert 0 < len(problem.text) < 200


@given(REQUESTS, st.data())
def test_a_damaged_request_is_malformed_or_another_request(request: Any, data: st.DataObject) -> None:
    payload = bytearray(encode(request)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_request(bytes(payload), original=data.draw(st.booleans()))
    except Malformed as problem:
        assert problem.text
