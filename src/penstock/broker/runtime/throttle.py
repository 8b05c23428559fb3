"""Throttle: decides which notices to write when others control how many there are.

Pure: it gets notices and the time, and returns decisions. Identical notices within a window are written once and then
counted. Different notices are limited to a rate (`RateLimit`); the excess is only counted.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

SECOND: Final = 1_000_000  # µs
WINDOW: Final = 60 * SECOND
MAX_WINDOWS: Final = 10_000  # different notices tracked at once
MAX_FAMILIES: Final = 1_000

Notice = TypeVar("Notice")
Family = TypeVar("Family", bound=Hashable)


class Decision(enum.Enum):
    """The decision about a notice."""

    WRITTEN = enum.auto()
    COUNTED = enum.auto()  # a repetition of one that was written
    LEFT_OUT = enum.auto()


class RateLimit(NamedTuple):
    """A rate limit: a burst, then one more per interval."""

    burst: int
    interval: int  # µs


class Repeated(NamedTuple, Generic[Notice]):
    """A notice that was written, and how often it was repeated."""

    notice: Notice
    times: int
    last: int  # time of the last repetition, µs


class _Window(Generic[Notice]):
    __slots__ = ("began", "count", "last", "notice")

    def __init__(self, notice: Notice, now: int) -> None:
        self.notice = notice
        self.began = self.last = now
        self.count = 0


class _Bucket:
    """A leaky bucket: `used` grows by one with every notice and drains over time."""

    __slots__ = ("at", "used")

    def __init__(self, now: int) -> None:
        self.at = now
        self.used = 0.0

    def settle(self, limit: RateLimit, now: int) -> None:
        self.used = max(0.0, self.used - max(0, now - self.at) / limit.interval)
        self.at = now


class Throttle(Generic[Family, Notice]):
    """Limits notices per family: families do not affect each other."""

    def __init__(self) -> None:
        self.left_out: dict[Family, int] = {}  # notices left out and not reported since
        self._windows: dict[tuple[Family, Hashable], _Window[Notice]] = {}  # in order of `began`
        self._buckets: dict[Family, _Bucket] = {}

    def admit(self, family: Family, likeness: Hashable, limit: RateLimit, notice: Notice, now: int) -> Decision:
        """Decide about a notice. Notices of a family with the same `likeness` count as repetitions."""
        window = self._windows.get((family, likeness))
        if window is not None:
            window.count += 1
            window.last = now
            return Decision.COUNTED
        if len(self._windows) >= MAX_WINDOWS or not self._has_room(family, limit, now):
            self.leave_out(family)
            return Decision.LEFT_OUT
        self._windows[family, likeness] = _Window(notice, now)
        return Decision.WRITTEN

    def leave_out(self, family: Family) -> None:
        if family in self.left_out or len(self.left_out) < MAX_FAMILIES:
            self.left_out[family] = self.left_out.get(family, 0) + 1

    def ended(self, now: int | None) -> list[Repeated[Notice]]:
        """Close the windows that have ended (all, if `now` is None) and return their notices that were repeated. The
        next identical notice opens a new window.
        """
        over: list[tuple[Family, Hashable]] = []
        for key, window in self._windows.items():
            if now is not None and window.began <= now < window.began + WINDOW:
                break  # later windows began later
            over.append(key)
        windows = [self._windows.pop(key) for key in over]
        return [Repeated(window.notice, window.count, window.last) for window in windows if window.count]

    def _has_room(self, family: Family, limit: RateLimit, now: int) -> bool:
        bucket = self._buckets.get(family)
        if bucket is None:
            self._forget_idle(now)
            if len(self._buckets) >= MAX_FAMILIES:
                return False
            bucket = self._buckets[family] = _Bucket(now)
        bucket.settle(limit, now)
        if bucket.used > limit.burst - 1:
            return False
        bucket.used += 1
        return True

    def _forget_idle(self, now: int) -> None:
        """Forget families that were idle for an hour: their buckets are empty again."""
        if len(self._buckets) >= MAX_FAMILIES:
            old = [family for family, bucket in self._buckets.items() if not 0 <= now - bucket.at < 3600 * SECOND]
            for family in old:
                del self._buckets[family]
