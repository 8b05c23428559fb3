"""The grammar: an allow-list of the elements of a statement.

The list is written as SQL: every kind of node that the parser produces for the examples, and for calls of the functions
in `functions.py`, is allowed; a statement with any other kind is refused. The semantics are DuckDB's.
"""

from __future__ import annotations

import logging
import sys
from functools import lru_cache
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from penstock.broker.errors import QueryError, QueryInvalid
from penstock.sql import functions
from penstock.sql.dialect import Dialect

DIALECT: Final = Dialect
_FRAMES: Final = 4_000  # Python frames: the parser needs some twenty per pair of parentheses

_EXAMPLES: Final = (
    'SELECT DISTINCT ON (a) t.*, * EXCLUDE (b), * REPLACE (1 AS c), a AS x, "q" FROM s.t AS t WHERE a LIMIT 5 OFFSET 2',
    "SELECT * RENAME (a AS b), COLUMNS('a.*'), COUNT(*), #1, t.a.b, a[1], a[1:2], {'a': 1}, [1, 2], MAP {'k': 1}",
    "SELECT a, SUM(b) FILTER (WHERE c) FROM t GROUP BY a HAVING COUNT(*) > 1 ORDER BY a DESC NULLS LAST, 2 ASC",
    "SELECT a FROM t GROUP BY ALL ORDER BY ALL",
    "SELECT a FROM t GROUP BY GROUPING SETS ((a), ()), CUBE (a), ROLLUP (a)",
    "SELECT SUM(a) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT LAG(a) IGNORE NULLS OVER w FROM t WINDOW w AS (ORDER BY b) QUALIFY ROW_NUMBER() OVER w = 1",
    "SELECT STRING_AGG(a, ',' ORDER BY b), ARRAY_AGG(DISTINCT a), QUANTILE_CONT(a, 0.5), COUNT(DISTINCT a) FROM t",
    "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a) FROM t",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r",
    "WITH a AS MATERIALIZED (SELECT 1), b AS NOT MATERIALIZED (SELECT 2) SELECT * FROM a, b",
    "SELECT 1 UNION SELECT 2 INTERSECT SELECT 3 EXCEPT SELECT 4 UNION ALL BY NAME SELECT 5",
    "(SELECT 1) ORDER BY 1",
    "SELECT * FROM a JOIN b ON a.x = b.x LEFT JOIN c USING (x) CROSS JOIN d NATURAL JOIN e FULL OUTER JOIN f ON TRUE",
    "SELECT * FROM a ASOF JOIN b ON a.t >= b.t SEMI JOIN c ON TRUE ANTI JOIN d ON TRUE POSITIONAL JOIN e",
    "SELECT * FROM a, LATERAL (SELECT a.x) AS l(x), (VALUES (1, 2)) AS v(p, q), UNNEST([1]) AS u(y), RANGE(5) AS r(z)",
    "VALUES (1, 'a'), (NULL, TRUE)",
    "SELECT * FROM a TABLESAMPLE 10 ROWS",
    "SELECT a IS NULL, a IS NOT NULL, NOT a, a AND b OR c, a = b, a <> b, a < b, a <= b, a >= b, a IS DISTINCT FROM b",
    "SELECT a IS NOT DISTINCT FROM b, a == b, a != b, a IN (1, 2), a NOT IN (SELECT 1), EXISTS (SELECT 1), (SELECT 1)",
    "SELECT a BETWEEN 1 AND 2, a LIKE 'x' ESCAPE '!', a ILIKE 'x', a SIMILAR TO 'x', a ~ 'x', a GLOB 'x', a ~~ 'b'",
    "SELECT a = ANY (SELECT 1), a > ALL (SELECT 1), a + b, a - b, a * b, a / b, a // b, a % b, a ** b, a ^ b, -a, ~a",
    "SELECT a || b, a & b, a | b, a << 1, a >> 1, XOR(a, b), a -> '$.x', a ->> 'x', a -> 1, a ->> 0, a @> b, a <@ b",
    "SELECT a ->> '$.x[0].*', a -> '$[#-1]', a -> '$..x', a && b, a ^@ b",
    "SELECT CASE WHEN a THEN 1 ELSE 2 END, CASE a WHEN 1 THEN 2 END, CAST(a AS BIGINT), TRY_CAST(a AS DECIMAL(10, 2))",
    "SELECT a::INT[], a::STRUCT(x INT), a::MAP(TEXT, INT), a::VARCHAR(10), a::TIMESTAMP WITH TIME ZONE, a::INT[3]",
    "SELECT a::JSON, a::UUID, a::BLOB, a::ENUM('x'), a::UNION(n INT), a::HUGEINT, a::INTERVAL, a::DOUBLE",
    "SELECT DATE '2026-01-01', TIMESTAMP '2026-01-01', TIME '10:00', INTERVAL 3 DAY, INTERVAL '1' MONTH, TIMETZ 'x'",
    "SELECT INTERVAL (a) DAY, a + INTERVAL '1 day', EXTRACT(YEAR FROM a), a AT TIME ZONE 'UTC', a COLLATE NOCASE",
    "SELECT CURRENT_DATE, CURRENT_TIMESTAMP, CURRENT_TIME, LOCALTIME, LOCALTIMESTAMP",
    "SELECT TRIM(BOTH 'x' FROM a), SUBSTRING(a FROM 1 FOR 2), POSITION('a' IN b), a.LOWER().UPPER()",
    "SELECT LIST_TRANSFORM(a, LAMBDA x: x + 1), LIST_FILTER(a, LAMBDA x, i: x > i), [x + 1 FOR x IN a IF x > 1]",
    "SELECT STRUCT_PACK(a := 1), ROW(1, 2), (1, 2), 1.5, 1e5, 'it''s', E'\\n', $1, NULL, TRUE, 0x1f",
    "SELECT a /* c */, b -- d\n FROM t",
    "SELECT * FROM t PIVOT (SUM(a) FOR b IN (1, 2))",
    "SELECT * FROM t UNPIVOT (a FOR b IN (c, d))",
    "FROM t SELECT a",
    "SELECT a FROM (t JOIN u ON TRUE)",
)

