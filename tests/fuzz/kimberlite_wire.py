"""Kimberlite by hand where it can be, and by the codec's own tables where there is too much of it: headers are written
and taken apart with `struct`, requests are made at random for any generation, and then damaged.
"""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any, NamedTuple

from tests.fuzz.wire import DEADLINE, Wire

from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.dialects import NAMED, Dialect, dialect
from penstock.wire.kimberlite.codec.kinds import (
    BOOL,
    BYTES,
    TEXT,
    U16,
    U32,
    U64,
    VALUE,
    Choice,
    Kind,
    Label,
    ListOf,
    Option,
    Record,
    Scalar,
)
from penstock.wire.kimberlite.values import Timestamp

MAGIC = 0x56444220
MAX_PAYLOAD = 16 << 20
VERSIONS = (1, 2, 3, 4, 5)
TENANT = 9
DIALECTS = {name: dialect(*each) for name, each in NAMED.items()}
HUGE = (1 << 64) - 1


def frame(payload: bytes, version: int = 5, *, checksum: int | None = None, length: int | None = None) -> bytes:
    crc = zlib.crc32(payload) if checksum is None else checksum
    return struct.pack(">IHII", MAGIC, version, len(payload) if length is None else length, crc) + payload


def asked(payload: m.Message, of: str = "5b", *, id: int = 1, tenant: int = TENANT) -> bytes:  # noqa: A002
    """A whole frame."""
    spoken = DIALECTS[of]
    return frame(bytes(spoken.write_request(id, tenant, payload, None)), spoken.version)


def greeting(of: str = "5b") -> bytes:
    return asked(m.Handshake(DIALECTS[of].version), of, id=0)


class Reply(NamedTuple):
    version: int
    payload: bytes


def replies_of(stream: bytes) -> list[Reply]:
    """The frames of a stream, which must be nothing but whole ones."""
    found, at = [], 0
    while at < len(stream):
        magic, version, length, checksum = struct.unpack_from(">IHII", stream, at)
        assert magic == MAGIC and length <= MAX_PAYLOAD
        at += 14 + length
        assert at <= len(stream)
        payload = stream[at - length : at]
        assert zlib.crc32(payload) == checksum
        found.append(Reply(version, payload))
    return found


class KimWire(Wire):
    """One connection, as bytes; and as messages of one generation."""

    def __init__(self, address: tuple[str, int], of: str = "5b", *, greets: bool = True) -> None:
        super().__init__(address)
        self._dialect = DIALECTS[of]
        self._of = of
        self._number = 0
        if greets:
            assert isinstance(self.ask_for(m.Handshake(self._dialect.version)), m.HandshakeResponse)

    def reply(self) -> Reply:
        magic, version, length, checksum = struct.unpack(">IHII", self._exactly(14))
        assert magic == MAGIC and length <= MAX_PAYLOAD
        payload = self._exactly(length)
        assert zlib.crc32(payload) == checksum
        return Reply(version, payload)

    def message(self) -> m.Response | m.Push:
        payload = self.reply().payload
        return self._dialect.read_answer(payload, 0, len(payload))

    def request(self, payload: m.Message) -> bytes:
        self._number += 1
        return asked(payload, self._of, id=self._number)

    def ask_for(self, payload: m.Message) -> m.Message:
        """The answer; pushes are passed over."""
        self.socket.sendall(self.request(payload))
        return self.answer()

    def answer(self) -> m.Message:
        while isinstance(found := self.message(), m.Push):
            pass
        return found.payload

    def patiently(self, factor: float = 3) -> None:
        self.socket.settimeout(factor * DEADLINE)

    def create(self, name: str) -> int:
        made = self.ask_for(m.CreateStream(name, m.DataClass.PUBLIC, m.Everywhere()))
        assert isinstance(made, m.CreateStreamResponse), made
        return made.stream_id

    def append(self, stream: int, events: list[bytes], expected: int) -> None:
        done = self.ask_for(m.AppendEvents(stream, events, expected))
        assert isinstance(done, m.AppendEventsResponse), done


# -- requests at random

