"""How values become bytes: the three encodings that the protocol has had, for the kinds of values in `kinds`.

    fixed      integers of fixed width, little-endian; a count is a u64, an enum's index a u32; an option has a flag of
               one byte (bincode 1.3) or of four (as the specification's examples print it)
    postcard   integers, counts and indices are varints, signed ones zig-zag; flags are one byte

A codec for a kind is made once, of closures, and then knows nothing of the other encodings. Readers check every length
against the bytes that are there before anything is made of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.core.query import Timestamp
from penstock.protocols.kimberlite.kinds import (
    BOOL,
    BYTES,
    I64,
    TEXT,
    U8,
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

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""The value at a place, and the place behind it. Raises Malformed."""

Write: TypeAlias = Callable[[Any, bytearray], None]


class Malformed(ValueError):
    """The bytes are not a message of this schema in this encoding."""


class Codec(NamedTuple):
    read: Read
    write: Write


class Encoding(NamedTuple):
    """The primitives of one encoding. `index` is that of an enum's variant, `count` that of a list's elements."""

    name: str
    scalars: dict[Scalar, Codec]
    count: Codec
    index: Codec
    flag: Codec  # of an option: 0 or 1


# -- primitives


def _fixed(layout: str, name: str) -> Codec:
    packed = struct.Struct(layout)
    size, unpack, pack = packed.size, packed.unpack_from, packed.pack

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if at + size > len(data):
            raise Malformed(f"the message ends within a {name}")
        return unpack(data, at)[0], at + size

    def write(value: Any, out: bytearray) -> None:
        out += pack(value)

    return Codec(read, write)


def _varint(bits: int) -> Codec:
    most = -(-bits // 7)  # bytes
    limit = 1 << bits

    def read(data: bytes, at: int) -> tuple[int, int]:
        value = shift = 0
        for place in range(at, min(at + most, len(data))):
            byte = data[place]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= limit:
                    raise Malformed(f"a number of more than {bits} bits")
                return value, place + 1
            shift += 7
        raise Malformed("the message ends within a number" if at + most > len(data) else f"more than {bits} bits")

    def write(value: int, out: bytearray) -> None:
        if not 0 <= value < limit:
            raise ValueError(f"{value} does not fit into {bits} bits")
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)

    return Codec(read, write)


def _zigzag(unsigned: Codec) -> Codec:
    def read(data: bytes, at: int) -> tuple[int, int]:
        value, at = unsigned.read(data, at)
        return (value >> 1) ^ -(value & 1), at

    def write(value: int, out: bytearray) -> None:
        unsigned.write((value << 1) ^ (value >> 63), out)

    return Codec(read, write)


def _flag(number: Codec, what: str) -> Codec:
    def read(data: bytes, at: int) -> tuple[bool, int]:
        value, at = number.read(data, at)
        if value > 1:
            raise Malformed(f"{value} is no {what}")
        return value == 1, at

    def write(value: bool, out: bytearray) -> None:
        number.write(1 if value else 0, out)

    return Codec(read, write)


def _bytes(count: Codec) -> Codec:
    count_of, write_count = count

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        size, at = count_of(data, at)
        end = at + size
        if end > len(data):
            raise Malformed("bytes run past the end of the message")
        return data[at:end], end

    def write(value: bytes, out: bytearray) -> None:
        write_count(len(value), out)
        out += value

    return Codec(read, write)


def _text(raw: Codec) -> Codec:
    def read(data: bytes, at: int) -> tuple[str, int]:
        value, at = raw.read(data, at)
        try:
            return value.decode(), at
        except UnicodeDecodeError:
            raise Malformed("a text that is not UTF-8") from None

    def write(value: str, out: bytearray) -> None:
        raw.write(value.encode(), out)

    return Codec(read, write)


def _encoding(name: str, numbers: dict[Scalar, Codec], count: Codec, index: Codec, flag: Codec) -> Encoding:
    raw = _bytes(count)
    scalars = {**numbers, BOOL: _flag(numbers[U8], "boolean"), BYTES: raw, TEXT: _text(raw)}
    return Encoding(name, scalars, count, index, _flag(flag, "flag of an optional value"))


_BYTE: Final = _fixed("<B", "byte")
_WIDE: Final = {
    U8: _BYTE,
    U16: _fixed("<H", "u16"),
    U32: _fixed("<I", "u32"),
    U64: _fixed("<Q", "u64"),
    I64: _fixed("<q", "i64"),
}
_SHORT: Final = {U8: _BYTE, U16: _varint(16), U32: _varint(32), U64: _varint(64), I64: _zigzag(_varint(64))}

BINCODE: Final = _encoding("bincode", _WIDE, _WIDE[U64], _WIDE[U32], _BYTE)
PRINTED: Final = _encoding("fixed", _WIDE, _WIDE[U64], _WIDE[U32], _WIDE[U32])
"""As the specification's examples are printed: optional values have a flag of four bytes."""
POSTCARD: Final = _encoding("postcard", _SHORT, _SHORT[U64], _SHORT[U32], _BYTE)


