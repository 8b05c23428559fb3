"""Kimberlite. Kinds of vectors: `request` and `reply`, for whole frames, in a dialect of `dialects.NAMED`; and
`greeting`, a first frame whose dialect must be detected, with the answer that proves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.conformance.codecs import Rejected, plain
from penstock.conformance.vectors import Vector
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import Refused, ServerCodec
from penstock.wire.kimberlite.codec.detection import VERSIONS
from penstock.wire.kimberlite.codec.dialects import NAMED, Dialect, dialect
from penstock.wire.kimberlite.errors import FrameError, MalformedPayload
from penstock.wire.kimberlite.frames import Frame, Framer, crc32, crc32c, frame
from penstock.wire.kimberlite.values import Timestamp

_NAMES: Final[dict[type[m.Message], str]] = {m.ErrorResponse: "Error"}
_PLACES: Final[dict[type[m.Message], str]] = {m.UsEast1: "USEast1", m.ApSoutheast2: "APSoutheast2"}


class Greeting(NamedTuple):
    request: m.Request
    answer: bytes


def _dialect(vector: Vector) -> Dialect:
    return dialect(*NAMED[vector.dialect])


def read(vector: Vector, pieces: Sequence[bytes]) -> Any:
    if vector.kind == "greeting":
        return _greeting(pieces)
    framer = Framer(VERSIONS)
    for piece in pieces:
        framer.feed(piece)
    try:
        found = framer.next()
    except FrameError as error:
        raise Rejected("close", error) from None
    if found is None:
        raise Rejected("incomplete", f"{framer.buffered} bytes are no whole frame")
    _verify(found)
    dialect = _dialect(vector)
    if found.version != dialect.version:
        raise Rejected("misread", f"version {found.version}, and not {dialect.version}")
    reading = dialect.read_request if vector.kind == "request" else dialect.read_answer
    try:
        return reading(found.data, found.start, found.end)
    except MalformedPayload as error:
        raise Rejected("close", error) from None


def _verify(found: Frame) -> None:
    payload = found.data[found.start : found.end]
    if found.checksum not in (crc32(payload), crc32c(payload)):
        raise Rejected("close", "the checksum of a frame is wrong")


def _greeting(pieces: Sequence[bytes]) -> Greeting:
    wire = ServerCodec()
    for piece in pieces:
        wire.feed(piece)
    try:
        request = wire.next()
    except Refused as error:
        raise Rejected("close", error) from None
    if request is None:
        raise Rejected("incomplete", f"{wire.framer.buffered} bytes are no whole frame")
    return Greeting(request, wire.response(request.id, m.HandshakeResponse(wire.version, True, ["query_at", "sync"])))


def fields(vector: Vector, message: Any) -> dict[str, Any]:  # noqa: ARG001
    if isinstance(message, Greeting):
        return _said(message.request) | {"answer": "0x" + message.answer.hex()}
    return _said(message)


def _said(message: m.Request | m.Response | m.Push) -> dict[str, Any]:
    said = {_NAMES.get(type(message.payload), type(message.payload).__name__): _plain(message.payload)}
    if isinstance(message, m.Request):
        audit = {"audit": plain(message.audit)} if message.audit is not None else {}
        return {"id": message.id, "tenant_id": message.tenant_id, **audit, "payload": said}
    if isinstance(message, m.Response):
        return {"request_id": message.request_id, "payload": said}
    return {"push": said}


def _plain(value: Any) -> Any:
    if isinstance(value, m.Everywhere):
        return "Global"
    if isinstance(value, m.Regional):
        return "Regional" if value.region is None else {"Region": _plain(value.region)}
    if isinstance(value, m.CustomRegion):
        return {"Custom": value.name}
    if type(value) in _PLACES:
        return _PLACES[type(value)]
    if isinstance(value, m.Message):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Timestamp):
        return {"Timestamp": value.nanoseconds}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return plain(value)


def write(vector: Vector, message: Any) -> bytes | None:
    if isinstance(message, Greeting):
        return None
    dialect = _dialect(vector)
    if isinstance(message, m.Request):
        payload = dialect.write_request(message.id, message.tenant_id, message.payload, message.audit)
    elif isinstance(message, m.Response):
        payload = dialect.write_response(message.request_id, message.payload)
    else:
        payload = dialect.write_push(message.payload)
    return frame(payload, dialect.version)
