"""Results of the methods of both clients. List items are messages of the protocol: see `messages`."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from penstock.wire.kimberlite.messages import (
    ApiKeyInfo,
    ColumnInfo,
    IndexInfo,
    ServerInfoResponse,
    TableSummary,
    TenantInfo,
)
from penstock.wire.kimberlite.values import Timestamp, Value

__all__ = [
    "ApiKeyInfo",
    "Appended",
    "ColumnInfo",
    "Event",
    "Executed",
    "IndexInfo",
    "Page",
    "Rows",
    "ServerInfoResponse",
    "TableSummary",
    "TenantInfo",
    "Timestamp",
    "Value",
]


class Rows(NamedTuple):
    """The result of a statement."""

    columns: list[str]
    rows: list[list[Value]]


class Appended(msgspec.Struct, frozen=True):
    """The offsets of the events of an append."""

    first_offset: int
    count: int

    @property
    def next_offset(self) -> int:
        """The offset after them, which the next append may expect."""
        return self.first_offset + self.count


class Page(NamedTuple):
    """Events in the order of their offsets, and the next offset to read; None at the end of the stream."""

    events: list[bytes]
    next_offset: int | None


class Executed(NamedTuple):
    """The number of rows that a statement changed, and the position from which on `query_at` sees the change."""

    rows_affected: int
    log_offset: int


class Event(NamedTuple):
    """An event of a subscription."""

    offset: int
    data: bytes