# -- what is made of them


def codec(kind: Kind, encoding: Encoding) -> Codec:
    """Reads and writes values of this kind in this encoding."""
    if isinstance(kind, Scalar):
        return _value(encoding) if kind is VALUE else encoding.scalars[kind]
    if isinstance(kind, Option):
        return _option(codec(kind.of, encoding), encoding)
    if isinstance(kind, ListOf):
        return _list(codec(kind.of, encoding), encoding, kind.of is BYTES)
    if isinstance(kind, Label):
        return _label(kind, encoding)
    if isinstance(kind, Record):
        return _record(kind, encoding)
    return _choice(kind, encoding)


def _option(inner: Codec, encoding: Encoding) -> Codec:
    flag = encoding.flag

    def read(data: bytes, at: int) -> tuple[Any, int]:
        present, at = flag.read(data, at)
        return inner.read(data, at) if present else (None, at)

    def write(value: Any, out: bytearray) -> None:
        flag.write(value is not None, out)
        if value is not None:
            inner.write(value, out)

    return Codec(read, write)


def _list(inner: Codec, encoding: Encoding, of_bytes: bool) -> Codec:
    count_of, write_count = encoding.count
    read_one, write_one = inner

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        count, at = count_of(data, at)
        if count > len(data) - at:  # nothing takes less than a byte
            raise Malformed("a list runs past the end of the message")
        found = []
        for _ in range(count):
            value, at = read_one(data, at)
            found.append(value)
        return found, at

    def read_events(data: bytes, at: int) -> tuple[list[bytes], int]:
        """The same for a list of bytes: events come by the thousand."""
        count, at = count_of(data, at)
        end = len(data)
        if count > end - at:
            raise Malformed("a list runs past the end of the message")
        found = []
        for _ in range(count):
            size, at = count_of(data, at)
            behind = at + size
            if behind > end:
                raise Malformed("bytes run past the end of the message")
            found.append(data[at:behind])
            at = behind
        return found, at

    def write(values: list[Any], out: bytearray) -> None:
        write_count(len(values), out)
        for value in values:
            write_one(value, out)

    return Codec(read_events if of_bytes else read, write)


def _label(kind: Label, encoding: Encoding) -> Codec:
    names, index = kind.names, encoding.index
    numbers = {name: number for number, name in enumerate(names)}

    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = index.read(data, at)
        if number >= len(names):
            raise Malformed(f"{number} is no {kind.what}")
        return names[number], at

    def write(value: Any, out: bytearray) -> None:
        index.write(numbers[value], out)

    return Codec(read, write)


def _record(kind: Record, encoding: Encoding) -> Codec:
    """Fields that this version does not have keep the defaults of their class."""
    make, fields = kind.make, [(field.name, codec(field.kind, encoding)) for field in kind.fields]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = {}
        for name, inner in fields:
            values[name], at = inner.read(data, at)
        return make(**values), at

    def write(value: Any, out: bytearray) -> None:
        for name, inner in fields:
            inner.write(getattr(value, name), out)

    return Codec(read, write)


def _choice(kind: Choice, encoding: Encoding) -> Codec:
    index = encoding.index
    variants = [codec(variant, encoding) for variant in kind.variants]
    numbers = {variant.make: number for number, variant in enumerate(kind.variants)}

    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = index.read(data, at)
        if number >= len(variants):
            raise Malformed(f"{number} is no {kind.what}")
        return variants[number].read(data, at)

    def write(value: Any, out: bytearray) -> None:
        number = numbers[type(value)]
        index.write(number, out)
        variants[number].write(value, out)

    return Codec(read, write)


def _value(encoding: Encoding) -> Codec:
    """A parameter or a cell: None, int, str, bool or `Timestamp`, which say themselves what they are."""
    index, scalars = encoding.index, encoding.scalars
    number, text, truth = scalars[I64], scalars[TEXT], scalars[BOOL]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        kind, at = index.read(data, at)
        if kind == 0:
            return None, at
        if kind == 1:
            return number.read(data, at)
        if kind == 2:
            return text.read(data, at)
        if kind == 3:
            return truth.read(data, at)
        if kind == 4:
            moment, at = number.read(data, at)
            return Timestamp(moment), at
        raise Malformed(f"{kind} is no type of a value")

    def write(value: Any, out: bytearray) -> None:
        if value is None:
            index.write(0, out)
        elif value is True or value is False:
            index.write(3, out)
            truth.write(value, out)
        elif isinstance(value, Timestamp):
            index.write(4, out)
            number.write(value.nanoseconds, out)
        elif isinstance(value, int):
            index.write(1, out)
            number.write(value, out)
        else:
            index.write(2, out)
            text.write(value, out)

    return Codec(read, write)
