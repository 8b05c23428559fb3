"""Encodings of values as bytes: the three in the protocol's history, for the kinds of values in `kinds`.

    fixed      integers of fixed width, little-endian; a count is a u64, an enum's index a u32; an option has a flag of
               one byte (bincode 1.3) or of four (as the specification's examples print it)
    postcard   integers, counts and indices are varints, signed ones zig-zag; flags are one byte

A codec for a kind is built once, from closures, for a single encoding. Readers check every length against the available
bytes before they allocate anything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.wire.kimberlite.codec.kinds import (
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
from penstock.wire.kimberlite.errors import MalformedPayload
from penstock.wire.kimberlite.values import Timestamp

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Decodes the value at a position; returns it and the position after it. Raises MalformedPayload."""

Write: TypeAlias = Callable[[Any, bytearray], None]


class Codec(NamedTuple):
    """The reader and the writer of one kind of value."""

    read: Read
    write: Write


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """The primitives of one encoding. `index` is for the variants of an enum, `count` for the elements of a list."""

    name: str
    scalars: dict[Scalar, Codec]
    count: Codec
    index: Codec
    flag: Codec  # of an option: 0 or 1
    events: Callable[[bytes, int, int], tuple[list[bytes], int]]  # reads this many byte strings with their lengths
    varint: Read | None = None  # reads a u64, if that is a varint


# -- primitives


def _fixed(layout: str, name: str) -> Codec:
    packed = struct.Struct(layout)
    size, unpack, pack = packed.size, packed.unpack_from, packed.pack

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if at + size > len(data):
            raise MalformedPayload(f"the message ends within a {name}")
        return unpack(data, at)[0], at + size

    def write(value: Any, out: bytearray) -> None:
        out += pack(value)

    return Codec(read, write)


