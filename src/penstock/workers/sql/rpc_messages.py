"""Messages between the broker and the SQL process. Both sides import them, and they import neither.

Each request carries the number of its statement.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.broker.errors import BrokerError, QueryError
from penstock.broker.queries.declarations import Declarations
from penstock.broker.queries.query import Declared, Value
from penstock.log.errors import LogError
from penstock.structured_logging import LogFormat
from penstock.workers.flight.rpc_messages import ReadViewMessage


class SqlSettings(msgspec.Struct, frozen=True):
    """Settings of the SQL process."""

    data_dir: str
    log_level: str
    seconds: float
    memory_bytes: int
    rows: int
    threads: int  # concurrent statements, each in its own process
    overhead_bytes: int = 256 << 20  # memory of a process besides `memory_bytes`
    log_format: LogFormat = "auto"
    standby: bool = False  # of the journal: reads only
    first: bool = False  # the broker's start or a statement waits for it: starts as fast as possible


class Statement(msgspec.Struct, array_like=True):
    """A statement to execute."""

    number: int
    sql: str
    params: list[Value]
    position: int | None


class StatementRequest(msgspec.Struct, array_like=True):
    number: int


class OpenRequest(StatementRequest):
    names: list[str]


class Declaration(StatementRequest):
    name: str
    declared: Declared | None
    create: bool


class Append(StatementRequest):
    name: str
    events: list[bytes]
    keys: list[bytes | None] | None
    expected: int | None


class BreakGlass(StatementRequest):
    reason: str


class Position(msgspec.Struct, array_like=True):
    position: int | None


class Names(msgspec.Struct, array_like=True):
    names: list[str]


class OpenStream(msgspec.Struct, array_like=True):
    read_view: ReadViewMessage
    declarations: Declarations
    created: int  # the position at which it was created, or -1
    typed: str = ""  # the name of the topic's typed table, if that is what is read


class Opened(msgspec.Struct, array_like=True):
    head: int
    streams: list[OpenStream]


class Page(StatementRequest):
    """Some rows of the result. It is sent in pages, so that the broker can serve others in between."""

    rows: list[list[Value]]


class Done(StatementRequest):
    """The end of the result, with the last page."""

    columns: list[str]
    rows: list[list[Value]]


class Failed(StatementRequest):
    kind: str  # name of the error's class
    text: str
    fields: dict[str, int | str | None]


class Stopped(msgspec.Struct, array_like=True):
    """Statements that nobody waits for any more."""

    numbers: list[int]


INTERNAL = "Internal"
UNEXPECTED = "internal error; the broker's log tells more"


def failed(number: int, error: Exception) -> Failed:
    """An error as a message for the broker. The text is withheld unless it is an error of the broker or the log."""
    if not isinstance(error, (BrokerError, LogError)):
        return Failed(number, INTERNAL, UNEXPECTED, {})
    fields = {key: value for key, value in vars(error).items() if isinstance(value, (int, str, type(None)))}
    return Failed(number, type(error).__name__, str(error), fields)


def rebuilt(kind: str, text: str, fields: dict[str, Any] | None = None) -> Exception:
    """The original error; an unknown kind becomes a QueryError."""
    found = _kinds().get(kind, QueryError)
    error = found.__new__(found)
    Exception.__init__(error, text)
    for name, value in (fields or {}).items():
        setattr(error, name, value)
    return error


def _kinds() -> dict[str, type[Exception]]:
    known: dict[str, type[Exception]] = {}
    waiting: list[type[Exception]] = [BrokerError, LogError]
    while waiting:
        kind = waiting.pop()
        known[kind.__name__] = kind
        waiting += kind.__subclasses__()
    return known
