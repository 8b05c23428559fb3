"""Decodes values of records to columns, batch by batch: runs in Spark's workers and in the table worker.

Whether a value is valid is decided by the broker's own validator, so that the results always agree. Valid values are
decomposed by column. A row that its columns cannot hold, such as an integer of 100 digits, is found by bisecting the
batch, and is rejected like an invalid one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.broker.schemas.arrow.columns import Column, ConversionError, Struct, record
from penstock.broker.schemas.formats import format_of
from penstock.broker.schemas.formats.format import Validator
from penstock.broker.schemas.framing import unframed
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
    unframe: Callable[[bytes], bytes | None] | None = None  # removes the prefix that a serializer adds to a value


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

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        how = language(self.schema, self.dates)
        if self.framing is not None:
            how = how._replace(unframe=partial(unframed, protobuf=self.schema.kind is SchemaKind.PROTOBUF))
        for batch in batches:
            with _no_collection():
                done = decoded(batch, how)
            yield done


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
        elif how.unframe is not None and (data := how.unframe(data)) is None:
            problems = [UNFRAMED]
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
