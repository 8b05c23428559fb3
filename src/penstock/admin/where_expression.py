"""An SQL WHERE expression as a filter on records: `status = 'failed' AND amount > 100`.

The parser is sqlglot's; each kind of node in the tables below is compiled to a function of a record, and every other is
refused, so that only comparisons are ever evaluated. Columns are `offset`, `partition`, `timestamp`, `position`, `key`,
`value` (or `data`) and `_door`; any other name is a field of a value that is a JSON object, `a.b` is a nested one, and
`header('name')` is a header. Missing or incomparable values are NULL, and do not match.

Compiled and evaluated off the event loop: the parser is slow to import.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import re2

from penstock.admin.record_view import RecordView, text_of
from penstock.broker.errors import InvalidArgument

if TYPE_CHECKING:
    from sqlglot import exp

MAX_TEXT: Final = 1 << 20  # characters of a text computed by an expression
_WIDE: Final = 1 << 63

_MISSING: Final = object()


class Timestamp(int):
    """A point in time: µs since 1970."""


class Duration(int):
    """A length of time: µs."""


class Row:
    """A record during the evaluation of an expression. Its value is decoded at most once."""

    __slots__ = ("_document", "record")

    def __init__(self, record: RecordView) -> None:
        self.record = record
        self._document: Any = _MISSING

    @property
    def document(self) -> Any:
        if self._document is _MISSING:
            try:
                self._document = msgspec.json.decode(self.record.value)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._document = None
        return self._document


Term: TypeAlias = Callable[[Row], Any]

COLUMNS: Final[Mapping[str, Term]] = {
    "offset": lambda row: row.record.offset,
    "partition": lambda row: row.record.partition,
    "position": lambda row: row.record.position,
    "timestamp": lambda row: Timestamp(row.record.timestamp),
    "key": lambda row: row.record.key_text,
    "value": lambda row: row.record.value_text,
    "data": lambda row: row.record.value_text,
    "_door": lambda row: row.record.door,
}


class WhereExpression:
    """A compiled expression, called to match a record. Any thread. Raises InvalidArgument for an invalid one."""

    def __init__(self, text: str) -> None:
        self._term = _parsed(text)

    def __call__(self, record: RecordView) -> bool:
        try:
            return self._term(Row(record)) is True
        except (OverflowError, RecursionError, ValueError, TypeError):
            return False  # a value that cannot be evaluated


def _parsed(text: str) -> Term:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        return _term(sqlglot.condition(text, dialect="duckdb"))
    except InvalidArgument:
        raise
    except RecursionError:
        raise InvalidArgument("'where' is too deeply nested") from None
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InvalidArgument(f"'where' is not an expression of SQL: {reason}") from None


def _term(node: exp.Expr) -> Term:
    """The compiled function of a node. Raises InvalidArgument."""
    from sqlglot import exp

    made = _makers().get(type(node))
    if made is not None:
        term = made(node)
        return _negated(term) if node.args.get("negate") else term  # NOT LIKE is one node
    if isinstance(node, exp.Func):
        return _function(node)
    raise InvalidArgument(f"'where' cannot have {type(node).__name__.upper()}: {node.sql()[:100]}")


def _makers() -> dict[type, Callable[[Any], Term]]:
    """The compilers, by kind of node."""
    if not _MAKERS:
        from sqlglot import exp

        comparisons: dict[type, Callable[[Any, Any], bool]] = {
            exp.EQ: operator.eq, exp.NEQ: operator.ne, exp.LT: operator.lt,
            exp.LTE: operator.le, exp.GT: operator.gt, exp.GTE: operator.ge,
        }  # fmt: skip
        computations: dict[type, Callable[[Any, Any], Any]] = {
            exp.Add: operator.add, exp.Sub: operator.sub, exp.Mul: operator.mul,
            exp.Div: operator.truediv, exp.Mod: operator.mod,
        }  # fmt: skip
        _MAKERS.update(
            {
                exp.Paren: lambda node: _term(node.this),
                exp.Literal: _literal,
                exp.Boolean: lambda node: _constant(bool(node.this)),
                exp.Null: lambda _: _constant(None),
                exp.Column: _column,
                exp.Dot: _column,
                exp.And: lambda node: _junction(node, False),
                exp.Or: lambda node: _junction(node, True),
                exp.Not: lambda node: _negated(_term(node.this)),
                exp.Is: _is,
                exp.In: _in,
                exp.Between: _between,
                exp.Like: lambda node: _like(node, "(?s)"),
                exp.ILike: lambda node: _like(node, "(?si)"),
                exp.Neg: lambda node: _applied(operator.neg, node.this),
                exp.DPipe: lambda node: _applied(_joined, node.this, node.expression),
                exp.Interval: _interval,
                exp.CurrentTimestamp: lambda _: _now(),
                exp.Cast: _cast,
                exp.TryCast: _cast,
                exp.JSONExtract: _extract,
                exp.JSONExtractScalar: _extract,
                **{kind: _comparing(holds) for kind, holds in comparisons.items()},
                **{kind: _computing(does) for kind, does in computations.items()},
            }
        )
    return _MAKERS


_MAKERS: Final[dict[type, Callable[[Any], Term]]] = {}


# -- values


def _constant(value: Any) -> Term:
    return lambda _: value


def _literal(node: exp.Literal) -> Term:
    if node.is_string:
        return _constant(str(node.this))
    return _constant(int(node.this) if str(node.this).isdigit() else float(node.this))


def _now() -> Term:
    moment = Timestamp(time.time_ns() // 1000)
    return _constant(moment)


def _column(node: exp.Column | exp.Dot) -> Term:
    """A column, or a field of the value."""
    names = [part.name for part in node.parts]
    known = COLUMNS.get(names[0].lower())
    if known is not None and len(names) == 1:
        return known
    return _at(names[1:] if names[0].lower() in ("value", "data") else names)


def _at(names: list[str]) -> Term:
    return lambda row: _inside(row.document, names)


def _inside(value: Any, names: list[str]) -> Any:
    for name in names:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _extract(node: exp.JSONExtract) -> Term:
    """`value ->> '$.a.b'`, `order -> 'id'`."""
    from sqlglot import exp

    path = node.expression
    steps = path.expressions if isinstance(path, exp.JSONPath) else [path]
    names: list[str] = []
    for step in steps:
        if isinstance(step, exp.JSONPathRoot):
            continue
        if not isinstance(step, exp.JSONPathKey | exp.JSONPathSubscript | exp.Literal) or isinstance(
            step.this, exp.Expr
        ):
            raise InvalidArgument("a path in 'where' has names and numbers only")
        names.append(str(step.this))
    inner = _term(node.this)
    of_value = isinstance(node.this, exp.Column) and node.this.name.lower() in ("value", "data")
    if of_value and len(node.this.parts) == 1:
        return _at(names)
    return lambda row: _inside(inner(row), names)


def _interval(node: exp.Interval) -> Term:
    unit = str(node.args.get("unit") or "").lower().rstrip("s")
    sizes = {"microsecond": 1, "millisecond": 10**3, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6}
    sizes |= {"day": 86_400 * 10**6, "week": 7 * 86_400 * 10**6}
    if unit not in sizes or node.this is None:
        raise InvalidArgument("an INTERVAL in 'where' is of seconds, minutes, hours, days or weeks: INTERVAL 10 MINUTE")
    return _constant(Duration(round(float(node.this.name) * sizes[unit])))


def _cast(node: exp.Cast) -> Term:
    kind = node.to.sql(dialect="duckdb").upper()
    cast = next((each for names, each in _CASTS.items() if kind in names), None)
    if cast is None:
        raise InvalidArgument(f"'where' cannot cast to {kind[:50]}")
    return _applied(cast, node.this)


# -- operators


def _applied(does: Callable[..., Any], *nodes: exp.Expr) -> Term:
    """A function of terms that is NULL if any of them is."""
    terms = [_term(node) for node in nodes]
    if len(terms) == 1:
        (only,) = terms
        return lambda row: None if (value := only(row)) is None else does(value)
    first, second = terms

    def both(row: Row) -> Any:
        left = first(row)
        if left is None:
            return None
        right = second(row)
        return None if right is None else does(left, right)

    return both


def _negated(term: Term) -> Term:
    return lambda row: not value if isinstance(value := term(row), bool) else None


def _junction(node: exp.And | exp.Or, decides: bool) -> Term:
    """AND, decided by one False, or OR, decided by one True; otherwise NULL if any operand is."""
    terms = [_term(each) for each in node.flatten()]

    def judge(row: Row) -> bool | None:
        verdict: bool | None = not decides
        for term in terms:
            value: object = term(row)
            if value is decides:
                return bool(decides)
            if value is not (not decides):
                verdict = None
        return verdict

    return judge


def _is(node: exp.Is) -> Term:
    from sqlglot import exp

    term, wanted = _term(node.this), node.expression
    if isinstance(wanted, exp.Null):
        return lambda row: term(row) is None
    if isinstance(wanted, exp.Boolean):
        return lambda row: term(row) is bool(wanted.this)
    raise InvalidArgument("IS in 'where' is followed by NULL, NOT NULL, TRUE or FALSE")


def _in(node: exp.In) -> Term:
    if not node.expressions:
        raise InvalidArgument("IN in 'where' is followed by a list of values")
    term, values = _term(node.this), [_term(each) for each in node.expressions]
    equal = _comparison(operator.eq)

    def find(row: Row) -> bool | None:
        value = term(row)
        if value is None:
            return None
        found = [None if (other := each(row)) is None else equal(value, other) for each in values]
        return True if True in found else None if None in found else False

    return find


def _between(node: exp.Between) -> Term:
    if node.args.get("symmetric"):
        raise InvalidArgument("BETWEEN in 'where' has the lower bound first")
    low = _applied(_comparison(operator.ge), node.this, node.args["low"])
    high = _applied(_comparison(operator.le), node.this, node.args["high"])
    return lambda row: None if (above := low(row)) is None or (below := high(row)) is None else above and below


def _like(node: exp.Like, flags: str) -> Term:
    """`%` matches any text, `_` any character, in time linear in the text."""
    from sqlglot import exp

    pattern = node.expression
    if not isinstance(pattern, exp.Literal):
        raise InvalidArgument("LIKE in 'where' is followed by a text")
    signs = {"%": ".*", "_": "."}
    expression = re2.compile(flags + "".join(signs.get(each) or re2.escape(each) for each in str(pattern.this)))
    return _applied(lambda value: expression.fullmatch(_shown(value)) is not None, node.this)


def _comparing(holds: Callable[[Any, Any], bool]) -> Callable[[Any], Term]:
    return lambda node: _applied(_comparison(holds), node.this, node.expression)


def _computing(does: Callable[[Any, Any], Any]) -> Callable[[Any], Term]:
    return lambda node: _applied(_arithmetic(does), node.this, node.expression)


def _comparison(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    def compare(left: Any, right: Any) -> bool | None:
        pair = _alike(left, right)
        return None if pair is None else holds(*pair)

    return compare


def _alike(left: Any, right: Any) -> tuple[Any, Any] | None:
    """Both as values of one type; None if that is impossible."""
    for one, other, turned in ((left, right, False), (right, left, True)):
        if isinstance(one, str) and not isinstance(other, str):
            read: Any = None
            if isinstance(other, Timestamp):
                read = _moment(one)
            elif isinstance(other, bool):
                read = {"true": True, "false": False}.get(one.lower())
            elif isinstance(other, int | float):
                read = _number(one)
            return None if read is None else (other, read) if turned else (read, other)
    plain = (int, float)
    if isinstance(left, bool) is isinstance(right, bool) and isinstance(left, plain) and isinstance(right, plain):
        return left, right
    return (left, right) if isinstance(left, str) and isinstance(right, str) else None


def _arithmetic(does: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compute(left: Any, right: Any) -> Any:
        if isinstance(left, Timestamp | Duration) or isinstance(right, Timestamp | Duration):
            return _later(left, right, does)
        numbers = [_number(each) if isinstance(each, str) else each for each in (left, right)]
        if any(isinstance(each, bool) or not isinstance(each, int | float) for each in numbers):
            return None
        if does in (operator.truediv, operator.mod) and not numbers[1]:
            return None
        found = does(*numbers)
        return float(found) if abs(found) >= _WIDE else found

    return compute


def _later(left: Any, right: Any, does: Callable[[Any, Any], Any]) -> Any:
    """`timestamp - INTERVAL …`, and the difference of two timestamps."""
    if does not in (operator.add, operator.sub):
        return None
    if isinstance(left, str):
        left = _moment(left)
    if isinstance(left, Timestamp) and isinstance(right, Duration):
        return Timestamp(does(int(left), int(right)))
    if isinstance(left, Timestamp) and isinstance(right, Timestamp) and does is operator.sub:
        return Duration(int(left) - int(right))
    return None


def _joined(left: Any, right: Any) -> str | None:
    text = _shown(left) + _shown(right)
    return text if len(text) <= MAX_TEXT else None


# -- functions and conversions


def _function(node: exp.Func) -> Term:
    from sqlglot import exp

    name = (str(node.name) if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
    given = list(node.expressions) if isinstance(node, exp.Anonymous | exp.Coalesce) else []
    if not isinstance(node, exp.Anonymous):
        given = [each for each in (node.args.get("this"), node.args.get("expression"), *given) if each is not None]
    if name == "now" and not given:
        return _now()
    if name == "coalesce":
        terms = [_term(each) for each in given]
        return lambda row: next((value for term in terms if (value := term(row)) is not None), None)
    if name == "header" and len(given) == 1 and isinstance(given[0], exp.Literal):
        return _header(str(given[0].this).lower())
    does = _FUNCTIONS.get((name, len(given)))
    if does is None:
        known = ", ".join(sorted({each for each, _ in _FUNCTIONS} | {"coalesce", "header", "now"}))
        raise InvalidArgument(f"'where' knows no function '{name[:50]}' of {len(given)}; it knows {known}")
    return _applied(does, *given)


def _header(name: str) -> Term:
    def find(row: Row) -> str | None:
        return next((text_of(each.value) for each in row.record.headers if each.name.lower() == name), None)

    return find


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Timestamp):
        return datetime.fromtimestamp(value / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return msgspec.json.encode(value).decode()


def _number(value: Any) -> int | float | None:
    if isinstance(value, str):
        text = value.strip()
        if len(text) > 40:
            return None
        try:
            return int(text) if text.lstrip("+-").isdigit() else float(text)
        except ValueError:
            return None
    return value if isinstance(value, int | float) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else round(number)


def _moment(value: Any) -> Timestamp | None:
    """A text as a timestamp; UTC without a zone."""
    if isinstance(value, Timestamp):
        return value
    try:
        found = datetime.fromisoformat(value)
    except (ValueError, TypeError):
        return None
    return Timestamp(round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1e6))


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(_shown(value).lower())


_CASTS: Final[dict[tuple[str, ...], Callable[[Any], Any]]] = {
    ("TEXT", "VARCHAR", "JSON"): _shown,
    ("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "HUGEINT"): _whole,
    ("DOUBLE", "FLOAT", "REAL", "DECIMAL"): lambda value: None if (it := _number(value)) is None else float(it),
    ("TIMESTAMP", "TIMESTAMPTZ", "DATE"): _moment,
    ("BOOLEAN",): _truth,
}

_FUNCTIONS: Final[dict[tuple[str, int], Callable[..., Any]]] = {
    ("lower", 1): lambda value: _shown(value).lower(),
    ("upper", 1): lambda value: _shown(value).upper(),
    ("trim", 1): lambda value: _shown(value).strip(),
    ("length", 1): lambda value: len(value) if isinstance(value, str | list) else len(_shown(value)),
    ("abs", 1): lambda value: None if (it := _number(value)) is None else abs(it),
    ("contains", 2): lambda value, part: _shown(part) in _shown(value),
    ("starts_with", 2): lambda value, part: _shown(value).startswith(_shown(part)),
    ("ends_with", 2): lambda value, part: _shown(value).endswith(_shown(part)),
}
