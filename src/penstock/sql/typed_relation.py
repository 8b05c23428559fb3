"""A typed table as a table of DuckDB: its columns as they are, with texts and times as those of streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from penstock.broker.queries.query import Column
from penstock.sql.catalog import TypedStream
from penstock.sql.column_pruning import RequiredColumns
from penstock.sql.engine import Engine
from penstock.sql.inferred_schema import identifier
from penstock.sql.limits import Stop
from penstock.sql.relation import ArrowSource, PointInTime, declared_at, text_of
from penstock.sql.values import described

_TEXTS: Final = ("_key", "_value")
_TIME: Final = "_timestamp"


class TypedRelation:
    """A `Relation`. Raises TableNotFound, PositionGone."""

    declared = None

    def __init__(self, engine: Engine, stream: TypedStream, moment: PointInTime, stop: Stop) -> None:
        declared_at(stream, moment)
        self._engine = engine
        self._moment = moment
        self._stop = stop
        self.stream = stream
        self._schema = pa.schema([pa.field(it.name, _shown_type(it)) for it in stream.schema()])

    @property
    def name(self) -> str:
        return self.stream.name

    def columns(self) -> list[Column]:
        source = self._engine.register(self._schema.empty_table())
        return [Column(name, kind) for name, kind in described(self._engine, f"SELECT * FROM {source}", [])]

    def width(self) -> int:
        return len(self._schema)

    def hidden(self) -> list[str]:
        return []

    def query(self, needs: RequiredColumns) -> str:
        columns = [name for name in self._schema.names if name in needs] or ["_offset"]
        read, where = list(columns), ""
        if self._moment.time is not None:
            where = f" WHERE {_TIME} <= make_timestamp({self._moment.time // 1_000})"
            read += [] if _TIME in read else [_TIME]
        schema = pa.schema([self._schema.field(name) for name in read])
        source = self._engine.register(ArrowSource(self._engine, schema, lambda: self._batches(schema)))
        return f"SELECT {', '.join(map(identifier, columns))} FROM {source}{where}"

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in self.stream.batches(schema.names, self._moment.position):
            self._stop.check()
            arrays: Sequence[pa.Array] = [_shown(field, batch.column(field.name)) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _shown_type(field: pa.Field) -> pa.DataType:
    if field.name in _TEXTS:
        return pa.string()
    return pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type


def _shown(field: pa.Field, array: pa.Array) -> pa.Array:
    if field.name in _TEXTS:
        return text_of(array)
    if pa.types.is_timestamp(field.type):
        return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()).cast(field.type)
    return array if array.type == field.type else array.cast(field.type)
