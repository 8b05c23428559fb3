"""Clocks as plain callables, so that time is always passed in; and the clock that retention goes by."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
"""Returns µs: since 1970 for a wall clock, since any moment for a monotonic one."""


def wall_clock() -> int:
    return time.time_ns() // 1000


def monotonic_clock() -> int:
    return time.monotonic_ns() // 1000


class RetentionClock:
    """The wall clock, but never further from its first reading than the monotonic clock has run.

    A wall clock that jumps forward while the broker runs would make every record look old at once; this one does not
    follow. It does follow backward, where records only look younger."""

    __slots__ = ("_ahead",)

    def __init__(self, wall: int, monotonic: int) -> None:
        self._ahead = wall - monotonic

    def read(self, wall: int, monotonic: int) -> int:
        return min(wall, monotonic + self._ahead)
