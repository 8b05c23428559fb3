"""Waiting for a broker that does not respond: it may be restarting, and queries should survive that."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from penstock.flight.errors import LogUnavailable
from penstock.retry import RetryPolicy, no_jitter

logger = logging.getLogger(__name__)

T = TypeVar("T")

POLICY: Final = RetryPolicy(base=0.05, cap=2.0, random=no_jitter)  # of attempts beyond the minimum


class OutageBudget:
    """An outage budget: the maximum duration of an outage, in ms, and a minimum number of retries, `interval` ms apart.
    It starts over after every success."""

    def __init__(
        self,
        timeout: int,
        at_least: int = 3,
        interval: int = 10,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout = timeout / 1000
        self._at_least = at_least
        self._interval = interval / 1000
        self._clock = clock
        self._sleep = sleep
        self.succeeded()

    def succeeded(self) -> None:
        self._since: float | None = None
        self._tried = 0

    def wait_or_raise(self, error: LogUnavailable) -> None:
        """Wait before the next attempt, or raise the error if the budget is used up."""
        now = self._clock()
        if self._since is None:
            self._since = now
            logger.warning("The log does not answer; trying again for up to %.0f s: %s", self._timeout, error)
        self._tried += 1
        if self._tried <= self._at_least:
            self._sleep(self._interval)
            return
        delay = POLICY.delay(self._tried - self._at_least - 1)
        if now - self._since + delay > self._timeout:
            raise error
        self._sleep(delay)

    def call(self, work: Callable[[], T]) -> T:
        while True:
            try:
                result = work()
            except LogUnavailable as error:
                self.wait_or_raise(error)
            else:
                self.succeeded()
                return result
