"""The field that a name of a statement means, where several could be meant."""

from __future__ import annotations

import pytest
from tests.sql.ask import ask, rows
from tests.sql.memory import MemoryCatalog

from penstock.broker.errors import QueryError, TableNotFound
from penstock.sql import inferred_schema
from penstock.sql.run import StatementRuntime


@pytest.fixture
def catalog() -> MemoryCatalog:
    found = MemoryCatalog()
    found.add("t", '{"a": 1, "b": "x"}', '{"A": 20, "b": "y"}', '{"a": 3, "b": "z"}')
    return found


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t",
        "SELECT t.a FROM t",
        "SELECT x.a FROM t x",
        'SELECT "a" FROM (SELECT * FROM t)',
        "SELECT w.a FROM (SELECT * FROM t) w",
        "WITH w AS (SELECT * FROM t) SELECT w.a FROM w",
    ],
)
def test_of_fields_that_differ_in_case_the_one_that_is_written_is_meant(catalog: MemoryCatalog, sql: str) -> None:
    assert rows(catalog, sql) == [[1], [None], [3]]
    assert rows(catalog, sql.replace("a FROM", "A FROM").replace('"a"', '"A"')) == [[None], [20], [None]]


def test_all_columns_and_a_field_that_is_named(catalog: MemoryCatalog) -> None:
    assert [row[0] for row in rows(catalog, 'SELECT "offset", * FROM t WHERE a = 3')] == [2]
    assert [row[0] for row in rows(catalog, 'SELECT "offset", * FROM t WHERE A = 20')] == [1]


@pytest.mark.parametrize("sql", ['SELECT a, "A" FROM t', "SELECT A FROM t WHERE a = 1", "SELECT * FROM t WHERE A = a"])
def test_both_of_them_cannot_be_meant(catalog: MemoryCatalog, sql: str) -> None:
    with pytest.raises(QueryError, match="'A' and 'a', which are one column"):
        rows(catalog, sql)


def test_a_name_before_a_point_does_not_make_a_statement_look_for_more(catalog: MemoryCatalog) -> None:
    ask(catalog, "SELECT b FROM t WHERE a = 1", shop=StatementRuntime())
    plainly = len(catalog.reads)
    ask(catalog, "SELECT x.b FROM t x WHERE x.a = 1", shop=StatementRuntime())
    assert len(catalog.reads) == 2 * plainly


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT userid AS userid FROM s", [[1], [2]]),
        ("SELECT tag AS tag, count(*) AS n FROM s GROUP BY tag ORDER BY n, tag", [["x", 1], ["y", 1]]),
        ("SELECT userid AS n FROM s WHERE tag = 'x'", [[1]]),
        ("SELECT -\"userId\" AS tag FROM s WHERE tag = 'x' ORDER BY tag", [[-1]]),
        ("SELECT -userid AS tag FROM s ORDER BY tag", [[-2], [-1]]),
        ('SELECT -"userId" AS tag, row_number() OVER (ORDER BY tag) AS n FROM s ORDER BY n', [[-1, 1], [-2, 2]]),
        ("WITH w AS (SELECT userid AS tag FROM s) SELECT tag FROM w", [[1], [2]]),
        ("SELECT NESTED.x FROM s WHERE userid = 1", [["5"]]),
    ],
)
def test_a_name_that_the_statement_defines_too(sql: str, found: list[list[object]], known: bool) -> None:
    """Its meaning must not depend on what was learnt of the stream before."""
    catalog, shop = MemoryCatalog(), StatementRuntime()
    catalog.add("s", '{"userId": 1, "Tag": "x", "nested": {"x": 5}}', '{"userId": 2, "Tag": "y"}')
    if known:
        ask(catalog, "SELECT * FROM s", shop=shop)
    assert ask(catalog, sql, shop=shop).rows == found


