"""Felix. Kinds of vectors: `frame`; `message` and `request`, the JSON payload of a frame, in the dialect `document` or
`original`; `batch`, `ack` and `events`, for whole frames in binary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from penstock.conformance.codecs import Rejected, plain
from penstock.conformance.vectors import Vector
from penstock.wire.felix import frames, messages
from penstock.wire.felix.codec import binary, requests
from penstock.wire.felix.errors import Malformed

_REQUESTS: Final = frozenset(
    ("auth", "publish", "publish_batch", "subscribe", "cache_put", "cache_get", "cache_delete", "cache_cas",
     "cache_increment")
)  # fmt: skip

_BATCH: Final = {"tenant": "tenant_id"}  # where our name differs from the specification's


def read(vector: Vector, pieces: Sequence[bytes]) -> Any:
    if vector.kind in ("message", "request"):
        return _message(vector, b"".join(pieces))
    found = _frames(pieces)
    if vector.kind == "frame":
        return found
    try:
        return _BINARY[vector.kind](found[0])
    except Malformed as error:
        raise Rejected("error", error) from None


def _frames(pieces: Sequence[bytes]) -> list[frames.Frame]:
    cutter = frames.Framer()
    found = []
    try:
        for piece in pieces:
            cutter.feed(piece)
            while (each := cutter.next()) is not None:
                found.append(each)
    except frames.BadFrame as error:
        raise Rejected("close", error, error.code) from None
    if cutter.buffered or not found:
        raise Rejected("incomplete", f"{cutter.buffered} bytes are no whole frame")
    return found


_BINARY: Final[dict[str, Callable[[frames.Frame], Any]]] = {
    "batch": lambda frame: binary.decode_batch(
        frame.payload, acked=bool(frame.flags & frames.ACKED), keyed=bool(frame.flags & frames.KEYED)
    ),
    "ack": lambda frame: binary.decode_ack(frame.payload, frame.flags),
    "events": lambda frame: binary.decode_events(frame.flags, frame.payload),
}


def _message(vector: Vector, payload: bytes) -> messages.Message:
    is_request = vector.kind == "request" or (vector.expect or {}).get("type") in _REQUESTS
    try:
        if is_request:
            return requests.decode_request(payload, original=vector.dialect == "original")
        return messages.decode_reply(payload)
    except Malformed as error:
        raise Rejected("error", error) from None


def fields(vector: Vector, message: Any) -> dict[str, Any]:
    if vector.kind == "frame":
        said = [plain(each._asdict()) for each in message]
        return said[0] if len(said) == 1 else {"frames": said}
    if isinstance(message, messages.Message):
        return cast("dict[str, Any]", msgspec.to_builtins(message))
    return {_BATCH.get(name, name): plain(value) for name, value in message._asdict().items()}


def write(vector: Vector, message: Any) -> bytes | None:
    if vector.kind == "frame":
        return b"".join(frames.frame(each.payload, each.flags) for each in message)
    if isinstance(message, messages.Message):
        return messages.encode(message)[frames.HEADER_SIZE :]
    if isinstance(message, binary.Batch):
        return binary.encode_batch(message)
    if isinstance(message, binary.Ack):
        detailed = message.advice is not None and message.advice.retry_after_ms is not None
        return binary.encode_ack(*message, detailed=detailed)
    subscription_id, base_offset, payloads, skipped, timestamps = message
    return binary.encode_events(payloads, subscription_id, base_offset, skipped or 0, timestamps)
