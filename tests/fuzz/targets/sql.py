"""The gate in front of DuckDB: a statement is refused in our words, or what is executed has been checked."""

from __future__ import annotations

from typing import Final

from sqlglot import exp
from tests.fuzz.targets.target import Target

from penstock.broker.errors import QueryError, QueryInvalid
from penstock.broker.queries.query import Timestamp, Value
from penstock.sql import grammar
from penstock.sql.text import prepare
from penstock.sql.values import bind

_PARAMETERS: Final[tuple[Value, ...]] = (1, "text", None, True, Timestamp(1_700_000_000_000_000_000))


def statement(data: bytes) -> None:
    """The executed text is written anew from the checked tree, and it passes the check again: nothing is hidden in a
    text that means something else when it is written."""
    text = data.decode("utf-8", "replace")
    try:
        prepared = prepare(text, _PARAMETERS)
        tree = grammar.parse(prepared.sql)
        written = grammar.render(tree)
    except QueryError as error:
        assert str(error)
        return
    try:
        again = grammar.parse(written)
    except QueryInvalid:
        return  # DuckDB will say the same
    assert _kind(again) is _kind(tree), f"{type(tree).__name__} became {type(again).__name__}: {written!r}"
    bind(tree, _PARAMETERS)


def _kind(tree: exp.Expr) -> type[exp.Expr]:
    """One for all that only reads: `VALUES (1) AS n` is written as a subquery."""
    return exp.Query if isinstance(tree, exp.Query | exp.Values) else type(tree)


_STATEMENTS: Final = (
    *grammar._EXAMPLES,
    *grammar._STATEMENTS,
    "SELECT * FROM t AT OFFSET 5",
    "SELECT * FROM t AS OF TIMESTAMP '2026-01-30T12:00:00Z'",
    "SELECT * FROM t FOR SYSTEM_TIME AS OF ?",
    "WITH BREAK_GLASS REASON='fire' SELECT $1, $2",
    "SHOW TABLES",
    "DESCRIBE t",
    "DELETE FROM t",
    "SELECT repeat('a', 5), lpad('a', 3, 'b')",
    "COPY t TO 'file'",
    "ATTACH 'x'; SELECT 1",
    "SELECT * FROM read_csv('/etc/passwd')",
    "PRAGMA version",
)

TARGETS: Final = (Target("sql.statement", statement, lambda: [each.encode() for each in _STATEMENTS], quick=200),)
