"""Formats for printing records: a line for people, JSON, or a format string such as `%o %k %v\\n`, like kcat's.

Control characters in records are escaped, unless `raw`, so that they cannot manipulate the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.cli.failure import fail
from penstock.cli.record_json import as_object
from penstock.cli.tables import printable

if TYPE_CHECKING:
    from penstock.connection import Record

Printer = Callable[["Record"], bytes]

HELP: Final = (
    "How a record is printed: %o offset, %p partition, %t topic, %T time, %k key, %v value, %h headers, %K and %V "
    r"their lengths, %% a percent sign, \n, \t."
)
TABLE: Final = "%p\t%o\t%T\t%k\t%v\t%h\n"
_TOKEN: Final = re.compile(r"%(.)|\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def formatted(text: str, *, raw: bool) -> Printer:
    """A printer for a format string. Ends the command if it is invalid."""

    def shown(data: bytes) -> bytes:
        return data if raw else printable(data.decode(errors="backslashreplace")).encode()

    def headers(record: Record) -> bytes:
        return b",".join([shown(name.encode()) + b"=" + shown(value) for name, value in record.headers])

    fields: dict[str, Printer] = {
        "o": lambda record: b"%d" % record.offset,
        "p": lambda record: b"%d" % record.partition,
        "t": lambda record: shown(record.topic.encode()),
        "T": lambda record: record.time.isoformat(sep=" ", timespec="milliseconds")[:23].encode(),
        "k": lambda record: shown(record.key or b""),
        "v": lambda record: shown(record.value),
        "s": lambda record: shown(record.value),  # as in kcat
        "h": headers,
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "V": lambda record: b"%d" % len(record.value),
        "%": lambda _: b"%",
    }
    parts: list[Printer | bytes] = []
    at = 0
    for found in _TOKEN.finditer(text):
        parts.append(text[at : found.start()].encode())
        at = found.end()
        field, escape = found.groups()
        if field is None:
            parts.append(_ESCAPES.get(escape, found[0]).encode())
        elif field in fields:
            parts.append(fields[field])
        else:
            fail(f"--format: there is no %{field}; there are {' '.join('%' + name for name in fields)}", 2)
    parts.append(text[at:].encode())
    return lambda record: b"".join([part if isinstance(part, bytes) else part(record) for part in parts])


def json_line(record: Record) -> bytes:
    return msgspec.json.encode(as_object(record)) + b"\n"
