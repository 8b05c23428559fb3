"""The test vectors of the original, and of its layouts, byte for byte in both directions."""

from __future__ import annotations

import pytest
from tests.wire.felix.single_frame import only_frame
from tests.wire.vectors import vector_bytes

from penstock.wire.felix.codec.binary import (
    Ack,
    Batch,
    Events,
    decode_ack,
    decode_batch,
    decode_events,
    encode_ack,
    encode_batch,
    encode_events,
)
from penstock.wire.felix.codec.requests import decode_request
from penstock.wire.felix.frames import ACK, ACKED, BATCH, EVENTS, HEADER_SIZE, OFFSETS, SHARED, Frame
from penstock.wire.felix.messages import (
    Auth,
    AuthOk,
    CacheGet,
    CachePut,
    CacheValue,
    Error,
    Event,
    Message,
    Ok,
    Publish,
    Subscribe,
    decode_reply,
    encode,
)

VECTORS = vector_bytes("felix")

REQUESTS: dict[str, Message] = {
    "auth_with_capabilities": Auth("t1", "demo-token", 25),
    "publish": Publish("t1", "default", "demo", b"hello"),
    "subscribe": Subscribe("t1", "default", "demo"),
    "cache_put": CachePut(
        tenant_id="t1", namespace="default", cache="primary", key="demo-key", value=b"cached", ttl_ms=1000
    ),
    "cache_get": CacheGet(tenant_id="t1", namespace="default", cache="primary", key="demo-key"),
}

REPLIES: dict[str, Message] = {
    "auth_ok": AuthOk(25),
    "event": Event("t1", "default", "demo", b"world"),
    "cache_value": CacheValue(tenant_id="t1", namespace="default", cache="primary", key="demo-key", value=b"cached"),
    "ok": Ok(),
    "error": Error(message="oops"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_of_the_original(name: str) -> None:
    data, message = VECTORS[f"original/{name}"], REQUESTS[name]
    payload = data[HEADER_SIZE:]

    assert only_frame(data) == Frame(0, payload)
    assert decode_request(payload, original=True) == message
    assert encode(message) == data


@pytest.mark.parametrize("name", REPLIES)
def test_replies_of_the_original(name: str) -> None:
    data, message = VECTORS[f"original/{name}"], REPLIES[name]
    payload = data[HEADER_SIZE:]

    assert only_frame(data) == Frame(0, payload)
    assert decode_reply(payload) == message
    assert encode(message) == data


def test_binary_publish_acked() -> None:
    data = VECTORS["original/binary_publish_acked"]
    batch = Batch("t1", "default", "demo", [b"hello"], 7, True)

    flags, payload = only_frame(data)

    assert flags == BATCH | ACKED
    assert decode_batch(payload, acked=True) == batch
    assert encode_batch(batch) == data


def test_binary_publish_acked_per_message() -> None:
    data = bytes.fromhex("0000000000000007 01 000174 00016e 000173 00000000")

    assert decode_batch(data, acked=True) == Batch("t", "n", "s", [], 7, True)


def test_binary_publish() -> None:
    data = VECTORS["binary_batch_valid/two_payloads"]
    batch = Batch("t1", "default", "demo", [b"hello", b"hi"])

    flags, payload = only_frame(data)

    assert flags == BATCH
    assert decode_batch(payload, acked=False) == batch
    assert encode_batch(batch) == data


@pytest.mark.parametrize(("name", "ack"), [("ok", Ack(7, None)), ("error", Ack(9, "stream not found"))])
def test_binary_publish_ack(name: str, ack: Ack) -> None:
    data = VECTORS[f"original/binary_publish_ack_{name}"]
    flags, payload = only_frame(data)

    assert flags == ACK
    assert decode_ack(payload) == ack
    assert encode_ack(*ack) == data


@pytest.mark.parametrize(
    ("name", "flags", "subscription_id", "base_offset"),
    [
        ("events_id", EVENTS, 7, None),
        ("events_shared", SHARED, None, None),
        ("events_id_offset", EVENTS | OFFSETS, 7, 42),
        ("events_shared_offset", SHARED | OFFSETS, None, 42),
    ],
)
def test_binary_events(name: str, flags: int, subscription_id: int | None, base_offset: int | None) -> None:
    data = VECTORS[f"binary_original_valid/{name}"]

    frame = only_frame(data)

    assert frame.flags == flags
    assert decode_events(*frame) == Events(subscription_id, base_offset, [b"one", b"two"])
    assert encode_events([b"one", b"two"], subscription_id, base_offset) == data
