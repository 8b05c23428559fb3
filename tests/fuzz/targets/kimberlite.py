"""Kimberlite's decoders: frames, requests and answers of every dialect, and the detection of a client's dialect."""

from __future__ import annotations

import struct
import zlib
from typing import Final

from tests.fuzz.targets.target import (
    Script,
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

from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ClientCodec, Refused, ServerCodec
from penstock.wire.kimberlite.codec.detection import VERSIONS
from penstock.wire.kimberlite.codec.dialects import NAMED, Dialect, dialect
from penstock.wire.kimberlite.errors import FrameError, MalformedPayload
from penstock.wire.kimberlite.frames import HEADER_SIZE, MAX_PAYLOAD, Frame, Framer

MAGIC: Final = b"VDB "
_NAMES: Final = tuple(NAMED)
_DIALECTS: Final = tuple(dialect(*each) for each in NAMED.values())


def mended(stream: bytes) -> bytes:
    """The stream with lengths and checksums put right: what begins with the magic is a frame up to the next one."""
    return b"".join(_mended(part) for part in begin_with(stream, MAGIC))


def _mended(part: bytes) -> bytes:
    if len(part) < HEADER_SIZE or not part.startswith(MAGIC):
        return part
    payload = part[HEADER_SIZE:]
    return part[:6] + struct.pack(">II", len(payload), zlib.crc32(payload)) + payload


def frames(data: bytes) -> None:
    run = script(data)
    found = check_pulling(lambda: Framer(VERSIONS), run, FrameError, _content)
    for frame in found:
        assert 0 <= frame.start <= frame.end <= len(frame.data)
        assert frame.end - frame.start <= MAX_PAYLOAD


def _content(frame: Frame) -> tuple[int, int, bytes]:
    return frame.version, frame.checksum, frame.data[frame.start : frame.end]


def request(data: bytes) -> None:
    """Behind the number of a dialect."""
    if not data:
        return
    own = _DIALECTS[data[0] % len(_DIALECTS)]
    try:
        found = own.read_request(data, 1, len(data))
    except MalformedPayload:
        own.read_id(data, 1, len(data))
        return
    written = bytes(own.write_request(found.id, found.tenant_id, found.payload, found.audit))
    again = own.read_request(written, 0, len(written))
    same(again, found)
    assert len(written) <= len(data), "it is longer than what was read"


def answer(data: bytes) -> None:
    """Behind the number of a dialect."""
    if not data:
        return
    own = _DIALECTS[data[0] % len(_DIALECTS)]
    try:
        found = own.read_answer(data, 1, len(data))
    except MalformedPayload:
        return
    written = bytes(_written(own, found))
    same(own.read_answer(written, 0, len(written)), found)


def _written(own: Dialect, found: m.Response | m.Push) -> bytearray:
    if isinstance(found, m.Push):
        return own.write_push(found.payload)
    return own.write_response(found.request_id, found.payload)


def server(data: bytes) -> None:
    """A server reads a client's first bytes, in whatever dialect: requests up to the first that it refuses,
    and the same however they arrive."""
    run = script(data)
    stream = mended(run.stream) if run.mode & 1 else run.stream
    whole = _served(Script(stream))
    same(_served(Script(stream, run.steps)), whole)


def _served(run: Script) -> tuple[list[m.Request], bool]:
    """The requests, and whether what followed was refused. The reason may be another one: a payload is read where it
    lies, and what comes behind it may be there already."""
    codec = ServerCodec()
    found: list[m.Request] = []
    for piece, _ in run.pieces():
        codec.feed(piece)
        try:
            while (request := codec.next()) is not None:
                found.append(request)
                codec.response(request.id, m.ErrorResponse(m.ErrorCode.INVALID_REQUEST, "no"))
                assert codec.framer.frame_bytes <= len(run.stream)
        except Refused:
            codec.feed(b"more")
            assert codec.framer.buffered == 0
            return found, True
    assert codec.framer.buffered <= len(run.stream)
    return found, False


def client(data: bytes) -> None:
    run = script(data)
    name = _NAMES[(run.mode >> 1) % len(_NAMES)]
    stream = mended(run.stream) if run.mode & 1 else run.stream
    codec = ClientCodec(name)
    for piece, _ in Script(stream, run.steps).pieces():
        codec.feed(piece)
        try:
            while codec.next() is not None:
                pass
        except MalformedPayload:
            return


def _payloads(kind: str) -> list[bytes]:
    """Payloads of vectors behind the number of their dialect."""
    return [
        bytes((_NAMES.index(each.dialect),)) + each.data[HEADER_SIZE:]
        for each in of_kind("kimberlite", kind)
        if each.dialect in _NAMES
    ]


def streams() -> list[bytes]:
    single = vector_data("kimberlite", "request", "greeting")
    return [*conversations("kimberlite"), *single]


def _replies() -> list[bytes]:
    found = [each for each in of_kind("kimberlite", "reply") if each.dialect in _NAMES]
    return [Script(each.data, b"", _NAMES.index(each.dialect) << 1 | 1).encode() for each in found]


TARGETS: Final = (
    Target("kimberlite.frames", frames, lambda: scripts(streams())),
    Target("kimberlite.request", request, lambda: _payloads("request")),
    Target("kimberlite.answer", answer, lambda: _payloads("reply")),
    Target("kimberlite.server", server, lambda: scripts(streams(), (0, 1))),
    Target("kimberlite.client", client, _replies),
)
