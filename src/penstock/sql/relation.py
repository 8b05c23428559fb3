"""A stream as a DuckDB table: Arrow batches from the log, and a view that turns them into columns.

Copies are avoided: the text of an event is the log's own bytes once they are known to be valid UTF-8, and only columns
and fields that the statement may need are read and extracted.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from penstock.broker.errors import BrokerError, PositionGone, QueryTooLarge, TableNotFound
from penstock.broker.queries.query import Column, Declared
from penstock.sql.catalog import Stream
from penstock.sql.column_pruning import RequiredColumns
from penstock.sql.engine import Engine
from penstock.sql.inferred_schema import OBJECT, ColumnSource, Field, InferredSchemas, identifier, quoted, structure_of
from penstock.sql.limits import Stop

BASE: Final = {"offset": "BIGINT", "timestamp": "TIMESTAMP_NS", "key": "VARCHAR", "data": "VARCHAR"}
PARTITION: Final = "partition"
DOOR: Final = "_door"  # not part of `*`, and a name that few fields of events have
SMALL: Final = 100_000  # most records that are scanned just to count columns
_STORED: Final = {"data": "value", DOOR: "door"}  # other columns have the same names in the log

_ARROW: Final = {
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us"),
    "key": pa.string(),
    "data": pa.string(),
    PARTITION: pa.int32(),
    DOOR: pa.string(),
}


class PointInTime:
    """The point in time at which a statement sees the log."""

    __slots__ = ("position", "time")

    def __init__(self, position: int | None, time: int | None) -> None:
        self.position = position  # None: everything that is committed
        self.time = time  # ns since 1970; None: no limit


class Relation:
    """One stream, as seen by one statement. Raises TableNotFound, PositionGone."""

    def __init__(
        self, engine: Engine, stream: Stream, moment: PointInTime, shapes: InferredSchemas, stop: Stop
    ) -> None:
        self._engine = engine
        self._moment = moment
        self._shapes = shapes
        self._stop = stop
        self.stream = stream
        self.declared = declared_at(stream, moment)
        self._wide = len(stream.partitions) > 1

    @property
    def name(self) -> str:
        return self.stream.name

    def base(self) -> dict[str, str]:
        return {**BASE, PARTITION: "INTEGER"} if self._wide else BASE

    def columns(self) -> list[Column]:
        """The columns of `SELECT *`."""
        if self.declared is not None:
            return list(self.declared.columns)
        return [Column(name, kind) for name, kind in (*self.base().items(), *self._fields(everything=True))]

    def width(self) -> int:
        """The number of columns, for a list of all tables. Large streams are not scanned for it: only known fields are
        counted.
        """
        if self.declared is None and sum(span.end - span.start for span in self.stream.partitions) > SMALL:
            return len({*self.base(), *(field.name.lower() for field in self._shapes.known(self._column_source()))})
        return len(self.columns())

    def hidden(self) -> list[str]:
        """Columns that can be named but are not part of `*`."""
        if self.declared is None:
            return [DOOR]
        shown = {column.name.lower() for column in self.declared.columns}
        return [name for name in (*self.base(), DOOR) if name not in shown]

    def query(self, needs: RequiredColumns) -> str:
        """A SELECT that returns the rows, with the required columns."""
        if self.declared is not None:
            return self._typed_rows(self.declared, needs)
        return self._plain_rows(needs)

    # -- streams that are not declared

    def _plain_rows(self, needs: RequiredColumns) -> str:
        base = [name for name in self.base() if name in needs] + [name for name in self.hidden() if needs.named(name)]
        wanted = [name for name in needs.names if name.lower() not in (*self.base(), DOOR)]
        fields = self._fields(wanted, needs.sure, everything=needs.everything) if wanted or needs.everything else []
        if not fields and self._countable() and set(base) <= {"offset", PARTITION}:
            return self._counted(base or ["offset"])
        read = base if base or fields else ["offset"]
        columns = [_base_column(name) for name in read]
        columns += [f"f.{identifier(field.name)} AS {identifier(field.name)}" for field in fields]
        return self._select(columns, read, fields)

    def _column_source(self) -> ColumnSource:
        ends = tuple((span.partition, span.end) for span in self.stream.partitions)
        return ColumnSource(self.stream.identity, self._moment.position, ends)

    def _fields(self, names: Sequence[str] = (), sure: Collection[str] = (), *, everything: bool) -> list[Field]:
        found = self._shapes.fields(
            self._engine, self._column_source(), self._events, names, sure, everything=everything
        )
        return [field for field in found if field.name.lower() not in (*self.base(), DOOR)]

    def _countable(self) -> bool:
        return self.stream.dense and self._moment.position is None and self._moment.time is None

    def _counted(self, columns: Sequence[str]) -> str:
        """Offsets without reading any records: they follow from the bounds."""
        parts = [
            "SELECT "
            + ", ".join(
                'range AS "offset"' if name == "offset" else f"{span.partition} AS partition" for name in columns
            )
            + f" FROM range({span.start}, {span.end})"
            for span in self.stream.partitions
        ]
        return " UNION ALL ".join(parts)

    # -- declared tables

    def _typed_rows(self, declared: Declared, needs: RequiredColumns) -> str:
        base = [name for name in self.hidden() if needs.named(name)]
        columns = [column for column in declared.columns if column.name in needs]
        taken = columns or list(declared.columns[:1])  # extracting a field tells whether an event is an object
        fields = [Field(column.name, "JSON" if column.type == "JSON" else "VARCHAR") for column in taken]
        outputs = [f"{_fitting(column)} AS {identifier(column.name)}" for column in columns]
        outputs += [_base_column(name) for name in base]
        return self._select(outputs or ["1 AS one"], base, fields, objects_only=True)

    def _select(
        self, columns: Sequence[str], base: Sequence[str], fields: Sequence[Field], *, objects_only: bool = False
    ) -> str:
        read = list(base)
        conditions = []
        if fields and "data" not in read:
            read.append("data")
        if self._moment.time is not None:
            conditions.append(f'"timestamp" <= make_timestamp({self._moment.time // 1_000})')
            if "timestamp" not in read:
                read.append("timestamp")
        starts = self.declared.starts if self.declared is not None else ()
        source = self._register(read, dict(enumerate(starts)) or None)
        if fields:
            structure = quoted(structure_of(fields))
            source = f"(SELECT *, TRY(json_transform({OBJECT}, {structure})) AS f FROM {source})"
        if objects_only:
            conditions.append("f IS NOT NULL")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {', '.join(columns)} FROM {source}{where}"

    # -- sources

    def _events(self, start: Mapping[int, int] | None) -> str:
        return self._register(["data"], start)

    def _register(self, columns: Sequence[str], start: Mapping[int, int] | None) -> str:
        schema = pa.schema([(name, _ARROW[name]) for name in columns])
        return self._engine.register(ArrowSource(self._engine, schema, lambda: self._batches(schema, start)))

    def _batches(self, schema: pa.Schema, start: Mapping[int, int] | None) -> Iterator[pa.RecordBatch]:
        stored = [_STORED.get(name, name) for name in schema.names]
        for batch in self.stream.batches(stored, self._moment.position, start):
            self._stop.check()
            arrays = [_converted(name, batch.column(at)) for at, name in enumerate(schema.names)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class ArrowSource:
    """A source for DuckDB: a new stream of batches each time it is read."""

    def __init__(self, engine: Engine, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._engine = engine
        self._schema = schema
        self._open = batches

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches()).__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._open()
        except GeneratorExit:
            raise
        except BrokerError as error:
            self._engine.cause = error
            raise
        except MemoryError:
            self._engine.cause = QueryTooLarge("The statement needs more memory than there is")
            raise
        except Exception as error:
            self._engine.cause = error  # an error of the log or of its reader
            raise


def _converted(name: str, array: pa.Array) -> pa.Array:
    kind = _ARROW[name]
    if name in ("key", "data"):
        return text_of(array)
    if name == "timestamp":
        return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()).cast(kind)
    return array if array.type == kind else array.cast(kind)


def text_of(array: pa.Array) -> pa.Array:
    """Binary values as text: the same bytes if all are valid UTF-8; otherwise invalid ones in base64."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in array.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def declared_at(stream: Stream, moment: PointInTime) -> Declared | None:
    """The declaration in force. Raises TableNotFound, PositionGone."""
    position = moment.position
    state = stream.declarations.at(position)
    if state.hidden:
        raise TableNotFound(stream.name)
    if position is None:
        return state.declared
    if stream.created >= position:
        raise TableNotFound(stream.name)
    first = stream.first_position()
    if first >= position:
        raise PositionGone(
            f"Position {position} is before what is kept of '{stream.name}': its oldest record is at position {first}"
        )
    return state.declared


