"""Decodes values of records to columns, batch by batch: runs in Spark's workers and in the table worker.

Whether a value is valid is decided by the broker's own validator, so that the results always agree. Valid values are
decomposed by column. A row that its columns cannot hold, such as an integer of 100 digits, is found by bisecting the
batch, and is rejected like an invalid one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.broker.schemas.arrow.columns import Column, ConversionError, Struct, record
from penstock.broker.schemas.formats import format_of
from penstock.broker.schemas.formats.format import Validator
from penstock.broker.schemas.framing import schema_id, unframed
from penstock.broker.schemas.schema import Schema, SchemaKind
from penstock.broker.schemas.schemas import MAX_REASON, MAX_REASONS

VALUE: Final = "value"
DECODED: Final = "__penstock_decoded"
REASON: Final = "__penstock_reason"
UNFRAMED: Final = "it does not begin with Confluent's magic byte and the id of a schema"
KEPT: Final = 64  # schemas that a worker caches


class Language(NamedTuple):
    """A schema language: decoder and column types of one schema."""

    validate: Validator
    read: Callable[[bytes], Any]
    columns: Struct
    unframe: Callable[[bytes], bytes | None] | None = None
    """Removes the prefix that a serializer adds to a value; None if there is none. Raises UnreadableValue."""


class UnreadableValue(Exception):
    """A value that the schema cannot read, because another one wrote it; the text is the reason for its rejection."""


@lru_cache(KEPT)
def language(schema: Schema, dates: bool) -> Language:
    """The decoder of a schema. Cached: making it takes much longer than a small batch, and workers are reused."""
    read, columns = _parts(schema, dates)
    if not isinstance(columns, Struct):  # a number, a list, …: a single column named `value`
        columns, inner = record([(VALUE, columns)]), read
        return Language(format_of(schema.kind).validator(schema), lambda data: {VALUE: inner(data)}, columns)
    return Language(format_of(schema.kind).validator(schema), read, columns)


def _parts(schema: Schema, dates: bool) -> tuple[Callable[[bytes], Any], Column]:
    match schema.kind:
        case SchemaKind.JSON:
            import msgspec

            from penstock.broker.schemas.arrow import json_columns

            return msgspec.json.Decoder().decode, json_columns.columns(schema.definition, dates=dates)
        case SchemaKind.AVRO:
            from penstock.broker.schemas.arrow import avro_columns

            return avro_columns.reader(schema.definition), avro_columns.columns(schema.definition)
        case SchemaKind.PROTOBUF:
            from penstock.broker.schemas.arrow import protobuf_columns

            return protobuf_columns.reader(schema), protobuf_columns.columns(schema)


@dataclass(frozen=True)
class Decode:
    """The function for `mapInArrow`: adds the decoded value and the reason for rejection to each row; one of the two is
    null. The original value is kept only for rejected rows, to save sending it back to the JVM.
    """

    schema: Schema
    dates: bool
    framing: str | None = None
    versions: tuple[Schema, ...] = ()
    """All versions, if a value can only be read with the one that wrote it, whose id precedes it."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        how = language(self.schema, self.dates)
        if self.framing is not None:
            protobuf = self.schema.kind is SchemaKind.PROTOBUF
            unframe = Resolve(self.schema, self.versions) if self.versions else partial(unframed, protobuf=protobuf)
            how = how._replace(unframe=unframe)
        for batch in batches:
            with _no_collection():
                done = decoded(batch, how)
            yield done


class Resolve:
    """Makes of framed Avro values what the schema would have written in place of the version that did."""

    def __init__(self, schema: Schema, versions: Sequence[Schema]) -> None:
        self._schema = schema
        self._versions = {version.id: version for version in versions}

    def __call__(self, data: bytes) -> bytes | None:
        value, number = unframed(data, protobuf=False), schema_id(data)
        if value is None or number is None or number == self._schema.id:
            return value
        writer, name = self._versions.get(number), self._schema.name
        if writer is None:
            raise UnreadableValue(
                f"its schema id {number} is that of no version of {name!r}, or of one that was registered after the "
                "query was defined"
            )
        validate, resolve = _resolver(writer, self._schema)
        if problems := validate(value):
            raise UnreadableValue(join_reasons(problems))
        try:
            return resolve(value)
        except ValueError as error:
            versions = f"version {writer.version} of the schema wrote it, and version {self._schema.version}"
            raise UnreadableValue(f"{versions} cannot read it: {error}") from None


@lru_cache(KEPT)
def _resolver(writer: Schema, reader: Schema) -> tuple[Validator, Callable[[bytes], bytes]]:
    from penstock.broker.schemas.formats import avro_schema

    return avro_schema.validator(writer), avro_schema.resolver(writer, reader)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable the garbage collector: a batch has many short-lived values without cycles, and collection would take a
    fifth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def decoded(batch: pa.RecordBatch, how: Language) -> pa.RecordBatch:
    at = batch.schema.get_field_index(VALUE)
    values = batch.column(at)
    rows, reasons = decode_values(values, how)
    reason_column = pa.array(reasons, pa.string())
    arrays = batch.columns
    arrays[at] = pc.if_else(reason_column.is_null(), pa.scalar(None, values.type), values)
    fields = [*batch.schema, pa.field(DECODED, how.columns.arrow), pa.field(REASON, pa.string())]
    return pa.RecordBatch.from_arrays([*arrays, rows, reason_column], schema=pa.schema(fields))


def decode_values(values: pa.Array, how: Language) -> tuple[pa.Array, list[str | None]]:
    """The rows, and the reasons for rejection; a row is null if it has one."""
    read, validate = how.read, how.validate
    found: list[Any] = []
    reasons: list[str | None] = []
    for data in values.cast(pa.binary()).to_pylist():
        problems: list[str] = []
        if data is None:
            problems = ["there is no value"]
        elif how.unframe is not None:
            try:
                if (data := how.unframe(data)) is None:
                    problems = [UNFRAMED]
            except UnreadableValue as error:
                problems = [str(error)]
        problems = problems or validate(data)
        if problems:
            found.append(None)
            reasons.append(join_reasons(problems))
        else:
            found.append(read(data))
            reasons.append(None)
    return _built(how.columns, found, reasons), reasons


def join_reasons(problems: list[str]) -> str:
    """The reasons as one text, truncated as the broker does."""
    return "; ".join(problem[:MAX_REASON] for problem in problems[:MAX_REASONS])


def _built(columns: Struct, found: list[Any], reasons: list[str | None]) -> pa.Array:
    """Build all rows at once, which nearly always succeeds; otherwise `found` and `reasons` are modified for the rows
    that do not fit.
    """
    try:
        return columns.build(found)
    except ConversionError:
        for index, error in _conversion_errors(columns, found, 0):
            found[index], reasons[index] = None, join_reasons([f"it fits the schema, but {error}"])
        return columns.build(found)


def _conversion_errors(columns: Struct, found: list[Any], start: int) -> Iterator[tuple[int, ConversionError]]:
    try:
        columns.build(found)
    except ConversionError as error:
        if len(found) == 1:
            yield start, error
            return
        half = len(found) // 2
        yield from _conversion_errors(columns, found[:half], start)
        yield from _conversion_errors(columns, found[half:], start + half)
