"""Damage to a table, as a value. Lightweight: the broker uses it without importing the table libraries."""

from __future__ import annotations

import msgspec


class Damage(msgspec.Struct, frozen=True):
    """A damaged file. One of the table's log, or one that belongs to no version, has no offsets."""

    file: str  # relative to the table
    reason: str
    partition: int | None = None
    first: int = 0
    end: int = 0

    def __str__(self) -> str:
        if self.partition is None:
            return f"{self.file}: {self.reason}"
        return f"partition {self.partition}, offsets {self.first} to {self.end - 1}, {self.file}: {self.reason}"
