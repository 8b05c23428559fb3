"""Records in transit from one broker to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class MirrorRecord(NamedTuple):
    """A record as read from a source; fields that its protocol does not carry are empty."""

    offset: int
    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int | None = None  # µs since 1970
    tombstone: bool = False  # Kafka's null value: `value` is empty


class Chunk(NamedTuple):
    """Consecutive records of one partition, and the next offset to read."""

    records: Sequence[MirrorRecord]
    next_offset: int


def with_origin(record: MirrorRecord, topic: str, partition: int) -> MirrorRecord:
    """The record with headers for its origin: the source's topic, partition, offset and timestamp (µs)."""
    origin = [
        ("mirror-topic", topic.encode()),
        ("mirror-partition", b"%d" % partition),
        ("mirror-offset", b"%d" % record.offset),
    ]
    if record.timestamp is not None:
        origin.append(("mirror-timestamp", b"%d" % record.timestamp))
    return record._replace(headers=(*record.headers, *origin))
