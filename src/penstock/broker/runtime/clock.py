"""Clocks as plain callables, so that time is always passed in; and the clock used for retention."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
"""Returns µs: since 1970 for a wall clock, since an arbitrary time for a monotonic one."""


def wall_clock() -> int:
    return time.time_ns() // 1000


def monotonic_clock() -> int:
    return time.monotonic_ns() // 1000


class RetentionClock:
    """The wall clock, but never further ahead of its first reading than the monotonic clock has advanced.

    If the wall clock jumped forward while the broker runs, every record would suddenly look old; this clock does not
    follow such a jump. It does follow jumps backward, which only make records look younger.
    """

    __slots__ = ("_ahead",)

    def __init__(self, wall: int, monotonic: int) -> None:
        self._ahead = wall - monotonic

    def read(self, wall: int, monotonic: int) -> int:
        return min(wall, monotonic + self._ahead)