def test_a_field_of_a_field_that_is_called_like_its_table() -> None:
    catalog = MemoryCatalog()
    catalog.add("t", '{"t": {"in": 5}, "a": 1}')
    assert rows(catalog, 'SELECT t."in", t.a FROM t') == [["5", 1]]


def test_columns_that_get_names_by_their_places(catalog: MemoryCatalog) -> None:
    assert rows(catalog, "SELECT d, o FROM t AS x(o, ts, k, d) WHERE o = 2") == [['{"a": 3, "b": "z"}', 2]]
    assert rows(catalog, "SELECT data, o FROM t AS x(o) WHERE o = 2") == [['{"a": 3, "b": "z"}', 2]]


def test_streams_with_more_fields_than_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inferred_schema, "MAX_FIELDS", 3)
    catalog, shop = MemoryCatalog(), StatementRuntime()
    catalog.add("wide", '{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "Fg": 6}')
    for _ in range(2):
        assert ask(catalog, "SELECT * EXCLUDE (timestamp, data) FROM wide", shop=shop).columns[2:] == ["Fg", "a", "b"]
        assert ask(catalog, "SELECT e FROM wide", shop=shop).rows == [[5]]
        assert ask(catalog, "SELECT fg FROM wide", shop=shop).rows == [[6]]
        assert "d" in ask(catalog, "SELECT * FROM wide WHERE d = 4", shop=shop).columns
    catalog.add("wide", '{"z": 7}')
    assert ask(catalog, "SELECT max(z), max(d) FROM wide", shop=shop).rows == [[7, 4]]


def test_a_stream_that_becomes_wide_keeps_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inferred_schema, "MAX_FIELDS", 3)
    catalog, shop = MemoryCatalog(), StatementRuntime()
    catalog.add("wide", '{"a": 1, "b": 2}')
    ask(catalog, "SELECT * FROM wide", shop=shop)
    catalog.add("wide", '{"c": 3, "d": 4, "e": 5, "f": 6, "g": 7}')
    ask(catalog, "SELECT * FROM wide", shop=shop)
    assert ask(catalog, "SELECT max(g) FROM wide", shop=shop).rows == [[7]]


def test_names_that_statements_make_up_are_not_all_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inferred_schema, "MAX_FIELDS", 2)  # so that all names are never known
    monkeypatch.setattr(inferred_schema, "MOST_KEPT", 5)
    catalog, shop = MemoryCatalog(), StatementRuntime()
    catalog.add("t", '{"a": 1, "b": 2, "c": 3}')
    for number in range(20):
        with pytest.raises(QueryError):
            ask(catalog, f"SELECT made_up_{number} FROM t", shop=shop)
        assert sum(len(shape.seen) for shape in shop.shapes._known.values()) <= 5
    assert ask(catalog, "SELECT a FROM t", shop=shop).rows == [[1]]


# -- names of tables


def test_the_name_of_a_recursive_cte_means_itself_behind_the_union_only(catalog: MemoryCatalog) -> None:
    catalog.add("n", '{"i": 1}')
    recursive = "WITH RECURSIVE n AS (SELECT i FROM n UNION ALL SELECT i + 1 FROM n WHERE i < 4) SELECT n.i FROM n"
    assert rows(catalog, recursive) == [[1], [2], [3], [4]]
    assert rows(catalog, "WITH RECURSIVE n AS (SELECT i + 1 AS j FROM n) SELECT j FROM n") == [[2]]
    with pytest.raises(TableNotFound):
        rows(catalog, "WITH RECURSIVE m AS (SELECT * FROM m) SELECT * FROM m")


def test_a_stream_called_like_a_table_of_the_information_schema(catalog: MemoryCatalog) -> None:
    catalog.add("information_schema.tables", '{"a": 5}')
    sql = 'SELECT i.table_name, d.a FROM information_schema.tables i, "information_schema.tables" d ORDER BY 1'
    assert rows(catalog, sql) == [["information_schema.tables", 5], ["t", 5]]
