"""BlipMQ. Kinds of vectors: `client` and `server`, for frames sent by either side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from penstock.conformance.codecs import Rejected, plain
from penstock.conformance.vectors import Vector
from penstock.wire.blipmq import codec, errors, frames, messages


class Message(NamedTuple):
    kind: int
    correlation: int
    payload: bytes
    said: dict[str, Any]


def _value(data: bytes, fields: messages.Publish | None) -> dict[str, Any] | None:
    if fields is None:
        return None
    qos, ttl, topic, start = fields
    said = {"qos": qos, "topic": _text(topic), "message": data[start:]}
    return said if ttl == messages.NO_TTL else said | {"ttl_ms": ttl}


def _text(topic: bytes) -> str | bytes:
    try:
        return topic.decode()
    except UnicodeDecodeError:
        return topic


def _one(name: str, read: Callable[[bytes], Any]) -> Callable[[bytes], dict[str, Any] | None]:
    def said(payload: bytes) -> dict[str, Any] | None:
        value = read(payload)
        return None if value is None else {name: value}

    return said


def _subscribe(payload: bytes) -> dict[str, Any] | None:
    fields = codec.decode_subscribe(payload)
    return None if fields is None else {"topic": _text(fields[0]), "qos": fields[1]}


def _nack(payload: bytes) -> dict[str, Any] | None:
    fields = codec.decode_nack(payload)
    return None if fields is None else {"code": fields[0], "message": fields[1]}


def _deliver(payload: bytes) -> dict[str, Any] | None:
    found = codec.decode_deliver(payload)
    if found is None:
        return None
    return {"qos": found.qos, "tag": found.tag, "topic": _text(found.topic), "message": found.value}


_READ: Final[dict[int, tuple[Callable[[bytes], dict[str, Any] | None], errors.Nack | None]]] = {
    frames.HELLO: (_one("protocol_version", codec.decode_hello), errors.INVALID_HELLO),
    frames.AUTH: (_one("key", codec.decode_auth), errors.INVALID_AUTH),
    frames.PUBLISH: (lambda data: _value(data, codec.decode_publish(data)), errors.INVALID_PUBLISH),
    frames.SUBSCRIBE: (_subscribe, errors.INVALID_SUBSCRIBE),
    frames.ACK: (_one("subscription_id", codec.decode_subscription_id), errors.INVALID_ACK),
    frames.NACK: (_nack, None),
    frames.PING: (lambda _: {}, None),
    frames.PONG: (lambda _: {}, None),
    frames.POLL: (_one("subscription_id", codec.decode_subscription_id), errors.INVALID_POLL),
    frames.DELIVER: (_deliver, None),
}


def read(vector: Vector, pieces: Sequence[bytes]) -> list[Message]:
    framer = frames.Framer(frames.POLL if vector.kind == "client" else frames.DELIVER)
    found = [each for piece in pieces for each in framer.feed(piece)]
    if framer.error is not None:
        raise Rejected("close", framer.error)
    if framer.buffered or not found:
        raise Rejected("incomplete", f"{framer.buffered} bytes are no whole frame")
    return [_message(vector, *each) for each in found]


def _message(vector: Vector, kind: int, correlation: int, payload: bytes) -> Message:
    reading, refusal = _READ[kind]
    if kind == frames.PUBLISH and vector.dialect == "2":
        said = _value(payload, codec.decode_publish_v2(payload))
    else:
        said = reading(payload)
    if said is None:
        raise Rejected("error", refusal.text if refusal else "", refusal.code if refusal else None)
    return Message(kind, correlation, payload, said)


def fields(vector: Vector, message: list[Message]) -> dict[str, Any]:  # noqa: ARG001
    said = [
        {"type": frames.FrameType(each.kind).name, "correlation_id": each.correlation, **plain(each.said)}
        for each in message
    ]
    return said[0] if len(said) == 1 else {"frames": said}


def write(vector: Vector, message: list[Message]) -> bytes | None:
    return b"".join(_written(vector, each) for each in message)


def _written(vector: Vector, message: Message) -> bytes:
    kind, correlation, _, said = message
    topic = str(said.get("topic", "")).encode()
    if kind == frames.HELLO:
        return codec.encode_hello(correlation, said["protocol_version"])
    if kind == frames.AUTH:
        return codec.encode_auth(correlation, said["key"])
    if kind == frames.PUBLISH and vector.kind == "client":
        return codec.encode_publish(correlation, said["qos"], topic, said["message"], said.get("ttl_ms"))
    if kind == frames.PUBLISH:
        return codec.encode_delivery(correlation, said["qos"], topic, said["message"])
    if kind == frames.SUBSCRIBE:
        return codec.encode_subscribe(correlation, topic, said["qos"])
    if kind == frames.ACK:
        return codec.encode_ack(correlation, said["subscription_id"])
    if kind == frames.NACK:
        return codec.encode_nack(correlation, said["code"], said["message"])
    if kind == frames.POLL:
        return codec.encode_poll(correlation, said["subscription_id"])
    if kind == frames.DELIVER:
        return codec.encode_deliver(said["tag"], said["qos"], topic, said["message"])
    return codec.encode_ping(correlation) if kind == frames.PING else codec.encode_pong(correlation)
