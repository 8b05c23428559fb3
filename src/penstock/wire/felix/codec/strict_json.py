"""Strict JSON, beyond what msgspec refuses: a field that comes twice, and base64 that no encoder writes.

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
_LARGE: Final = 4096  # bytes of a message; from here on it pays to leave out its bulk
_WHOLE: Final = 32 << 10  # bytes of a message that is read a second time as a whole, which may take some 6 ms
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXTS: Final = msgspec.json.Decoder(str | list[str])

# The end of a string that would be base64 with bits set behind its last byte. Other strings may end so as well.
_STRAY_BITS: Final = re.compile(rb'=(?:(?<=[^AEIMQUYcgkosw048=]=)"|(?<=[^AQgw]=)=")')


class Bulk(NamedTuple):
    """The field of a message that is nearly all of it, when it is large."""

    field: str
    start: re.Pattern[bytes]  # what comes before its value
    end: bytes  # what comes behind it, and is not in it
    empty: Any


def bulk(field: str, start: bytes, end: bytes, empty: Any) -> Bulk:
    return Bulk(field, re.compile(b'"' + field.encode() + rb'"\s*:\s*' + re.escape(start)), end, empty)


def flaw(payload: bytes, message: Struct, large: Bulk | None = None) -> str | None:
    """The fault of the JSON that this message was read from, if it has one."""
    if large is None or len(payload) <= _LARGE:
        given, written = payload, _ENCODER.encode(message)
        if written == payload:  # as the original's clients have it
            return None
    else:
        given, message_alone = _without(payload, message, large)
        written = _ENCODER.encode(message_alone)
    if b"\\" in payload or _STRAY_BITS.search(payload) is not None or given.count(b'"') != _quotes(given, written):
        return (_read_again if len(payload) <= _WHOLE else _read_parts)(payload, message)
    return None


def _quotes(given: bytes, written: bytes) -> int:
    """The number of quotes in a message without escapes that has no field twice: as many as when we write it. But we
    write `ttl_ms` always, and others need not."""
    count = written.count(b'"')
    return count - 2 if written.endswith(b',"ttl_ms":null}') and b'"ttl_ms"' not in given else count


def _without(payload: bytes, message: Struct, large: Bulk) -> tuple[bytes, Struct]:
    """Both without the bulk."""
    found = large.start.search(payload)
    end = payload.find(large.end, found.end()) if found else -1
    if found is None or end < 0:
        return payload, message
    return payload[: found.end()] + payload[end:], structs.replace(message, **{large.field: large.empty})


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


def _read_parts(payload: bytes, message: Struct) -> str | None:
    """As `_read_again`, for messages that may have millions of values: it looks at none but those of our fields. That
    some field comes twice is told by the quotes that are left beside names and values; which one it is, is not."""
    parts = _PARTS.decode(payload)
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name in parts and isinstance(value, bytes | list) and _TEXTS.decode(parts[name]) != _text(value):
            return f"field '{name}': invalid base64 encoded string"
    inside = {name: bytes(part).count(b'"') for name, part in parts.items()}
    twice = payload.count(b'"') - sum(inside.values()) != 2 * len(parts) or any('"' in name for name in parts)
    for name in message.__struct_fields__:
        value = getattr(message, name)
        twice = twice or (isinstance(value, Struct) and inside[name] != 2 * len(value.__struct_fields__))
    return "malformed message: a field comes twice" if twice else None


def _twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _is_canonical(text: Any, value: Any) -> bool:
    """True if a field that was read as bytes, or a list of them, is what an encoder makes of them."""
    if isinstance(value, bytes):
        return isinstance(text, str) and b2a_base64(a2b_base64(text), newline=False) == text.encode()
    if isinstance(value, list):
        return all(map(_is_canonical, text, value))
    return True


def _text(value: bytes | list[bytes]) -> str | list[str]:
    return b2a_base64(value, newline=False).decode() if isinstance(value, bytes) else [_text(each) for each in value]  # type: ignore[misc]
