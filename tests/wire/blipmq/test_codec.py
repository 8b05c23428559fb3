"""Payloads: the samples of the document byte for byte, and what a payload must look like."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.vectors import vector_bytes

from penstock.wire.blipmq import codec, errors, frames
from penstock.wire.blipmq.errors import Nack
from penstock.wire.blipmq.frames import DELIVER, MAX_FRAME, Frame, Framer, FrameType
from penstock.wire.blipmq.messages import NO_TTL

VECTORS = vector_bytes("blipmq")

u16 = st.integers(0, 0xFFFF)
u64 = st.integers(0, 0xFFFF_FFFF_FFFF_FFFF)
u8 = st.integers(0, 255)
names = st.binary(max_size=30)
values = st.binary(max_size=60)


# -- golden frames

SAMPLES: dict[str, tuple[bytes, Frame]] = {
    "frame_valid/hello": (codec.encode_hello(1, 1), (1, 1, b"\0\1")),
    "frame_valid/auth": (codec.encode_auth(2, "dev-key"), (2, 2, b"\0\7dev-key")),
    "frame_valid/subscribe": (codec.encode_subscribe(3, b"demo", 1), (4, 3, b"\0\4demo\1")),
    "frame_valid/publish": (codec.encode_publish(4, 1, b"demo", b"hi"), (3, 4, b"\1\0\4demohi")),
    "frame_valid/ack_of_subscribe": (codec.encode_ack(3, 42), (5, 3, b"\0\0\0\0\0\0\0\x2a")),
}
REQUESTS: dict[str, bytes] = {
    "frame_valid/hello_version_2": codec.encode_hello(1, 2),
    "frame_types/publish_qos0_empty": codec.encode_publish(1 << 63, 0, b"demo", b""),
    "frame_types/publish_ttl": codec.encode_publish(5, 1, b"demo", b"hi", ttl_ms=1000),
    "frame_types/publish_ttl_qos0": codec.encode_publish(5, 0, b"demo", b"hi", ttl_ms=0xFFFF_FFFF),
    "frame_types/subscribe_utf8": codec.encode_subscribe(6, "€".encode(), 0),
    "frame_types/client_ack": codec.encode_client_ack(7, 42),
    "frame_types/poll": codec.encode_poll(8, 42),
    "frame_types/ping": codec.encode_ping(9),
}
REPLIES: dict[str, bytes] = {
    "frame_valid/ack_of_handshake": codec.encode_ack(1, 0),
    "frame_types/ack_largest": codec.encode_ack(0xFFFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF),
    "frame_types/pong": codec.encode_pong(9),
    "frame_types/delivery_qos1": codec.encode_delivery(1, 1, b"demo", b"hi"),
    "frame_types/delivery_qos0": codec.encode_delivery(8, 0, b"demo", b"hi"),
    "frame_types/delivery_empty": codec.encode_delivery(1, 1, b"demo", b""),
    "frame_types/deliver_qos1": codec.encode_deliver(5, 1, b"demo", b"hi"),
    "frame_types/deliver_qos0": codec.encode_deliver(0, 0, b"demo", b"hi"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_the_document(name: str) -> None:
    written, frame = SAMPLES[name]
    assert written == VECTORS[name]
    assert Framer().feed(VECTORS[name]) == [frame]


@pytest.mark.parametrize("name", REQUESTS)
def test_golden_requests(name: str) -> None:
    assert REQUESTS[name] == VECTORS[name]
    assert len(Framer().feed(VECTORS[name])) == 1


@pytest.mark.parametrize("name", REPLIES)
def test_golden_replies(name: str) -> None:
    assert REPLIES[name] == VECTORS[name]
    assert len(Framer(DELIVER).feed(VECTORS[name])) == 1


def test_golden_nacks() -> None:
    known = [nack for nack in vars(errors).values() if isinstance(nack, Nack)]
    written = {codec.encode_nack(1, *nack) for nack in known}
    assert written <= set(VECTORS.values())
    for nack, frame in zip(known, map(codec.encode_nack, [1] * len(known), *zip(*known, strict=True)), strict=True):
        (_, _, payload) = Framer().feed(frame)[0]
        assert codec.decode_nack(payload) == nack


def test_the_plain_numbers_are_those_of_the_enum() -> None:
    assert {kind.name: getattr(frames, kind.name) for kind in FrameType} == {kind.name: kind for kind in FrameType}


# -- payloads: what is written is read


def payload_of(data: bytes) -> bytes:
    ((_, _, payload),) = Framer(DELIVER).feed(data)
    return payload


@given(u16)
def test_hello_round_trip(version: int) -> None:
    assert codec.decode_hello(payload_of(codec.encode_hello(1, version))) == version


@given(st.text(max_size=30))
def test_auth_round_trip(key: str) -> None:
    assert codec.decode_auth(payload_of(codec.encode_auth(1, key))) == key


@given(u8, names, values)
def test_publish_round_trip(qos: int, topic: bytes, value: bytes) -> None:
    payload = payload_of(codec.encode_publish(1, qos, topic, value))
    fields = codec.decode_publish(payload)
    assert fields is not None
    assert fields[:3] == (qos, NO_TTL, topic)
    assert payload[fields[3] :] == value


@given(st.integers(0, 127), st.none() | st.integers(0, 0xFFFF_FFFF), names, values)
def test_publish_v2_round_trip(qos: int, ttl: int | None, topic: bytes, value: bytes) -> None:
    payload = payload_of(codec.encode_publish(1, qos, topic, value, ttl_ms=ttl))
    fields = codec.decode_publish_v2(payload)
    assert fields is not None
    assert fields[:3] == (qos, NO_TTL if ttl is None else ttl, topic)
    assert payload[fields[3] :] == value


def test_version_1_knows_no_ttl() -> None:
    """Its qos byte stays as it is, for the session to refuse it."""
    fields = codec.decode_publish(payload_of(codec.encode_publish(1, 1, b"t", b"v", ttl_ms=5)))
    assert fields is not None
    assert fields[0] == 0x81


@given(names, u8)
def test_subscribe_round_trip(topic: bytes, qos: int) -> None:
    assert codec.decode_subscribe(payload_of(codec.encode_subscribe(1, topic, qos))) == (topic, qos)


@given(u64, u64)
def test_subscription_id_round_trip(correlation: int, subscription: int) -> None:
    for encode in (codec.encode_client_ack, codec.encode_poll, codec.encode_ack):
        ((_, found, payload),) = Framer().feed(encode(correlation, subscription))
        assert (found, codec.decode_subscription_id(payload)) == (correlation, subscription)


@given(u16, st.text(max_size=40))
def test_nack_round_trip(code: int, text: str) -> None:
    assert codec.decode_nack(payload_of(codec.encode_nack(1, code, text))) == (code, text)


@pytest.mark.parametrize("text", ["x" * 70_000, "é" * 40_000])
def test_a_long_nack_is_cut_at_a_character(text: str) -> None:
    nack = codec.decode_nack(payload_of(codec.encode_nack(1, 500, text)))
    assert nack is not None
    assert text.startswith(nack[1])
    assert 0xFFFC < len(nack[1].encode()) <= 0xFFFF


@given(st.lists(st.tuples(u64, st.integers(0, 1), values), max_size=6), names)
def test_deliveries_of_both_versions_round_trip(messages: list[tuple[int, int, bytes]], topic: bytes) -> None:
    ids = [correlation for correlation, _, _ in messages]
    qoss = [qos for _, qos, _ in messages]
    sent = [value for _, _, value in messages]
    tags = [correlation if qos else 0 for correlation, qos, _ in messages]
    expected = list(zip(qoss, tags, [topic] * len(sent), sent, strict=True))

    polled = Framer(DELIVER).feed(codec.encode_deliveries(ids, qoss, topic, sent))
    assert [frame[:2] for frame in polled] == [(frames.PUBLISH, correlation) for correlation in ids]
    assert [codec.decode_delivery(frame[1], frame[2]) for frame in polled] == expected

    pushed = Framer(DELIVER).feed(codec.encode_delivers(tags, qoss, topic, sent))
    assert [frame[:2] for frame in pushed] == [(DELIVER, tag) for tag in tags]
    assert [codec.decode_deliver(frame[2]) for frame in pushed] == expected


@pytest.mark.parametrize(("version", "encode"), [(1, codec.encode_delivery), (2, codec.encode_deliver)])
def test_the_largest_value_just_fits_a_delivery(version: int, encode: Callable[..., bytes]) -> None:
    value = bytes(codec.DELIVERED_BYTES[version] - len(b"topic"))
    assert encode(1, 1, b"topic", value)[:4] == MAX_FRAME.to_bytes(4, "big")


def test_the_largest_publish_just_fits_a_delivery_of_version_1() -> None:
    value = bytes(codec.DELIVERED_BYTES[1] - len(b"topic"))
    assert codec.encode_publish(1, 1, b"topic", value)[:4] == MAX_FRAME.to_bytes(4, "big")


# -- publishes in a row


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([b"a", b"ab", b""]), st.binary(max_size=3)), max_size=12))
def test_runs_hold_the_messages_with_the_same_topic_and_qos(messages: list[tuple[int, bytes, bytes]]) -> None:
    sent = [(frames.PUBLISH, i, codec.publish_prefix(qos, t) + v) for i, (qos, t, v) in enumerate(messages)]
    found = []
    start = 0
    while start < len(sent):
        fields = codec.decode_publish(sent[start][2])
        assert fields is not None
        qos, _, topic, value_start = fields
        indexes, run, end = codec.collect_publishes(sent, start, sent[start][2][:value_start])
        assert indexes == list(range(start, end))
        found += [(qos, topic, value) for value in run]
        start = end
    assert found == messages


def test_a_run_goes_on_behind_a_ping() -> None:
    prefix, other = codec.publish_prefix(1, b"t"), codec.publish_prefix(1, b"u")
    sent = [(frames.PUBLISH, 7, prefix + b"v"), (frames.PING, 8, prefix + b"w"), (frames.PUBLISH, 9, prefix + b"x")]
    assert codec.collect_publishes(sent, 0, prefix) == ([0, 2], [b"v", b"x"], 3)
    sent.append((frames.PUBLISH, 10, other + b"y"))
    assert codec.collect_publishes(sent, 0, prefix) == ([0, 2], [b"v", b"x"], 3)


def test_pongs_are_in_the_places_of_their_pings() -> None:
    sent = [(frames.PUBLISH, 7, b""), (frames.PING, 8, b"anything"), (frames.POLL, 9, b"")]
    assert codec.encode_pongs(sent) == [b"", codec.encode_pong(8), b""]


@given(st.lists(values, max_size=5), names)
def test_many_publishes_are_written_as_one_by_one(sent: list[bytes], topic: bytes) -> None:
    together = codec.encode_publishes(range(len(sent)), codec.publish_prefix(1, topic), sent)
    assert together == b"".join(codec.encode_publish(i, 1, topic, value) for i, value in enumerate(sent))


# -- payloads: what is not whole is refused

Decode = Callable[[bytes], object]

WHOLE: list[tuple[Decode, bytes, int]] = [
    # how it is read, a payload, and the shortest beginning of it that is still good
    (codec.decode_hello, b"\0\1", 2),
    (codec.decode_auth, b"\0\3key", 5),
    (codec.decode_publish, b"\1\0\5topicvalue", 8),
    (codec.decode_publish_v2, b"\1\0\5topicvalue", 8),
    (codec.decode_publish_v2, b"\x81\0\0\0\1\0\5topicvalue", 12),
    (codec.decode_subscribe, b"\0\5topic\1", 8),
    (codec.decode_subscription_id, bytes(8), 8),
    (codec.decode_nack, b"\1\x90\0\4text", 8),
    (codec.decode_deliver, b"\1" + bytes(8) + b"\0\5topicvalue", 16),
    (lambda payload: codec.decode_delivery(1, payload), b"\1\0\5topicvalue", 8),
]


@pytest.mark.parametrize(("decode", "payload", "enough"), WHOLE)
def test_every_truncation_is_refused(decode: Decode, payload: bytes, enough: int) -> None:
    good = [size for size in range(len(payload) + 1) if decode(payload[:size]) is not None]
    assert good == list(range(enough, len(payload) + 1))


def test_gap_14_trailing_bytes() -> None:
    assert codec.decode_hello(b"\0\1\0") is None
    assert codec.decode_auth(b"\0\3key\0") is None
    assert codec.decode_subscription_id(bytes(9)) is None
    assert codec.decode_subscribe(b"\0\5topic\1 and more") == (b"topic", 1)


def test_a_key_must_be_utf8() -> None:
    assert codec.decode_auth(b"\0\2\xff\xfe") is None


@given(st.binary(max_size=40))
def test_no_payload_raises(payload: bytes) -> None:
    for decode, _, _ in WHOLE:
        decode(payload)
