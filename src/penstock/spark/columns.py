"""The columns of the source: their Spark types, the validation of a narrower schema, and conversion to Arrow batches in
the form that Spark requires, neither too small to be efficient nor too large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
    "door": StringType(),
}
"""All columns, in the order of Spark's Kafka source; `door` is our own."""
OPTIONAL: Final = ("headers", "door")  # only if requested

TEXT: Final = ("key", "value")
"""Columns that a schema may also have as `string`: the same bytes as `CAST(value AS string)` makes of them."""

LOG_APPEND_TIME: Final = 1
"""The `timestampType` of every record: the broker sets the time when it is stored."""

ENOUGH_ROWS: Final = 2_048  # a batch with this many rows is passed on unchanged
ENOUGH_BYTES: Final = 1 << 20  # or with this many bytes
MERGED_ROWS: Final = 16_384  # smaller ones are merged up to this
MOST_ROWS: Final = 65_536  # larger ones are split
MOST_BYTES: Final = 32 << 20


class SchemaRefused(ValueError):
    """A schema that the source does not support."""


def full_schema(*optional: str) -> StructType:
    """The schema of a reader without requested columns, and with these of `OPTIONAL`."""
    left_out = {*OPTIONAL} - {*optional}
    return StructType([StructField(name, kind) for name, kind in TYPES.items() if name not in left_out])


def _may_be_null(empty_is_null: bool) -> tuple[str, ...]:
    return ("key", *OPTIONAL, *(("value",) if empty_is_null else ()))


def check_schema(schema: StructType, empty_is_null: bool = False) -> None:
    """Check that the columns are a subset of ours, in any order: this is how a reader requests fewer."""
    seen: set[str] = set()
    for field in schema.fields:
        expected = TYPES.get(field.name)
        if expected is None:
            raise SchemaRefused(f"There is no column {field.name!r}; {_allowed()}")
        if field.name in seen:
            raise SchemaRefused(f"Column {field.name!r} is there twice; {_allowed()}")
        seen.add(field.name)
        kinds = (expected.simpleString(), *(("string",) if field.name in TEXT else ()))
        if field.dataType.simpleString() not in kinds:
            raise SchemaRefused(
                f"Column {field.name!r} is {expected.simpleString()}, not {field.dataType.simpleString()}; read it as "
                f"it is and convert it then, for example with col({field.name!r}).cast(…); {_allowed()}"
            )
        if not field.nullable and field.name in _may_be_null(empty_is_null):
            raise SchemaRefused(f"Column {field.name!r} may be null; leave out NOT NULL")
    if not seen:
        raise SchemaRefused(f"The schema has no column; {_allowed()}")


def _allowed() -> str:
    columns = ", ".join(f"{name} {kind.simpleString()}" for name, kind in TYPES.items())
    return f"a schema may hold any of: {columns}; {' and '.join(TEXT)} also as string"


class SourceConverter:
    """Converts the log's batches to those of a Spark schema."""

    def __init__(self, schema: StructType, empty_is_null: bool = False) -> None:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        from penstock.log.arrow_values import scalar

        self._empty_is_null = empty_is_null
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        wanted = {name: None for name in self._schema.names if name != "timestampType"}
        self.columns = list(wanted | {"offset": None})  # always, to resume after an interruption
        self._times = pa.repeat(scalar(LOG_APPEND_TIME, pa.int32()), MOST_ROWS)

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in evened(batches):
            yield self._shaped(batch)

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = []
        for field in self._schema:
            if field.name == "timestampType":
                arrays.append(self._times.slice(0, batch.num_rows))
                continue
            column = batch.column(field.name)
            if field.name == "value" and self._empty_is_null:
                column = _null_if_empty(column)
            if field.name in TEXT and field.type != column.type:
                column = column.view(field.type)  # whether it is valid UTF-8 is not looked at, as in Spark's cast
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _null_if_empty(values: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.log.arrow_values import scalar

    empty = pc.equal(pc.binary_length(values), scalar(0, pa.int32()))
    return pc.if_else(empty, scalar(None, values.type), values)


def evened(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, with small batches merged and large ones split."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _cut(batch):
            large = piece.num_rows >= ENOUGH_ROWS or piece.nbytes >= ENOUGH_BYTES
            if held and (large or rows >= MERGED_ROWS or size >= ENOUGH_BYTES):
                yield held[0] if len(held) == 1 else pa.concat_batches(held)
                held, rows, size = [], 0, 0
            if large:
                yield piece
                continue
            held.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    pieces = min(rows, max(-(-rows // MOST_ROWS), -(-batch.nbytes // MOST_BYTES)))
    cuts = [rows * index // pieces for index in range(pieces + 1)] if pieces else []
    for start, end in pairwise(cuts):
        yield batch.slice(start, end - start)
