"""RustLog's decoders: frames, requests and replies of both dialects, and Produces that are read together."""

from __future__ import annotations

import struct
from typing import Final

from tests.fuzz.targets.target import (
    SEPARATOR,
    Target,
    between,
    check_feeding,
    conversations,
    of_kind,
    same,
    script,
    scripts,
    vector_data,
)

from penstock.wire.rustlog.codec.dialect import BINARY, JSON, Dialect, detect
from penstock.wire.rustlog.errors import InvalidRequest, ProtocolError, ReplyTooLarge
from penstock.wire.rustlog.frames import Framer
from penstock.wire.rustlog.messages import Produce, Request, Response

_HEADER: Final = 4
_LIMIT: Final = 512  # bytes of Produces that are read together


def frames(data: bytes) -> None:
    check_feeding(Framer, script(data))


def request(data: bytes) -> None:
    if data:
        _read_request(detect(data), data)


def _read_request(dialect: Dialect, payload: bytes) -> Request | None:
    try:
        found = dialect.decode_request(payload)
    except ProtocolError:
        return None
    try:
        written = dialect.encode_request(found)
    except InvalidRequest:
        return found
    same(dialect.decode_request(written), found)
    return found


def reply(data: bytes) -> None:
    for dialect in (JSON, BINARY):
        try:
            found = dialect.decode_response(data) if data else None
        except ProtocolError:
            continue
        if found is not None:
            _write_reply(dialect, found)


def _write_reply(dialect: Dialect, found: Response) -> None:
    """A message that was read can be written; a reply of the binary dialect may have been one that no server writes,
    such as records before offset 0."""
    try:
        written = dialect.encode_response(found)
    except (ReplyTooLarge, struct.error, InvalidRequest):
        return
    again = dialect.decode_response(written)
    same(dialect.encode_response(again), written)


def produces(data: bytes) -> None:
    """Produces that are read together are what each of them is alone."""
    parts = between(data)
    if len(parts) < 2:
        return
    dialect = detect(parts[0])
    first = _read_request(dialect, parts[0])
    if not isinstance(first, Produce):
        return
    found = dialect.more_produces(first, parts[1:], _LIMIT)
    assert sum(map(len, parts[1 : 1 + len(found)])) <= _LIMIT
    for payload, records in zip(parts[1:], found, strict=False):
        same(dialect.decode_request(payload), Produce(first.topic, first.partition, records))


def _produces() -> list[bytes]:
    found = [each[_HEADER:] for each in vector_data("rustlog", "request")]
    return [
        SEPARATOR.join((payload, payload, payload))
        for payload in found
        if b"Produce" in payload or payload[:1] == b"\1"
    ]


TARGETS: Final = (
    Target("rustlog.frames", frames, lambda: scripts([*vector_data("rustlog"), *conversations("rustlog")])),
    Target("rustlog.request", request, lambda: [v.data[_HEADER:] for v in of_kind("rustlog", "request")]),
    Target("rustlog.reply", reply, lambda: [v.data[_HEADER:] for v in of_kind("rustlog", "reply")]),
    Target("rustlog.produces", produces, _produces),
)
