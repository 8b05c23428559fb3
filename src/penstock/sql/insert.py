"""INSERT: rows become events, one JSON object each, appended to the stream of the table.

DuckDB computes the rows and writes the objects. For a table with a primary key, existing rows are searched for
duplicates, and the append succeeds only if nothing was appended in between; otherwise everything is retried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from sqlglot import exp

from penstock.broker.errors import DuplicateKey, QueryError, QueryTooLarge, TableNotFound
from penstock.broker.queries.query import Column, Rows, Value
from penstock.sql.catalog import Catalog, Stream
from penstock.sql.column_pruning import RequiredColumns
from penstock.sql.ddl import changed, table_name
from penstock.sql.engine import Engine
from penstock.sql.grammar import APPEND_ONLY, render
from penstock.sql.inferred_schema import identifier, quoted
from penstock.sql.limits import QueryLimits
from penstock.sql.names import resolve
from penstock.sql.relation import DOOR, PARTITION, Relation, moment_of
from penstock.sql.typed_relation import TypedRelation
from penstock.sql.values import INTEGERS, MOMENTS, bind, described

ATTEMPTS: Final = 20
_PAGE: Final = 1_000
_SET_BY_THE_LOG: Final = ("offset", "timestamp", PARTITION, DOOR)
_NUMBERS: Final = INTEGERS | {"FLOAT", "DOUBLE"}
_PLAIN: Final = INTEGERS - {"HUGEINT", "UHUGEINT"} | {"DOUBLE", "BOOLEAN", "VARCHAR", "JSON"}  # types that JSON has

Relate = Callable[[Stream], Relation | TypedRelation]


class _Row(NamedTuple):
    event: bytes
    key: bytes | None


class Insertion:
    """One INSERT statement. `prepare` turns its query into one for DuckDB."""

    def __init__(
        self,
        catalog: Catalog,
        engine: Engine,
        tree: exp.Insert,
        params: Sequence[Value],
        limits: QueryLimits,
        relate: Relate,
        prepare: Callable[[exp.Expr], exp.Expr],
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self._params = params
        self._limits = limits
        self._relate = relate
        self._prepare = prepare
        self._table, self._listed = _target(tree)
        self._query = _query(tree)
        self._by_name = bool(tree.args.get("by_name"))

    def run(self) -> Rows:
        for _ in range(ATTEMPTS):
            stream = resolve(self._catalog, [self._table]).get(self._table)
            if stream is None:
                raise TableNotFound(self._table)
            relation = self._relate(stream)
            if isinstance(relation, TypedRelation):
                raise QueryError(f"'{self._table}' is a typed table, made from its topic: insert into the topic")
            rows = self._rows(relation)
            if not rows:
                return changed(0, self._catalog.head())
            position = self._append(stream, relation, rows)
            if position is not None:
                return changed(len(rows), position)
            self._catalog.refresh()
        raise QueryError("Others append to this table all the time: the statement may be tried again")

    def _append(self, stream: Stream, relation: Relation, rows: list[_Row]) -> int | None:
        events = [row.event for row in rows]
        keys = [row.key for row in rows] if any(row.key is not None for row in rows) else None
        primary = relation.declared is not None and any(column.primary_key for column in relation.declared.columns)
        expected = next(span.end for span in stream.partitions if span.partition == 0) if primary else None
        return self._catalog.append(stream.name, events, keys, expected)

    # -- rows

    def _rows(self, relation: Relation) -> list[_Row]:
        query = self._prepare(self._query.copy())
        bound = bind(query, self._params)
        sql = render(query)
        given = described(self._engine, sql, bound)
        names = self._names(relation, given)
        if relation.declared is not None:
            return self._declared_rows(relation, sql, bound, names, [kind for _, kind in given])
        return self._plain_rows(sql, bound, names, [kind for _, kind in given])

    def _names(self, relation: Relation, given: Sequence[tuple[str, str]]) -> list[str]:
        """The column of each value."""
        names = self._listed
        if self._by_name:
            names = [name for name, _ in given]
        elif not names:
            if relation.declared is None:
                raise QueryError(f"'{relation.name}' is not declared as a table: name the columns to insert")
            names = [column.name for column in relation.declared.columns][: len(given)]
        if len(names) != len(given):
            raise QueryError(f"INSERT has {len(given)} values for {len(names)} columns")
        if len({name.lower() for name in names}) < len(names):
            raise QueryError("INSERT names a column twice")
        return names

    def _declared_rows(
        self, relation: Relation, sql: str, bound: Sequence[object], names: Sequence[str], kinds: Sequence[str]
    ) -> list[_Row]:
        assert relation.declared is not None
        columns = relation.declared.columns
        index_of = {name.lower(): at for at, name in enumerate(names)}
        if unknown := index_of.keys() - {column.name.lower() for column in columns}:
            raise QueryError(f"Table '{relation.name}' has no column '{min(unknown)}'")
        values = [
            _cast(column, "NULL", "NULL")
            if (at := index_of.get(column.name.lower())) is None
            else _cast(column, kinds[at], f"c{at}")
            for column in columns
        ]
        primary = [at for at, column in enumerate(columns) if column.primary_key]
        checked = [f"d{at}" for at, column in enumerate(columns) if not column.nullable]
        source = _numbered(sql, len(names))
        typed = ", ".join(f"{value} AS d{at}" for at, value in enumerate(values))
        event = _object([(column.name, column.type, f"d{at}") for at, column in enumerate(columns)])
        key = _key([f"d{at}" for at in primary])
        nulls = ", ".join(f"{name} IS NULL" for name in checked)
        rows = self._fetch(
            f"SELECT {event}, {key}{', ' + nulls if nulls else ''} FROM (SELECT {typed} FROM {source})", bound
        )
        required = [column for column in columns if not column.nullable]
        for row in rows:
            for column, null in zip(required, row[2:], strict=True):
                if null:
                    raise QueryError(f"Column '{column.name}' of table '{relation.name}' cannot be NULL")
        if primary:
            self._refuse_duplicates(relation, [columns[at] for at in primary], [row[1] for row in rows])
        return [_Row(row[0].encode(), None if row[1] is None else row[1].encode()) for row in rows]

    def _refuse_duplicates(self, relation: Relation, columns: Sequence[Column], keys: Sequence[str]) -> None:
        if not keys:
            return
        if len(set(keys)) < len(keys):
            raise DuplicateKey(f"Two rows of the statement have the same primary key in table '{relation.name}'")
        needs = RequiredColumns()
        for column in columns:
            needs.add(column.name)
        key = _key([identifier(column.name) for column in columns])
        found = self._engine.rows(
            f"SELECT k FROM (SELECT {key} AS k FROM ({relation.query(needs)})) WHERE list_contains(?, k) LIMIT 1"
            if len(keys) > 1
            else f"SELECT k FROM (SELECT {key} AS k FROM ({relation.query(needs)})) WHERE k = ? LIMIT 1",
            [list(keys) if len(keys) > 1 else keys[0]],
        )
        if found:
            names = ", ".join(column.name for column in columns)
            raise DuplicateKey(f"Table '{relation.name}' has a row with {names} = {str(found[0][0])[:100]} already")

    def _plain_rows(self, sql: str, bound: Sequence[object], names: Sequence[str], kinds: Sequence[str]) -> list[_Row]:
        """Rows for a stream that is not declared: fields of a JSON object, or the event itself as `data`; either with
        an optional `key`.
        """
        folded = [name.lower() for name in names]
        if reserved := next((name for name in folded if name in _SET_BY_THE_LOG), None):
            raise QueryError(f"Column '{reserved}' is set by the log")
        others = [(name, kinds[at], f"c{at}") for at, name in enumerate(names) if folded[at] not in ("key", "data")]
        key = f"CAST(c{folded.index('key')} AS VARCHAR)" if "key" in folded else "NULL"
        if "data" in folded:
            if others:
                raise QueryError("Insert either `data`, which is the whole event, or the fields of a JSON object")
            at = folded.index("data")
            event = f"c{at}" if kinds[at] == "BLOB" else f"CAST(c{at} AS VARCHAR)"
        elif others:
            event = _object(others)
        else:
            raise QueryError("An event needs `data`, or the fields of a JSON object")
        rows = self._fetch(f"SELECT {event}, {key} FROM {_numbered(sql, len(names))}", bound)
        if any(row[0] is None for row in rows):
            raise QueryError("Column 'data' cannot be NULL")
        return [_Row(_bytes(row[0]), None if row[1] is None else row[1].encode()) for row in rows]

    def _fetch(self, sql: str, bound: Sequence[object]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        size = 0
        for page in self._engine.pages(f"{sql} LIMIT {self._limits.rows + 1}", bound, _PAGE):
            rows += page
            size += sum(len(row[0] or "") for row in page)
            if len(rows) > self._limits.rows or size > self._limits.result_bytes:
                raise QueryTooLarge(f"An INSERT takes at most {self._limits.rows} rows: insert them in parts")
        return rows


def _target(tree: exp.Insert) -> tuple[str, list[str]]:
    for refused, why in (("alternative", APPEND_ONLY), ("overwrite", APPEND_ONLY), ("default", "name the values")):
        if tree.args.get(refused):
            raise QueryError(f"INSERT … {refused.upper()} is not supported: {why}")
    target = tree.this
    if isinstance(target, exp.Schema):
        return table_name(target.this), [column.name for column in target.expressions]
    return table_name(target), []


def _query(tree: exp.Insert) -> exp.Expr:
    source = tree.expression
    if not isinstance(source, exp.Query | exp.Values):
        raise QueryError("INSERT needs VALUES or a SELECT")
    if isinstance(source, exp.Values) and any(node.name.upper() == "DEFAULT" for node in source.find_all(exp.Var)):
        raise QueryError("DEFAULT is not supported: columns have no defaults, leave them out instead")
    query = source.copy()
    if (within := tree.args.get("with_")) is not None:
        query.set("with_", within.copy())
    return query


def _numbered(sql: str, count: int) -> str:
    return f"({sql}) AS t({', '.join(f'c{at}' for at in range(count))})"


def _cast(column: Column, given: str, value: str) -> str:
    """A strict cast: DuckDB would turn 1.5 into 2, and true into 1."""
    wanted = column.type
    if given not in (wanted, '"NULL"', "NULL") and not _fits(wanted, given):
        raise QueryError(f"Column '{column.name}' is {wanted}, but the value is {given}")
    return moment_of(value, "CAST") if (wanted, given) == ("TIMESTAMP_NS", "VARCHAR") else f"CAST({value} AS {wanted})"


def _fits(wanted: str, given: str) -> bool:
    decimal = given.startswith("DECIMAL(")
    if wanted in INTEGERS:
        return given in INTEGERS
    if wanted in ("FLOAT", "DOUBLE") or wanted.startswith("DECIMAL("):
        return given in _NUMBERS or decimal
    if wanted == "VARCHAR":
        return given in ("UUID", "JSON") or given.startswith("ENUM(")
    if wanted == "BOOLEAN":
        return False
    if wanted in MOMENTS:
        return given in MOMENTS or given in ("DATE", "VARCHAR")
    if wanted == "JSON":
        return given == "VARCHAR" or given.endswith("]") or re.match(r"STRUCT\(|MAP\(", given) is not None
    return given == "VARCHAR"  # text is parsed, or the statement fails


def _object(columns: Sequence[tuple[str, str, str]]) -> str:
    """A JSON object from (name, type, value). NULL becomes null."""
    pairs = ", ".join(f"{quoted(name)}, {_json(kind, value)}" for name, kind, value in columns)
    return f"CAST(json_object({pairs}) AS VARCHAR)"


def _json(kind: str, value: str) -> str:
    if kind == "FLOAT":
        return _json("DOUBLE", f"CAST(CAST({value} AS VARCHAR) AS DOUBLE)")
    if kind == "DOUBLE":
        refused = f"WHEN {value} IS NOT NULL THEN error('NaN and infinity cannot be inserted')"
        return f"CASE WHEN isfinite({value}) THEN {value} {refused} END"
    if kind in _PLAIN or kind in ('"NULL"', "NULL") or kind.endswith("]") or kind.startswith(("STRUCT(", "MAP(")):
        return value
    if kind == "BLOB":
        return f"to_base64({value})"
    if kind in MOMENTS:
        return f"replace(CAST(make_timestamp_ns(epoch_ns({value})) AS VARCHAR), ' ', 'T') || 'Z'"
    return f"CAST({value} AS VARCHAR)"


def _key(values: Sequence[str]) -> str:
    """A primary key as text; a JSON array if it has several columns."""
    if not values:
        return "NULL"
    if len(values) == 1:
        return f"CAST({values[0]} AS VARCHAR)"
    return f"CAST(json_array({', '.join(f'CAST({value} AS VARCHAR)' for value in values)}) AS VARCHAR)"


def _bytes(event: str | bytes) -> bytes:
    return event if isinstance(event, bytes) else event.encode()
