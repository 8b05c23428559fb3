"""The text of a statement before it is parsed: refuses text that is too large or nested too deeply, and extracts what
SQL's grammar does not have: the point in time that the statement is about, and the caller's reason.

It works on tokens, so that quoted text and comments are never misinterpreted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlglot.errors import SqlglotError

from penstock.broker.errors import QueryError, QueryInvalid
from penstock.broker.queries.query import Timestamp, Value
from penstock.sql.dialect import Dialect

MAX_BYTES: Final = 1 << 20
MAX_WORDS: Final = 10_000  # parsing more takes seconds
MAX_INSERT_WORDS: Final = 50_000
MAX_DEPTH: Final = 50  # of parentheses and other nesting
MAX_NOTS: Final = 100
MAX_SIGNS: Final = 100  # `- - - 1`
MAX_SUBSCRIPTS: Final = 50  # `a[1][1][1]`

_DEEPER: Final = {"L_PAREN": ")", "L_BRACKET": "]", "L_BRACE": "}", "CASE": "END"}
_HIGHER: Final = {"R_PAREN", "R_BRACKET", "R_BRACE", "END"}
_SIGNS: Final = {"DASH", "PLUS", "TILDE"}
_QUOTED: Final = {"STRING", "IDENTIFIER"}
_OPERATORS: Final = _SIGNS | {"L_PAREN", "NULL", "NUMBER"}  # begin an expression, and cannot follow a name
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?)(?:\.(\d{1,9})\d*)?\s*(Z|[+-]\d\d(?::?\d\d)?)?"
)


class Text(NamedTuple):
    """A statement in a form that the parser understands."""

    sql: str
    first: str  # its first word, in upper case
    position: int | None = None  # AT OFFSET
    moment: int | None = None  # AS OF, in ns since 1970
    reason: str | None = None  # WITH BREAK_GLASS


class _Word(NamedTuple):
    kind: str
    text: str
    upper: str
    start: int
    end: int


def prepare(sql: str, params: Sequence[Value]) -> Text:
    """The statement without its extensions. Raises QueryInvalid, and QueryError if a parameter is missing."""
    words = _words(sql)
    _guard(words)
    reason, words = _break_glass(words)
    pieces: list[str] = []
    position: set[int] = set()
    moment: set[int] = set()
    at, here, highest, marks = 0, words[0].start if words else 0, 0, 0
    numbered = False
    while at < len(words):
        word = words[at]
        taken = _moment(words, at, params, marks)
        if taken is not None:
            length, kind, value = taken
            (position if kind == "position" else moment).add(value)
            pieces += (sql[here : word.start], " ")
            here = words[at + length - 1].end + 1
            marks += words[at + length - 1].kind == "PLACEHOLDER"
            highest = max(highest, marks)
            at += length
            continue
        if word.kind == "PLACEHOLDER":
            marks += 1
            highest = max(highest, marks)
            pieces += (sql[here : word.start], f"${marks} ")
            here = word.end + 1
        elif word.kind == "PARAMETER":
            highest = max(highest, _number(words, at))
            numbered = True
        at += 1
    if marks and numbered:
        raise QueryInvalid("Parameters are either all $1, $2, … or all ?")
    if highest > len(params):
        raise QueryError(f"parameter ${len(params) + 1 if marks else highest} not provided")
    if words:
        pieces.append(sql[here : words[-1].end + 1])
    if len(position) > 1 or len(moment) > 1:
        raise QueryInvalid("A statement sees everything as of one moment: give AS OF or AT OFFSET once")
    first = words[0].upper if words else ""
    return Text("".join(pieces), first, next(iter(position), None), next(iter(moment), None), reason)


def _words(sql: str) -> list[_Word]:
    if len(sql) > MAX_BYTES or len(sql.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise QueryInvalid(f"A statement has at most {MAX_BYTES} bytes")
    if "\0" in sql:
        raise QueryInvalid("A statement cannot contain the character NUL")
    try:
        tokens: list[Any] = Dialect().tokenize(sql)
    except (SqlglotError, ValueError, RecursionError) as error:
        raise QueryInvalid(f"Not SQL: {_first_line(error)}") from None
    words = [_Word(t.token_type.name, t.text, t.text.upper(), t.start, t.end) for t in tokens]
    while words and words[-1].kind == "SEMICOLON":
        words.pop()
    if not words:
        raise QueryInvalid("There is no statement")
    if any(word.kind == "SEMICOLON" for word in words):
        raise QueryInvalid("One statement at a time, please")
    return words


def _guard(words: Sequence[_Word]) -> None:
    """Refuse what would take the parser unreasonably long."""
    limit = MAX_INSERT_WORDS if words[0].kind == "INSERT" else MAX_WORDS
    if len(words) > limit:
        raise QueryInvalid(f"The statement has more than {limit} words: append many rows as events instead")
    depth = nots = signs = subscripts = 0
    before = ""
    for word in words:
        if word.kind in _DEEPER:
            depth += 1
            if depth > MAX_DEPTH:
                raise QueryInvalid(f"The statement nests deeper than {MAX_DEPTH} levels (character {word.start + 1})")
        elif word.kind in _HIGHER:
            depth -= 1
        nots += word.kind == "NOT"
        signs = signs + 1 if word.kind in _SIGNS else 0
        subscripts += word.kind == "L_BRACKET" and before == "R_BRACKET"
        before = word.kind
        if nots > MAX_NOTS or signs > MAX_SIGNS or subscripts > MAX_SUBSCRIPTS:
            raise QueryInvalid(f"Too many NOT, signs or subscripts in a row (character {word.start + 1})")


def _break_glass(words: list[_Word]) -> tuple[str | None, list[_Word]]:
    if [word.upper for word in words[:4]] != ["WITH", "BREAK_GLASS", "REASON", "="]:
        return None, words
    if len(words) < 6 or words[4].kind != "STRING":
        raise QueryInvalid("WITH BREAK_GLASS REASON='…' comes before a statement and has a reason in quotes")
    return words[4].text, words[5:]


def _moment(words: list[_Word], at: int, params: Sequence[Value], marks: int) -> tuple[int, str, int] | None:
    """If the words at `at` specify a point in time: their number, the kind ("position" or "moment"), and its value.
    `marks` is the number of `?` parameters before.
    """
    ahead = words[at : at + 7]
    said = " ".join("?" if word.kind in _QUOTED else word.upper for word in ahead).split()
    if said[:2] == ["AT", "OFFSET"] and len(ahead) > 2:
        value, length = _operand(ahead[2:], params, marks)
        if not length and ahead[2].kind not in _OPERATORS:
            return None  # `at` and `offset` are ordinary names here
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise QueryInvalid("AT OFFSET takes a position of the log: a number from 0 on")
        return 2 + length, "position", value
    for opening in (["FOR", "SYSTEM_TIME", "AS", "OF"], ["AS", "OF"]):
        if said[: len(opening)] != opening:
            continue
        used, count = 0, 0
        while count < len(opening):
            count += len(ahead[used].upper.split())
            used += 1
        if used < len(ahead) and ahead[used].upper == "TIMESTAMP":
            used += 1
        value, length = _operand(ahead[used:], params, marks)
        if not length or (isinstance(value, int) and ahead[used].kind == "NUMBER"):
            return None
        return used + length, "moment", _nanoseconds(value)
    return None


def _operand(words: Sequence[_Word], params: Sequence[Value], marks: int) -> tuple[Value, int]:
    """The value of a literal or a parameter, and its number of words; (None, 0) if it is neither."""
    if words and words[0].kind == "STRING":
        return words[0].text, 1
    if words and words[0].kind == "NUMBER" and words[0].text.isdecimal():
        return int(words[0].text[:20]), 1
    if words and words[0].kind in ("PARAMETER", "PLACEHOLDER"):
        mark = words[0].kind == "PLACEHOLDER"
        number = marks + 1 if mark else _number(words, 0)
        if number > len(params):
            raise QueryError(f"parameter ${number} not provided")
        return params[number - 1], 1 if mark else 2
    return None, 0


def _number(words: Sequence[_Word], at: int) -> int:
    following = words[at + 1] if at + 1 < len(words) else None
    if following is None or following.kind != "NUMBER" or not following.text.isdecimal():
        raise QueryInvalid("Parameters are written $1, $2, … or ?")
    number = int(following.text[:9])
    if not number:
        raise QueryInvalid("There is no parameter $0: the first one is $1")
    return number


def _nanoseconds(value: Value) -> int:
    if isinstance(value, Timestamp):
        return value.nanoseconds
    found = _MOMENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise QueryInvalid(f"AS OF takes a moment such as '2026-01-30T12:00:00Z', not '{str(value)[:100]}'")
    base, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(base + ("+00:00" if zone in (None, "Z") else zone))
    except ValueError:
        raise QueryInvalid(f"AS OF '{str(value)[:100]}' is no moment of the calendar") from None
    if moment.tzinfo is None:  # a date without a time has no zone
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(seconds=1) * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
