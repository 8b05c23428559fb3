"""FlyMQ's decoders: frames, coalesced PRODUCE, compressed payloads, and every opcode's request and reply."""

from __future__ import annotations

import gzip
from typing import Any, Final

from tests.fuzz.targets.target import Target, check_feeding, conversations, same, script, scripts, vector_data

from penstock.wire.flymq.codec import replies, requests
from penstock.wire.flymq.codec.coalesced_produce import CoalescedProduce, coalesce_produce
from penstock.wire.flymq.errors import MalformedPayload, PayloadTooLarge, ProtocolError, UnknownOpcode
from penstock.wire.flymq.frames import CoalescingFramer, Frame, Framer, content, ends_with_value
from penstock.wire.flymq.opcodes import COMPRESSION_GZIP, HEADER_SIZE, Op

_LIMIT: Final = 64 << 10  # bytes of a payload that was compressed
_EXPECTED: Final = (MalformedPayload, UnknownOpcode)


def frames(data: bytes) -> None:
    run = script(data)
    stray = bool(run.mode & 1)
    check_feeding(lambda: Framer(stray), run)


def coalesced(data: bytes) -> None:
    """PRODUCE frames that are read together are what each of them is alone."""
    limit = 1 << 10 if data[:1] > b"\x80" else 1 << 20
    plain = Framer().feed(data[1:])
    found = CoalescingFramer(coalesce=lambda stream, start: coalesce_produce(stream, start, limit)).feed(data[1:])
    together: list[Any] = []
    for each in found:
        if isinstance(each, CoalescedProduce):
            parts = each.split()
            same(sum(part.byte_size for part in parts), each.byte_size)
            same(len(parts), each.count)
            together += [part.request() for part in parts]
        else:
            together.append(each)
    same(len(together), len(plain))
    for one, alone in zip(together, plain, strict=True):
        if isinstance(one, Frame):
            same(one, alone)
        else:
            assert not ends_with_value(alone)
            same(requests.decode(alone.opcode, alone.payload), one)


def request(data: bytes) -> None:
    """Behind opcode and flags."""
    frame = Frame(data[0], data[1], data[2:]) if len(data) > 2 else Frame(0, 0, b"")
    try:
        found = requests.decode(frame.opcode, content(frame, _LIMIT))
    except ProtocolError as error:
        assert isinstance(error, _EXPECTED), error
        return
    try:
        written = requests.encode(found)
    except ValueError:  # a text that is longer than its own field, by a form that has a wider one
        return
    again = requests.decode(written[2], written[HEADER_SIZE:])
    same(requests.encode(again), written)


def reply(data: bytes) -> None:
    """Behind opcode and a byte that says in which order a FETCH is answered."""
    if len(data) < 2:
        return
    opcode, code_order = data[0], bool(data[1] & 1)
    try:
        found = replies.decode(opcode, data[2:], code_order)
    except ProtocolError as error:
        assert isinstance(error, _EXPECTED), error
        return
    try:
        written = replies.encode(Op.AUTH if opcode == Op.AUTH_RESPONSE else opcode, found)
    except (ValueError, PayloadTooLarge):
        return
    again = replies.decode(written[2], written[HEADER_SIZE:], code_order)
    same(replies.encode(Op.AUTH if opcode == Op.AUTH_RESPONSE else opcode, again), written)


def _requests() -> list[bytes]:
    whole = [data for data in vector_data("flymq", "request") if len(data) >= HEADER_SIZE]
    found = [data[2:4] + data[HEADER_SIZE:] for data in whole]
    packed = [
        bytes((data[2], data[3] | COMPRESSION_GZIP)) + gzip.compress(data[HEADER_SIZE:], mtime=0) for data in whole
    ]
    return [*found, *packed[:8]]


def _replies() -> list[bytes]:
    whole = [data for data in vector_data("flymq", "reply") if len(data) >= HEADER_SIZE]
    return [data[2:3] + order + data[HEADER_SIZE:] for data in whole for order in (b"\0", b"\1")]


def _streams() -> list[bytes]:
    single = vector_data("flymq", "request")
    produces = [data for data in single if len(data) > 8 and data[2] == Op.PRODUCE]
    return [*single, *conversations("flymq"), *[data * 3 for data in produces]]


TARGETS: Final = (
    Target("flymq.frames", frames, lambda: scripts([*_streams(), *vector_data("flymq", "reply")], (0, 1))),
    Target("flymq.coalesced", coalesced, lambda: [b"\0" + data for data in _streams()]),
    Target("flymq.request", request, _requests),
    Target("flymq.reply", reply, _replies),
)
