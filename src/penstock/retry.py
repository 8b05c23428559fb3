"""Delays between attempts: one policy for everything that is tried again. Nothing here sleeps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


def no_jitter() -> float:
    """For `RetryPolicy.random`: every delay in full. Where only one is waiting, there is nobody to keep apart."""
    return 1.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retry policy: how often to try, and the wait in between: exponential, with full jitter."""

    attempts: int = 5
    base: float = 0.05  # seconds; the longest wait before the second attempt
    cap: float = 2.0  # seconds; the longest wait of all
    random: Callable[[], float] = random.random  # from 0 to 1

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.base < 0 or self.cap < 0:
            raise ValueError("attempts must be at least 1, base and cap not negative")

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the failed attempt of this number, the first being 0."""
        # 2.0**1000 is still a float, and the cap has long been reached.
        return self.random() * min(self.cap, self.base * 2.0 ** min(attempt, 1000))


class RestartBackoff:
    """Delays before something that should keep running is started again; its attempts are not limited. What ran for
    `healthy_seconds` begins with the first delay again."""

    def __init__(self, first: float, longest: float, healthy_seconds: float) -> None:
        self._policy = RetryPolicy(base=first, cap=longest, random=no_jitter)
        self._healthy_seconds = healthy_seconds
        self._restarts = 0

    def delay(self, ran: float) -> float:
        """Seconds to wait, after it ran for this long."""
        if ran >= self._healthy_seconds:
            self._restarts = 0
        seconds = self._policy.delay(self._restarts)
        self._restarts += 1
        return seconds
