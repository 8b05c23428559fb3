"""Strict JSON: rejects duplicate fields and non-canonical base64, which msgspec accepts.

msgspec uses the last of duplicate fields, and ignores the unused bits of base64. Messages that cannot have either flaw
are recognised by little more than their length; only the others are parsed a second time.
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
_LARGE: Final = 4096  # bytes of a message from which on leaving out its bulk pays off
_WHOLE: Final = 32 << 10  # largest message to parse a second time as a whole, which may take 6 ms
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXTS: Final = msgspec.json.Decoder(str | list[str])

# The end of a string that would be base64 with unused bits set. Other strings may end like this too.
_STRAY_BITS: Final = re.compile(rb'=(?:(?<=[^AEIMQUYcgkosw048=]=)"|(?<=[^AQgw]=)=")')


class Bulk(NamedTuple):
    """The field that makes up nearly all of a large message."""

    field: str
    start: re.Pattern[bytes]  # matches what precedes its value
    end: bytes  # follows its value, and does not occur in it
    empty: Any


def bulk(field: str, start: bytes, end: bytes, empty: Any) -> Bulk:
    return Bulk(field, re.compile(b'"' + field.encode() + rb'"\s*:\s*' + re.escape(start)), end, empty)


def flaw(payload: bytes, message: Struct, large: Bulk | None = None) -> str | None:
    """The flaw in the JSON from which this message was decoded, or None."""
    if large is None or len(payload) <= _LARGE:
        given, written = payload, _ENCODER.encode(message)
        if written == payload:  # as sent by the original's clients
            return None
    else:
        given, message_alone = _without(payload, message, large)
        written = _ENCODER.encode(message_alone)
    if b"\\" in payload or _STRAY_BITS.search(payload) is not None or given.count(b'"') != _quotes(given, written):
        return (_read_again if len(payload) <= _WHOLE else _read_parts)(payload, message)
    return None


def _quotes(given: bytes, written: bytes) -> int:
    """The number of quotes in a message without escapes and duplicate fields: the same as in our encoding, except that
    we always write `ttl_ms`, and others need not."""
    count = written.count(b'"')
    return count - 2 if written.endswith(b',"ttl_ms":null}') and b'"ttl_ms"' not in given else count


def _without(payload: bytes, message: Struct, large: Bulk) -> tuple[bytes, Struct]:
    """Payload and message, both without the bulk."""
    found = large.start.search(payload)
    end = payload.find(large.end, found.end()) if found else -1
    if found is None or end < 0:
        return payload, message
    return payload[: found.end()] + payload[end:], structs.replace(message, **{large.field: large.empty})


def _read_again(payload: bytes, message: Struct) -> str | None:
    try:
        # Objects become tuples of pairs; numbers stay text, since they may have any number of digits.
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
    """Like `_read_again`, for messages that may have millions of values: it only looks at known fields. A duplicate
    field is detected by the number of quotes outside of names and values; which one it is stays unknown."""
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
    """True if the text is exactly the base64 encoding of the decoded bytes, or list of bytes."""
    if isinstance(value, bytes):
        return isinstance(text, str) and b2a_base64(a2b_base64(text), newline=False) == text.encode()
    if isinstance(value, list):
        return all(map(_is_canonical, text, value))
    return True


def _text(value: bytes | list[bytes]) -> str | list[str]:
    return b2a_base64(value, newline=False).decode() if isinstance(value, bytes) else [_text(each) for each in value]  # type: ignore[misc]
