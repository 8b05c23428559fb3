"""The test vectors of the original, and frames derived from its layouts by hand, byte for byte in both directions."""

from __future__ import annotations

import pytest

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
from penstock.wire.felix.frames import ACK, ACKED, BATCH, EVENTS, OFFSETS, SHARED, Frame, Framer
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
    decode_request,
    encode,
)

JSON_HEADER = "464c58310001000000"  # magic, version, no flags, and the first byte of the length

REQUESTS = {
    "auth_with_capabilities": (
        "000047",
        b'{"type":"auth","tenant_id":"t1","token":"demo-token","client_flags":25}',
        Auth("t1", "demo-token", 25),
    ),
    "publish": (
        "00005e",
        b'{"type":"publish","tenant_id":"t1","namespace":"default","stream":"demo","payload":"aGVsbG8="}',
        Publish("t1", "default", "demo", b"hello"),
    ),
    "subscribe": (
        "00004b",
        b'{"type":"subscribe","tenant_id":"t1","namespace":"default","stream":"demo"}',
        Subscribe("t1", "default", "demo"),
    ),
    "cache_put": (
        "00007f",
        (
            b'{"type":"cache_put","tenant_id":"t1","namespace":"default","cache":"primary","key":"demo-key",'
            b'"value":"Y2FjaGVk","ttl_ms":1000}'
        ),
        CachePut(
            tenant_id="t1", namespace="default", cache="primary", key="demo-key", value=b"cached", ttl_ms=1000
        ),
    ),
    "cache_get": (
        "00005e",
        b'{"type":"cache_get","tenant_id":"t1","namespace":"default","cache":"primary","key":"demo-key"}',
        CacheGet(tenant_id="t1", namespace="default", cache="primary", key="demo-key"),
    ),
}  # fmt: skip

REPLIES = {
    "auth_ok": ("000024", b'{"type":"auth_ok","server_flags":25}', AuthOk(25)),
    "event": (
        "00005c",
        b'{"type":"event","tenant_id":"t1","namespace":"default","stream":"demo","payload":"d29ybGQ="}',
        Event("t1", "default", "demo", b"world"),
    ),
    "cache_value": (
        "000073",
        (
            b'{"type":"cache_value","tenant_id":"t1","namespace":"default","cache":"primary","key":"demo-key",'
            b'"value":"Y2FjaGVk"}'
        ),
        CacheValue(tenant_id="t1", namespace="default", cache="primary", key="demo-key", value=b"cached"),
    ),
    "ok": ("00000d", bytes.fromhex("7b2274797065223a226f6b227d"), Ok()),
    "error": ("000021", b'{"type":"error","message":"oops"}', Error(message="oops")),
}


def only_frame(data: bytes) -> Frame:
    frames = Framer()
    frames.feed(data)
    frame = frames.next()
    assert frame is not None
    assert not frames.started
    return frame


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_of_the_original(name: str) -> None:
    length, payload, message = REQUESTS[name]
    data = bytes.fromhex(JSON_HEADER + length) + payload

    assert only_frame(data) == Frame(0, payload)
    assert decode_request(payload, original=True) == message
    assert encode(message) == data


@pytest.mark.parametrize("name", REPLIES)
def test_replies_of_the_original(name: str) -> None:
    length, payload, message = REPLIES[name]
    data = bytes.fromhex(JSON_HEADER + length) + payload

    assert isinstance(message, Message)
    assert only_frame(data) == Frame(0, payload)
    assert decode_reply(payload) == message
    assert encode(message) == data


def test_binary_publish_acked() -> None:
    data = bytes.fromhex(
        "464c58310001000900000029"
        "0000000000000007 02"
        "0002 7431  0007 64656661756c74  0004 64656d6f"
        "00000001  00000005 68656c6c6f"
    )
    batch = Batch("t1", "default", "demo", [b"hello"], 7, True)

    flags, payload = only_frame(data)

    assert flags == BATCH | ACKED
    assert decode_batch(payload, acked=True) == batch
    assert encode_batch(batch) == data


def test_binary_publish_acked_per_message() -> None:
    data = bytes.fromhex("0000000000000007 01 000174 00016e 000173 00000000")

    assert decode_batch(data, acked=True) == Batch("t", "n", "s", [], 7, True)


def test_binary_publish() -> None:
    data = bytes.fromhex(
        "464c583100010001000000260002743100076465"
        "6661756c74000464656d6f000000020000000568656c6c6f000000026869"
    )  # fmt: skip
    batch = Batch("t1", "default", "demo", [b"hello", b"hi"])

    flags, payload = only_frame(data)

    assert flags == BATCH
    assert decode_batch(payload, acked=False) == batch
    assert encode_batch(batch) == data


@pytest.mark.parametrize(
    ("data", "ack"),
    [
        ("464c5831000100100000000b 00 0000000000000007 0000", Ack(7, None)),
        (
            "464c5831000100100000001b 01 0000000000000009 0010 73747265616d206e6f7420666f756e64",
            Ack(9, "stream not found"),
        ),
    ],
    ids=["ok", "error"],
)
def test_binary_publish_ack(data: str, ack: Ack) -> None:
    flags, payload = only_frame(bytes.fromhex(data))

    assert flags == ACK
    assert decode_ack(payload) == ack
    assert encode_ack(*ack) == bytes.fromhex(data)


@pytest.mark.parametrize(
    ("data", "flags", "subscription_id", "base_offset"),
    [
        ("464c5831000100020000001a 0000000000000007", EVENTS, 7, None),
        ("464c58310001000400000012", SHARED, None, None),
        ("464c58310001002200000022 0000000000000007 000000000000002a", EVENTS | OFFSETS, 7, 42),
        ("464c5831000100240000001a 000000000000002a", SHARED | OFFSETS, None, 42),
    ],
    ids=["0x0002", "0x0004", "0x0022", "0x0024"],
)
def test_binary_events(data: str, flags: int, subscription_id: int | None, base_offset: int | None) -> None:
    whole = bytes.fromhex(data + "00000002 00000003 6f6e65 00000003 74776f")

    frame = only_frame(whole)

    assert frame.flags == flags
    assert decode_events(*frame) == Events(subscription_id, base_offset, [b"one", b"two"])
    assert encode_events([b"one", b"two"], subscription_id, base_offset) == whole