_STATEMENTS: Final = (
    "INSERT INTO t (a, b) VALUES ($1, 2)",
    "INSERT INTO t SELECT 1",
    "INSERT INTO t BY NAME SELECT 1 AS a",
    "CREATE TABLE IF NOT EXISTS t (a BIGINT PRIMARY KEY, b TEXT NOT NULL, c DECIMAL(10, 2) NULL, PRIMARY KEY (a))",
    "DROP TABLE IF EXISTS t",
)
"""Examples of the kinds of nodes that occur only in statements other than queries."""

APPEND_ONLY: Final = "the log is append-only"


def parse(sql: str) -> exp.Expr:
    """One statement as a tree of allowed nodes. Raises QueryInvalid, QueryError."""
    try:
        trees = sqlglot.parse(sql, read=DIALECT)
    except ParseError as error:
        raise QueryInvalid(_parse_message(error)) from None
    except RecursionError:
        raise QueryInvalid("The statement is too deeply nested") from None
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise QueryInvalid(f"Not SQL: {str(error).partition(chr(10))[0][:300]}") from None  # the parser crashed
    if len(trees) != 1 or trees[0] is None:
        raise QueryInvalid("One statement at a time, please")
    tree: exp.Expr = trees[0]
    try:
        check(tree)
    except RecursionError:
        raise QueryInvalid("The statement is too deeply nested") from None
    return tree


def warm() -> None:
    """Compute the allow-list now."""
    _allowed()


def render(tree: exp.Expr) -> str:
    """The SQL text to execute, generated from the checked tree."""
    try:
        return tree.sql(dialect=DIALECT, comments=False)
    except RecursionError:
        raise QueryInvalid("The statement is too deeply nested") from None
    except (SqlglotError, ValueError, TypeError, AttributeError) as error:
        raise QueryInvalid(f"Not SQL: {str(error).partition(chr(10))[0][:300]}") from None


def check(tree: exp.Expr) -> None:
    """Raises QueryError for anything that is not allowed."""
    _check_kind(tree)
    allowed = _allowed()
    for node in tree.walk():
        kind = type(node)
        if kind not in allowed or (isinstance(node, exp.Insert | exp.Create | exp.Drop) and node is not tree):
            raise QueryError(_refusal(node))
        if kind in (exp.Anonymous, exp.AnonymousAggFunc, exp.ParameterizedAgg, exp.CombinedAggFunc):
            name = str(node.name or node.this).lower()
            if name not in functions.SCALAR and name not in functions.AGGREGATE and not _in_from(node, name):
                raise QueryError(f"There is no function '{name[:100]}' that a statement may call")
        elif isinstance(node, exp.Repeat | exp.Pad | exp.GenerateSeries):
            _check_measure(node)
        elif kind is exp.Placeholder and not str(node.this or "").isdecimal():
            raise QueryInvalid("Parameters are written $1, $2, … or ?")


