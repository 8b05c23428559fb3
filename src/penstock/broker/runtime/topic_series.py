"""Topic series: decides which topics get their own time series. The busiest do; all others are summed up in one, so
that ten thousand topics do not make ten thousand series.

The sum of the others must only rise, as a counter must: a topic adds to it only what is appended while it has no series
of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Final

from penstock.broker.runtime.metrics import TopicEnd

OTHER: Final = "other"


class TopicSeries:
    """Series for at most `limit` topics: those with the most records since the first scrape, then those with the most
    records.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._first: dict[int, int] = {}  # topic id → its records when it was first seen
        self._last: dict[int, int] = {}  # topic id → its records at the last scrape
        self._other = 0

    def collect(self, topics: Iterable[TopicEnd]) -> Iterator[tuple[tuple[str, str, str], int]]:
        """(tenant, namespace, topic) and record count; the last item is the sum of all others, without a tenant."""
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
