"""The columns of a Protobuf message.

The types are those of Spark's Protobuf functions, except that unsigned integers never wrap around, and that the
well-known wrappers become the type they wrap. Fields with presence are null if they are not set; all others have
Protobuf's default.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor

from penstock.broker.schemas.arrow.columns import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    EPOCH,
    FLOAT,
    INT,
    LONG,
    STRING,
    Array,
    Column,
    Field,
    Map,
    Scalar,
    Struct,
    decimal,
)
from penstock.broker.schemas.formats.protobuf_schema import message_of
from penstock.broker.schemas.schema import Schema

MAX_COLUMNS: Final = 2_000  # at all depths; nested messages can expand a small definition to a huge table


def columns(schema: Schema) -> Column:
    """The columns of a valid definition."""
    return _Columns().message(message_of(schema), ())


def reader(schema: Schema) -> Callable[[bytes], Any]:
    """A function that decodes validated data into values for `columns`."""
    kind = message_factory.GetMessageClass(message_of(schema))
    return kind.FromString  # type: ignore[no-any-return]


class _Columns:
    def __init__(self) -> None:
        self._left = MAX_COLUMNS

    def message(self, descriptor: Any, path: tuple[str, ...]) -> Column:
        """`path`: the names of the enclosing messages."""
        name = descriptor.full_name
        known = WELL_KNOWN.get(name)
        if known is not None:
            return known
        if name in path or not descriptor.fields or self._left < 0:
            return MESSAGE
        empty = message_factory.GetMessageClass(descriptor)()
        return Struct([self._field(field, (*path, name)) for field in descriptor.fields], empty)

    def _field(self, field: Any, path: tuple[str, ...]) -> Field:
        self._left -= 1
        if not field.is_repeated:
            return Field(field.name, _single(field), self._column(field, path))
        if field.message_type is None or not field.message_type.GetOptions().map_entry:
            return Field(field.name, _many(field.name), Array(self._column(field, path)))
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        keys = self._column(key, path)
        assert isinstance(keys, Scalar)  # Protobuf allows only integers, booleans and strings
        return Field(field.name, _many(field.name), Map(keys, self._column(value, path)))

    def _column(self, field: Any, path: tuple[str, ...]) -> Column:
        if field.message_type is not None:
            return self.message(field.message_type, path)
        if field.enum_type is not None:
            return _enum(field.enum_type)
        return SCALARS[field.type]


def _single(field: Any) -> Callable[[list[Any]], list[Any]]:
    name = field.name
    if not field.has_presence:
        get = attrgetter(name)
        return lambda messages: list(map(get, messages))
    return lambda messages: [getattr(message, name) if message.HasField(name) else None for message in messages]


def _many(name: str) -> Callable[[list[Any]], list[Any]]:
    return lambda messages: [getattr(message, name) for message in messages]


def _enum(descriptor: Any) -> Scalar:
    """The name of the value; an unknown number is kept as text."""
    names = {number: value.name for number, value in descriptor.values_by_number.items()}
    return Scalar(pa.string(), lambda number: names.get(number) or str(number))


def _json(message: Any) -> str:
    try:
        text: str = json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None)
    except json_format.Error as error:
        raise ValueError from error
    return text


def _timestamp(message: Any) -> datetime.datetime:
    if not 0 <= message.nanos < 1_000_000_000:
        raise ValueError
    return EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _duration(message: Any) -> datetime.timedelta:
    if abs(message.nanos) >= 1_000_000_000:
        raise ValueError
    return datetime.timedelta(seconds=message.seconds, microseconds=int(message.nanos / 1000))


class _Wrapped:
    """A wrapper message becomes its scalar: wrappers exist to make scalars nullable, and all columns are."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.arrow = column.arrow

    def build(self, values: list[Any]) -> pa.Array:
        return self._column.build([None if value is None else value.value for value in values])


UNSIGNED: Final = decimal(20, 0, Decimal)  # 64 bits
SCALARS: Final[dict[int, Column]] = {
    FieldDescriptor.TYPE_BOOL: BOOLEAN,
    FieldDescriptor.TYPE_INT32: INT,
    FieldDescriptor.TYPE_SINT32: INT,
    FieldDescriptor.TYPE_SFIXED32: INT,
    FieldDescriptor.TYPE_UINT32: LONG,
    FieldDescriptor.TYPE_FIXED32: LONG,
    FieldDescriptor.TYPE_INT64: LONG,
    FieldDescriptor.TYPE_SINT64: LONG,
    FieldDescriptor.TYPE_SFIXED64: LONG,
    FieldDescriptor.TYPE_UINT64: UNSIGNED,
    FieldDescriptor.TYPE_FIXED64: UNSIGNED,
    FieldDescriptor.TYPE_FLOAT: FLOAT,
    FieldDescriptor.TYPE_DOUBLE: DOUBLE,
    FieldDescriptor.TYPE_STRING: STRING,
    FieldDescriptor.TYPE_BYTES: BINARY,
}
MESSAGE: Final = Scalar(pa.string(), _json)
"""A message that no Spark type fits, such as a recursive one, as JSON text."""

WELL_KNOWN: Final[dict[str, Column]] = {
    "google.protobuf.Timestamp": Scalar(pa.timestamp("us", "UTC"), _timestamp),
    "google.protobuf.Duration": Scalar(pa.duration("us"), _duration),
    "google.protobuf.Struct": MESSAGE,
    "google.protobuf.Value": MESSAGE,
    "google.protobuf.ListValue": MESSAGE,
    "google.protobuf.BoolValue": _Wrapped(BOOLEAN),
    "google.protobuf.Int32Value": _Wrapped(INT),
    "google.protobuf.UInt32Value": _Wrapped(LONG),
    "google.protobuf.Int64Value": _Wrapped(LONG),
    "google.protobuf.UInt64Value": _Wrapped(UNSIGNED),
    "google.protobuf.FloatValue": _Wrapped(FLOAT),
    "google.protobuf.DoubleValue": _Wrapped(DOUBLE),
    "google.protobuf.StringValue": _Wrapped(STRING),
    "google.protobuf.BytesValue": _Wrapped(BINARY),
}
