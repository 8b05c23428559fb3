"""Batches of a producer: which records are sent together, and when. No I/O.

Records of one topic are collected until there are enough of them, by number or size, or until the oldest has lingered
long enough. Each batch becomes one PRODUCE_BATCH, which is atomic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from penstock.clients._core.requests import RequestSpec
from penstock.clients.flymq import requests
from penstock.clients.flymq.errors import FlyMqError, Unsendable
from penstock.clients.flymq.produce_pipeline import check_partition, encoded_topic
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.opcodes import MAX_PAYLOAD

RECORD_OVERHEAD: Final = 12  # bytes per record in a batch besides key and value
HEADER_OVERHEAD: Final = 6  # bytes per header besides its name and text
MAX_BATCH_BYTES: Final = 16 << 20
MAX_BATCH_RECORDS: Final = 25_000
Headers: TypeAlias = Sequence[tuple[str, bytes]]
MAX_RECORD_BYTES: Final = MAX_PAYLOAD - (1 << 17)  # a frame also contains the topic's name


class Batch:
    """Records of one topic that are sent together."""

    __slots__ = ("byte_size", "created", "headers", "keys", "outcome", "partitions", "signal", "topic", "values")

    def __init__(self, topic: str, created: float, signal: Any) -> None:
        self.topic = topic
        self.created = created
        self.values: list[bytes] = []
        self.keys: list[bytes | None] = []
        self.partitions: list[int] = []
        self.headers: list[Headers] = []  # of each record, if any has headers
        self.byte_size = 0
        self.outcome: m.ProducedBatch | FlyMqError | None = None
        self.signal = signal  # set together with the outcome

    def request(self, retry: bool) -> RequestSpec[m.ProducedBatch]:
        if not self.headers:
            return requests.produce_batch(self.topic, self.values, self.keys, self.partitions, retry=retry)
        spec = self.numbered_request("", 0, 0)
        spec.idempotent = spec.changes = retry
        return spec

    def numbered_request(self, producer: str, epoch: int, sequence: int) -> RequestSpec[m.ProducedBatch]:
        headers = [*self.headers, *[()] * (len(self.values) - len(self.headers))] if self.headers else []
        columns = self.values, self.keys, self.partitions, headers
        return requests.produce_records(
            self.topic, *columns, producer=producer, epoch=epoch, sequence=sequence
        )  # fmt: skip

    def metadata(self, index: int) -> m.RecordMetadata:
        """Topic, partition and offset of a record. Raises the error of its batch."""
        outcome = self.outcome
        assert outcome is not None
        if isinstance(outcome, FlyMqError):
            raise outcome
        key = self.keys[index]
        return m.RecordMetadata(
            self.topic,
            outcome.partitions[index],
            outcome.offsets[index],
            outcome.timestamp_ms,
            len(key) if key else m.NO_KEY,
            len(self.values[index]),
        )


class Batcher:
    """Collects records. `now` is any monotonic clock, in seconds."""

    def __init__(self, max_records: int, max_bytes: int, linger: float) -> None:
        if not 1 <= max_records <= MAX_BATCH_RECORDS or not 1 <= max_bytes <= MAX_BATCH_BYTES or linger < 0:
            limit = f"{MAX_BATCH_RECORDS} records, {MAX_BATCH_BYTES} bytes"
            raise ValueError(f"a batch has at least 1 record and 1 byte, at most {limit}, and lingers 0 s or more")
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._linger = linger
        self._open: dict[str, Batch] = {}  # by topic, oldest first
        self._full: deque[Batch] = deque()
        self.byte_size = 0  # of all records without an outcome

    def add(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        partition: int,
        now: float,
        new_signal: Any,
        headers: Headers = (),
    ) -> tuple[Batch, int]:
        """Add a record. Returns its batch and its index there. Raises Unsendable for a record that would make the whole
        batch fail."""
        size = RECORD_OVERHEAD + len(value) + len(key or b"")
        if headers:
            size += sum([HEADER_OVERHEAD + len(name.encode()) + len(text) for name, text in headers])
        if size > MAX_RECORD_BYTES:
            raise Unsendable(f"A record of {size} bytes does not fit a frame")
        check_partition(partition)
        batch = self._open.get(topic)
        if batch is not None and batch.byte_size + size > self._max_bytes:
            self._close(batch)
            batch = None
        if batch is None:
            encoded_topic(topic)
            batch = self._open[topic] = Batch(topic, now, new_signal())
        if headers:
            batch.headers += [()] * (len(batch.values) - len(batch.headers))
            batch.headers.append(headers)
        batch.values.append(value)
        batch.keys.append(key)
        batch.partitions.append(partition)
        batch.byte_size += size
        self.byte_size += size
        if len(batch.values) >= self._max_records or batch.byte_size >= self._max_bytes:
            self._close(batch)
        return batch, len(batch.values) - 1

    def _close(self, batch: Batch) -> None:
        del self._open[batch.topic]
        self._full.append(batch)

    def due(self, now: float, everything: bool = False) -> list[Batch]:
        """The batches to send now. They are not returned again."""
        for batch in list(self._open.values()):
            if everything or now - batch.created >= self._linger:
                self._close(batch)
        batches = list(self._full)
        self._full.clear()
        return batches

    def wait(self, now: float) -> float | None:
        """Seconds until a batch is due; None if there are no records."""
        if self._full:
            return 0.0
        oldest = next(iter(self._open.values()), None)
        return None if oldest is None else max(0.0, oldest.created + self._linger - now)

    def settled(self, batch: Batch, outcome: m.ProducedBatch | FlyMqError) -> None:
        batch.outcome = outcome
        self.byte_size -= batch.byte_size
