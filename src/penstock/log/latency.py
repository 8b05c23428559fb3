"""Latencies of hot paths, as a histogram and as the most recent samples. Shared by the log and the broker."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import Final

LATENCY_SAMPLES: Final = 1024
FIRST_BUCKET: Final = 12  # of a histogram, as a power of two in ns: 4 µs,
LAST_BUCKET: Final = 34  # to 17 s


class Latency:
    """Durations in ns: all of them in a histogram with buckets at powers of two, and the most recent ones for exact
    percentiles."""

    __slots__ = ("_buckets", "_folded", "_next", "_samples", "_sum", "count")

    def __init__(self) -> None:
        self._samples = array("q", bytes(8 * LATENCY_SAMPLES))  # a ring buffer of the most recent ones
        self._next = 0  # index of the next one
        self._folded = 0  # samples from here to `_next` are not in the buckets yet
        self.count = 0  # of samples in the buckets
        self._sum = 0
        self._buckets = [0] * 65  # number of samples above 2 ** (index - 1) and up to 2 ** index ns

    def add(self, nanoseconds: int) -> None:
        self._samples[self._next] = nanoseconds
        self._next += 1
        if self._next == LATENCY_SAMPLES:
            self._fold()
            self._next = self._folded = 0

    def add_all(self, durations: list[int]) -> None:
        end = self._next + len(durations)
        if end < LATENCY_SAMPLES:
            self._samples[self._next : end] = array("q", durations)
            self._next = end
        else:
            for nanoseconds in durations:
                self.add(nanoseconds)

    def _fold(self) -> None:
        """Add new samples to the buckets, in bulk."""
        buckets, samples = self._buckets, sorted(self._samples[self._folded : self._next])
        counted = 0
        while counted < len(samples):
            index = (samples[counted] - 1).bit_length()
            end = bisect_right(samples, 1 << index, counted)
            buckets[index] += end - counted
            counted = end
        self.count += len(samples)
        self._sum += sum(samples)
        self._folded = self._next

    def last(self) -> list[int]:
        """The most recent samples, at most `LATENCY_SAMPLES`, in no order."""
        wrapped = self.count >= LATENCY_SAMPLES
        return list(self._samples if wrapped else self._samples[: self._next])

    def histogram(self) -> tuple[list[tuple[str, float]], float]:
        """(upper bound in seconds, cumulative count) for each relevant bucket, and the sum in seconds."""
        self._fold()
        totals = list(accumulate(self._buckets))
        buckets = [(str(2**index / 1e9), float(totals[index])) for index in range(FIRST_BUCKET, LAST_BUCKET + 1)]
        return [*buckets, ("+Inf", float(self.count))], self._sum / 1e9


def quantiles(samples: list[int], fractions: list[float]) -> list[int]:
    """Exact quantiles of these samples; zeros if there are none."""
    ordered = sorted(samples)
    if not ordered:
        return [0] * len(fractions)
    return [ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] for fraction in fractions]
