"""RustLog at either end of a mirror: values in partitions; in the JSON dialect also timestamps."""

from __future__ import annotations

import time
from typing import Final

from penstock.clients import rustlog
from penstock.mirror.ends import MAX_BYTES, Destination, MirrorBatch, Part, Source
from penstock.mirror.errors import MirrorError
from penstock.mirror.login import tls
from penstock.mirror.records import Chunk, MirrorRecord
from penstock.mirror.url import Location

EXISTS: Final = "exist"
PAUSE: Final = 0.1  # seconds between polls


def _client(location: Location) -> rustlog.Client:
    dialect = location.options.get("dialect", "json")
    if dialect not in ("json", "binary"):
        raise MirrorError(f"{location.name}: dialect is json or binary")
    host, port = location.address
    return rustlog.Client(host, port, dialect=dialect, tls=tls(location), busy_poll=0)


class RustLogSource(Source):
    carries = frozenset[Part]({"partitions", "times"})

    def __init__(self, location: Location) -> None:
        self._client = _client(location)

    def topics(self) -> list[str]:
        return [topic.name for topic in self._client.list_topics()]

    def partitions(self, topic: str) -> int:
        for found in self._client.list_topics():
            if found.name == topic:
                return found.partition_count
        raise MirrorError(f"there is no topic {topic!r} to be mirrored")

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        found = self._client.describe_partition(topic, partition)
        return found.log_start_offset or 0, found.high_watermark

    def read(self, topic: str, partition: int, offset: int, limit: int, wait: float) -> Chunk:
        until = time.monotonic() + wait
        while True:
            found = self._client.fetch(topic, partition, offset, MAX_BYTES)
            records = [MirrorRecord(each.offset, each.payload, timestamp=each.timestamp) for each in found.records]
            if len(records) > limit:
                return Chunk(records[:limit], records[limit].offset)
            if records or time.monotonic() >= until:
                return Chunk(records, max(found.next_offset, offset) if records else offset)
            time.sleep(PAUSE)

    def close(self) -> None:
        self._client.close()


class RustLogDestination(Destination):
    carries = frozenset[Part]({"partitions"})

    def __init__(self, location: Location) -> None:
        self._client = _client(location)

    def create(self, topic: str, partitions: int) -> int:
        for found in self._client.list_topics():
            if found.name == topic:
                return found.partition_count
        try:
            self._client.create_topic(topic, partitions)
        except rustlog.ReplyError as error:
            if EXISTS not in str(error):
                raise
        return partitions

    def write(self, batch: MirrorBatch) -> None:
        self._client.produce(batch.topic, batch.partition, [record.value for record in batch.records])

    def end(self, topic: str, partition: int) -> int:
        return self._client.describe_partition(topic, partition).high_watermark

    def tail(self, topic: str, partition: int, offset: int) -> list[tuple[bytes | None, bytes]]:
        found: list[tuple[bytes | None, bytes]] = []
        end = self.end(topic, partition)
        while offset < end:
            fetched = self._client.fetch(topic, partition, offset, MAX_BYTES)
            if not fetched.records:
                break
            found += [(None, each.payload) for each in fetched.records]
            offset = fetched.records[-1].offset + 1
        return found

    def close(self) -> None:
        self._client.close()
