"""Catalog statements: SHOW TABLES, SHOW COLUMNS, DESCRIBE, SHOW INDEXES, and the tables of `information_schema`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from penstock.broker.errors import QueryInvalid, TableNotFound
from penstock.broker.queries.query import Rows, Value
from penstock.sql.catalog import Catalog, Stream
from penstock.sql.names import resolve
from penstock.sql.relation import Relation
from penstock.sql.typed_relation import TypedRelation

WORDS: Final = frozenset({"SHOW", "DESCRIBE", "DESC"})

_NAME: Final = r"(?:\"((?:[^\"]|\"\")+)\"|'((?:[^']|'')+)'|([^\s\"';]+))"
_FORMS: Final = (
    ("tables", re.compile(r"SHOW\s+(?:ALL\s+)?TABLES", re.IGNORECASE)),
    ("columns", re.compile(rf"SHOW\s+COLUMNS\s+(?:FROM|IN)\s+{_NAME}", re.IGNORECASE)),
    ("columns", re.compile(rf"DESC(?:RIBE)?\s+(?:TABLE\s+)?{_NAME}", re.IGNORECASE)),
    ("indexes", re.compile(rf"SHOW\s+(?:INDEXES|INDEX|INDICES|KEYS)\s+(?:FROM|IN|ON)\s+{_NAME}", re.IGNORECASE)),
)

AnyRelation = Relation | TypedRelation
Relate = Callable[[Stream], AnyRelation]


def show(catalog: Catalog, relate: Relate, sql: str) -> Rows:
    for kind, form in _FORMS:
        found = form.fullmatch(sql.strip())
        if found is None:
            continue
        if kind == "tables":
            return Rows(["name", "column_count"], [[one.name, one.width()] for one in _tables(catalog, relate)])
        quoted, single, plain = found.groups()
        name = plain or (quoted.replace('""', '"') if quoted else single.replace("''", "'"))
        stream = resolve(catalog, [name]).get(name)
        if stream is None:
            raise TableNotFound(name)
        relation = relate(stream)
        return _columns(relation) if kind == "columns" else _indexes(relation)
    raise QueryInvalid(
        "Not SQL: there are SHOW TABLES, SHOW COLUMNS FROM a table, SHOW INDEXES FROM a table, and DESCRIBE a table"
    )


def _columns(relation: AnyRelation) -> Rows:
    rows: list[list[Value]] = [[one.name, one.type, one.nullable, one.primary_key] for one in relation.columns()]
    return Rows(["name", "data_type", "nullable", "primary_key"], rows)


def _indexes(relation: AnyRelation) -> Rows:
    declared = relation.declared
    keys = [] if declared is None else [column.name for column in declared.columns if column.primary_key]
    return Rows(["name", "columns"], [[f"{relation.name}_pkey", ",".join(keys)]] if keys else [])


def _tables(catalog: Catalog, relate: Relate) -> Iterator[AnyRelation]:
    """All tables that the caller may read and that exist at this point in time."""
    names = catalog.names()
    opened = catalog.open(names)
    for name in names:
        if name not in opened:
            continue
        try:
            yield relate(opened[name])
        except TableNotFound:
            continue  # does not exist at this position


# -- information_schema


def information(catalog: Catalog, relate: Relate, table: str) -> pa.Table:
    """`information_schema.tables` or `.columns`, limited to the caller's tables."""
    if table == "tables":
        rows = [("penstock", "main", one.name, "BASE TABLE") for one in _tables(catalog, relate)]
        names = ["table_catalog", "table_schema", "table_name", "table_type"]
        return pa.table({name: pa.array([row[at] for row in rows], pa.string()) for at, name in enumerate(names)})
    found = [
        (one.name, column, ordinal)
        for one in _tables(catalog, relate)
        for ordinal, column in enumerate(one.columns(), 1)
    ]
    return pa.table(
        {
            "table_catalog": pa.array(["penstock"] * len(found), pa.string()),
            "table_schema": pa.array(["main"] * len(found), pa.string()),
            "table_name": pa.array([name for name, _, _ in found], pa.string()),
            "column_name": pa.array([column.name for _, column, _ in found], pa.string()),
            "ordinal_position": pa.array([ordinal for _, _, ordinal in found], pa.int32()),
            "is_nullable": pa.array(["YES" if column.nullable else "NO" for _, column, _ in found], pa.string()),
            "data_type": pa.array([column.type for _, column, _ in found], pa.string()),
        }
    )