def _check_measure(node: exp.Repeat | exp.Pad | exp.GenerateSeries) -> None:
    """Limit the size of generated values: one could take all memory before it can be interrupted."""
    if isinstance(node.parent, exp.Table | exp.Unnest | exp.Lateral):
        return  # produces rows one by one
    name = "generate_series" if isinstance(node, exp.GenerateSeries) else type(node).__name__.lower()
    parts = {
        "repeat": [node.args.get("times")],
        "pad": [node.expression],
        "generate_series": [node.args.get("start"), node.args.get("end")],
    }[name]
    limit = functions.MEASURED[name]
    for part in parts:
        number = part.this if isinstance(part, exp.Neg) else part
        if not isinstance(number, exp.Literal) or not number.name.isdecimal() or int(number.name[:19]) > limit:
            raise QueryError(f"{name} takes a number up to {limit} here, written as a number")
    if name != "generate_series" and node.find_ancestor(exp.Repeat, exp.Pad):
        raise QueryError(f"{name} cannot be within another {name}")


def _check_kind(tree: exp.Expr) -> None:
    if isinstance(tree, exp.Query | exp.Values | exp.Insert | exp.Create | exp.Drop):
        return
    word = _statement_word(tree)
    if isinstance(tree, exp.Update | exp.Delete | exp.Merge | exp.TruncateTable | exp.Alter):
        raise QueryError(f"{word} cannot be carried out: {APPEND_ONLY}")
    if isinstance(tree, exp.Condition | exp.Alias):
        raise QueryInvalid("Not a statement: it does not begin with SELECT, INSERT or another word that SQL knows")
    raise QueryError(f"{word} is not supported: the log is read with SELECT and appended to with INSERT")


def _statement_word(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Command):
        return str(tree.this).upper()[:30]
    return type(tree).__name__.upper().removesuffix("TABLE")


def _in_from(node: exp.Expr, name: str) -> bool:
    return name in functions.TABLE and isinstance(node.parent, exp.Table | exp.Lateral)


def _refusal(node: exp.Expr) -> str:
    if isinstance(node, exp.Func):
        names = getattr(type(node), "sql_names", lambda: [type(node).__name__])()
        return f"There is no function '{str(names[0]).lower()}' that a statement may call"
    if isinstance(node, exp.Update | exp.Delete | exp.Merge):
        return f"{type(node).__name__.upper()} cannot be carried out: {APPEND_ONLY}"
    if isinstance(node, exp.Returning):
        return "INSERT … RETURNING is not supported: query the table at the log_offset that INSERT returns"
    if isinstance(node, exp.OnConflict):
        return f"INSERT … ON CONFLICT is not supported: {APPEND_ONLY}"
    return f"{type(node).__name__} is not supported in a statement"


def _parse_message(error: ParseError) -> str:
    if not error.errors:
        return f"Not SQL: {str(error).partition(chr(10))[0][:300]}"
    first = error.errors[0]
    near = str(first.get("highlight") or "")[:50]
    place = f" near '{near}'" if near else ""
    said = str(first.get("description") or "Invalid expression").rstrip(".")[:200]
    return f"Not SQL: {said} at line {first.get('line')}, column {first.get('col')}{place}"


@lru_cache(maxsize=1)
def _allowed() -> frozenset[type[exp.Expr]]:
    kinds: set[type[exp.Expr]] = set()
    for text in (*_EXAMPLES, *_STATEMENTS):
        kinds.update(type(node) for node in sqlglot.parse_one(text, read=DIALECT).walk())
    known = (
        Dialect.parser_class.FUNCTIONS.keys() | Dialect.parser_class.FUNCTION_PARSERS.keys()
    )  # others are parsed as `Anonymous`
    for name in functions.SCALAR | functions.AGGREGATE | functions.TABLE:
        for arguments in ("", "a", "a, b", "a, b, c", "'a', b") if name.upper() in known else ():
            try:
                found = sqlglot.parse_one(f"SELECT {name}({arguments})", read=DIALECT)
            except (SqlglotError, ValueError, TypeError, AttributeError, IndexError):
                continue  # not with this many arguments
            kinds.update(type(node) for node in found.walk())
    return frozenset(kinds)


logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # it warns about things that are refused here anyway
sys.setrecursionlimit(max(sys.getrecursionlimit(), _FRAMES))
