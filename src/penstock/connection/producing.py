"""Producing: single records and batches, stored exactly once, and producers, which accept records one by one.

They use FlyMQ's door. Each batch has a producer's sequence number, so the broker stores it once however often it is
sent. Records with a delay or a ttl have none, and are never sent twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import Any

from penstock.clients import flymq
from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import RequestSpec, result_of
from penstock.clients._core.signal import Signal
from penstock.clients.flymq import requests
from penstock.clients.flymq.batches import Batch, Batcher
from penstock.clients.flymq.producer import DELIVERY_TIMEOUT, MAX_BYTES, MAX_RECORDS
from penstock.clients.flymq.sequences import Sequences, send_once
from penstock.connection.records import (
    Headers,
    Stored,
    Text,
    header_pairs,
    milliseconds,
    optional_bytes,
    to_bytes,
)
from penstock.wire.flymq import messages as m


def chosen(partition: int | None) -> int:
    """A partition as FlyMQ encodes it. Raises ValueError if it is negative."""
    if partition is None:
        return requests.ANY
    if partition < 0:
        raise ValueError(f"there can be no partition {partition}")
    return partition


def stored(metadata: m.RecordMetadata) -> Stored:
    return Stored(metadata.topic, metadata.partition, metadata.offset, metadata.timestamp_ms)


def timed_request(
    topic: str,
    value: bytes,
    key: bytes | None,
    partition: int,
    headers: tuple[tuple[str, bytes], ...],
    delay: float | None,
    ttl: float | None,
) -> RequestSpec[m.RecordMetadata]:
    """A request for a record with a delay or a ttl. Raises ValueError for both."""
    if delay is not None and ttl is not None:
        raise ValueError("a record has a delay or a life, and not both")
    if delay is not None:
        return requests.produce_delayed(topic, value, milliseconds(delay, "delay"), key, partition, headers)
    assert ttl is not None
    return requests.produce_with_ttl(topic, value, milliseconds(ttl, "ttl"), key, partition, headers)


class Sender:
    """Sends batches exactly once, for one caller at a time: the sequence numbers of a blocking connection's
    producer."""

    def __init__(self, delay: Callable[[int], float]) -> None:
        self._sequences = Sequences(DELIVERY_TIMEOUT)
        self._delay = delay

    def produce(
        self,
        topic: str,
        value: Text,
        key: Text | None,
        headers: Headers | None,
        partition: int | None,
        delay: float | None,
        ttl: float | None,
    ) -> Procedure[Stored]:
        if delay is None and ttl is None:
            (place,) = yield from self.produce_many(topic, [value], [key], [headers], partition)
            return place
        columns = to_bytes(value), optional_bytes(key), chosen(partition), header_pairs(headers)
        (outcome,) = yield [timed_request(topic, *columns, delay, ttl)]
        return stored(result_of(outcome))

    def produce_many(
        self,
        topic: str,
        values: Iterable[Text],
        keys: Iterable[Text | None] | None,
        headers: Iterable[Headers | None] | None,
        partition: int | None,
    ) -> Procedure[list[Stored]]:
        batcher = Batcher(MAX_RECORDS, MAX_BYTES, 0.0)
        number, now = chosen(partition), time.monotonic()
        places: list[tuple[Batch, int]] = []
        for value, key, texts in zip(values, _column(keys), _column(headers), strict=False):
            pairs = header_pairs(texts)
            places.append(batcher.add(topic, to_bytes(value), optional_bytes(key), number, now, Signal, pairs))

        def settle(batches: Iterable[Batch], outcomes: Iterable[Any]) -> None:
            for batch, outcome in zip(batches, outcomes, strict=True):
                batcher.settled(batch, outcome)

        yield from send_once(batcher.due(now, everything=True), self._sequences, self._delay, settle)
        return [stored(batch.metadata(index)) for batch, index in places]


def _column(given: Iterable[Any] | None) -> Iterable[Any]:
    """The values of a column, padded with None for further records."""
    return repeat(None) if given is None else chain(given, repeat(None))


class Producer(flymq.Producer):
    """Accepts records one by one, from any thread, and sends them in batches: `send` returns the record's `Delivery` at
    once; `flush` waits until all are stored. Records are stored exactly once, unless `idempotent` is off, and in the
    order of `send` within a topic.

        with connection.producer() as producer:
            delivery = producer.send("orders", b"one", key=b"customer-7")
        delivery.result().offset
    """

    def send(  # type: ignore[override]
        self,
        topic: str,
        value: Text,
        key: Text | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> flymq.Delivery:
        """Add a record to the next batch. Blocks only while the buffer is full."""
        if type(value) is bytes and key is None and headers is None and partition is None:
            return super().send(topic, value)
        pairs = header_pairs(headers)
        return super().send(topic, to_bytes(value), optional_bytes(key), chosen(partition), pairs)


class AsyncProducer(flymq.AsyncProducer):
    """`Producer` for the tasks of one event loop; awaiting a delivery returns the record's metadata."""

    async def send(  # type: ignore[override]
        self,
        topic: str,
        value: Text,
        key: Text | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> flymq.AsyncDelivery:
        """Add a record to the next batch. Waits only while the buffer is full."""
        pairs = header_pairs(headers)
        return await super().send(topic, to_bytes(value), optional_bytes(key), chosen(partition), pairs)
