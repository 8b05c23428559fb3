"""Rates of counters, sampled only on request: a closed console costs nothing."""

from __future__ import annotations

from typing import Final

MAX_SAMPLES: Final = 10_000
SHORTEST: Final = 1_000_000  # µs between two samples of one number


class RateSampler:
    """Keeps, for each counter, two samples that are at least a second apart."""

    def __init__(self) -> None:
        self._samples: dict[int, tuple[int, int, float | None]] = {}  # by id: time, count, last rate

    def rate(self, id: int, count: int, now: int) -> float | None:  # noqa: A002 - of the counter
        """The growth per second since the last sample; None for the first. `now` is in µs."""
        known = self._samples.get(id)
        if known is None:
            if len(self._samples) >= MAX_SAMPLES:
                self._samples.clear()
            self._samples[id] = (now, count, None)
            return None
        at, before, rate = known
        if now - at < SHORTEST:
            return rate
        rate = max(0, count - before) * 1e6 / (now - at)
        self._samples[id] = (now, count, rate)
        return rate
