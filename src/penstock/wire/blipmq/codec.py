"""Payloads: decodes the fields of each frame type, and encodes whole frames.

Everything here is a pure function of bytes. Sessions decide what a frame means, and whether it is allowed now.

    type            payload                                                         sent by
    0x01 HELLO      version u16                                                     client
    0x02 AUTH       key length u16, key                                             client
    0x03 PUBLISH    qos u8, topic length u16, topic, value                          client; server (delivery, version 1)
                    qos | 0x80 u8, TTL in ms u32, topic length u16, topic, value    client (version 2)
    0x04 SUBSCRIBE  topic length u16, topic, qos u8, anything                       client
    0x05 ACK        subscription u64                                                both
    0x06 NACK       code u16, text length u16, text                                 server
    0x07 PING       anything                                                        client
    0x08 PONG       –                                                               server
    0x09 POLL       subscription u64                                                client
    0x0A DELIVER    qos u8, tag u64, topic length u16, topic, value                 server (version 2)

Integers are big-endian. A `decode_…` function returns None for a malformed payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Final

from penstock.wire.blipmq.frames import (
    ACK,
    AUTH,
    DELIVER,
    HEADER,
    HELLO,
    MAX_FRAME,
    MIN_FRAME,
    NACK,
    PING,
    POLL,
    PONG,
    PUBLISH,
    SUBSCRIBE,
    Frame,
    encode_frame,
)
from penstock.wire.blipmq.messages import NO_TTL, Delivered, Publish

TTL_FLAG: Final = 0x80  # in the qos byte of a version 2 PUBLISH

_U16: Final = struct.Struct(">H")
_TTL: Final = struct.Struct(">BI")  # qos | 0x80, TTL

# -- payloads, decoded by the server


def decode_hello(payload: bytes) -> int | None:
    """The version."""
    return int.from_bytes(payload, "big") if len(payload) == 2 else None


def decode_auth(payload: bytes) -> str | None:
    """The key."""
    if len(payload) < 2 or len(payload) - 2 != int.from_bytes(payload[:2], "big"):
        return None
    return _text(payload[2:])


def decode_publish(payload: bytes) -> Publish | None:
    """Version 1. The caller must check that the topic is UTF-8, so that it can do so once for many messages."""
    if len(payload) < 3:
        return None
    value_start = 3 + (payload[1] << 8 | payload[2])
    if value_start > len(payload):
        return None
    return payload[0], NO_TTL, payload[3:value_start], value_start


def decode_publish_v2(payload: bytes) -> Publish | None:
    """Version 2: as version 1, or with a TTL. Unknown bits of the qos byte stay in `qos`, so that a message from a
    later version is rejected instead of misread."""
    if len(payload) < 3 or not payload[0] & TTL_FLAG:
        return decode_publish(payload)
    if len(payload) < 7:
        return None
    value_start = 7 + (payload[5] << 8 | payload[6])
    if value_start > len(payload):
        return None
    ttl = int.from_bytes(payload[1:5], "big")
    return payload[0] ^ TTL_FLAG, ttl, payload[7:value_start], value_start


def collect_publishes(frames: Sequence[Frame], start: int, prefix: bytes) -> tuple[list[int], list[bytes], int]:
    """The indexes and values of the PUBLISH frames from `start` on whose payloads begin with `prefix`, up to the first
    that begins differently, whose index is the last result. Frames of other types are passed over. With everything
    before the value of the first as prefix (`payload[:value_start]`), these are messages with the same topic, QoS and
    TTL, since the prefix includes the topic's length."""
    size = len(prefix)
    indexes: list[int] = []
    values: list[bytes] = []
    for i in range(start, len(frames)):
        kind, _, payload = frames[i]
        if kind == PUBLISH:
            if not payload.startswith(prefix):
                return indexes, values, i
            indexes.append(i)
            values.append(payload[size:])
    return indexes, values, len(frames)


NAMED: Final = 0x80
"""Added to the QoS of a SUBSCRIBE to a named queue."""
_TERMS: Final = struct.Struct(">IHH")  # lease in ms, attempts, length of the name


