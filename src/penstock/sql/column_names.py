"""Names of result columns that the statement does not name: `COUNT(*)` for an aggregate, `upper` for a function.

The names follow PostgreSQL and Kimberlite's own engine, not DuckDB (`count_star()`), whose names no client expects.
They are set on the result, not in the statement, where an alias could shadow a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from penstock.sql.dialect import Dialect

MAX_NAME: Final = 200  # characters of an expression used as a name

_TEXTUAL: Final = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)  # named by their full text: SUM(price)
_MANY: Final = (exp.Columns, exp.Unnest, exp.Explode)  # produce any number of columns, with their own names


class ColumnNames:
    """The names for the columns of a query, taken from its text before it is rewritten."""

    def __init__(self, query: exp.Expr) -> None:
        items = _outputs(query)
        many = [at for at, item in enumerate(items) if _gives_many(item)]
        first, behind = (many[0], many[-1] + 1) if many else (len(items), len(items))
        self._head = [_name(item) for item in items[:first]]
        self._tail = [_name(item) for item in items[behind:]]

    def apply(self, columns: Sequence[str]) -> list[str]:
        """Replace DuckDB's column names by ours."""
        names = list(columns)
        if len(self._head) + len(self._tail) > len(names):
            return names
        for at, name in enumerate(self._head):
            names[at] = name or names[at]
        for at, name in enumerate(reversed(self._tail), 1):
            names[-at] = name or names[-at]
        return names


def _outputs(query: exp.Expr) -> list[exp.Expr]:
    """The outputs of the SELECT that determines the column names: the first one, in a set operation."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    return list(query.expressions) if isinstance(query, exp.Select) else []


def _gives_many(item: exp.Expr) -> bool:
    if item.find(*_MANY):
        return True
    star = item.find(exp.Star)
    return star is not None and star.find_ancestor(exp.AggFunc) is None


def _name(item: exp.Expr) -> str | None:
    """The name of an output; None if it has one, or DuckDB's is suitable."""
    if isinstance(item, exp.Filter | exp.Window):
        return _name(item.this)
    if isinstance(item, exp.AggFunc):
        return _text(item) if isinstance(item, _TEXTUAL) else None
    if isinstance(item, exp.DPipe | exp.Concat):
        return "concat"
    if isinstance(item, exp.Cast | exp.Case):
        return type(item).__name__.lower()
    if isinstance(item, exp.Binary | exp.Unary) and not isinstance(item, exp.Paren | exp.Dot):
        return _text(item)
    if isinstance(item, exp.Anonymous):
        return str(item.name).lower()[:MAX_NAME]
    if isinstance(item, exp.Func):
        return _text(item).partition("(")[0].strip().lower() or None
    return None


def _text(item: exp.Expr) -> str:
    return item.sql(dialect=Dialect, comments=False)[:MAX_NAME]
