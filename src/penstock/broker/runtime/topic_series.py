"""Topic series: which topics have a time series of their own. The busiest do; all others are counted as one, so that
ten thousand topics do not make ten thousand series.

The sum of the others only rises, as a counter must: what a topic gets counts there from the moment that it has no
series, and no longer from the moment that it has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Final

from penstock.broker.runtime.metrics import TopicEnd

OTHER: Final = "other"


class TopicSeries:
    """Of at most `limit` topics: those that got most since the first scrape, then those that have most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._first: dict[int, int] = {}  # topic id → its records when it was first seen
        self._last: dict[int, int] = {}  # topic id → its records at the last scrape
        self._other = 0

    def collect(self, topics: Iterable[TopicEnd]) -> Iterator[tuple[tuple[str, str, str], int]]:
        """(tenant, namespace, topic) and records; the last is that of all others, in no tenant."""
        found = list(topics)
        first = self._first = {topic.id: self._first.get(topic.id, topic.records) for topic in found}
        shown = nlargest(self._limit, found, key=lambda topic: (topic.records - first[topic.id], topic.records))
        ids = {topic.id for topic in shown}
        last = self._last
        self._other += sum(max(0, topic.records - last.get(topic.id, 0)) for topic in found if topic.id not in ids)
        self._last = {topic.id: topic.records for topic in found}
        for topic in shown:
            yield (*topic.scope, topic.topic), topic.records
        yield ("", "", OTHER), self._other
