"""Arithmetic as the protocol's document and its original's SQL reference have it, where DuckDB has it otherwise."""

from __future__ import annotations

import pytest
from tests.sql.ask import ask, rows
from tests.sql.memory import MemoryCatalog

from penstock.broker.errors import QueryError


@pytest.fixture
def catalog() -> MemoryCatalog:
    found = MemoryCatalog()
    found.add("t", '{"a": 7, "b": 0, "s": "x"}', '{"a": 9, "b": 2}')
    return found


@pytest.mark.parametrize(
    "expression", ["1 / 0", "1 // 0", "1.5 / 0", "a / b", "SQRT(-1)", "SQRT(b - a)", "LN(0)", "a / (b % 2)"]
)
def test_a_division_by_zero_and_a_root_of_less_are_errors(catalog: MemoryCatalog, expression: str) -> None:
    with pytest.raises(QueryError, match=r"(?i)division by zero|square root|logarithm"):
        rows(catalog, f"SELECT {expression} FROM t")


def test_a_division_that_no_row_needs_is_no_error(catalog: MemoryCatalog) -> None:
    assert rows(catalog, "SELECT a / b FROM t WHERE b <> 0") == [["4.5"]]
    assert rows(catalog, "SELECT CASE WHEN b = 0 THEN -1 ELSE a // b END FROM t") == [[-1], [4]]


def test_a_remainder_of_a_division_by_zero_is_null(catalog: MemoryCatalog) -> None:
    assert rows(catalog, "SELECT a % b, MOD(a, b), a % 0, 1 % (a % b) FROM t") == [
        [None, None, None, None],
        [1, 1, None, 0],
    ]


def test_concat_of_a_null_is_null(catalog: MemoryCatalog) -> None:
    found = rows(
        catalog, "SELECT CONCAT('a', s, 1), CONCAT(CONCAT(s, s), '-'), CONCAT_WS('/', 'a', s), CONCAT(a) FROM t"
    )
    assert found == [["ax1", "xx-", "a/x", "7"], [None, None, "a", "9"]]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(n) FROM big",
        "SELECT SUM(n) OVER () FROM big",
        "SELECT total FROM (SELECT SUM(n) AS total FROM big)",
    ],
)
def test_a_sum_that_takes_more_than_64_bits_is_an_error(sql: str) -> None:
    catalog = MemoryCatalog()
    catalog.add("big", '{"n": 9223372036854775807}', '{"n": 9223372036854775807}')
    with pytest.raises(QueryError, match="overflow"):
        rows(catalog, sql)
    assert rows(catalog, "SELECT CAST(SUM(n) AS VARCHAR) FROM big") == [["18446744073709551614"]]
    assert rows(catalog, 'SELECT SUM(n) FROM big WHERE "offset" = 0') == [[9223372036854775807]]


@pytest.mark.parametrize(
    ("outputs", "columns"),
    [
        ("COUNT(*), count(a), sum(a * 2)", ["COUNT(*)", "COUNT(a)", "SUM(a * 2)"]),
        ("COUNT(*) FILTER (WHERE a > 1)", ["COUNT(*)"]),
        ("max(a) OVER ()", ["MAX(a)"]),
        ("UPPER(s), coalesce(s, 'y'), CAST(a AS VARCHAR)", ["upper", "coalesce", "cast"]),
        ("s || '!', CONCAT(s, 'y')", ["concat", "concat"]),
        ("a + 1, a AS n, b, t.s", ["a + 1", "n", "b", "s"]),
        ("CASE WHEN a > 1 THEN 1 END, 5", ["case", "5"]),
    ],
)
def test_columns_without_a_name_get_the_ones_that_clients_expect(
    catalog: MemoryCatalog, outputs: str, columns: list[str]
) -> None:
    found = ask(catalog, f"SELECT {outputs} FROM t").columns
    assert [name.removesuffix("_1") for name in found] == columns


def test_names_on_both_sides_of_a_star(catalog: MemoryCatalog) -> None:
    found = ask(catalog, "SELECT UPPER(s), t.*, a + 1, LOWER(s) FROM t").columns
    assert found[0] == "upper" and found[-2:] == ["a + 1", "lower"]
    assert found[1:-2] == ["offset", "timestamp", "key", "data", "a", "b", "s"]


def test_a_set_operation_has_the_names_of_its_first_query(catalog: MemoryCatalog) -> None:
    assert ask(catalog, "SELECT COUNT(*) FROM t UNION ALL SELECT 1").columns == ["COUNT(*)"]