def _base_column(name: str) -> str:
    if name == "timestamp":
        return 'TRY_CAST("timestamp" AS TIMESTAMP_NS) AS "timestamp"'
    return identifier(name)


# -- declared types

_INTEGER: Final = (
    "CASE WHEN contains({0}, '.') OR contains({0}, 'e') OR contains({0}, 'E') THEN NULL ELSE TRY_CAST({0} AS {1}) END"
)
_ZONE: Final = "[+-][0-9]{2}(:?[0-9]{2})?$"
_ZONED: Final = f"[0-9]:[0-9:.]+{_ZONE}"


def moment_of(text: str, cast: str) -> str:
    """SQL for text as TIMESTAMP_NS, by CAST or TRY_CAST. DuckDB ignores a time zone in TIMESTAMP_NS, and its zoned type
    has only microseconds: the remaining nanoseconds are added.
    """
    below = f"epoch_ns(TRY_CAST(regexp_replace({text}, '{_ZONE}', '') AS TIMESTAMP_NS)) % 1000"
    zoned = f"make_timestamp_ns(epoch_ns({cast}({text} AS TIMESTAMPTZ)) + (coalesce({below}, 0) + 1000) % 1000)"
    return f"CASE WHEN regexp_matches({text}, '{_ZONED}') THEN {zoned} ELSE {cast}({text} AS TIMESTAMP_NS) END"


_FITTING: Final = {
    "VARCHAR": "{0}",
    "JSON": "{0}",
    "BOOLEAN": "CASE {0} WHEN 'true' THEN true WHEN 'false' THEN false END",
    "BLOB": "TRY(from_base64({0}))",
    "TIMESTAMP_NS": f"coalesce({moment_of('{0}', 'TRY_CAST')}, make_timestamp_ns(TRY_CAST({{0}} AS BIGINT)))",
    **dict.fromkeys(
        ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"],
        _INTEGER,
    ),
}
"""The SQL that reads a field as a type; other types use TRY_CAST. Values that do not match are NULL."""


def _fitting(column: Column) -> str:
    field = f"f.{identifier(column.name)}"
    pattern = _FITTING.get(column.type, "TRY_CAST({0} AS {1})")
    return pattern.replace("{0}", field).replace("{1}", column.type)
