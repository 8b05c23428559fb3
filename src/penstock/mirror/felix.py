"""Felix at either end of a mirror: streams of values; keys can be written, but not read."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from penstock.clients.felix import FelixClient, Subscription
from penstock.mirror.ends import Destination, MirrorBatch, Part, Source
from penstock.mirror.errors import MirrorError, Unsupported
from penstock.mirror.login import credentials
from penstock.mirror.records import Chunk, MirrorRecord
from penstock.mirror.url import Location


def _client(location: Location) -> FelixClient:
    options: dict[str, Any] = {
        name: location.options[name] for name in ("tenant", "namespace") if name in location.options
    }
    trust = [name for name in ("ca", "fingerprint", "insecure") if name in location.options]
    if len(trust) != 1:
        raise MirrorError(f"{location.name}: say whom to trust: ?fingerprint=sha256:…, ?ca=FILE or ?insecure=1")
    options[trust[0]] = True if trust[0] == "insecure" else location.options[trust[0]]
    login = credentials(location)
    token = None if login.user is None and login.secret is None else login.key
    return FelixClient(str(location.address), token=token, **options)


class FelixSource(Source):
    carries = frozenset[Part]()
    knows_end = False

    def __init__(self, location: Location) -> None:
        self._client = _client(location)
        self._open: dict[str, tuple[Subscription, int]] = {}  # with the next offset
        self._left: dict[str, Chunk] = {}

    def topics(self) -> None:
        return None

    def partitions(self, topic: str) -> int:  # noqa: ARG002
        return 1

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:  # noqa: ARG002
        return 0, 0

    def read(self, topic: str, partition: int, offset: int, limit: int, wait: float) -> Chunk:  # noqa: ARG002
        left = self._left.pop(topic, None)
        if left is None or left.records[0].offset != offset:
            left = self._fetch(topic, offset, wait)
        if len(left.records) > limit:
            self._left[topic] = Chunk(left.records[limit:], left.next_offset)
            return Chunk(left.records[:limit], left.records[limit].offset)
        return left

    def _fetch(self, topic: str, offset: int, wait: float) -> Chunk:
        known = self._open.get(topic)
        if known is None or known[1] != offset:
            if known is not None:
                known[0].close()
            subscription = self._client.subscribe(topic, offset if offset else "earliest")
            subscription.__enter__()
        else:
            subscription = known[0]
        batch = subscription.next_batch(wait)
        if batch is None:
            self._open[topic] = subscription, offset
            return Chunk([], offset)
        if batch.offset is None:
            raise Unsupported(f"felix does not tell the offsets of {topic!r}, which has several partitions")
        records = [MirrorRecord(batch.offset + index, payload) for index, payload in enumerate(batch.payloads)]
        after = batch.offset + len(records)
        self._open[topic] = subscription, after
        return Chunk(records, after)

    def close(self) -> None:
        self._client.close()


class FelixDestination(Destination):
    carries = frozenset[Part]({"keys"})
    readable = False

    def __init__(self, location: Location) -> None:
        self._client = _client(location)

    def create(self, topic: str, partitions: int) -> int:  # noqa: ARG002 - a stream is created at first use
        return 1

    def write(self, batch: MirrorBatch) -> None:
        for key, records in groupby(batch.records, key=lambda record: record.key):  # a batch has a single key
            self._client.publish_many(batch.topic, [record.value for record in records], key=key)

    def close(self) -> None:
        self._client.close()
