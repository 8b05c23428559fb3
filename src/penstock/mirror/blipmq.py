"""BlipMQ at either end of a mirror: messages. A subscription receives messages published after its creation, so a
BlipMQ source has no history; unacknowledged messages are delivered again."""

from __future__ import annotations

import time
from typing import Final

from penstock.clients import blipmq
from penstock.mirror.ends import Destination, MirrorBatch, Part, Source
from penstock.mirror.login import credentials, tls
from penstock.mirror.progress import StateFile
from penstock.mirror.records import Chunk, MirrorRecord
from penstock.mirror.url import Location

PAUSE: Final = 0.05  # seconds between polls
POLLS: Final = 64


def _client(location: Location) -> blipmq.Client:
    host, port = location.address
    return blipmq.Client(host, port, key=credentials(location).key, tls=tls(location), busy_poll=0)


class BlipMqSource(Source):
    carries = frozenset[Part]()
    replayable = False
    knows_end = False

    def __init__(self, location: Location, state: StateFile) -> None:
        self._client = _client(location)
        self._state = state
        self._open: dict[str, blipmq.Subscription] = {}
        self._taken: list[tuple[blipmq.Subscription, int]] = []

    def topics(self) -> None:
        return None

    def partitions(self, topic: str) -> int:
        self._subscription(topic)  # from now on no message is missed
        return 1

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:  # noqa: ARG002
        return 0, 0

    def read(self, topic: str, partition: int, offset: int, limit: int, wait: float) -> Chunk:  # noqa: ARG002
        subscription = self._subscription(topic)
        until = time.monotonic() + wait
        while True:
            messages = subscription.poll_many(min(limit, POLLS))
            self._taken += [(subscription, message.tag) for message in messages]
            if messages or time.monotonic() >= until:
                records = [MirrorRecord(offset + index, message.value) for index, message in enumerate(messages)]
                return Chunk(records, offset + len(records))
            time.sleep(PAUSE)

    def settle(self) -> None:
        taken, self._taken = self._taken, []
        for subscription in {each for each, _ in taken}:
            subscription.ack(*(tag for each, tag in taken if each is subscription))

    def close(self) -> None:
        self._client.close()

    def _subscription(self, topic: str) -> blipmq.Subscription:
        """The subscription of an earlier run, if any: it has the messages published meanwhile."""
        if topic not in self._open:
            known = self._state.get(f"subscription {topic}")
            found = self._client.subscribe(topic) if known is None else self._client.resume(known, topic)
            self._state.set(f"subscription {topic}", found.id)
            self._open[topic] = found
        return self._open[topic]


class BlipMqDestination(Destination):
    carries = frozenset[Part]()
    readable = False

    def __init__(self, location: Location) -> None:
        self._client = _client(location)

    def create(self, topic: str, partitions: int) -> int:  # noqa: ARG002 - created at first use
        return 1

    def write(self, batch: MirrorBatch) -> None:
        self._client.publish_many(batch.topic, [record.value for record in batch.records])
        self._client.flush()

    def close(self) -> None:
        self._client.close()
