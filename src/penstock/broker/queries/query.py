"""Queries: their values, and the rows that they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import msgspec


class Timestamp(NamedTuple):
    """A timestamp as an SQL value. Other numbers are plain `int`."""

    nanoseconds: int  # since 1970


Value: TypeAlias = int | str | bool | Timestamp | None
"""A parameter of a statement, or a cell of its result."""


class Rows(NamedTuple):
    columns: list[str]
    rows: list[list[Value]]


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of a declared table. Stored in events: fields may be added, never renamed or reused."""

    name: str
    type: str  # in DuckDB's spelling: BIGINT, VARCHAR, BOOLEAN, TIMESTAMP_NS, DOUBLE, …
    nullable: bool = True
    primary_key: bool = False


class Declared(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream declared as a table: how its events are read as rows, and since which global position."""

    columns: tuple[Column, ...]
    position: int = 0
    owned: bool = False  # CREATE TABLE created the stream, or found it as DROP TABLE had left it
    starts: tuple[int, ...] = ()  # the table's first offset in each partition; 0 where missing


class QueryRun(Protocol):
    """A statement in progress. Used on the broker's thread."""

    def start(self, done: Callable[[], None]) -> None:
        """Begin; `done` is called once, on the broker's thread, when the result is available from `finish`."""

    def finish(self) -> Rows:
        """The result. Raises an error of the broker or of the log."""

    def cancel(self) -> None:
        """Stop as soon as possible. `done` need not be called any more."""
