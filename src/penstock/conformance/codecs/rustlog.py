"""RustLog. Kinds of vectors: `request` and `reply`, for whole frames, in the dialect `json` or `binary`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.conformance.codecs import Rejected, plain
from penstock.conformance.vectors import Vector
from penstock.wire.rustlog import frames as framing
from penstock.wire.rustlog.codec.dialect import DIALECTS, detect
from penstock.wire.rustlog.errors import ProtocolError


def read(vector: Vector, pieces: Sequence[bytes]) -> list[Any]:
    framer = framing.Framer()
    found = [each for piece in pieces for each in framer.feed(piece)]
    if framer.error is not None:
        raise _rejected(vector, framer.error)
    if framer.buffered or not found:
        raise Rejected("incomplete", f"{framer.buffered} bytes are no whole frame")
    try:
        return [_message(vector, payload) for payload in found]
    except ProtocolError as error:
        raise _rejected(vector, error) from None


def _message(vector: Vector, payload: bytes) -> Any:
    if vector.kind == "reply":
        return DIALECTS[vector.dialect].decode_response(payload)
    dialect = detect(payload)
    if dialect.name != vector.dialect:
        raise Rejected("misread", f"taken for the {dialect.name} dialect")
    return dialect.decode_request(payload)


def _rejected(vector: Vector, error: ProtocolError) -> Rejected:
    code, text = (error.json_code, str(error)) if vector.dialect == "json" else (error.binary_code, error.binary_text)
    return Rejected("close" if error.closes else "error", text, code)


def fields(vector: Vector, message: list[Any]) -> dict[str, Any]:  # noqa: ARG001
    said = [{"type": type(each).__name__, **plain(each)} for each in message]
    return said[0] if len(said) == 1 else {"frames": said}


def write(vector: Vector, message: list[Any]) -> bytes | None:
    dialect = DIALECTS[vector.dialect]
    encode: Any = dialect.encode_request if vector.kind == "request" else dialect.encode_response
    return b"".join(framing.frame(encode(each)) for each in message)
