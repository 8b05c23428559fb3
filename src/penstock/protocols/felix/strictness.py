"""What msgspec lets pass in JSON, and Felix does not: a field that comes twice, and base64 that no encoder writes.

Of a field that comes twice msgspec takes the last, and it does not look at the bits of base64 that stand for nothing.
Messages that can have neither are told by little more than their length; only others are read a second time.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct, structs

_ENCODER: Final = msgspec.json.Encoder()
_LARGE: Final = 4096  # bytes of a message; from here on it pays not to encode all of it again
_NO_TTL: Final = b',"ttl_ms":null'  # what we write always, but others need not

# The end of a string that would be base64 with bits set behind its last byte. Other strings may end so as well.
_STRAY_BITS: Final = re.compile(rb'=(?:(?<=[^AEIMQUYcgkosw048=]=)"|(?<=[^AQgw]=)=")')


class Bulk(NamedTuple):
    """Where the bulk of a message is: the field, and what comes before and behind its value when nothing is between."""

    field: str
    before: bytes
    behind: bytes
    empty: Any


def flaw(payload: bytes, message: Struct, bulk: Bulk | None = None) -> str | None:
    """What is wrong with the JSON that this message was read from, if anything is.

    Nothing can be written shorter than we write it, but for `ttl_ms`: what is no longer than that has no field twice,
    and no base64 with escapes."""
    excess = len(payload) - _shortest(payload, message, bulk)
    plain = excess == 0 or (excess == -len(_NO_TTL) and b'"ttl_ms"' not in payload)
    if plain and _STRAY_BITS.search(payload) is None:
        return None
    return _read_again(payload, message)


def _shortest(payload: bytes, message: Struct, bulk: Bulk | None) -> int:
    """The length that the message has when we write it."""
    if bulk is not None and len(payload) > _LARGE:
        start = payload.find(bulk.before) + len(bulk.before)
        end = payload.find(bulk.behind, start)
        if start >= len(bulk.before) and end >= 0:
            return len(_ENCODER.encode(structs.replace(message, **{bulk.field: bulk.empty}))) + end - start
    return len(_ENCODER.encode(message))


def _read_again(payload: bytes, message: Struct) -> str | None:
    try:
        # Objects become tuples of pairs, and numbers remain text: they may have any number of digits.
        pairs = json.loads(payload.decode(), object_pairs_hook=tuple, parse_int=str, parse_float=str)
    except RecursionError:
        return "malformed JSON: nested too deeply"
    known = {"type", *message.__struct_fields__}
    ours = [(name, value) for name, value in pairs if name in known]
    twice = _twice(name for name, _ in ours)
    for name, value in ours:
        if isinstance(value, tuple):
            twice = twice or _twice(inner for inner, _ in value)
        elif not _is_canonical(value, getattr(message, name, None)):
            return f"field '{name}': invalid base64 encoded string"
    return f"duplicate field '{twice}'" if twice else None


def _twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _is_canonical(text: Any, value: Any) -> bool:
    """Whether a field that was read as bytes, or a list of them, is what an encoder makes of them."""
    if isinstance(value, bytes):
        return isinstance(text, str) and b2a_base64(a2b_base64(text), newline=False) == text.encode()
    if isinstance(value, list):
        return all(map(_is_canonical, text, value))
    return True
