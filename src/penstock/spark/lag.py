"""Lag of a streaming query, computed from its progress, with the names of Spark's Kafka source. Spark does not collect
metrics from sources in Python, and identifies them by a hash, so the lag is computed from the offsets in the
progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.flight.log import TopicPartition
from penstock.spark.offsets import START, decode

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )


class SourceLag(NamedTuple):
    """One Penstock source of a query, after a batch."""

    description: str  # of the topics that it reads
    offsets_behind: dict[TopicPartition, int]

    def metrics(self) -> dict[str, str]:
        """The metrics in the format of the Kafka source's progress."""
        behind = self.offsets_behind.values()
        average = sum(behind) / len(behind) if behind else 0.0
        return {
            "minOffsetsBehindLatest": str(min(behind, default=0)),
            "maxOffsetsBehindLatest": str(max(behind, default=0)),
            "avgOffsetsBehindLatest": str(average),
        }


def source_lags(progress: StreamingQueryProgress | Mapping[str, Any] | None) -> list[SourceLag]:
    """The lag of each Penstock source in a progress (`query.lastProgress`); empty before the first batch."""
    if progress is None:
        return []
    document = json.loads(progress.json) if hasattr(progress, "json") else progress
    lags = []
    for source in document["sources"]:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        behind = {place: max(0, offset - end.get(place, 0)) for place, offset in sorted(latest.items())}
        topics = ", ".join(sorted({place.topic for place in behind}))
        lags.append(SourceLag(f"penstock[{topics}]", behind))
    return lags


def _offsets(found: Any) -> dict[TopicPartition, int] | None:
    """Offsets of a Penstock source; None for another source."""
    try:
        document = json.loads(found) if isinstance(found, str) else found
        return None if not isinstance(document, dict) or START in document else decode(document)
    except (ValueError, AttributeError, TypeError):
        return None


class LagListener(StreamingQueryListener):
    """Reports the lag of every query after each batch: `spark.streams.addListener(LagListener(tell))`, where `tell`
    gets the name of the query and its sources' lags."""

    def __init__(self, tell: Callable[[str, list[SourceLag]], None]) -> None:
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        lags = source_lags(event.progress)
        if lags:
            self._tell(str(event.progress.name or event.progress.id), lags)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass
