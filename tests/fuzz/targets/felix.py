"""Felix' decoders: frames, JSON requests of both dialects, replies, and the binary payloads."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec
from tests.fuzz.targets.target import (
    Target,
    begin_with,
    check_pulling,
    conversations,
    of_kind,
    same,
    script,
    scripts,
    vector_data,
)

from penstock.wire.felix import messages
from penstock.wire.felix.codec import binary, requests
from penstock.wire.felix.errors import Malformed
from penstock.wire.felix.frames import ACKED, HEADER_SIZE, KEYED, MAGIC, BadFrame, Framer

_LIMIT: Final = 4096


def mended(stream: bytes) -> bytes:
    """The stream with versions and lengths put right: what begins with the magic is a frame up to the next one."""
    return b"".join(_mended(part) for part in begin_with(stream, MAGIC))


def _mended(part: bytes) -> bytes:
    if len(part) < HEADER_SIZE or not part.startswith(MAGIC):
        return part
    payload = part[HEADER_SIZE:]
    return MAGIC + struct.pack(">H", 1) + part[6:8] + struct.pack(">I", len(payload)) + payload


def frames(data: bytes) -> None:
    run = script(data)
    check_pulling(lambda: Framer(_LIMIT), run, BadFrame, tuple)


def request(data: bytes) -> None:
    """Behind a byte that says in which dialect."""
    original = bool(data[:1] > b"\x7f")
    try:
        found = requests.decode_request(data[1:], original=original)
    except Malformed as error:
        assert error.text
        return
    written = messages.encode(found)[HEADER_SIZE:]
    same(requests.decode_request(written, original=original), found)


def reply(data: bytes) -> None:
    try:
        found = messages.decode_reply(data)
    except Malformed as error:
        assert error.text
        return
    written = messages.encode(found)[HEADER_SIZE:]
    same(msgspec.to_builtins(messages.decode_reply(written)), msgspec.to_builtins(found))


def payload(data: bytes) -> None:
    """A binary one, behind the flags of its frame."""
    flags, content = int.from_bytes(data[:2], "big"), data[2:]
    for decode, encode in _BINARY:
        try:
            found = decode(flags, content)
        except Malformed as error:
            assert error.text
            continue
        again = encode(found)
        same(encode(decode(int.from_bytes(again[6:8], "big"), again[HEADER_SIZE:])), again)


_BINARY: Final[tuple[tuple[Callable[[int, bytes], Any], Callable[[Any], bytes]], ...]] = (
    (
        lambda flags, data: binary.decode_batch(data, acked=bool(flags & ACKED), keyed=bool(flags & KEYED)),
        binary.encode_batch,
    ),
    (lambda flags, data: binary.decode_ack(data, flags), lambda ack: binary.encode_ack(*ack, detailed=True)),
    (
        binary.decode_events,
        lambda found: binary.encode_events(
            found.payloads, found.subscription_id, found.base_offset, found.skipped or 0, found.timestamps
        ),
    ),
)


def _requests() -> list[bytes]:
    found = of_kind("felix", "request", "message")
    return [(b"\xff" if each.dialect == "original" else b"\0") + each.data for each in found]


def _payloads() -> list[bytes]:
    whole = [data for data in vector_data("felix", "batch", "ack", "events") if len(data) >= HEADER_SIZE]
    return [data[6:8] + data[HEADER_SIZE:] for data in whole]


def streams() -> list[bytes]:
    return [*conversations("felix"), *vector_data("felix", "frame", "batch", "ack", "events")]


TARGETS: Final = (
    Target("felix.frames", frames, lambda: scripts(streams())),
    Target("felix.request", request, _requests),
    Target("felix.reply", reply, lambda: vector_data("felix", "message")),
    Target("felix.payload", payload, _payloads),
)
