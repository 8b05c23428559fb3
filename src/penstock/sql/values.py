"""Conversion of values to and from DuckDB.

Every type of DuckDB is mapped to one of ours: integers, text, booleans and timestamps. All other types become text
without loss. Only a SUM of integers beyond 64 bits is an error, because it would be a number in one row and text in the
next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlglot import exp

from penstock.broker.errors import QueryError, QueryTooLarge
from penstock.broker.queries.query import Rows, Timestamp, Value
from penstock.sql.engine import Engine
from penstock.sql.grammar import DIALECT, render
from penstock.sql.limits import QueryLimits

INTEGERS: Final = frozenset(
    ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"]
)
MOMENTS: Final = frozenset(
    ["TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMP_MS", "TIMESTAMP_S", "TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"]
)
_MIN: Final = -(1 << 63)
_MAX: Final = (1 << 63) - 1
_PAGE: Final = 1_000


def bind(tree: exp.Expr, params: Sequence[Value]) -> list[object]:
    """Replace the parameters in the tree by typed placeholders; returns the values to bind.

    DuckDB takes parameters of a prepared statement by number, so values are never part of its text.
    """
    used: dict[int, int] = {}
    for node in list(tree.find_all(exp.Placeholder)):
        number = int(str(node.this))
        value = params[number - 1]
        typed = exp.Null() if value is None else _typed(value, used.setdefault(number, len(used) + 1))
        if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
            typed = exp.alias_(typed, f"${number}", quoted=True)  # the column is named as the client wrote it
        node.replace(typed)
    return [_bound(params[number - 1]) for number in used]


def _typed(value: int | str | bool | Timestamp, index: int) -> exp.Expr:
    hole = exp.Placeholder(this=str(index))
    if isinstance(value, Timestamp):
        return exp.Anonymous(this="MAKE_TIMESTAMP_NS", expressions=[exp.cast(hole, "BIGINT", dialect=DIALECT)])
    if isinstance(value, bool):
        return exp.cast(hole, "BOOLEAN", dialect=DIALECT)
    if isinstance(value, int):
        return exp.cast(hole, "BIGINT", dialect=DIALECT)
    return exp.cast(hole, "TEXT", dialect=DIALECT)


def _bound(value: Value) -> object:
    return value.nanoseconds if isinstance(value, Timestamp) else value


def fetch(engine: Engine, query: exp.Expr, params: Sequence[Value], limits: QueryLimits) -> Rows:
    """The result of a query. Raises QueryTooLarge and the errors of `Engine`."""
    bound = bind(query, params)
    sql = render(query)
    columns = described(engine, sql, bound)
    whole = _whole if query.find(exp.Sum) is None else _checked
    outputs = [_output(kind, f"c{at}", whole) for at, (_, kind) in enumerate(columns)]
    names = ", ".join(f"c{at}" for at in range(len(columns)))
    wrapped = f"SELECT {', '.join(text for text, _ in outputs)} FROM ({sql}) AS t({names}) LIMIT {limits.rows + 1}"
    changes = [(at, change) for at, (_, change) in enumerate(outputs) if change is not None]
    rows: list[list[Value]] = []
    size = 0
    for page in engine.pages(wrapped, bound, _PAGE):
        for found in page:
            row: list[Any] = list(found)
            for at, change in changes:
                if row[at] is not None:
                    row[at] = change(row[at])
            size += 16 * len(row) + sum(len(cell) for cell in row if type(cell) is str)
            rows.append(row)
        if len(rows) > limits.rows:
            raise QueryTooLarge(f"The result has more than {limits.rows} rows: ask for fewer, with LIMIT for example")
        if size > limits.result_bytes:
            raise QueryTooLarge(f"The result has more than {limits.result_bytes} bytes: ask for fewer rows or columns")
    return Rows([name for name, _ in columns], rows)


def described(engine: Engine, sql: str, bound: Sequence[object]) -> list[tuple[str, str]]:
    """Names and types of the columns that a query returns."""
    found = [(str(row[0]), str(row[1])) for row in engine.rows(f"DESCRIBE {sql}", bound)]
    if not found:
        raise QueryError("The statement gives no columns")
    return found


def _output(kind: str, column: str, whole: Callable[[int], Value]) -> tuple[str, Callable[[Any], Value] | None]:
    """The SQL expression with which DuckDB returns a column, and the conversion of its values."""
    if kind in INTEGERS:
        return column, None if kind in _NARROW else whole
    if kind == "BOOLEAN" or kind == "VARCHAR":
        return column, None
    if kind in MOMENTS:
        return f"epoch_ns({column})", Timestamp
    if kind == "DOUBLE":
        return column, repr
    if kind == "BLOB":
        return f"to_base64({column})", None
    if kind.endswith("]") or kind.startswith(("STRUCT(", "MAP(", "UNION(")):
        return f"CAST(to_json({column}) AS VARCHAR)", None
    return f"CAST({column} AS VARCHAR)", None


_NARROW: Final = INTEGERS - {"HUGEINT", "UHUGEINT", "UBIGINT"}


def _whole(value: int) -> Value:
    return value if _MIN <= value <= _MAX else str(value)


def _checked(value: int) -> Value:
    if _MIN <= value <= _MAX:
        return value
    raise QueryError(f"Integer overflow: SUM gives {value}, which takes more than 64 bits (CAST it AS VARCHAR)")
