"""SQL values on the wire: parameters of statements, and cells of their results."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Timestamp(NamedTuple):
    """A timestamp as an SQL value. Other numbers are plain `int`."""

    nanoseconds: int  # since 1970


Value: TypeAlias = int | str | bool | Timestamp | None
"""A parameter of a statement, or a cell of its result."""
