"""JSON that msgspec accepts and Felix does not: fields that come twice, and base64 that no encoder writes."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from string import ascii_letters, digits
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.felix.codec import strict_json
from penstock.wire.felix.codec.requests import decode_request
from penstock.wire.felix.errors import Malformed
from penstock.wire.felix.messages import Publish

ALPHABET = ascii_letters + digits + "+/"
BATCH = b'"type":"publish_batch","tenant_id":"t","namespace":"n","stream":"s"'
PUT = b'"type":"cache_put","key":"k","value":"djE="'
SUBSCRIBE = b'"type":"subscribe","tenant_id":"t","namespace":"n","stream":"s"'
LARGE = b'"' + b"YWJj" * 3000 + b'"'  # a string of base64


def text_of(payload: bytes) -> str | None:
    """The error that refuses it."""
    try:
        decode_request(payload, original=True)
    except Malformed as problem:
        return problem.text
    return None


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (b"{%s,%s}" % (PUT, b'"key":"k"'), "key"),
        (b"{%s,%s}" % (PUT, b'"key":"other"'), "key"),
        (b"{%s,%s}" % (b'"type":"cache_get"', PUT), "type"),
        (b"{%s,%s}" % (PUT, b'"value":"djE="'), "value"),
        (b"{%s,%s}" % (PUT, b'"request_id":1,"request_id":1'), "request_id"),  # as many quotes as with a ttl_ms
        (b"{%s,%s}" % (PUT, b'"request_id":1,"request_id":2,"ttl_ms":null'), "request_id"),
        (b"{%s,%s}" % (PUT, b'"ttl_ms":null,"ttl_ms":null'), "ttl_ms"),
        (b"{%s,%s}" % (PUT, b'"request_id":null,"request_id":1'), "request_id"),
        (b"{%s,%s}" % (PUT, b'"request_id":1 , "request_id" : 1'), "request_id"),
        (b"{%s,%s}" % (PUT, b'"\\u006bey":"k"'), "key"),
        (b'{%s,"payloads":["YQ=="],"payloads":["Yg=="]}' % BATCH, "payloads"),
        (b'{%s,"payloads":["YQ=="],"stream":"s"}' % BATCH, "stream"),
        (b'{%s,"payloads":[%s],"payloads":[%s]}' % (BATCH, LARGE, LARGE), "payloads"),
        (b'{%s,"payloads":[%s],"stream":"s"}' % (BATCH, LARGE), "stream"),
        (b'{%s,"stream":"s","payloads" : [ %s ] }' % (BATCH, LARGE), "stream"),
        (b'{"type":"cache_put","key":"k","value":%s,"key":"k"}' % LARGE, "key"),
        (b'{"type":"cache_put","key":"k","value":%s,"request_id":1,"request_id":1}' % LARGE, "request_id"),
        (b"{%s,%s}" % (SUBSCRIBE, b'"start":{"offset":1,"offset":2}'), "offset"),
    ],
)  # fmt: skip
def test_a_field_that_comes_twice(payload: bytes, field: str) -> None:
    assert text_of(payload) == f"duplicate field '{field}'"


@pytest.mark.parametrize(
    "payload",
    [
        b'{%s,"x":1,"x":2}' % PUT,  # nobody knows it
        b'{%s,"x":{"key":1,"key":2}}' % PUT,
        b'{%s,"request_id":null}' % PUT,
        b'{%s,"ttl_ms":null,"tenant_id":null}' % PUT,
        b'{"type":"cache_put","key":"a\\"key\\":\\"b","value":""}',
        b'{"type":"cache_put","key":"=\\u003d","value":"YQ=\\u003d"}',
        b'{"type":"cache_put","key":"key","value":"", "x": 1e999999}',
        b'{"type":"cache_put","key":"key","value":"", "x": %s}' % (b"1" * 5000),
        b'{"type":"cache_put","key":"value","value":%s,"x":"value"}' % LARGE,
        b'{"type":"cache_put","key":"x=","value":""}',  # looks like base64 that is wrong
        b'{"type":"cache_put","key":"xx==","value":"YQ=="}',
        b'{%s,"payloads":[%s,%s]}' % (BATCH, LARGE, LARGE),
        b'{"type":"publish_batch","payloads" : [%s , "YQ=="],"tenant_id":"[","namespace":"]","stream":"s"}' % LARGE,
        b'{"x":{"payloads":["",{}]},%s,"payloads":[%s]}' % (BATCH, LARGE),
    ],
)
def test_what_only_looks_like_it(payload: bytes) -> None:
    assert text_of(payload) is None


@pytest.mark.parametrize(
    ("value", "canonical"),
    [("YQ==", True), ("YR==", False), ("YWI=", True), ("YWJ=", False), ("YWJj", True), ("YR=\\u003d", False),
     ("", True)],
)  # fmt: skip
def test_bits_behind_the_last_byte_are_zero(value: str, canonical: bool) -> None:
    expected = None if canonical else "field 'value': invalid base64 encoded string"

    assert text_of(b'{"type":"cache_put","key":"k","value":"%s"}' % value.encode()) == expected
    assert text_of(b'{"type":"cache_put","value" : "%s" , "key":"k"}' % value.encode()) == expected


@given(st.binary(min_size=1, max_size=8), st.sampled_from(ALPHABET))
def test_there_is_one_way_to_write_a_value(value: bytes, last: str) -> None:
    text = b64encode(value).decode()
    body = text.rstrip("=")
    other = body[:-1] + last + text[len(body) :]
    payload = json.dumps({"type": "cache_put", "key": "k", "value": other}).encode()

    accepted = text_of(payload) is None

    assert accepted is (b64encode(b64decode(other)).decode() == other)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"type":"publish","tenant_id":"t","namespace":"n","stream":"s","payload":"YQ==","request_id":7,"ack":"none"}',
        b'{"type":"publish","payload":"YQ==","stream":"s","namespace":"n","tenant_id":"t"}',
        b'{"type": "publish", "tenant_id": "t", "namespace": "n", "stream": "s", "payload": "YQ==", "request_id": 7}',
        b'{"type":"publish","tenant_id":"t","namespace":"n","stream":"s","payload":%s}' % LARGE,
        b'{"type": "publish", "payload": %s, "tenant_id": "t", "namespace": "n", "stream": "s"}' % LARGE,
        b'{"type": "publish_batch", "payloads": [%s, %s], "tenant_id": "t", "namespace": "n", "stream": "s"}'
        % (LARGE, LARGE),
        b'{"request_id":"1","type":"cache_put","key":"k","value":"djE="}',
        b'{"request_id":"1","type":"cache_put","key":"k","value":"djE=","ttl_ms":null}',
    ],
)
def test_usual_messages_are_read_once(payload: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[object] = []
    for name in ("_read_again", "_read_parts"):
        monkeypatch.setattr(strict_json, name, lambda *_: again.append(payload))

    message = decode_request(payload, original=False)

    assert message == decode_request(json.dumps(json.loads(payload)).encode(), original=False)
    assert again == []


def test_nesting_that_only_the_second_reader_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: Any, **__: Any) -> None:
        raise RecursionError

    monkeypatch.setattr(json, "loads", too_deep)

    assert strict_json.flaw(b'{"x":[[]]}', Publish("t", "n", "s", b"")) == "malformed JSON: nested too deeply"


# -- messages so large that their values are not looked at one by one

HUGE = b"YWJj" * 20_000  # more than is read again as a whole
TWICE = "malformed message: a field comes twice"


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b'{%s,"payloads":["%s","Y\\/8="]}' % (BATCH, HUGE), None),  # as some encoders write a slash
        (b'{%s,"payloads":["%s","Y\\/9="]}' % (BATCH, HUGE), "field 'payloads': invalid base64 encoded string"),
        (b'{"type":"cache_put","key":"k\\n","value":"%s"}' % HUGE, None),
        (b'{"type":"cache_put","key":"k","value":"%sYR=="}' % HUGE, "field 'value': invalid base64 encoded string"),
        (b'{"type":"cache_put","key":"k\\"","value":"%s","request_id":1,"x":["",{"a":""}]}' % HUGE, None),
        (b'{"type":"cache_cas","key":"\\\\","value":"%s","expected":null}' % HUGE, None),
        (b'{"type":"cache_put","key":"k\\n","value":"%s","key":"k"}' % HUGE, TWICE),
        (b'{"type":"cache_put","key":"k","value":"%s","value":"%s"}' % (HUGE, HUGE), TWICE),
        (b'{"type":"cache_get","key":"k","x":"%s","request_id":1,"request_id":2}' % HUGE, TWICE),
        (b'{"type":"cache_get","key":"k","key":"k","\\u0022":"%s"}' % HUGE, TWICE),  # a quote too few, and two too many
        (b'{%s,"start":{"offset":1,"offset":2},"x":"%s"}' % (SUBSCRIBE, HUGE), TWICE),
        (b'{%s,"start":{"offset":1},"x":"\\n%s"}' % (SUBSCRIBE, HUGE), None),
        (b'{%s,"start":"latest","x":"\\n%s"}' % (SUBSCRIBE, HUGE), None),
    ],
)  # fmt: skip
def test_large_messages_are_held_to_the_same(payload: bytes, text: str | None) -> None:
    assert len(payload) > strict_json._WHOLE
    assert text_of(payload) == text
