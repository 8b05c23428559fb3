"""A `Log` in memory, for what the source decides without a broker or Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from penstock.flight.errors import LogUnavailable, OffsetsLost, TopicMissing
from penstock.flight.log import Published, SchemaText, Staged, TableInfo, TopicPartition
from penstock.log.arrow import schema_of
from penstock.log.engine import Bounds

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FakeLog:
    """Each record is its value; its timestamp is 1000 µs times its offset, and it has a byte for each byte of it."""

    def __init__(self, **topics: int) -> None:
        self.records: dict[TopicPartition, list[bytes]] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.outages = 0  # so many calls fail
        self.calls: list[str] = []
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.batch_rows = 3
        self.stale = False
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    def create(self, topic: str, partitions: int) -> None:
        for number in range(partitions):
            place = TopicPartition(topic, number)
            self.records.setdefault(place, [])
            self.starts.setdefault(place, 0)

    def delete(self, topic: str) -> None:
        for place in [place for place in self.records if place.topic == topic]:
            del self.records[place], self.starts[place]

    def add(self, topic: str, partition: int, count: int) -> None:
        records = self.records[TopicPartition(topic, partition)]
        records += [f"{topic}-{partition}-{len(records) + index}".encode() for index in range(count)]

    def trim(self, topic: str, partition: int, start: int) -> None:
        self.starts[TopicPartition(topic, partition)] = start

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.outages:
            self.outages -= 1
            raise LogUnavailable("no broker answers")

    def topics(self) -> dict[str, int]:
        self._called("topics")
        found: dict[str, int] = {}
        for place in self.records:
            found[place.topic] = found.get(place.topic, 0) + 1
        return found

    def bounds(self, topics: Collection[str]) -> dict[TopicPartition, Bounds]:
        self._called("bounds")
        return {
            place: Bounds(self.starts[place], len(records))
            for place, records in self.records.items()
            if place.topic in topics
        }

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        self._called("offsets-at")
        found: dict[TopicPartition, int | None] = {}
        for place, time in times.items():
            offset = max(-(-time // 1000), self.starts[place])
            found[place] = offset if offset < len(self.records[place]) else None
        return found

    def fitting(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], max_bytes: int
    ) -> dict[TopicPartition, int]:
        """Ten bytes a record, and the same number of each partition."""
        self._called("fitting")
        each = max(1, max_bytes // 10 // len(starts))
        return {place: min(ends[place], start + each) for place, start in starts.items()}

    def read(self, place: TopicPartition, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self._called("read")
        if place not in self.records:
            raise TopicMissing(f"no topic {place.topic}")
        if start < self.starts[place]:
            raise OffsetsLost(f"{place.topic}-{place.partition} begins at {self.starts[place]}", self.starts[place])
        for at in range(start, end, self.batch_rows):
            self._called("batch")
            yield self._batch(place, at, min(end, at + self.batch_rows), columns)

    def _batch(self, place: TopicPartition, start: int, end: int, columns: Sequence[str]) -> pa.RecordBatch:
        rows = range(start, end)
        found: dict[str, list[Any]] = {
            "key": [None for _ in rows],
            "value": self.records[place][start:end],
            "topic": [place.topic for _ in rows],
            "partition": [place.partition for _ in rows],
            "offset": list(rows),
            "timestamp": [EPOCH + timedelta(milliseconds=offset) for offset in rows],
            "headers": [[{"key": "n", "value": b"%d" % offset}] if offset % 2 else None for offset in rows],
            "door": ["flymq" if offset % 2 else None for offset in rows],
        }
        schema = schema_of(columns)
        return pa.RecordBatch.from_arrays([pa.array(found[field.name], field.type) for field in schema], schema=schema)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._called("commit-offsets")
        self.groups[group] = dict(offsets)

    def schema(self, subject: str, version: int | None = None, *, with_id: bool = False) -> SchemaText:
        raise NotImplementedError

    def table(self, *_: object) -> TableInfo | None:
        return None

    def stage(self, *_: object) -> Staged:
        raise NotImplementedError

    def publish(self, *_: object) -> Published:
        raise NotImplementedError

    def discard(self, *_: object) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass
