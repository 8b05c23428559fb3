"""Filters on records: which records a client wants to receive.

One text is interpreted in several ways, and a record passes if any of them matches: as a path that exists in a JSON
object, as text contained in key or value, or as a regular expression. Matching takes time linear in the length of the
records, and bounded memory. An expression can still be slow, so it must not run on the event loop; `cost` tells how
much work to schedule at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import msgspec
import re2

from penstock.broker.errors import InvalidArgument

MAX_CHARACTERS: Final = 4096
MAX_NAMES: Final = 128  # in a path; each takes some 30 µs to prepare
MAX_WORK: Final = 1 << 29  # steps of an expression in one record: seconds in the worst case
_EXPRESSION_CHARACTERS: Final = 512  # longer ones take too long to compile
_EXPRESSION_BYTES: Final = 1 << 19  # most memory of a compiled expression
_PATH: Final = "$."
_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$")  # an expression without these is plain text


class Filter:
    """Made by `compile_filter`."""

    __slots__ = ("_found", "_names", "_path", "cost")

    def __init__(self, text: str) -> None:
        names = text[2:].split(".") if text.startswith(_PATH) else []
        self._path = _path(names)
        self._names = [name.encode() for name in names]
        contains, expression = _text(text), _expression(text)
        self.cost = 1 if expression is None else expression.programsize  # steps per byte of a record, at worst
        self._found = contains if expression is None else _either(contains, expression)

    def __call__(self, key: bytes | None, value: bytes) -> bool:
        if self._path and value.startswith(b"{") and self._has_path(value):
            return True
        return self._found(value) or (key is not None and self._found(key))

    def matches(self, keys: Sequence[bytes | None] | None, values: Sequence[bytes]) -> list[int]:
        """The indexes of the records that pass."""
        if keys is None or not any(keys):
            if not self._path:
                found = self._found
                return [index for index, value in enumerate(values) if found(value)]
            keys = [None] * len(values)
        return [index for index, (key, value) in enumerate(zip(keys, values, strict=True)) if self(key, value)]

    def _has_path(self, value: bytes) -> bool:
        if b"\\" not in value and not all(name in value for name in self._names):
            return False  # names can be spelled differently only with escapes
        place: bytes | msgspec.Raw = value
        try:
            if not value.isascii():
                value.decode()  # the decoder does not validate what it skips
            for inside in self._path:
                place = inside(place)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        return True


@lru_cache(maxsize=64)
def compile_filter(text: str) -> Filter:
    """A filter that decides whether a record, given as key and value, passes.

    - `$.a.b`: the value is a JSON object in which that path exists. Names with a quote or a backslash are not
      supported.
    - or the text is contained in the key or the value, ignoring case.
    - or it is a regular expression (RE2) that matches in one of them. A malformed one, or one of more than 512
      characters, matches nothing.

    An empty text passes everything. Raises InvalidArgument for a text or a path that is too long; the filter raises it
    for a record that is too large for its expression.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidArgument(f"filter of {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    if text.startswith(_PATH) and text.count(".") > MAX_NAMES:
        raise InvalidArgument(f"filter with a path of {text.count('.')} names; at most {MAX_NAMES} are allowed")
    return Filter(text)


def _path(names: Sequence[str]) -> list[Callable[[bytes | msgspec.Raw], msgspec.Raw]]:
    """For each name, a function that extracts its raw value from an object. Everything else in the object is skipped
    without decoding, which could take fifty times the memory of the text.
    """

    def inside(name: str) -> Callable[[bytes | msgspec.Raw], msgspec.Raw]:
        decode = msgspec.json.Decoder(msgspec.defstruct("Place", [("held", msgspec.Raw)], rename={"held": name})).decode
        return lambda place: decode(place).held  # type: ignore[attr-defined]

    try:
        return [inside(name) for name in names]
    except ValueError:  # a name that cannot be a field
        return []


def _text(text: str) -> Callable[[bytes], bool]:
    if text.isascii():
        wanted = text.lower().encode()
        return lambda data: wanted in data.lower()
    lowered = text.lower()
    forms = {form.encode(errors="replace") for form in (text, lowered, text.upper())}

    def contains(data: bytes) -> bool:
        try:
            return lowered in data.decode().lower()
        except UnicodeDecodeError:  # skipping invalid bytes would take too long
            return any(form in data for form in forms)

    return contains


def _either(contains: Callable[[bytes], bool], expression: re2._Regexp) -> Callable[[bytes], bool]:
    search, longest = expression.search, MAX_WORK // expression.programsize

    def found(data: bytes) -> bool:
        if contains(data):
            return True
        if len(data) > longest:
            raise InvalidArgument(f"filter is too complex for a record of {len(data)} bytes; it can look at {longest}")
        return search(data) is not None

    return found


def _expression(text: str) -> re2._Regexp | None:
    """The compiled expression; None if it is invalid, or would match only what the plain text does."""
    if _SPECIAL.isdisjoint(text) or (text.startswith(_PATH) and _SPECIAL.isdisjoint(text[2:].replace(".", ""))):
        return None  # plain text; or `$` followed by more text, which cannot match
    if len(text) > _EXPRESSION_CHARACTERS:
        return None
    options = re2.Options()
    options.max_mem = _EXPRESSION_BYTES
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(text.encode(), options)
    except (re2.error, UnicodeEncodeError):
        return None
