"""Record filters of the administration API: by key, value, header, text anywhere, a path in a JSON value, or an SQL
expression (`where`).

They run off the event loop, on a bounded number of records at a time. All conditions must hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.admin.record_view import HeaderView, RecordView
from penstock.admin.where_expression import WhereExpression
from penstock.broker.errors import InvalidArgument
from penstock.broker.fetch.filters import MAX_CHARACTERS, Filter, compile_filter


class Condition(NamedTuple):
    """Conditions on records, all of which must hold. Empty ones are ignored."""

    key: str = ""
    value: str = ""
    header: tuple[str, ...] = ()
    text: str = ""
    path: str = ""
    where: str = ""

    @property
    def anything(self) -> bool:
        return any(self)


class RecordFilter:
    """Decides which records match a condition. Created off the event loop if there is an SQL expression."""

    def __init__(self, condition: Condition) -> None:
        """Raises InvalidArgument."""
        for text in (condition.key, condition.value, condition.path, condition.where, *condition.header):
            if len(text) > MAX_CHARACTERS:
                raise InvalidArgument(f"a filter has {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
        self._key = condition.key.lower().encode()
        self._value = condition.value.lower().encode()
        self._headers = [_header(text) for text in condition.header]
        self._text: Filter | None = compile_filter(condition.text) if condition.text else None
        self._path = _path(condition.path) if condition.path else None
        self._where = WhereExpression(condition.where) if condition.where else None

    def __call__(self, record: RecordView) -> bool:
        key, value, headers = record.key, record.value, record.headers
        if self._key and (key is None or self._key not in key.lower()):
            return False
        if self._value and self._value not in value.lower():
            return False
        if not all(_has_header(headers, *wanted) for wanted in self._headers):
            return False
        if self._text is not None and not self._text(key, value) and not self._in_headers(headers):
            return False
        if self._path is not None and not _at_path(value, *self._path):
            return False
        return self._where is None or self._where(record)

    def _in_headers(self, headers: Sequence[HeaderView]) -> bool:
        assert self._text is not None
        return any(self._text(header.name.encode(), header.value) for header in headers)


def _header(text: str) -> tuple[str, bytes | None]:
    """`name` for an existing header, `name=text` for one with the text in its value."""
    name, equals, value = text.partition("=")
    return name.lower(), value.lower().encode() if equals else None


def _has_header(headers: Sequence[HeaderView], name: str, value: bytes | None) -> bool:
    return any(each.name.lower() == name and (value is None or value in each.value.lower()) for each in headers)


def _path(text: str) -> tuple[Sequence[str], str | None]:
    """`$.a.b` for an existing path, `$.a.b=text` for one with this value. Numbers are also indexes of lists."""
    path, equals, value = text.partition("=")
    if not path.startswith("$."):
        raise InvalidArgument("a path begins with '$.', such as $.order.status=failed")
    names = path[2:].split(".")
    if len(names) > 32:
        raise InvalidArgument("a path has at most 32 names")
    return names, value if equals else None


def _at_path(value: bytes, names: Sequence[str], wanted: str | None) -> bool:
    try:
        found: Any = msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    for name in names:
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isascii() and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return False
    if wanted is None:
        return True
    return (found if isinstance(found, str) else msgspec.json.encode(found).decode()) == wanted
