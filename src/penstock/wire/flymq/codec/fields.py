"""Fields: decoding and encoding of the parts of a payload, and their composition into layouts.

A `Field` reads one value from a `Reader`, and writes one. A `Layout` is the field of a whole message: the fields of its
parts, in the order of the class. The tables of `requests.py` and `replies.py` consist of layouts.

    S16, S8        a UTF-8 text after its length, u16 or u8
    B32, KEY       bytes after their length, u32; an empty key is no key
    BOOL           one byte, true if it is 1
    I32 … U64      integers, big-endian
    many(field)    a count, u32, and that many values
    sized(layout)  a message after its length, u32

Every count and length is checked against the available bytes. Bytes after the last field are ignored, like the original
does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.wire.flymq.errors import MalformedPayload
from penstock.wire.flymq.messages import Message

TOO_SMALL: Final = "buffer too small"
INVALID: Final = "invalid binary format"

T = TypeVar("T")
M = TypeVar("M", bound=Message)

_U8: Final = struct.Struct(">B")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_MAX_U32: Final = 0xFFFF_FFFF


class Reader:
    """Reads values from a payload."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def number(self, layout: struct.Struct) -> int:
        start = self.position
        self.position = start + layout.size
        if self.position > len(self.data):
            raise MalformedPayload(INVALID)
        return layout.unpack_from(self.data, start)[0]  # type: ignore[no-any-return]

    def take(self, length: int) -> bytes:
        start = self.position
        self.position = start + length
        if self.position > len(self.data):
            raise MalformedPayload(INVALID)
        return self.data[start : self.position]

    def text(self, length: int) -> str:
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise MalformedPayload(INVALID) from None


class Field(NamedTuple, Generic[T]):
    read: Callable[[Reader], T]
    write: Callable[[T], bytes]
    minimum: int  # bytes of the shortest value


class Layout(NamedTuple, Generic[M]):
    """The field of a message of class `kind`."""

    kind: type[M]
    read: Callable[[Reader], M]
    write: Callable[[M], bytes]
    minimum: int

    def decode(self, payload: bytes) -> M:
        if len(payload) < self.minimum:
            raise MalformedPayload(TOO_SMALL)
        return self.read(Reader(payload))


def _integer(code: str) -> Field[int]:
    layout = struct.Struct(f">{code}")
    return Field(lambda reader: reader.number(layout), layout.pack, layout.size)


def _write_text(text: str, length: struct.Struct) -> bytes:
    data = text.encode()
    if len(data) >= 1 << 8 * length.size:
        raise ValueError(f"A text of {len(data)} bytes is longer than FlyMQ can carry here")
    return length.pack(len(data)) + data


def _write_bytes(data: bytes) -> bytes:
    if len(data) > _MAX_U32:
        raise ValueError(f"A value of {len(data)} bytes is longer than FlyMQ can carry")
    return _U32.pack(len(data)) + data


I32: Final = _integer("i")
U32: Final = _integer("I")
I64: Final = _integer("q")
U64: Final = _integer("Q")
BOOL: Final = Field[bool](lambda r: r.number(_U8) == 1, lambda value: b"\1" if value else b"\0", 1)
S8: Final = Field[str](lambda r: r.text(r.number(_U8)), lambda text: _write_text(text, _U8), 1)
S16: Final = Field[str](lambda r: r.text(r.number(_U16)), lambda text: _write_text(text, _U16), 2)
B32: Final = Field[bytes](lambda r: r.take(r.number(_U32)), _write_bytes, 4)
KEY: Final = Field[bytes | None](lambda r: r.take(r.number(_U32)) or None, lambda key: _write_bytes(key or b""), 4)


def many(field: Field[T] | Layout[Any], limit: int | None = None) -> Field[list[T]]:
    """A counted list. `limit` bounds the number of values accepted from a peer: a value can be as short as two
    bytes."""
    read_one, write_one, minimum = field.read, field.write, field.minimum

    def read(reader: Reader) -> list[T]:
        count = reader.number(_U32)
        if count * minimum > reader.left:
            raise MalformedPayload(INVALID)
        if limit is not None and count > limit:
            raise MalformedPayload(f"{INVALID}: a list of {count} (max: {limit})")
        return [read_one(reader) for _ in range(count)]

    def write(values: list[T]) -> bytes:
        return b"".join((_U32.pack(len(values)), *map(write_one, values)))

    return Field(read, write, 4)


def _read_header(reader: Reader) -> tuple[str, bytes]:
    return S16.read(reader), B32.read(reader)


MAX_HEADERS: Final = 1_000  # per record
RECORD_HEADERS: Final[Field[list[tuple[str, bytes]]]] = many(
    Field(_read_header, lambda header: S16.write(header[0]) + B32.write(header[1]), 6), limit=MAX_HEADERS
)


def sized(layout: Layout[M]) -> Field[M]:
    """A message after its length. Extra bytes within that length are ignored."""
    return Field(lambda r: layout.decode(B32.read(r)), lambda message: B32.write(layout.write(message)), 4)


def layout(kind: type[M], *fields: Field[Any], tail: int = 0, last: Field[Any] | None = None) -> Layout[M]:
    """The layout of a message with these fields, in this order.

    The last `tail` fields may be missing, but only together: they then have the defaults of the class. If any bytes are
    left where they would begin, they must be complete: half a tail is an error. `last` is a list after a complete tail,
    which may be missing by itself."""
    names = kind.__struct_fields__
    lists = kind.__struct_defaults__
    if last is not None:
        names, lists = names[:-1], lists[:-1]
    last_name = "" if last is None else kind.__struct_fields__[-1]
    assert len(names) == len(fields), kind
    required = len(fields) - tail
    readers = [field.read for field in fields[:required]]
    tail_readers = [field.read for field in fields[required:]]
    writers = [(name, field.write) for name, field in zip(names, fields, strict=True)]
    defaults = dict(zip(names[required:], lists[-tail:] if tail else (), strict=True))

    def read(reader: Reader) -> M:
        values = [read_one(reader) for read_one in readers]
        if tail_readers and reader.left:
            values += [read_one(reader) for read_one in tail_readers]
            if last is not None and reader.left:
                values.append(last.read(reader))
        return kind(*values)

    def write(message: M) -> bytes:
        listed = getattr(message, last_name) if last is not None else None
        absent = defaults and not listed and all(getattr(message, name) == each for name, each in defaults.items())
        parts = [w(getattr(message, name)) for name, w in (writers[:required] if absent else writers)]
        if last is not None and listed:
            parts.append(last.write(listed))
        return b"".join(parts)

    return Layout(kind, read, write, sum(field.minimum for field in fields[:required]))