def decode_subscribe(payload: bytes) -> tuple[bytes, int] | None:
    """The topic, which may not be UTF-8, and the QoS. Anything that follows is ignored, as in the original, unless
    the QoS marks a `NAMED` queue."""
    if len(payload) < 3:
        return None
    end = 2 + int.from_bytes(payload[:2], "big")
    if end >= len(payload):
        return None
    return payload[2:end], payload[end]


def decode_queue_terms(payload: bytes) -> tuple[int, int, bytes] | None:
    """The lease in ms, the attempts and the name, which may not be UTF-8, of a SUBSCRIBE to a `NAMED` queue."""
    start = 3 + int.from_bytes(payload[:2], "big")
    if len(payload) < start + _TERMS.size:
        return None
    lease, attempts, size = _TERMS.unpack_from(payload, start)
    name = payload[start + _TERMS.size :]
    return (lease, attempts, name) if len(name) == size else None


def decode_subscription_id(payload: bytes) -> int | None:
    """The subscription id of an ACK or a POLL."""
    return int.from_bytes(payload, "big") if len(payload) == 8 else None


# -- payloads, decoded by the client


def decode_delivery(correlation: int, payload: bytes) -> Delivered | None:
    """A PUBLISH from the server. With QoS 0 its correlation id is that of the POLL instead of a tag."""
    fields = decode_publish(payload)
    if fields is None:
        return None
    qos, _, topic, value_start = fields
    return Delivered(qos, correlation if qos else 0, topic, payload[value_start:])


def decode_deliver(payload: bytes) -> Delivered | None:
    """A DELIVER."""
    if len(payload) < 11:
        return None
    end = 11 + int.from_bytes(payload[9:11], "big")
    if end > len(payload):
        return None
    return Delivered(payload[0], int.from_bytes(payload[1:9], "big"), payload[11:end], payload[end:])


def decode_nack(payload: bytes) -> tuple[int, str] | None:
    """The code and the text."""
    if len(payload) < 4 or len(payload) - 4 != int.from_bytes(payload[2:4], "big"):
        return None
    text = _text(payload[4:])
    return None if text is None else (int.from_bytes(payload[:2], "big"), text)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


# -- frames, encoded by the server

_ACK: Final = struct.Struct(">IBQQ")  # length, type, correlation id, subscription; the frame of a POLL is the same
_NACK: Final = struct.Struct(">IBQHH")  # length, type, correlation id, code, text length
_PUBLISH: Final = struct.Struct(">IBQB")  # length, type, correlation id, qos
_DELIVERY: Final = struct.Struct(">IBQBH")  # length, type, correlation id, qos, topic length
_DELIVER: Final = struct.Struct(">IBQBQ")  # length, type, tag, qos, tag

_DELIVERY_FIXED: Final = MIN_FRAME + 1 + 2  # added to the lengths of topic and value
_DELIVER_FIXED: Final = MIN_FRAME + 1 + 8 + 2


DELIVERED_BYTES: Final = {1: MAX_FRAME - _DELIVERY_FIXED, 2: MAX_FRAME - _DELIVER_FIXED}
"""The maximum size of a message and its topic's name together in a delivery, by version. In version 1 it equals the
maximum of a PUBLISH; version 2 has an additional tag of eight bytes."""


def encode_ack(correlation: int, subscription: int) -> bytes:
    return _ACK.pack(17, ACK, correlation, subscription)


def encode_nack(correlation: int, code: int, text: str) -> bytes:
    """A NACK. A text that is too long for its length field is cut at a character boundary."""
    data = text.encode("utf-8", "replace")
    if len(data) > 0xFFFF:
        data = data[:0xFFFF].decode("utf-8", "ignore").encode()
    return _NACK.pack(MIN_FRAME + 4 + len(data), NACK, correlation, code, len(data)) + data


def encode_pong(correlation: int) -> bytes:
    return HEADER.pack(MIN_FRAME, PONG, correlation)


def encode_pongs(frames: Iterable[Frame]) -> list[bytes]:
    """For each frame a PONG if it is a PING, otherwise nothing."""
    return [HEADER.pack(MIN_FRAME, PONG, correlation) if kind == PING else b"" for kind, correlation, _ in frames]


