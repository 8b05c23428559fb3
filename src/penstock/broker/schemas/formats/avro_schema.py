"""Avro: a record's value is one datum in Avro's binary encoding, without a container or a header.

Definitions are parsed by both libraries, because each finds errors that the other misses: fastavro checks defaults,
Apache's checks names and unions. Apache's compares schemas. `avro_bytes` validates the bytes: fastavro's decoder
accepts negative indexes as indexes from the end, and overflows the stack on deeply nested data.

Logical types do not affect decoding or validity (the specification requires unknown ones to be ignored), so they are
removed first.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, Final

import avro.schema
import fastavro
from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
)

from penstock.broker.errors import SchemaInvalid
from penstock.broker.schemas.formats.avro_bytes import MAX_NESTING, AvroMismatch, walker
from penstock.broker.schemas.formats.format import MAX_PROBLEMS, Decoder, Sides, Validator
from penstock.broker.schemas.formats.json_document import decode
from penstock.broker.schemas.schema import Schema

MAX_EMPTY: Final = 1000  # items without bytes in one block of a message that is displayed
MAX_STEPS: Final = 20_000  # pairs of types visited by a comparison


def prepare(definition: bytes) -> bytes:
    parsed = _parsed(definition)
    text = json.dumps(parsed)
    try:
        fastavro.parse_schema(parsed)
        avro.schema.parse(text)
        walker(parsed)
    except RecursionError:
        raise SchemaInvalid("nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - both raise many different exceptions, from KeyError to their own
        raise SchemaInvalid(f"not an Avro schema: {str(error) or type(error).__name__}") from None
    return b""


def validator(schema: Schema) -> Validator:
    walk = walker(_parsed(schema.definition))

    def validate(message: bytes) -> list[str]:
        try:
            end = walk(message, 0)
        except IndexError:
            return ["Avro validation failed: the message ends too early"]
        except (AvroMismatch, UnicodeDecodeError) as error:
            return [f"Avro validation failed: {error}"]
        except RecursionError:
            return [f"Avro validation failed: nested deeper than about {MAX_NESTING} levels"]
        if end != len(message):
            return [f"Avro validation failed: {len(message) - end} bytes are left over"]
        return []

    return validate


def decoder(schema: Schema) -> Decoder:
    plain = _parsed(schema.definition)
    walk, parsed = walker(plain, MAX_EMPTY), fastavro.parse_schema(plain)

    def read(message: bytes) -> Any:
        try:
            walk(message, 0)
        except AvroMismatch as error:
            raise ValueError(str(error)) from None
        return fastavro.schemaless_reader(io.BytesIO(message), parsed, None)

    return read


def resolver(writer: Schema, reader: Schema) -> Callable[[bytes], bytes]:
    """A function that makes of what `writer` has encoded what `reader` would have: by Avro's schema resolution. It
    raises ValueError for a message that cannot be resolved, or not without a change of its values. Only for messages
    that the writer's validator has accepted."""
    theirs, mine = (fastavro.parse_schema(_parsed(schema.definition)) for schema in (writer, reader))

    def resolve(message: bytes) -> bytes:
        try:
            value = fastavro.schemaless_reader(io.BytesIO(message), theirs, mine, return_named_type=True)
            encoded = io.BytesIO()
            fastavro.schemaless_writer(encoded, mine, value)
            again = fastavro.schemaless_reader(io.BytesIO(encoded.getvalue()), mine, None, return_named_type=True)
        except Exception as error:  # noqa: BLE001 - fastavro raises many different ones
            raise ValueError(str(error) or type(error).__name__) from None
        if not _same(value, again):
            raise ValueError("a union has more than one branch for a value")
        return encoded.getvalue()

    return resolve


def _same(value: Any, other: Any) -> bool:
    """Whether these are the same, of the same types. A branch of a union may be a pair of its name and the value."""
    value, other = (each[1] if isinstance(each, tuple) else each for each in (value, other))
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(_same(value[key], other[key]) for key in value)
    if isinstance(value, list):
        return len(value) == len(other) and all(map(_same, value, other))
    return bool(value == other or value != value)  # nan


def compatible(reader: Schema, writer: Schema, sides: Sides) -> list[str]:
    mine, theirs = (avro.schema.parse(json.dumps(_parsed(schema.definition))) for schema in (reader, writer))
    try:
        result = _Checker().get_compatibility(mine, theirs)
    except (_TooIntricate, RecursionError):
        return ["the schemas are too intricate to be compared"]
    if result.compatibility is SchemaCompatibilityType.compatible:
        return []
    kinds = sorted({str(kind).rpartition(".")[2].replace("_", " ") for kind in result.incompatibilities})
    places = ", ".join(sorted(result.locations))
    said = [f"{text} at {places}" for text in sorted(result.messages)]
    head = f"the {sides.reader} schema cannot read what the {sides.writer} one wrote: {', '.join(kinds)}"
    return [f"{head}: {text}" for text in said[:MAX_PROBLEMS]] or [head]


class _TooIntricate(Exception):
    pass


class _Checker(ReaderWriterCompatibilityChecker):
    """Apache's checker, with a bounded number of steps."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._steps = 0

    def get_compatibility(self, *arguments: Any, **named: Any) -> SchemaCompatibilityResult:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _TooIntricate
        return super().get_compatibility(*arguments, **named)


def _parsed(definition: bytes) -> Any:
    return _without_logical_types(decode(definition))


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_logical_types(inner) if key in ("type", "items", "values", "fields") else inner
        for key, inner in schema.items()
        if key != "logicalType"
    }
