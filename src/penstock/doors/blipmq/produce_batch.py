"""Messages to publish, and batches of messages to one topic that are appended together."""

from __future__ import annotations

from penstock.wire.blipmq.errors import Nack


class PublishProperties:
    """The properties shared by all messages with the same topic, QoS and TTL, or the reason why they are refused."""

    __slots__ = ("limit", "qos", "refusal", "topic", "ttl")

    def __init__(self, topic: str, qos: int, ttl: int, limit: int, refusal: Nack | None = None) -> None:
        self.topic = topic
        self.qos = qos
        self.ttl = ttl  # ms, or NO_TTL
        self.limit = limit  # bytes, of one message
        self.refusal = refusal


class ProduceBatch:
    """Messages that are appended together, and the indexes of their frames."""

    __slots__ = ("indexes", "publication", "values")

    def __init__(self, publication: PublishProperties, indexes: list[int], values: list[bytes]) -> None:
        self.publication = publication
        self.indexes = indexes
        self.values = values

    def split(self) -> list[ProduceBatch]:
        """A batch for each message."""
        pairs = zip(self.indexes, self.values, strict=True)
        return [ProduceBatch(self.publication, [index], [value]) for index, value in pairs]
