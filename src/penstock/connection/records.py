"""Records as callers pass them and as they are returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

Text: TypeAlias = bytes | str
"""Bytes, or text, which is encoded as UTF-8."""

Headers: TypeAlias = Mapping[str, bytes] | Mapping[str, str] | Mapping[str, Text] | Iterable[tuple[str, Text]]


class Record(NamedTuple):
    """A consumed record. `headers` are pairs, since a name may occur more than once."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    timestamp: int  # time of storing: µs since 1970
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp / 1e6, UTC)

    @property
    def text(self) -> str:
        """The value as text in UTF-8."""
        return self.value.decode()

    def header(self, name: str, default: bytes | None = None) -> bytes | None:
        """The first header of this name, or `default`."""
        return next((value for each, value in self.headers if each == name), default)


class Stored(NamedTuple):
    """The metadata of a produced record. An offset of -1 means that it did not match its topic's schema and became a
    dead letter."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # ms since 1970


def to_bytes(value: Text) -> bytes:
    return value.encode() if isinstance(value, str) else value


def optional_bytes(key: Text | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key


def header_pairs(headers: Headers | None) -> tuple[tuple[str, bytes], ...]:
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple([(name, to_bytes(value)) for name, value in pairs])


def milliseconds(seconds: float, what: str) -> int:
    """Whole milliseconds, at least 1. Raises ValueError unless positive."""
    if seconds <= 0:
        raise ValueError(f"{what} must be above 0 seconds")
    return max(1, round(seconds * 1000))
