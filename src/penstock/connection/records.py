"""Records, as they are given and as they are returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

Text: TypeAlias = bytes | str
"""Bytes, or a text that becomes bytes in UTF-8."""

Headers: TypeAlias = Mapping[str, bytes] | Mapping[str, str] | Mapping[str, Text] | Iterable[tuple[str, Text]]


class Record(NamedTuple):
    """A record that was consumed. `headers` are pairs, since a name may come more than once."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    timestamp: int  # when it was stored: µs since 1970
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp / 1e6, UTC)

    @property
    def text(self) -> str:
        """The value as text in UTF-8."""
        return self.value.decode()

    def header(self, name: str, default: bytes | None = None) -> bytes | None:
        """The first header of this name."""
        return next((value for each, value in self.headers if each == name), default)


class Stored(NamedTuple):
    """The place of a record that was produced. At offset -1 it did not fit its topic's schema, and is among the topic's
    dead letters."""

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
    """Whole milliseconds, one at least."""
    if seconds <= 0:
        raise ValueError(f"{what} must be above 0 seconds")
    return max(1, round(seconds * 1000))
