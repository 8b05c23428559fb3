"""Producers: accept single records, and send them in batches. `batches` decides which records are sent together.

Batches of one topic are sent in the order of their records, and the next ones are sent after the previous ones are
answered: while a request is in flight, records are collected for the next one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator, Sequence
from typing import Any, Final, Generic, TypeVar

from penstock.clients._core.closing import AsyncClosing, Closing
from penstock.clients._core.procedure import Procedure
from penstock.clients.flymq.batches import Batch, Batcher, Headers
from penstock.clients.flymq.client import AsyncClient, Client
from penstock.clients.flymq.errors import FlyMqError, OutcomeUnknown
from penstock.clients.flymq.requests import ANY
from penstock.clients.flymq.sequences import Sequences, batch_failure, send_once
from penstock.wire.flymq import messages as m

MAX_RECORDS: Final = 1000
MAX_BYTES: Final = 1 << 20
LINGER: Final = 0.005
BUFFER_BYTES: Final = 32 << 20
DELIVERY_TIMEOUT: Final = 120.0  # seconds for which an idempotent producer retries a batch

C = TypeVar("C", Client, AsyncClient)


class _Delivery:
    """The future outcome of a record."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def done(self) -> bool:
        return self._batch.outcome is not None


class Delivery(_Delivery):
    """The future outcome of a record."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> m.RecordMetadata:
        """Wait for the record's partition and offset; offset `DIVERTED` means that it became a dead letter of the
        topic. Raises the error if it is not stored, or TimeoutError."""
        if not self._batch.signal.wait(timeout):
            raise TimeoutError(f"the record was not stored in {timeout:g} seconds")
        return self._batch.metadata(self._index)


class AsyncDelivery(_Delivery):
    """The future outcome of a record: await it."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, m.RecordMetadata]:
        """The record's partition and offset; offset `DIVERTED` means that it became a dead letter of the topic. Raises
        the error if it is not stored."""
        yield from self._batch.signal.wait().__await__()
        return self._batch.metadata(self._index)


class _ProducerState(Generic[C]):
    """The state of a producer of either kind."""

    def __init__(
        self,
        client: C,
        *,
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
        linger: float = LINGER,
        buffer_bytes: int = BUFFER_BYTES,
        retry: bool = False,
        idempotent: bool = False,
        timeout: float = DELIVERY_TIMEOUT,
    ) -> None:
        self._client: C = client
        self._sequences = Sequences(timeout) if idempotent else None
        self._batcher = Batcher(max_records, max_bytes, linger)
        self._buffer_bytes = buffer_bytes
        self._retry = retry
        self._flushes = 0  # callers that wait for everything to be sent
        self._failure: FlyMqError | None = None  # the first since the last flush
        self._closed = False
        self._start()

    def _start(self) -> None:
        """Initialize the state of this kind of producer."""
        raise NotImplementedError

    def _send(self, batches: Sequence[Batch]) -> Procedure[None]:
        """Send these batches together, and settle them in any case."""
        if self._sequences is not None:
            return (yield from send_once(batches, self._sequences, self._client.retry_delay, self._settle))
        outcomes: Sequence[Any] = [OutcomeUnknown("The producer was interrupted")] * len(batches)
        try:
            outcomes = yield [batch.request(self._retry) for batch in batches]
        except Exception as error:  # noqa: BLE001 - no caller would see it
            outcomes = [batch_failure(error)] * len(batches)
        finally:
            self._settle(batches, outcomes)

    def _settle(self, batches: Sequence[Batch], outcomes: Sequence[Any]) -> None:
        for batch, outcome in zip(batches, outcomes, strict=True):
            self._batcher.settled(batch, outcome)
            batch.signal.set()
            if isinstance(outcome, FlyMqError) and self._failure is None:
                self._failure = outcome

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


