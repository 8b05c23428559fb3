"""Damage to a table, as a value. Light: the broker uses it without loading anything that reads tables."""

from __future__ import annotations

import msgspec


class Damage(msgspec.Struct, frozen=True):
    """Something that is not as it was written. What is in the table's log, or belongs to no version any more, has no
    offsets."""

    file: str  # relative to the table
    reason: str
    partition: int | None = None
    first: int = 0
    end: int = 0

    def __str__(self) -> str:
        if self.partition is None:
            return f"{self.file}: {self.reason}"
        return f"partition {self.partition}, offsets {self.first} to {self.end - 1}, {self.file}: {self.reason}"
