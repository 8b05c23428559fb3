"""Waiting for a broker that does not answer: it may be starting again, and a query should outlive that."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from penstock.flight.errors import LogUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

SECOND_PAUSE: Final = 0.05  # seconds, of the first try that is not due anyway; they grow from there
LONGEST_PAUSE: Final = 2.0


class Patience:
    """An outage budget: how long an outage may last, in ms, and how often is tried again at least, so many ms apart.
    It begins anew whenever something succeeded."""

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
        self._pause = SECOND_PAUSE

    def bear(self, error: LogUnavailable) -> None:
        """Wait a while before the next try, or raise the error if it has been long enough."""
        now = self._clock()
        if self._since is None:
            self._since = now
            logger.warning("The log does not answer; trying again for up to %.0f s: %s", self._timeout, error)
        self._tried += 1
        if self._tried <= self._at_least:
            self._sleep(self._interval)
            return
        if now - self._since + self._pause > self._timeout:
            raise error
        self._sleep(self._pause)
        self._pause = min(LONGEST_PAUSE, self._pause * 2)

    def call(self, work: Callable[[], T]) -> T:
        while True:
            try:
                result = work()
            except LogUnavailable as error:
                self.bear(error)
            else:
                self.succeeded()
                return result
