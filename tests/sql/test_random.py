"""Random data and statements: what comes out is what DuckDB says of a table filled with the same rows; and every
position of a random history shows what a replay up to there shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import duckdb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import scaled
from tests.sql.ask import ask
from tests.sql.memory import MemoryCatalog

from penstock.broker.errors import QueryError, TableNotFound
from penstock.broker.queries.query import Value

NAMES = ["a", "b", "camelCase", "with space", "order", "ünï"]
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "BIGINT": st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-5, 5),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda x: x + 0.0),
    "BOOLEAN": st.booleans(),
    "VARCHAR": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6) | st.sampled_from(["x", "y"]),
}
QUERIES = [
    "SELECT * EXCLUDE (timestamp, key, data) FROM {t} ORDER BY 1",
    "SELECT {c}, count(*) AS n FROM {t} GROUP BY {c} ORDER BY n, {c} NULLS FIRST",
    'SELECT {c} FROM {t} WHERE {c} IS NOT NULL ORDER BY {c}, "offset" LIMIT 3',
    "SELECT min({c}), max({d}), count({c}), count(DISTINCT {d}) FROM {t}",
    'SELECT x."offset", y.{d} FROM {t} x JOIN {t} y ON x.{c} = y.{c} ORDER BY 1, 2 NULLS FIRST',
    'SELECT "offset", row_number() OVER (PARTITION BY {c} ORDER BY "offset") FROM {t} ORDER BY 1',
    'WITH w AS (SELECT {c} AS z, "offset" AS o FROM {t}) SELECT z FROM w WHERE o % 2 = 0 ORDER BY o',
    'SELECT {c}, {d} FROM {t} WHERE {c} IN (SELECT {c} FROM {t} WHERE "offset" < 2) ORDER BY "offset"',
    'SELECT "offset" FROM {t} WHERE {c} IS NULL UNION ALL SELECT count(*) FROM {t} ORDER BY 1',
    'SELECT {c} = {c} AND NOT ({d} IS NULL) FROM {t} ORDER BY "offset"',
]


def quoted(name: str) -> str:
    return f'"{name}"'


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Columns with types, and rows; each column has a value somewhere, so that its type shows."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    columns = {name: draw(st.sampled_from(sorted(KINDS))) for name in names}
    first = {name: draw(KINDS[kind]) for name, kind in columns.items()}
    row = st.fixed_dictionaries({}, optional={name: st.none() | KINDS[kind] for name, kind in columns.items()})
    return columns, [first, *draw(st.lists(row, max_size=8))]


def expected(columns: dict[str, str], data: Sequence[dict[str, Any]], sql: str) -> list[list[Value]]:
    with duckdb.connect(":memory:") as connection:
        fields = "".join(f", {quoted(name)} {columns[name]}" for name in sorted(columns))
        connection.execute(f'CREATE TABLE t ("offset" BIGINT, timestamp BIGINT, key BIGINT, data BIGINT{fields})')
        for offset, row in enumerate(data):
            values = [offset, None, None, None, *(row.get(name) for name in sorted(columns))]
            connection.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(values))})", values)
        found = connection.execute(sql).fetchall()
    return [[repr(cell) if isinstance(cell, float) else cell for cell in row] for row in found]


@settings(max_examples=scaled(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables(), st.data())
def test_random_statements(table: tuple[dict[str, str], list[dict[str, Any]]], data: st.DataObject) -> None:
    columns, rows = table
    catalog = MemoryCatalog(rows=data.draw(st.integers(1, 5)))
    for row in rows:
        catalog.add("t", json.dumps(row, ensure_ascii=data.draw(st.booleans())))
    c, d = (quoted(data.draw(st.sampled_from(sorted(columns)))) for _ in range(2))
    sql = data.draw(st.sampled_from(QUERIES)).format(t="t", c=c, d=d)
    assert ask(catalog, sql).rows == expected(columns, rows, sql)


STEPS = st.one_of(
    st.tuples(st.just("append"), st.sampled_from("st"), st.sampled_from(['{"a": 1}', '{"a": "x", "b": 2.5}', "text"])),
    st.tuples(st.just("create"), st.sampled_from("stu"), st.just("CREATE TABLE IF NOT EXISTS {} (a BIGINT, c TEXT)")),
    st.tuples(st.just("drop"), st.sampled_from("stu"), st.just("DROP TABLE {}")),
    st.tuples(st.just("insert"), st.sampled_from("stu"), st.just("INSERT INTO {} (a) VALUES (7), (8)")),
)


def perform(catalog: MemoryCatalog, step: tuple[str, str, str]) -> None:
    kind, name, what = step
    if kind == "append":
        catalog.add(name, what)
    else:
        try:
            ask(catalog, what.format(name))
        except QueryError:
            assert kind in ("insert", "drop")


def seen(catalog: MemoryCatalog, at: int | None) -> list[object]:
    """All that can be seen of the three streams."""
    found: list[object] = []
    for name in "stu":
        try:
            found.append(ask(catalog, f"SELECT *, count(*) OVER () AS n FROM {name}", at=at))
        except TableNotFound:
            found.append("not there")
    return found


@settings(max_examples=scaled(10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=1, max_size=6))
def test_every_position_of_a_history(steps: list[tuple[str, str, str]]) -> None:
    catalog = MemoryCatalog()
    for step in steps:
        perform(catalog, step)
    for position in range(catalog.position + 1):
        assert seen(catalog, position) == seen(catalog.replay(position), None)
