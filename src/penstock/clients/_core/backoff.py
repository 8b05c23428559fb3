"""Backoff: the pauses of one operation that is retried until it succeeds or the retry policy gives up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from penstock.retry import RetryPolicy

AsyncSleep: TypeAlias = Callable[[float], Awaitable[None]]


class AsyncBackoff:
    __slots__ = ("_policy", "_sleep", "failures")

    def __init__(self, policy: RetryPolicy, sleep: AsyncSleep) -> None:
        self._policy = policy
        self._sleep = sleep
        self.failures = 0

    async def retry(self) -> bool:
        """Count a failed attempt, and pause before the next one. False if there are no attempts left."""
        self.failures += 1
        if self.failures >= self._policy.attempts:
            return False
        await self._sleep(self._policy.delay(self.failures - 1))
        return True
