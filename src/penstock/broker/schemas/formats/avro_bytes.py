"""Validates Avro's binary encoding without building values.

A walker is a function for one type: given the data and the start of a datum, it returns its end. It raises IndexError
if the data is too short, `AvroMismatch` for what the type does not allow, and UnicodeDecodeError for invalid text.
Walkers of nested types call each other, so that data nested too deeply raises RecursionError and does no other harm.

    null               nothing
    boolean            one byte, 0 or 1
    int, long          zig-zag varint: 7 bits per byte, lowest first; bit 7 is set if more bytes follow
    float, double      4 and 8 bytes
    bytes, string      a long, then that many bytes
    fixed              the number of bytes in the schema
    enum, union        an int, the index; for a union the datum follows
    array, map         blocks: a long count (if negative: its absolute value, and the block's size in bytes follows
                       as a long), the items; a count of 0 ends it
    record             its fields, in order
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

Walker: TypeAlias = Callable[[bytes, int], int]

MAX_NESTING: Final = 200
"""The approximate nesting limit of data, for messages; the actual limit is Python's recursion limit."""


class AvroMismatch(Exception):
    """The data does not match the type."""


def walker(schema: Any, most_empty: int | None = None) -> Walker:
    """The walker for a schema that was parsed as JSON and checked. With `most_empty`, a block may have at most this
    many items without bytes, as building them could take far more memory than the data.
    """
    return _Types(most_empty).of(schema, "")


class _Types:
    """The named types encountered so far."""

    def __init__(self, most_empty: int | None) -> None:
        self._named: dict[str, Walker] = {}
        self._most_empty = most_empty

    def of(self, schema: Any, space: str) -> Walker:
        if isinstance(schema, list):
            return _union([self.of(branch, space) for branch in schema])
        if isinstance(schema, str):
            return PRIMITIVES[schema] if schema in PRIMITIVES else self._reference(_full(schema, space))
        kind = schema["type"]
        match kind:
            case "array":
                return _blocks(self.of(schema["items"], space), self._most_empty)
            case "map":
                return _blocks(_pair(self.of(schema["values"], space)), self._most_empty)
            case "record" | "error":
                return self._record(schema, space)
            case "enum":
                return self._name(schema, space, _enum(len(schema["symbols"])))
            case "fixed":
                return self._name(schema, space, _fixed(schema["size"]))
            case _:
                return self.of(kind, space)

    def _record(self, schema: dict[str, Any], space: str) -> Walker:
        fields: list[Walker] = []

        def walk(data: bytes, at: int) -> int:
            for field in fields:
                at = field(data, at)
            return at

        self._name(schema, space, walk)  # before its fields: the type may be recursive
        inner = _full(schema["name"], schema.get("namespace", space)).rpartition(".")[0]
        fields.extend(self.of(field["type"], inner) for field in schema["fields"])
        return walk

    def _name(self, schema: dict[str, Any], space: str, walk: Walker) -> Walker:
        self._named[_full(schema["name"], schema.get("namespace", space))] = walk
        return walk

    def _reference(self, name: str) -> Walker:
        return self._named[name]


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


# -- numbers


def _long(data: bytes, at: int) -> tuple[int, int]:
    """The number before zig-zag decoding, and its end."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number = byte & 0x7F
    for place in range(1, 10):
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if number >> 64:
                break
            return number, at + place + 1
    raise AvroMismatch("a number has more than 64 bits")


def _walk_null(data: bytes, at: int) -> int:  # noqa: ARG001 - it has no bytes
    return at


def _walk_boolean(data: bytes, at: int) -> int:
    if data[at] > 1:
        raise AvroMismatch(f"byte {data[at]} is no boolean")
    return at + 1


def _walk_int(data: bytes, at: int) -> int:
    number, at = _long(data, at)
    if number >> 32:
        raise AvroMismatch("an int has more than 32 bits")
    return at


def _walk_long(data: bytes, at: int) -> int:
    return _long(data, at)[1]


def _position(data: bytes, at: int, count: int, what: str) -> tuple[int, int]:
    number, at = _long(data, at)
    if number & 1 or number >> 1 >= count:
        raise AvroMismatch(f"there is no {what} {(number >> 1) ^ -(number & 1)} among {count}")
    return number >> 1, at


# -- bytes


def _fixed(size: int) -> Walker:
    def walk(data: bytes, at: int) -> int:
        if at + size > len(data):
            raise IndexError
        return at + size

    return walk


def _walk_bytes(data: bytes, at: int) -> int:
    number, at = _long(data, at)
    if number & 1:
        raise AvroMismatch("a length is below zero")
    at += number >> 1
    if at > len(data):
        raise IndexError
    return at


def _walk_string(data: bytes, at: int) -> int:
    number, start = _long(data, at)
    end = _walk_bytes(data, at)
    if number:
        data[start:end].decode()
    return end


PRIMITIVES: Final[dict[str, Walker]] = {
    "null": _walk_null,
    "boolean": _walk_boolean,
    "int": _walk_int,
    "long": _walk_long,
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _walk_bytes,
    "string": _walk_string,
}


# -- compound types


def _enum(count: int) -> Walker:
    return lambda data, at: _position(data, at, count, "symbol")[1]


def _union(branches: list[Walker]) -> Walker:
    def walk(data: bytes, at: int) -> int:
        branch, at = _position(data, at, len(branches), "branch")
        return branches[branch](data, at)

    return walk


def _pair(value: Walker) -> Walker:
    return lambda data, at: value(data, _walk_string(data, at))


def _blocks(item: Walker, most_empty: int | None) -> Walker:
    def walk(data: bytes, at: int) -> int:
        while True:
            number, at = _long(data, at)
            if not number:
                return at
            count, end = number >> 1, None
            if number & 1:
                count += 1
                size, at = _long(data, at)
                end = at + (size >> 1)
                if size & 1:
                    raise AvroMismatch("a block's length is below zero")
            for _ in range(count):
                start = at
                at = item(data, at)
                if at == start:
                    if most_empty is not None and count > most_empty:
                        raise AvroMismatch(f"a block has {count} items without bytes; at most {most_empty} are shown")
                    break  # items without bytes are all the same, and there may be very many
            if end is not None and at != end:
                raise AvroMismatch("a block is not as long as it says")

    return walk
