"""FlyMQ at either end of a mirror: keys and values in partitions. With our own broker (`penstock://`) also headers,
timestamps and idempotent batches, by extensions of the protocol."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from penstock.clients import flymq
from penstock.clients._core.errors import PenstockError
from penstock.clients.flymq import requests
from penstock.mirror.ends import MAX_RECORDS, Destination, MirrorBatch, Part, Source
from penstock.mirror.errors import MirrorError
from penstock.mirror.login import credentials, tls
from penstock.mirror.records import Chunk, MirrorRecord
from penstock.mirror.url import Location

PAUSE: Final = 0.1  # seconds between polls
IN_FLIGHT: Final = 64


def _client(location: Location) -> flymq.Client:
    user, password = credentials(location).login
    host, port = location.address
    return flymq.Client(host, port, username=user, password=password, tls=tls(location))


def _key(key: bytes | None) -> bytes | None:
    return key or None  # an empty key is no key


class _FlyMq:
    """The client that both ends share."""

    def __init__(self, location: Location) -> None:
        self._client = _client(location)

    def _partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        """The bounds of each partition."""
        found = self._client.metadata(topic)
        return {each.partition: (each.oldest_offset, each.newest_offset) for each in found.partitions}

    def close(self) -> None:
        self._client.close()


class FlyMqSource(_FlyMq, Source):
    carries = frozenset[Part]({"keys", "partitions"})

    def topics(self) -> list[str]:
        return self._client.list_topics()

    def partitions(self, topic: str) -> int:
        try:
            return len(self._partitions(topic))
        except flymq.NotFound as error:
            raise MirrorError(f"there is no topic {topic!r} to be mirrored") from error

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return self._partitions(topic)[partition]

    def offset_at(self, topic: str, partition: int, moment: int) -> int:
        return self._client.seek_to_timestamp(topic, partition, moment // 1000)

    def read(self, topic: str, partition: int, offset: int, limit: int, wait: float) -> Chunk:
        until = time.monotonic() + wait
        while True:
            found = self._client.fetch(topic, partition, offset, limit)
            records = [MirrorRecord(each.offset, each.value, _key(each.key)) for each in found.records]
            if records or time.monotonic() >= until:
                return Chunk(records, max(found.next_offset, offset))
            time.sleep(PAUSE)


class PenstockSource(FlyMqSource):
    carries = frozenset[Part]({"keys", "headers", "partitions", "times"})

    def read(self, topic: str, partition: int, offset: int, limit: int, wait: float) -> Chunk:
        found = self._client.fetch_records(topic, partition, offset, limit, round(min(wait, 5.0) * 1000))
        records = [
            MirrorRecord(each.offset, each.value, each.key, each.headers, each.timestamp_us) for each in found.records
        ]
        return Chunk(records, max(found.next_offset, offset))


class FlyMqDestination(_FlyMq, Destination):
    carries = frozenset[Part]({"keys", "partitions"})

    def create(self, topic: str, partitions: int) -> int:
        self._client.create_topic(topic, partitions)  # an existing one is not changed
        return len(self._partitions(topic))

    def write(self, batch: MirrorBatch) -> None:
        """Pipelines single records, as the original has no batches. If one fails, later ones may be stored."""
        specs = [requests.produce(batch.topic, record.value, record.key, batch.partition) for record in batch.records]
        for at in range(0, len(specs), IN_FLIGHT):
            _raise_first(self._client.pipeline(specs[at : at + IN_FLIGHT]))

    def end(self, topic: str, partition: int) -> int:
        return self._partitions(topic)[partition][1]

    def tail(self, topic: str, partition: int, offset: int) -> list[tuple[bytes | None, bytes]]:
        found: list[tuple[bytes | None, bytes]] = []
        end = self.end(topic, partition)
        while offset < end:
            fetched = self._client.fetch(topic, partition, offset, MAX_RECORDS)
            if not fetched.records:
                break
            found += [(_key(each.key), each.value) for each in fetched.records]
            offset = fetched.next_offset
        return found


class PenstockDestination(FlyMqDestination):
    carries = frozenset[Part]({"keys", "headers", "partitions"})
    numbered = True

    def write(self, batch: MirrorBatch) -> None:
        records = batch.records
        self._client.call(
            requests.produce_records(
                batch.topic,
                [record.value for record in records],
                [record.key for record in records],
                batch.partition,
                [record.headers for record in records],
                producer=batch.producer,
                epoch=batch.epoch,
                sequence=batch.number,
            )
        )


def _raise_first(outcomes: Sequence[Any]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, PenstockError):
            raise outcome
