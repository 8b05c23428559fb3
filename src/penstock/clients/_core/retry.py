"""How often a client tries again, and how long it waits in between. Nothing here sleeps or connects."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, and how long to wait in between: exponential, with full jitter."""

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
