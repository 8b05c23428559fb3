"""Text that is taken out of a statement before it is parsed, and text that is refused."""

from __future__ import annotations

import pytest

from penstock.broker.errors import QueryError, QueryInvalid
from penstock.broker.queries.query import Timestamp, Value
from penstock.sql.text import MAX_BYTES, prepare

NEW_YEAR = 1_577_836_800_000_000_000  # 2020, in ns


@pytest.mark.parametrize(
    ("sql", "moment"),
    [
        ("SELECT * FROM t AS OF TIMESTAMP '2020-01-01T00:00:00Z'", NEW_YEAR),
        ("SELECT * FROM t AS OF '2020-01-01'", NEW_YEAR),
        ("SELECT * FROM t as of '2020-01-01 00:00' WHERE a", NEW_YEAR),
        ("SELECT * FROM t FOR SYSTEM_TIME AS OF '2020-01-01T02:00:00+02:00'", NEW_YEAR),
        ("SELECT * FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01T00:00:00.123456789Z' ;", NEW_YEAR + 123_456_789),
        ("SELECT * FROM t AS OF '2020-01-01T00:00:00.5'", NEW_YEAR + 500_000_000),
        ("SELECT * FROM t AS OF $1", 7),
        ("SELECT * FROM t AS OF ?", 7),
        ("SELECT ' AS OF ''2020-01-01''' FROM t -- AS OF '2020-01-01'", None),
        ("SELECT a AS of FROM t", None),
    ],
)
def test_as_of(sql: str, moment: int | None) -> None:
    found = prepare(sql, [Timestamp(7)])
    assert (found.moment, found.position) == (moment, None)
    assert ("OF '" in found.sql.upper()) == (moment is None and "''" in sql)


@pytest.mark.parametrize(("sql", "position"), [("SELECT * FROM t AT OFFSET 5", 5), ("SELECT * FROM t at offset $1", 9)])
def test_at_offset(sql: str, position: int) -> None:
    found = prepare(sql, [9])
    assert (found.position, found.sql.strip()) == (position, "SELECT * FROM t")


def test_a_moment_may_be_a_question_mark_among_others() -> None:
    found = prepare("SELECT ? FROM t AT OFFSET ? WHERE a = ?", ["x", 9, 3])
    assert (found.position, found.sql.split()) == (9, ["SELECT", "$1", "FROM", "t", "WHERE", "a", "=", "$3"])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT at offset, at FROM t",
        'SELECT a FROM t "at" OFFSET 1',
        'SELECT a FROM t AS "at" OFFSET $1',
        "SELECT a \"AS\" , of FROM t WHERE b = '2020-01-01'",
    ],
)
def test_names_that_are_like_the_words_for_a_moment(sql: str) -> None:
    found = prepare(sql, [1])
    assert (found.position, found.moment, found.sql) == (None, None, sql)


def test_a_reason_is_taken_off() -> None:
    found = prepare("WITH BREAK_GLASS REASON='it''s urgent' SELECT 1", [])
    assert (found.reason, found.sql) == ("it's urgent", "SELECT 1")


def test_question_marks_become_numbers_in_the_order_of_the_text() -> None:
    assert prepare("SELECT ?, '?' WHERE a = ?", [1, 2]).sql == "SELECT $1 , '?' WHERE a = $2 "
    assert prepare("VALUES ($1,$2,$1)", [1, 2]).sql == "VALUES ($1,$2,$1)"


@pytest.mark.parametrize(
    ("sql", "params", "error", "said"),
    [
        ("SELECT $0", [1], QueryInvalid, "the first one is $1"),
        ("SELECT $2", [1], QueryError, "parameter $2 not provided"),
        ("SELECT ?, ?", [1], QueryError, "parameter $2 not provided"),
        ("SELECT ?, $1", [1], QueryInvalid, "either all"),
        ("SELECT $name", [1], QueryInvalid, "written $1"),
        ("SELECT $", [1], QueryInvalid, "written $1"),
        ("SELECT 1; SELECT 2", [], QueryInvalid, "One statement"),
        (" ; ", [], QueryInvalid, "no statement"),
        ("SELECT 'a", [], QueryInvalid, "Not SQL"),
        ("SELECT '\0'", [], QueryInvalid, "NUL"),
        ("SELECT " + "(" * 51 + "1" + ")" * 51, [], QueryInvalid, "deeper than 50"),
        ("SELECT " + "[" * 51 + "1" + "]" * 51, [], QueryInvalid, "deeper than 50"),
        ("SELECT " + "CASE WHEN a THEN " * 51 + "1" + " END" * 51, [], QueryInvalid, "deeper than 50"),
        ("SELECT " + "NOT " * 101 + "a", [], QueryInvalid, "NOT"),
        ("SELECT " + "- " * 101 + "1", [], QueryInvalid, "signs"),
        ("SELECT a" + "[1]" * 60, [], QueryInvalid, "subscripts"),
        ("SELECT '" + "a" * MAX_BYTES + "'", [], QueryInvalid, "bytes"),
        ("SELECT " + "1," * 6_000 + "1", [], QueryInvalid, "words"),
        ("SELECT * FROM t AS OF 'yesterday'", [], QueryInvalid, "takes a moment"),
        ("SELECT * FROM t AS OF '2020-02-31'", [], QueryInvalid, "calendar"),
        ("SELECT * FROM t AT OFFSET 'x'", [], QueryInvalid, "takes a position"),
        ("SELECT * FROM t AT OFFSET -1", [], QueryInvalid, "takes a position"),
        ("SELECT * FROM t AT OFFSET (1)", [], QueryInvalid, "takes a position"),
        ("SELECT * FROM t AT OFFSET 1.5", [], QueryInvalid, "takes a position"),
        ("SELECT * FROM t AT OFFSET ?", [None], QueryInvalid, "takes a position"),
        ("SELECT * FROM t AT OFFSET ?", [], QueryError, "parameter $1 not provided"),
        ("SELECT ? FROM t AT OFFSET ?", [1], QueryError, "parameter $2 not provided"),
        ("SELECT * FROM t AT OFFSET ? WHERE a = $1", [1], QueryInvalid, "either all"),
        ("SELECT * FROM t AS OF $1", [None], QueryInvalid, "takes a moment"),
        ("SELECT * FROM t AT OFFSET 1 JOIN u AT OFFSET 2 ON a", [], QueryInvalid, "one moment"),
        ("WITH BREAK_GLASS REASON=1 SELECT 1", [], QueryInvalid, "reason in quotes"),
    ],
)
def test_what_is_refused(sql: str, params: list[Value], error: type[QueryError], said: str) -> None:
    with pytest.raises(QueryError, match=said.replace("$", r"\$")) as raised:
        prepare(sql, params)
    assert type(raised.value) is error