class Producer(_ProducerState[Client], Closing):
    """Sends records in batches, from any number of threads, with its own thread and connection.

    A batch is sent when it has `max_records` records or `max_bytes` bytes, or when its first record has waited for
    `linger` seconds. `send` blocks while more than `buffer_bytes` have no outcome. A batch whose connection was lost is
    not retried, unless `retry` is set: then records are stored at least once, perhaps twice; or with `idempotent`: then
    batches are retried for `timeout` seconds, also across restarts of the server, and are stored exactly once.
    """

    def _start(self) -> None:
        self._client = self._client.another()
        self._changed = threading.Condition()
        self._in_flight = 0  # batches
        self._thread = threading.Thread(target=self._work, name="flymq-producer", daemon=True)
        self._thread.start()

    def send(
        self, topic: str, value: bytes, key: bytes | None = None, partition: int = ANY, headers: Headers = ()
    ) -> Delivery:
        """Add a record to the next batch. Blocks only while the buffer is full."""
        with self._changed:
            while self._batcher.byte_size >= self._buffer_bytes and not self._closed:
                self._changed.wait()
            if self._closed:
                raise ValueError("the producer is closed")
            idle = self._batcher.wait(0.0) is None
            now = time.monotonic()
            batch, index = self._batcher.add(topic, value, key, partition, now, threading.Event, headers)
            if idle or self._batcher.wait(time.monotonic()) == 0.0:
                self._changed.notify_all()
        return Delivery(batch, index)

    def flush(self) -> None:
        """Send everything now, and wait until it is stored. Raises the first failure since the last flush, even if a
        delivery has already raised it."""
        with self._changed:
            self._flushes += 1
            self._changed.notify_all()
            while self._in_flight or self._batcher.wait(0.0) is not None:
                self._changed.wait()
            self._flushes -= 1
            self._raise_failure()

    def close(self) -> None:
        """Flush, and close the producer's connection. Raises like `flush`."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            self._thread.join()
            self._client.close()

    def _work(self) -> None:
        while True:
            with self._changed:
                batches = self._next()
            if batches is None:
                return
            self._client.run(self._send(batches))

    def _settle(self, batches: Sequence[Batch], outcomes: Sequence[Any]) -> None:
        with self._changed:
            super()._settle(batches, outcomes)
            self._in_flight -= len(batches)
            self._changed.notify_all()

    def _next(self) -> list[Batch] | None:
        """Wait for batches to send; None if there will be no more."""
        while True:
            now = time.monotonic()
            batches = self._batcher.due(now, everything=self._flushes > 0 or self._closed)
            if batches:
                self._in_flight = len(batches)
                return batches
            if self._closed:
                return None
            self._changed.wait(self._batcher.wait(now))


class AsyncProducer(_ProducerState[AsyncClient], AsyncClosing):
    """`Producer` for the tasks of one event loop, on their client."""

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()  # nothing is waiting or in flight
        self._idle.set()
        self._below_limit = asyncio.Event()
        self._below_limit.set()

    async def send(
        self, topic: str, value: bytes, key: bytes | None = None, partition: int = ANY, headers: Headers = ()
    ) -> AsyncDelivery:
        """Add a record to the next batch. Waits only while the buffer is full."""
        await self._below_limit.wait()
        if self._closed:
            raise ValueError("the producer is closed")
        now = self._loop.time()
        batch, index = self._batcher.add(topic, value, key, partition, now, asyncio.Event, headers)
        self._idle.clear()
        if self._batcher.byte_size >= self._buffer_bytes:
            self._below_limit.clear()
        self._schedule()
        return AsyncDelivery(batch, index)

    async def flush(self) -> None:
        """Send everything now, and wait until it is stored. Raises the first failure since the last flush, even if a
        delivery has already raised it."""
        self._flushes += 1
        try:
            self._schedule()
            await self._idle.wait()
        finally:
            self._flushes -= 1
        self._raise_failure()

    async def close(self) -> None:
        """Flush; the client stays open. Raises like `flush`."""
        try:
            await self.flush()
        finally:
            self._closed = True
            if self._sending is not None:
                await self._sending

    def _schedule(self) -> None:
        """Schedule the sending of waiting records. While a request is in flight, its end does that."""
        if self._sending is not None:
            return
        wait = self._batcher.wait(self._loop.time())
        if wait is None:
            return
        if wait == 0.0 or self._flushes:
            self._start_sending()
        elif self._timer is None:
            self._timer = self._loop.call_later(wait, self._start_sending)

    def _start_sending(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is None:
            self._sending = self._loop.create_task(self._work())

    async def _work(self) -> None:
        try:
            while batches := self._batcher.due(self._loop.time(), everything=self._flushes > 0):
                await self._client.run(self._send(batches))
        finally:
            self._sending = None
        if self._batcher.wait(0.0) is None:
            self._idle.set()
        self._schedule()

    def _settle(self, batches: Sequence[Batch], outcomes: Sequence[Any]) -> None:
        super()._settle(batches, outcomes)
        if self._batcher.byte_size < self._buffer_bytes:
            self._below_limit.set()
