"""CREATE TABLE and DROP TABLE: declaring how the events of a stream are read as rows, and dropping that declaration.

A missing stream is created, and it stays when the declaration is dropped. If CREATE TABLE created it, statements do not
find it any more after DROP TABLE, except those about the past.
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from penstock.broker.errors import QueryError, TableExists, TableNotFound
from penstock.broker.queries.query import Column, Declared, Rows
from penstock.sql.catalog import Catalog, Typed
from penstock.sql.engine import Engine
from penstock.sql.grammar import DIALECT
from penstock.sql.names import resolve

MAX_COLUMNS: Final = 1_000
_WRITTEN: Final = re.compile(r"[A-Za-z0-9_ (),]{1,200}")
_ALIASES: Final = {"BYTES": "BLOB", "STRING": "VARCHAR", "TIMESTAMP": "TIMESTAMP_NS", "NULL": ""}
_TYPES: Final = frozenset(
    [
        *["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"],
        *["FLOAT", "DOUBLE", "BOOLEAN", "VARCHAR", "BLOB", "JSON", "UUID", "DATE", "TIME", "INTERVAL", "TIMESTAMP_NS"],
        "TIMESTAMP WITH TIME ZONE",
    ]
)


def changed(rows: int, position: int) -> Rows:
    """The result of every statement that changes something."""
    return Rows(["rows_affected", "log_offset"], [[rows, position]])


def create(catalog: Catalog, engine: Engine, tree: exp.Create) -> Rows:
    schema = tree.this
    if str(tree.args.get("kind")).upper() != "TABLE":
        raise QueryError(f"CREATE {tree.args.get('kind')} is not supported: tables are all there is")
    if tree.args.get("expression") is not None or not isinstance(schema, exp.Schema):
        raise QueryError("CREATE TABLE needs a list of columns with their types")
    if tree.args.get("replace"):
        raise QueryError("CREATE OR REPLACE TABLE is not supported: drop the table and create it again")
    name = table_name(schema.this)
    columns = _columns(engine, schema)
    stream = resolve(catalog, [name]).get(name)
    if isinstance(stream, Typed):
        raise TableExists(stream.name)
    if stream is not None and stream.declarations.declared is not None:
        if tree.args.get("exists"):
            return changed(0, catalog.head())
        raise TableExists(stream.name)
    target = name if stream is None else stream.name
    return changed(0, catalog.declare(target, Declared(tuple(columns)), create=stream is None))


def drop(catalog: Catalog, tree: exp.Drop) -> Rows:
    if str(tree.args.get("kind")).upper() != "TABLE":
        raise QueryError(f"DROP {tree.args.get('kind')} is not supported: tables are all there is")
    tables = tree.args.get("tables") or ([tree.this] if tree.this is not None else [])
    if len(tables) != 1:
        raise QueryError("DROP TABLE takes one table")
    name = table_name(tables[0])
    stream = resolve(catalog, [name]).get(name)
    if isinstance(stream, Typed):
        raise QueryError(f"'{name}' is a typed table, made from its topic: it is dropped with the topic")
    if stream is None or stream.declarations.declared is None:
        if tree.args.get("exists"):
            return changed(0, catalog.head())
        if stream is None or stream.declarations.at(None).hidden:
            raise TableNotFound(name)
        raise QueryError(f"'{name}' is a stream that was not declared as a table: there is nothing to drop")
    return changed(0, catalog.declare(stream.name, None, create=False))


def table_name(table: exp.Expr) -> str:
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or table.db or table.catalog:
        raise QueryError("A table is named by one word, without a schema")
    return str(table.name)


def _columns(engine: Engine, schema: exp.Schema) -> list[Column]:
    keys: list[str] = []
    found: list[tuple[str, str, bool, bool]] = []
    for item in schema.expressions:
        if isinstance(item, exp.ColumnDef):
            found.append(_column(engine, item))
        elif isinstance(item, exp.PrimaryKey) and not keys:
            keys = [part.name.lower() for part in item.expressions]
        else:
            raise QueryError("A table consists of columns and at most one PRIMARY KEY: nothing else can be declared")
    keys += [name.lower() for name, _, _, primary in found if primary]
    names = [name.lower() for name, *_ in found]
    if len(set(names)) < len(names):
        raise QueryError("Two columns have the same name (upper and lower case do not differ)")
    if not found or len(found) > MAX_COLUMNS:
        raise QueryError(f"A table has 1 to {MAX_COLUMNS} columns")
    if missing := set(keys).difference(names):
        raise QueryError(f"There is no column '{min(missing)}' to be a primary key")
    if len(set(keys)) < len(keys):
        raise QueryError("A table has one PRIMARY KEY, and each column is in it once")
    return [
        Column(name, kind, nullable and name.lower() not in keys, name.lower() in keys)
        for name, kind, nullable, _ in found
    ]


def _column(engine: Engine, item: exp.ColumnDef) -> tuple[str, str, bool, bool]:
    name = item.name
    if not name or '"' in name or "\\" in name or not name.isprintable():
        raise QueryError(f"'{name[:100]}' cannot be the name of a column")
    nullable, primary = True, False
    for constraint in item.args.get("constraints") or ():
        kind = constraint.args.get("kind")
        if isinstance(kind, exp.NotNullColumnConstraint):
            nullable = bool(kind.args.get("allow_null"))
        elif isinstance(kind, exp.PrimaryKeyColumnConstraint):
            primary = True
        else:
            raise QueryError(f"Column '{name}': only PRIMARY KEY and NOT NULL can be declared")
    return name, _type(engine, name, item.args.get("kind")), nullable, primary


def _type(engine: Engine, column: str, kind: object) -> str:
    if not isinstance(kind, exp.DataType):
        raise QueryError(f"Column '{column}' needs a type")
    written = kind.sql(dialect=DIALECT)
    written = _ALIASES.get(written.upper(), written)
    if not _WRITTEN.fullmatch(written):
        raise QueryError(f"Column '{column}' cannot be {written[:100]}: no such type, or a nested one")
    try:
        found = str(engine.rows(f"SELECT typeof(CAST(NULL AS {written}))")[0][0])
    except QueryError:
        found = ""
    found = _ALIASES.get(found, found)
    if found not in _TYPES and not found.startswith("DECIMAL("):
        raise QueryError(
            f"Column '{column}' cannot be {kind.sql(dialect=DIALECT)[:100]}: no such type, or a nested one"
        )
    return found
