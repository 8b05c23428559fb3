"""Schemas: definitions of each kind, and records that are checked against them. A validator never raises."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any, Final

import fastavro
from google.protobuf import descriptor_pb2
from tests.fuzz.targets.target import Target

from penstock.broker.errors import SchemaInvalid
from penstock.broker.schemas.formats import avro_schema, json_schema, protobuf_schema
from penstock.broker.schemas.formats.format import Format, Validator
from penstock.broker.schemas.schema import Schema, SchemaKind

_AVRO: Final[tuple[Any, ...]] = (
    "string",
    {"type": "array", "items": "null"},
    {"type": "map", "values": ["null", "long", "bytes"]},
    {
        "type": "record",
        "name": "Node",
        "namespace": "n",
        "fields": [
            {"name": "value", "type": "double"},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 3}},
            {"name": "next", "type": ["null", "Node"]},
            {"name": "all", "type": {"type": "array", "items": "Node"}},
            {"name": "yes", "type": "boolean"},
            {"name": "number", "type": "int"},
        ],
    },
)

_OF_NOTHING: Final = 1
"""A schema whose items have no bytes: there may be 2⁶² of them in ten bytes, and fastavro makes them all."""

_JSON: Final[tuple[Any, ...]] = (
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
    {"anyOf": [{"type": "string", "pattern": "^a+$"}, {"type": "array", "items": {"$ref": "#"}, "uniqueItems": True}]},
    {
        "$defs": {"n": {"type": "number", "minimum": 0, "multipleOf": 0.5}},
        "type": "object",
        "patternProperties": {"^x": {"$ref": "#/$defs/n"}},
        "dependentRequired": {"x1": ["x2"]},
        "minProperties": 1,
        "propertyNames": {"maxLength": 4},
    },
    {"if": {"type": "array"}, "then": {"contains": {"const": 1}}, "else": {"enum": [None, 1, "a"]}},
)

_MESSAGES: Final = (b"", b"{}", b'{"a": 1}', b'["aa", ["a"]]', b'{"x1": 1.5, "x2": 0}', b"[1]", b"null", b'{"a":1e999}')


def _schema(kind: SchemaKind, definition: bytes, compiled: bytes = b"") -> Schema:
    return Schema("s", 1, kind, definition, 0, compiled)


# -- records


@cache
def _avro(number: int) -> tuple[Validator, Any]:
    definition = _AVRO[number]
    return avro_schema.validator(_schema(SchemaKind.AVRO, json.dumps(definition).encode())), fastavro.parse_schema(
        definition
    )


def avro(data: bytes) -> None:
    """Behind the number of a schema. What is accepted can be read by fastavro, to its end."""
    if not data:
        return
    validate, parsed = _avro(data[0] % len(_AVRO))
    problems = validate(data[1:])
    assert all(isinstance(problem, str) for problem in problems)
    if not problems and data[0] % len(_AVRO) != _OF_NOTHING:
        stream = io.BytesIO(data[1:])
        fastavro.schemaless_reader(stream, parsed, None)
        assert not stream.read(1), "fastavro leaves something over"


@cache
def _json(number: int) -> Validator:
    return json_schema.validator(_schema(SchemaKind.JSON, json.dumps(_JSON[number]).encode()))


def json_record(data: bytes) -> None:
    if data:
        assert all(isinstance(problem, str) for problem in _json(data[0] % len(_JSON))(data[1:]))


@cache
def _protobuf() -> Validator:
    """A message with fields of every kind, described by hand: protoc would be a process."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=protobuf_schema.FILE, syntax="proto2")
    message = file.message_type.add(name="M")
    one, many, needed = field.LABEL_OPTIONAL, field.LABEL_REPEATED, field.LABEL_REQUIRED
    kinds = (field.TYPE_INT64, field.TYPE_STRING, field.TYPE_DOUBLE, field.TYPE_BYTES, field.TYPE_FIXED32)
    for number, kind in enumerate(kinds, 1):
        message.field.add(name=f"f{number}", number=number, type=kind, label=one)
        message.field.add(name=f"r{number}", number=number + 10, type=kind, label=many)
    message.field.add(name="inner", number=6, type=field.TYPE_MESSAGE, type_name=".M", label=one)
    message.field.add(name="all", number=7, type=field.TYPE_MESSAGE, type_name=".M", label=many)
    message.field.add(name="group", number=8, type=field.TYPE_SINT32, label=needed)
    compiled = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return protobuf_schema.validator(_schema(SchemaKind.PROTOBUF, b"", compiled))


def protobuf(data: bytes) -> None:
    assert all(isinstance(problem, str) for problem in _protobuf()(data))


# -- definitions


def _define(format_: Format, kind: SchemaKind, definition: bytes) -> None:
    """An accepted definition makes a validator that keeps its promise, and can be compared with itself."""
    try:
        format_.prepare(definition)
    except SchemaInvalid as error:
        assert str(error)
        return
    schema = _schema(kind, definition)
    validate = format_.validator(schema)
    for message in _MESSAGES:
        assert all(isinstance(problem, str) for problem in validate(message))


def avro_definition(data: bytes) -> None:
    _define(avro_schema, SchemaKind.AVRO, data)


def json_definition(data: bytes) -> None:
    _define(json_schema, SchemaKind.JSON, data)


# -- corpora


def _avro_records() -> list[bytes]:
    node = {"value": 1.5, "kind": "B", "mark": b"abc", "next": None, "all": [], "yes": True, "number": -3}
    values: list[tuple[int, Any]] = [
        (0, "text"),
        (1, [None, None]),
        (2, {"a": None, "b": 7, "c": b"x"}),
        (3, node),
        (3, {**node, "next": node, "all": [node, node]}),
    ]
    found = []
    for number, value in values:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(_AVRO[number]), value)
        found.append(bytes((number,)) + stream.getvalue())
    return found


def _protobuf_records() -> list[bytes]:
    inner = b"\x40\x02"
    return [b"", inner, b"\x08\x01\x12\x01a\x32\x02" + inner + inner, b"\x3a\x02" + inner * 3, b"\x59\x00\x40\x02\x0b"]


TARGETS: Final = (
    Target("schemas.avro", avro, _avro_records),
    Target("schemas.json", json_record, lambda: [bytes((n,)) + each for n in range(len(_JSON)) for each in _MESSAGES]),
    Target("schemas.protobuf", protobuf, _protobuf_records),
    Target(
        "schemas.avro_definition", avro_definition, lambda: [json.dumps(each).encode() for each in _AVRO], quick=300
    ),
    Target(
        "schemas.json_definition", json_definition, lambda: [json.dumps(each).encode() for each in _JSON], quick=200
    ),
)