def _varint(bits: int) -> Codec:
    max_bytes = -(-bits // 7)  # bytes
    limit = 1 << bits

    def read(data: bytes, at: int) -> tuple[int, int]:
        if at < len(data) and data[at] < 0x80:
            return data[at], at + 1
        value = shift = 0
        for index in range(at, min(at + max_bytes, len(data))):
            byte = data[index]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= limit:
                    raise MalformedPayload(f"a number of more than {bits} bits")
                return value, index + 1
            shift += 7
        raise MalformedPayload(
            "the message ends within a number" if at + max_bytes > len(data) else f"more than {bits} bits"
        )

    def write(value: int, out: bytearray) -> None:
        if 0 <= value < 0x80:
            out.append(value)
            return
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
            raise MalformedPayload(f"{value} is no {what}")
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
            raise MalformedPayload("bytes run past the end of the message")
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
            raise MalformedPayload("a text that is not UTF-8") from None

    def write(value: str, out: bytearray) -> None:
        raw.write(value.encode(), out)

    return Codec(read, write)


# -- events: the contents of appends, reads and pushes

_RUN: Final = 8  # events of one size, from which on processing them together pays off


def _short_events(data: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    """Events in postcard. Short sizes are decoded inline instead of by a call, because there are thousands of
    events."""
    size_of = _SHORT[U64].read
    found = []
    try:
        for _ in range(count):
            size = data[at]
            at += 1
            if size >= 0x80:
                high = data[at]
                at += 1
                if high < 0x80:
                    size += (high << 7) - 0x80
                else:
                    size, at = size_of(data, at - 2)
            behind = at + size
            found.append(data[at:behind])
            at = behind
    except IndexError:
        raise MalformedPayload("the message ends within a list") from None
    if at > len(data):  # slices never exceed the data, so checking once is enough
        raise MalformedPayload("bytes run past the end of the message")
    return found, at


def _wide_events(data: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    """Events in fixed-width encodings."""
    size_of = _WIDE[U64].read
    found = []
    for _ in range(count):
        size, at = size_of(data, at)
        behind = at + size
        found.append(data[at:behind])
        at = behind
    if at > len(data):
        raise MalformedPayload("bytes run past the end of the message")
    return found, at


def _run(data: bytes, at: int, count: int, size: int, head: int) -> list[bytes] | None:
    """A fast path for `count` events of one size, with the same `head` bytes before each: a few calls for all. None if
    the sizes differ."""
    step = head + size
    end = at + count * step
    if end > len(data) or any(data[i:end:step] != data[i : i + 1] * count for i in range(at, at + head)):
        return None
    return [event for (event,) in struct.iter_unpack(f"{head}x{size}s", memoryview(data)[at:end])]


def _encoding(name: str, numbers: dict[Scalar, Codec], index: Codec, flag: Codec, events: Any) -> Encoding:
    raw = _bytes(numbers[U64])
    scalars = {**numbers, BOOL: _flag(numbers[U8], "boolean"), BYTES: raw, TEXT: _text(raw)}
    varint = None if numbers is _WIDE else numbers[U64].read
    return Encoding(name, scalars, numbers[U64], index, _flag(flag, "flag of an optional value"), events, varint)


_BYTE: Final = _fixed("<B", "byte")
_WIDE: Final = {
    U8: _BYTE,
    U16: _fixed("<H", "u16"),
    U32: _fixed("<I", "u32"),
    U64: _fixed("<Q", "u64"),
    I64: _fixed("<q", "i64"),
}
_SHORT: Final = {U8: _BYTE, U16: _varint(16), U32: _varint(32), U64: _varint(64), I64: _zigzag(_varint(64))}

BINCODE: Final = _encoding("bincode", _WIDE, _WIDE[U32], _BYTE, _wide_events)
PRINTED: Final = _encoding("printed", _WIDE, _WIDE[U32], _WIDE[U32], _wide_events)
"""The encoding of the specification's printed examples: the flag of an optional value has four bytes."""
POSTCARD: Final = _encoding("postcard", _SHORT, _SHORT[U32], _BYTE, _short_events)


# -- composition


def codec(kind: Kind, encoding: Encoding) -> Codec:
    """The codec of values of this kind in this encoding."""
    if isinstance(kind, Scalar):
        return _value(encoding) if kind is VALUE else encoding.scalars[kind]
    if isinstance(kind, Option):
        return _option(codec(kind.of, encoding), encoding)
    if isinstance(kind, ListOf):
        return (_events if kind.of is BYTES else _list)(codec(kind.of, encoding), encoding, kind.limit)
    if isinstance(kind, Label):
        return _label(kind, encoding)
    if isinstance(kind, Record):
        return _record(kind, encoding)
    return _choice(kind, encoding)


def _written(codec: Codec, value: Any) -> bytes:
    out = bytearray()
    codec.write(value, out)
    return bytes(out)


def _option(inner: Codec, encoding: Encoding) -> Codec:
    flag = encoding.flag

    def read(data: bytes, at: int) -> tuple[Any, int]:
        present, at = flag.read(data, at)
        return inner.read(data, at) if present else (None, at)

    absent, present_flag = _written(flag, False), _written(flag, True)

    def write(value: Any, out: bytearray) -> None:
        if value is None:
            out += absent
        else:
            out += present_flag
            inner.write(value, out)

    return Codec(read, write)


def _list(inner: Codec, encoding: Encoding, limit: int | None) -> Codec:
    count_of, write_count = _count(encoding, limit)
    read_one, write_one = inner

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        count, at = count_of(data, at)
        found = []
        for _ in range(count):
            value, at = read_one(data, at)
            found.append(value)
        return found, at

    def write(values: list[Any], out: bytearray) -> None:
        write_count(len(values), out)
        for value in values:
            write_one(value, out)

    return Codec(read, write)


def _events(_inner: Codec, encoding: Encoding, limit: int | None) -> Codec:
    """A list of byte strings, which often have the same size."""
    count_of, write_count = _count(encoding, limit)
    size_of, one_by_one = encoding.count.read, encoding.events

    @lru_cache(1024)
    def head(size: int) -> bytes:
        out = bytearray()
        write_count(size, out)
        return bytes(out)

    def read(data: bytes, at: int) -> tuple[list[bytes], int]:
        count, at = count_of(data, at)
        if count >= _RUN:
            size, body = size_of(data, at)
            found = _run(data, at, count, size, body - at)
            if found is not None:
                return found, at + count * (body - at + size)
        return one_by_one(data, at, count)

    def write(values: list[bytes], out: bytearray) -> None:
        write_count(len(values), out)
        if len(values) == 1:  # as in most pushes
            out += head(len(values[0]))
            out += values[0]
            return
        out += b"".join(chain.from_iterable(zip(map(head, map(len, values)), values, strict=True)))

    return Codec(read, write)


def _count(encoding: Encoding, limit: int | None) -> Codec:
    """The count of a list: at most the number of available bytes, since every element takes at least one."""
    count_of, write = encoding.count

    def read(data: bytes, at: int) -> tuple[int, int]:
        count, at = count_of(data, at)
        if count > len(data) - at:
            raise MalformedPayload("a list runs past the end of the message")
        if limit is not None and count > limit:
            raise MalformedPayload(f"a list of {count} elements; the most is {limit}")
        return count, at

    return Codec(read, write)


def _label(kind: Label, encoding: Encoding) -> Codec:
    names, index = kind.names, encoding.index
    numbers = {name: number for number, name in enumerate(names)}

    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = index.read(data, at)
        if number >= len(names):
            raise MalformedPayload(f"{number} is no {kind.what}")
        return names[number], at

    def write(value: Any, out: bytearray) -> None:
        index.write(numbers[value], out)

    return Codec(read, write)


def _record(kind: Record, encoding: Encoding) -> Codec:
    make, names = kind.make, tuple(field.name for field in kind.fields)
    inner = [codec(field.kind, encoding) for field in kind.fields]
    readers = [each.read for each in inner]
    writers = [(name, each.write) for name, each in zip(names, inner, strict=True)]
    assert make.__struct_fields__[: len(names)] == names, make
    short = encoding.varint

    def read(data: bytes, at: int) -> tuple[Any, int]:
        values: list[Any] = []
        for read_field in readers:
            if read_field is short:  # numbers below 2**21 are decoded inline instead of by a call: most fields are such
                size = len(data) - at
                if size > 0 and (value := data[at]) < 0x80:
                    values.append(value)
                    at += 1
                    continue
                if size > 1 and (high := data[at + 1]) < 0x80:
                    values.append(value - 0x80 + (high << 7))
                    at += 2
                    continue
                if size > 2 and (top := data[at + 2]) < 0x80:
                    values.append(value - 0x80 + ((high - 0x80) << 7) + (top << 14))
                    at += 3
                    continue
            field, at = read_field(data, at)
            values.append(field)
        return make(*values), at

    def write(value: Any, out: bytearray) -> None:
        for name, write_field in writers:
            write_field(getattr(value, name), out)

    return Codec(read, write)


def _choice(kind: Choice, encoding: Encoding) -> Codec:
    index = encoding.index
    variants = [codec(variant, encoding) for variant in kind.variants]
    numbers = {variant.make: number for number, variant in enumerate(kind.variants)}
    heads = [_written(index, number) for number in range(len(variants))]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = index.read(data, at)
        if number >= len(variants):
            raise MalformedPayload(f"{number} is no {kind.what}")
        return variants[number].read(data, at)

    def write(value: Any, out: bytearray) -> None:
        number = numbers[type(value)]
        out += heads[number]
        variants[number].write(value, out)

    return Codec(read, write)


def _value(encoding: Encoding) -> Codec:
    """A parameter or a cell: None, int, str, bool or `Timestamp`, with its type."""
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
        raise MalformedPayload(f"{kind} is no type of a value")

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
