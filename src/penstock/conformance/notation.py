"""A readable notation for bytes, for the conversations of the suite:

    0a1b        bytes in hexadecimal                 00*7     the same byte, seven times
    'text'      UTF-8, with ${name} for a variable   ${name}  the bytes of a variable
    u8( … )     a length before its content; also u16, u32, u64 (big-endian), u64le and varint
    vdb5( … )   a Kimberlite frame of version 5 around its payload
    # …         a comment, to the end of the line

and, only in expected replies:

    ??          any byte       ??*8     any eight bytes       ...  anything, to the end
    <name:8>    any eight bytes, captured as the variable `name`
                <name:varint>: a varint; <name:u16>: a u16 length and its content

Independent of the codecs, which may be under test.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Variables: TypeAlias = Mapping[str, bytes]


class BadNotation(ValueError):
    """A notation in a vector that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Fixed:
    data: bytes


@dataclass(frozen=True, slots=True)
class Wild:
    """This many bytes of any value, captured if there is a name."""

    size: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Counted:
    """Self-delimiting bytes, captured: a varint, or a u16 length and its content."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Anything that follows."""


Part: TypeAlias = Fixed | Wild | Counted | Rest

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | '(?P<text>[^']*)'
      | \$\{(?P<variable>\w+)\}
      | (?P<group>u8|u16|u32|u64le|u64|varint|vdb(?P<version>\d+))\(
      | (?P<end>\))
      | <(?P<keep>\w+):(?P<width>\d+|varint|u16)>
      | (?P<rest>\.\.\.)
      | (?P<any>\?\?)(?:\*(?P<anys>\d+))?
      | (?P<byte>[0-9a-fA-F]{2})\*(?P<times>\d+)
      | (?P<hex>(?:[0-9a-fA-F]{2})+)
    """,
    re.VERBOSE,
)
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")


def data(text: str, variables: Variables) -> bytes:
    """The bytes to send. Raises BadNotation."""
    parts = pattern(text, variables)
    for part in parts:
        if not isinstance(part, Fixed):
            raise BadNotation(f"{text}: only what is expected may be left open")
    return b"".join(part.data for part in parts if isinstance(part, Fixed))


def pattern(text: str, variables: Variables) -> list[Part]:
    """The pattern of an expected reply. Raises BadNotation."""
    stack: list[tuple[str, list[Part]]] = [("", [])]
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise BadNotation(f"{text[at : at + 20]!r} in {text!r} is none of what can be written")
        at = found.end()
        if found["group"]:
            stack.append((found["group"], []))
        elif found["end"]:
            if len(stack) == 1:
                raise BadNotation(f"{text!r}: ')' closes nothing")
            group, parts = stack.pop()
            stack[-1][1].extend(_grouped(group, parts))
        elif not found["space"]:
            stack[-1][1].append(_part(found, variables))
    if len(stack) > 1:
        raise BadNotation(f"{text!r}: {stack[-1][0]}( is not closed")
    return stack[0][1]


def _part(found: re.Match[str], variables: Variables) -> Part:
    if found["rest"]:
        return Rest()
    if found["any"]:
        return Wild(int(found["anys"] or 1))
    if found["width"] in _COUNTS:
        return Counted(found["keep"], found["width"])
    if found["keep"]:
        return Wild(int(found["width"]), found["keep"])
    if found["variable"]:
        return Fixed(_value(found["variable"], variables))
    if found["text"] is not None:
        return Fixed(filled(found["text"], variables).encode())
    if found["byte"]:
        return Fixed(bytes.fromhex(found["byte"]) * int(found["times"]))
    return Fixed(bytes.fromhex(found["hex"]))


def _value(name: str, variables: Variables) -> bytes:
    try:
        return variables[name]
    except KeyError:
        raise BadNotation(f"nothing is known of ${{{name}}}") from None


def filled(text: str, variables: Variables) -> str:
    """A text with its variables replaced."""
    return _VARIABLE.sub(lambda found: _value(found[1], variables).decode(errors="replace"), text)


# -- lengths


def varint(number: int) -> bytes:
    """Seven bits per byte, lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


_LENGTHS: Final[dict[str, Callable[[int], bytes]]] = {
    "u8": struct.Struct(">B").pack,
    "u16": struct.Struct(">H").pack,
    "u32": struct.Struct(">I").pack,
    "u64": struct.Struct(">Q").pack,
    "u64le": struct.Struct("<Q").pack,
    "varint": varint,
}


def _grouped(group: str, parts: Sequence[Part]) -> list[Part]:
    sizes = [_size(part) for part in parts if isinstance(part, Fixed | Wild)]
    whole = sum(sizes) if len(sizes) == len(parts) else None
    if group.startswith("vdb"):
        return [*_vdb_header(int(group[3:]), parts, whole), *parts]
    if whole is not None:
        return [Fixed(_LENGTHS[group](whole)), *parts]
    if group == "varint":
        raise BadNotation("a varint cannot count what is left open")
    return [Wild(len(_LENGTHS[group](0))), *parts]


def _vdb_header(version: int, parts: Sequence[Part], whole: int | None) -> list[Part]:
    """Magic, version, length, and a checksum, which is any unless all bytes are known."""
    head = struct.pack(">4sH", b"VDB ", version)
    if whole is None:
        return [Fixed(head), Wild(8)]
    fixed = [part.data for part in parts if isinstance(part, Fixed)]
    known = len(fixed) == len(parts)
    checksum: Part = Fixed(struct.pack(">I", zlib.crc32(b"".join(fixed)))) if known else Wild(4)
    return [Fixed(head + struct.pack(">I", whole)), checksum]


# -- matching


def match(expected: Sequence[Part], actual: bytes) -> dict[str, bytes] | str:
    """The captured variables, or the reason why the bytes do not match."""
    kept: dict[str, bytes] = {}
    at = 0
    for part in expected:
        if isinstance(part, Rest):
            return kept
        size = _COUNTS[part.kind](actual, at) if isinstance(part, Counted) else _size(part)
        piece = actual[at : at + size]
        if len(piece) < size:
            return f"too short: {len(actual)} bytes, {at + size} or more expected"
        if isinstance(part, Fixed) and piece != part.data:
            return f"at byte {at}: {shown(part.data)} expected, {shown(piece)} found"
        if isinstance(part, Wild | Counted) and part.name:
            kept[part.name] = piece
        at += size
    if at < len(actual):
        return f"too long: {len(actual)} bytes, {at} expected; behind them {shown(actual[at:])}"
    return kept


def _size(part: Fixed | Wild) -> int:
    return len(part.data) if isinstance(part, Fixed) else part.size


def _varint_size(data: bytes, at: int) -> int:
    size = 1
    while at + size <= len(data) and data[at + size - 1] > 0x7F:
        size += 1
    return size


_COUNTS: Final[dict[str, Callable[[bytes, int], int]]] = {
    "varint": _varint_size,
    "u16": lambda data, at: 2 + int.from_bytes(data[at : at + 2], "big"),
}


def shown(data: bytes, limit: int = 48) -> str:
    """Bytes for humans: as text if printable."""
    piece = data[:limit]
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        text = ""
    more = "…" if len(data) > limit else ""
    return f"'{text}{more}'" if text and text.isprintable() else piece.hex() + more