SQL = (
    "SELECT COUNT(*) AS count FROM events",
    "SELECT * FROM s WHERE a = $1",
    "INSERT INTO s (a) VALUES (?)",
    "CREATE TABLE s (a BIGINT PRIMARY KEY)",
    "DROP TABLE s",
    "SELECT",
    "",
    "\0",
    ";;",
    "SELECT $9",
    "SELECT '\U0010ffff'",
    "/* ",
    "(" * 500,
    "SELECT 1; SELECT 2",
    "UPDATE s SET a = 1",
)
TEXTS = ("", "s", "events", "g", "Admin", "no such", "\0", "é" * 300, "x" * 5000, "psk_1_x", "a.b.c", "__audit", "'\"")
NUMBERS = (0, 1, 2, 3, TENANT, 1 << 31, (1 << 32) - 1)


def any_of(kind: Kind, rng: random.Random) -> Any:
    """Anything of this kind: small numbers and few names, so that requests meet each other, and extremes."""
    if isinstance(kind, Scalar):
        return _scalar(kind, rng)
    if isinstance(kind, Option):
        return None if rng.random() < 0.4 else any_of(kind.of, rng)
    if isinstance(kind, ListOf):
        return [any_of(kind.of, rng) for _ in range(rng.choice((0, 1, 1, 2, 5, 40)))]
    if isinstance(kind, Label):
        return rng.choice(kind.names)
    if isinstance(kind, Record):
        values = {field.name: any_of(field.kind, rng) for field in kind.fields}
        if "sql" in values:
            values["sql"] = rng.choice(SQL)
        return kind.make(**values)
    assert isinstance(kind, Choice)
    return any_of(rng.choice(kind.variants), rng)


def _scalar(kind: Scalar, rng: random.Random) -> Any:
    if kind is BOOL:
        return rng.random() < 0.5
    if kind is TEXT:
        return rng.choice(TEXTS)
    if kind is BYTES:
        return rng.randbytes(rng.choice((0, 1, 10, 300)))
    if kind is VALUE:
        return rng.choice((None, True, 0, -(1 << 63), "text", Timestamp(0), Timestamp((1 << 63) - 1)))
    if kind is U64:
        return rng.choice((*NUMBERS, 1 << 63, HUGE))
    if kind is U32:
        return rng.choice(NUMBERS)
    return rng.choice((0, 1, 5, 0xFFFF)) if kind is U16 else rng.choice((0, 1, 127))


def any_request(of: Dialect, rng: random.Random, kind: Record | None = None) -> bytes:
    """The payload of one, of this kind or of any."""
    payload = any_of(of.generation.requests() if kind is None else kind, rng)
    audit = m.AuditMetadata("who", "why") if rng.random() < 0.2 else None
    return bytes(of.write_request(rng.choice((1, 2, HUGE)), rng.choice((TENANT, TENANT, 0, HUGE)), payload, audit))


EXTREMES = (b"\xff" * 4, b"\xff" * 8, b"\xff" * 9 + b"\x01", bytes(8), b"\x80" * 10, struct.pack("<Q", 1 << 40))


def damaged(payload: bytes, rng: random.Random) -> bytes:
    """Cut short, lengthened, or with some bytes changed: by lengths and numbers that are too large, above all."""
    data = bytearray(payload)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                del data[at:]
            case 1:
                data[at:at] = rng.randbytes(rng.randrange(1, 12))
            case 2:
                extreme = rng.choice(EXTREMES)
                data[at : at + len(extreme)] = extreme
            case 3:
                del data[at : at + rng.randrange(1, 9)]
            case _:
                data[at : at + 1] = bytes((rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)),))
    return bytes(data)


def any_stream(of: Dialect, rng: random.Random, name: str) -> bytes:
    """Some requests of one generation, good and damaged ones, most in frames that fit them."""
    parts = [greeting(name)] if rng.random() < 0.9 else []
    for _ in range(rng.randrange(1, 9)):
        payload = any_request(of, rng)
        if rng.random() < 0.4:
            payload = damaged(payload, rng)
        whole = frame(payload, of.version)
        match rng.randrange(30):
            case 0:
                whole = frame(payload, rng.choice((0, 1, 2, 6, 0xFFFF)))
            case 1:
                whole = frame(payload, of.version, checksum=rng.getrandbits(32))
            case 2:
                whole = frame(payload, of.version, length=rng.choice((0, 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 0xFFFFFFFF)))
            case 3:
                whole = damaged(whole, rng)
        parts.append(whole)
    return b"".join(parts)
