"""FlyMQ. Kinds of vectors: `request` and `reply`, for whole frames. The dialect `code` is the original's field order of
a FETCH reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.conformance.codecs import Rejected, plain
from penstock.conformance.vectors import Vector
from penstock.wire.flymq import frames as framing
from penstock.wire.flymq.codec import replies, requests
from penstock.wire.flymq.errors import MalformedPayload, UnknownOpcode
from penstock.wire.flymq.opcodes import Op


class Message(NamedTuple):
    opcode: int
    flags: int
    content: Any


_OURS = {"code_order", "style"}  # fields about the encoding of a message, not its content
_NAMES = {"timestamp_ms": "timestamp", "timestamp_us": "timestamp"}  # where our name differs from the specification's


def read(vector: Vector, pieces: Sequence[bytes]) -> list[Message]:
    framer = framing.Framer(stray=vector.kind == "request")
    found = [each for piece in pieces for each in framer.feed(piece)]
    if framer.error is not None:
        raise Rejected("close", framer.error)
    if framer.buffered or not found:
        raise Rejected("incomplete", f"{framer.buffered} bytes are no whole frame")
    try:
        return [_message(vector, each) for each in found]
    except (MalformedPayload, UnknownOpcode) as error:
        raise Rejected("error", error) from None


def _message(vector: Vector, frame: framing.Frame) -> Message:
    payload = framing.content(frame)
    if vector.kind == "request":
        return Message(frame.opcode, frame.flags, requests.decode(frame.opcode, payload))
    return Message(frame.opcode, frame.flags, replies.decode(frame.opcode, payload, vector.dialect == "code"))


def fields(vector: Vector, message: list[Message]) -> dict[str, Any]:  # noqa: ARG001
    said = [
        {
            "opcode": each.opcode,
            "flags": each.flags,
            **_named(plain(each.content)),
        }
        for each in message
    ]
    return said[0] if len(said) == 1 else {"frames": said}


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return {_NAMES.get(name, name): _named(each) for name, each in value.items() if name not in _OURS}
    return [_named(each) for each in value] if isinstance(value, list) else value


def write(vector: Vector, message: list[Message]) -> bytes | None:
    if vector.kind == "request":
        return b"".join(requests.encode(each.content) for each in message)
    return b"".join(replies.encode(Op.AUTH if each.opcode == Op.AUTH_RESPONSE else each.opcode, each.content)
                    for each in message)  # fmt: skip
