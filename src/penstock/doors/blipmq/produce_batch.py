"""Messages to publish, and batches of messages to one topic that are appended together."""

from __future__ import annotations

from penstock.wire.blipmq.errors import Nack


class Publication:
    """The properties shared by all messages with the same topic, QoS and TTL, or the reason why they are refused."""

    __slots__ = ("limit", "qos", "refusal", "topic", "ttl")

    def __init__(self, topic: str, qos: int, ttl: int, limit: int, refusal: Nack | None = None) -> None:
        self.topic = topic
        self.qos = qos
        self.ttl = ttl  # ms, or NO_TTL
        self.limit = limit  # bytes, of one message
        self.refusal = refusal


class ProduceBatch:
    """Messages that are appended together, and their positions among the frames."""

    __slots__ = ("publication", "runs", "values")

    def __init__(
        self,
        publication: Publication,
        runs: list[tuple[int, list[int]]] | None = None,
        values: list[bytes] | None = None,
    ) -> None:
        self.publication = publication
        self.runs = [] if runs is None else runs  # index of the first of adjacent frames, ids of all
        self.values = [] if values is None else values

    def split(self) -> list[ProduceBatch]:
        """A batch for each message."""
        indexes = [(at + number, [each]) for at, ids in self.runs for number, each in enumerate(ids)]
        return [
            ProduceBatch(self.publication, [index], [value]) for index, value in zip(indexes, self.values, strict=True)
        ]
