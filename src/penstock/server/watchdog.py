"""The watchdog: measures how long the event loop stalls, and reports the cause.

Ten times a second it measures its own lateness: that is how long any client would have waited, whatever the reason.
`broker.turns` reports work for a single connection that takes too long, and names the connection. Both are metrics in
`/metrics`; log lines are rate-limited.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.runtime.turns import TurnOwner

logger = logging.getLogger(__name__)

INTERVAL: Final = 0.1  # seconds between checks
QUIET_SECONDS: Final = 10.0  # between log lines


class Watchdog:
    """The watchdog of one event loop. Stalls longer than `seconds` are logged; 0: none."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker, seconds: float) -> None:
        self._loop = loop
        self._metrics = broker.metrics
        self._seconds = seconds
        self._explained = False  # a connection's work was reported since the last check
        self._logged = float("-inf")  # time of the last log line
        self._unlogged = 0  # stalls since then
        if seconds:
            broker.turns.report_slow(int(seconds * 1e9), self._on_slow_turn)
        self._due = time.monotonic() + INTERVAL
        self._timer = loop.call_later(INTERVAL, self._look)

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now = time.monotonic()
        late = max(0.0, now - self._due)
        self._metrics.loop_stalls.add(int(late * 1e9))
        explained, self._explained = self._explained, False
        if self._seconds and late >= self._seconds and not explained:
            self._log(now, late, "by no client's request", {})
        self._due = now + INTERVAL
        self._timer = self._loop.call_later(INTERVAL, self._look)

    def _on_slow_turn(self, nanoseconds: int, owner: TurnOwner) -> None:
        self._explained = True
        self._metrics.slow_turns += 1
        keys = owner.describe_work()
        what = f"by {keys.get('door') or 'a connection'} {keys.get('request', '')} of {keys.get('peer', '?')}"
        self._log(time.monotonic(), nanoseconds / 1e9, " ".join(what.split()), keys)

    def _log(self, now: float, seconds: float, what: str, keys: dict[str, str]) -> None:
        if now - self._logged < QUIET_SECONDS:
            self._unlogged += 1
            return
        more = f"; {self._unlogged} more since the last such line" if self._unlogged else ""
        logger.warning("the event loop was held up for %.3f s %s%s", seconds, what, more, extra=keys)
        self._logged, self._unlogged = now, 0
