"""Kimberlite at either end of a mirror: streams of values. A source stream is given by its number, because the protocol
cannot look up names; a destination stream by its name, and is created if missing."""

from __future__ import annotations

import time
from typing import Final

from penstock.clients import kimberlite
from penstock.mirror.ends import MAX_BYTES, MAX_RECORDS, Destination, MirrorBatch, Part, Source
from penstock.mirror.errors import MirrorError
from penstock.mirror.login import credentials, tls
from penstock.mirror.records import Chunk, MirrorRecord
from penstock.mirror.url import Location

PAUSE: Final = 0.1  # seconds between polls


def _client(location: Location) -> kimberlite.KimberliteClient:
    tenant = location.options.get("tenant", "1")
    if not tenant.isdecimal():
        raise MirrorError(f"{location.name}: tenant is a number")
    login = credentials(location)
    token = None if login.user is None and login.secret is None else login.key
    return kimberlite.KimberliteClient(str(location.address), tenant=int(tenant), token=token, tls=tls(location))


def _read(client: kimberlite.KimberliteClient, stream: int, offset: int) -> tuple[list[bytes], int]:
    """Events from an offset on, without gaps, and the next offset to read."""
    page = client.read_page(stream, offset, MAX_BYTES)
    return page.events, offset + len(page.events) if page.next_offset is None else page.next_offset


class KimberliteSource(Source):
    carries = frozenset[Part]()

    def __init__(self, location: Location) -> None:
        self._client = _client(location)

    def topics(self) -> None:
        return None

    def partitions(self, topic: str) -> int:
        self.bounds(topic, 0)
        return 1

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:  # noqa: ARG002 - there is one
        return 0, self._client.stream_info(self._stream(topic))

    def read(self, topic: str, partition: int, offset: int, limit: int, wait: float) -> Chunk:  # noqa: ARG002
        until = time.monotonic() + wait
        while True:
            events, after = _read(self._client, self._stream(topic), offset)
            if events:
                first = after - len(events)
                records = [MirrorRecord(first + index, event) for index, event in enumerate(events[:limit])]
                return Chunk(records, min(after, first + limit))
            if time.monotonic() >= until:
                return Chunk([], offset)
            time.sleep(PAUSE)

    def close(self) -> None:
        self._client.close()

    def _stream(self, topic: str) -> int:
        if not topic.isdecimal():
            raise MirrorError(f"--topic {topic}: a stream of Kimberlite is named by its number, such as 7=orders")
        return int(topic)


class KimberliteDestination(Destination):
    carries = frozenset[Part]()

    def __init__(self, location: Location) -> None:
        self._client = _client(location)
        self._streams: dict[str, int] = {}

    def create(self, topic: str, partitions: int) -> int:  # noqa: ARG002
        self._stream(topic)
        return 1

    def write(self, batch: MirrorBatch) -> None:
        """Append only if the stream still ends at the same offset: so an earlier attempt that arrived late is not
        stored twice."""
        values = [record.value for record in batch.records]
        self._client.append(self._stream(batch.topic), values, batch.end)

    def end(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return self._client.stream_info(self._stream(topic))

    def tail(self, topic: str, partition: int, offset: int) -> list[tuple[bytes | None, bytes]]:
        found: list[tuple[bytes | None, bytes]] = []
        end = self.end(topic, partition)
        while offset < end and len(found) < MAX_RECORDS * 2:
            events, offset = _read(self._client, self._stream(topic), offset)
            if not events:
                break
            found += [(None, event) for event in events]
        return found

    def close(self) -> None:
        self._client.close()

    def _stream(self, topic: str) -> int:
        if topic not in self._streams:
            self._streams[topic] = self._client.create_stream(topic)  # returns the existing one, if any
        return self._streams[topic]