def encode_delivery(correlation: int, qos: int, topic: bytes, value: bytes) -> bytes:
    """A message in version 1: `correlation` is its tag, or with QoS 0 the correlation id of the POLL."""
    size = len(topic)
    head = _DELIVERY.pack(_DELIVERY_FIXED + size + len(value), PUBLISH, correlation, qos, size)
    return b"".join((head, topic, value))


def encode_deliver(tag: int, qos: int, topic: bytes, value: bytes) -> bytes:
    """A message in version 2: `tag` is 0 for QoS 0."""
    return encode_delivers((tag,), (qos,), topic, (value,))


def encode_deliveries(ids: Iterable[int], qoss: Iterable[int], topic: bytes, values: Sequence[bytes]) -> bytes:
    """Messages of one topic in version 1; see `encode_delivery`."""
    lengths = map((_DELIVERY_FIXED + len(topic)).__add__, map(len, values))
    heads = map(_PUBLISH.pack, lengths, repeat(PUBLISH), ids, qoss)
    return _joined(heads, topic, values)


def encode_delivers(tags: Sequence[int], qoss: Iterable[int], topic: bytes, values: Sequence[bytes]) -> bytes:
    """Messages of one topic in version 2; see `encode_deliver`."""
    lengths = map((_DELIVER_FIXED + len(topic)).__add__, map(len, values))
    heads = map(_DELIVER.pack, lengths, repeat(DELIVER), tags, qoss, tags)
    return _joined(heads, topic, values)


def _joined(heads: Iterable[bytes], topic: bytes, values: Sequence[bytes]) -> bytes:
    """Each head, the topic with its length, and a value: a few calls for all messages instead of several for each."""
    return b"".join(chain.from_iterable(zip(heads, repeat(_U16.pack(len(topic)) + topic), values)))


# -- frames, encoded by the client


def encode_hello(correlation: int, version: int) -> bytes:
    return encode_frame(HELLO, correlation, _U16.pack(version))


def encode_auth(correlation: int, key: str) -> bytes:
    data = key.encode()
    return encode_frame(AUTH, correlation, _U16.pack(len(data)) + data)


def publish_prefix(qos: int, topic: bytes, ttl_ms: int | None = None) -> bytes:
    """Everything before the value of a PUBLISH; a TTL makes it one of version 2."""
    head = bytes((qos,)) if ttl_ms is None else _TTL.pack(qos | TTL_FLAG, ttl_ms)
    return head + _U16.pack(len(topic)) + topic


def encode_publish(correlation: int, qos: int, topic: bytes, value: bytes, ttl_ms: int | None = None) -> bytes:
    return encode_frame(PUBLISH, correlation, publish_prefix(qos, topic, ttl_ms) + value)


def encode_publishes(ids: Iterable[int], prefix: bytes, values: Sequence[bytes]) -> bytes:
    """PUBLISH frames with the same prefix."""
    lengths = map((MIN_FRAME + len(prefix)).__add__, map(len, values))
    heads = map(HEADER.pack, lengths, repeat(PUBLISH), ids)
    return b"".join(chain.from_iterable(zip(heads, repeat(prefix), values)))


def encode_subscribe(correlation: int, topic: bytes, qos: int) -> bytes:
    return encode_frame(SUBSCRIBE, correlation, _U16.pack(len(topic)) + topic + bytes((qos,)))


def encode_named_subscribe(
    correlation: int, topic: bytes, qos: int, name: bytes, lease_ms: int, attempts: int
) -> bytes:
    plain = _U16.pack(len(topic)) + topic + bytes((qos | NAMED,))
    return encode_frame(SUBSCRIBE, correlation, plain + _TERMS.pack(lease_ms, attempts, len(name)) + name)


def encode_client_nack(tag: int, subscription: int) -> bytes:
    return _ACK.pack(17, NACK, tag, subscription)


def encode_client_ack(tag: int, subscription: int) -> bytes:
    return _ACK.pack(17, ACK, tag, subscription)


def encode_poll(correlation: int, subscription: int) -> bytes:
    return _ACK.pack(17, POLL, correlation, subscription)


def encode_ping(correlation: int) -> bytes:
    return HEADER.pack(MIN_FRAME, PING, correlation)
