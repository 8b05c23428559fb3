"""Detects a connection's protocol from its first bytes. Pure: no socket, no state, no configuration.

The rules are the table `RULES` below, tried in order; each looks at the bytes so far and answers a protocol, "not
mine", or "more bytes needed". Whether this port serves the protocol is decided elsewhere.

    first bytes                                        protocol
    16 03                                              TLS, then sniffed again inside
    AF                                                 flymq
    "VDB "                                             kimberlite
    an HTTP method and a space                         http
    u32 length 11, then 01, id u64, version 1 or 2     blipmq: its HELLO. A Produce of rustlog that is 11 bytes long
                                                       has an empty topic's name, so it is never a legal one

On a port of rustlog, alone or with others:

    u32 length, then `{` or white space of JSON        rustlog (JSON)
    u32 length, then 01 to 09, or FF                   rustlog (binary)

On other ports, where rustlog is a guest, only unambiguous bytes:

    u32 length, then 01 to 09                          blipmq on a port of blipmq; else rustlog (binary), if the frame
                                                       has the bytes that this request takes
    u32 length 15 or more, then `{` or white space     rustlog (JSON)
    and then `{`
    u32 length 1, then FF                              rustlog (binary Ping)

Anything else goes to the port's own protocol, which answers with its own error or a close. A u32 length never looks
like one of the first rows: the largest first frame of any protocol has 10 MiB, so its length begins with 00.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

TLS: Final = "tls"
HTTP_METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"TRACE ", b"CONNECT ")
LENGTH_FIRST_BYTES: Final = b"\x00"
MAX_LENGTH: Final = 10_485_760  # rustlog's largest frame; no other protocol begins with one this large
JSON_START: Final = b"{ \t\r\n"
RUSTLOG_PING: Final = 0xFF
SHARED_TYPES: Final = range(0x01, 0x0A)  # request types of rustlog's binary dialect, and all types of blipmq
SMALLEST: Final = (0, 11, 21, 17, 9, 7, 1, 3, 7, 1)  # rustlog's binary requests, by type: bytes of the payload
SMALLEST_JSON: Final = len('{"type":"Ping"}')
SNIFFED: Final = 15  # the most bytes needed: a HELLO of blipmq
BLIPMQ_HELLO: Final = b"\x00\x00\x00\x0b\x01"
BLIPMQ_VERSIONS: Final = (b"\x00\x01", b"\x00\x02")


class Verdict(enum.Enum):
    MORE = enum.auto()  # too few bytes to decide
    NOT_MINE = enum.auto()


SniffResult = str | Verdict
Rule = Callable[[bytes, str], SniffResult]  # (the bytes so far, the port's own protocol)


def _magic(magic: bytes, protocol: str) -> Rule:
    def rule(data: bytes, default: str) -> SniffResult:  # noqa: ARG001 - all rules have this signature
        if data.startswith(magic):
            return protocol
        return Verdict.MORE if magic.startswith(data) else Verdict.NOT_MINE

    return rule


def _blipmq_hello(data: bytes, default: str) -> SniffResult:
    """BlipMQ's HELLO. It is checked as a whole, so that a Produce of 11 bytes still gets rustlog's own error."""
    if not data.startswith(BLIPMQ_HELLO) and not BLIPMQ_HELLO.startswith(data):
        return Verdict.NOT_MINE
    if default == "blipmq":
        return Verdict.MORE if len(data) < len(BLIPMQ_HELLO) else "blipmq"
    if len(data) < SNIFFED:
        return Verdict.MORE
    return "blipmq" if data[13:15] in BLIPMQ_VERSIONS else Verdict.NOT_MINE


def _length_prefixed(data: bytes, default: str) -> SniffResult:
    if data[0] not in LENGTH_FIRST_BYTES:
        return Verdict.NOT_MINE
    if len(data) < 4:
        return Verdict.MORE
    if not 0 < int.from_bytes(data[:4], "big") <= MAX_LENGTH:
        return Verdict.NOT_MINE  # without waiting for a fifth byte: the peer may be waiting for the error
    if len(data) < 5:
        return Verdict.MORE
    kind = data[4]
    if default != "rustlog":
        return _on_other_port(data, kind, default)
    known = kind in SHARED_TYPES or kind in JSON_START or kind == RUSTLOG_PING
    return "rustlog" if known else Verdict.NOT_MINE


def _on_other_port(data: bytes, kind: int, default: str) -> SniffResult:
    """A length-prefixed frame on a port that is not rustlog's."""
    length = int.from_bytes(data[:4], "big")
    if kind in SHARED_TYPES and default == "blipmq":
        return "blipmq"
    if kind in SHARED_TYPES:
        return "rustlog" if length >= SMALLEST[kind] else Verdict.NOT_MINE
    if kind == RUSTLOG_PING:
        return "rustlog" if length == 1 else Verdict.NOT_MINE
    if kind not in JSON_START or length < SMALLEST_JSON:
        return Verdict.NOT_MINE
    text = data[4:SNIFFED].lstrip(JSON_START[1:])
    if text:
        return "rustlog" if text[0] == JSON_START[0] else Verdict.NOT_MINE
    return Verdict.MORE if len(data) < SNIFFED else Verdict.NOT_MINE


RULES: Final[tuple[Rule, ...]] = (
    _magic(b"\x16\x03", TLS),
    _magic(b"\xaf", "flymq"),
    _magic(b"VDB ", "kimberlite"),
    *(_magic(method, "http") for method in HTTP_METHODS),
    _blipmq_hello,
    _length_prefixed,
)


def sniff(data: bytes, default: str) -> str | None:
    """The protocol that `data` begins, `TLS`, or `None` if more bytes are needed.

    `default` is the port's protocol, for data that matches no rule. Never needs more than `SNIFFED` bytes."""
    if not data:
        return None
    undecided = False
    for rule in RULES:
        answer = rule(data, default)
        if isinstance(answer, str):
            # An earlier rule that needs more bytes takes precedence: it is more specific.
            return None if undecided else answer
        undecided = undecided or answer is Verdict.MORE
    return None if undecided else default


def sniff_tls(data: bytes, default: str) -> str | None:
    """For a port with a single protocol: `TLS`, that protocol, or `None` if more bytes are needed."""
    if not data:
        return None
    answer = RULES[0](data, default)
    if answer is Verdict.MORE:
        return None
    return TLS if answer == TLS else default
