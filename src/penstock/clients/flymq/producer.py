"""Producers: take single records, and send them in batches. What goes together is decided in `batching`.

Batches of one topic are sent in the order of their records, and the next ones are sent when the last ones are
answered: while a request is under way, records gather for the next.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, Final, Self

from penstock.clients.flymq import questions as q
from penstock.clients.flymq.asynchronous import AsyncClient
from penstock.clients.flymq.batching import Batch, Batcher
from penstock.clients.flymq.blocking import Client
from penstock.clients.flymq.outcome import FlyMqError, OutcomeUnknown, Unsendable
from penstock.wire.flymq import messages as m

MAX_RECORDS: Final = 1000
MAX_BYTES: Final = 1 << 20
LINGER: Final = 0.005
BUFFER_BYTES: Final = 32 << 20


class Delivery:
    """What becomes of a record."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def done(self) -> bool:
        return self._batch.outcome is not None

    def result(self, timeout: float | None = None) -> m.RecordMetadata:
        """Wait, and say where the record is stored; at offset `DIVERTED` it is among the topic's dead letters. Raises
        what kept it from being stored, or TimeoutError."""
        if not self._batch.signal.wait(timeout):
            raise TimeoutError(f"the record was not stored in {timeout:g} seconds")
        return self._batch.metadata(self._index)


class Producer:
    """Sends records in batches, from any number of threads, by a thread and a connection of its own.

    A batch is sent when it has `max_records` records or `max_bytes` bytes, or its first record has waited for `linger`
    seconds. `send` waits while more than `buffer_bytes` are on their way. What the connection may have lost is not
    sent again, unless `retry` is set: then records are stored at least once, and perhaps twice.
    """

    def __init__(
        self,
        client: Client,
        *,
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
        linger: float = LINGER,
        buffer_bytes: int = BUFFER_BYTES,
        retry: bool = False,
    ) -> None:
        self._batcher = Batcher(max_records, max_bytes, linger)
        self._buffer_bytes = buffer_bytes
        self._retry = retry
        self._client = client.another()
        self._changed = threading.Condition()
        self._flushes = 0  # those who wait for everything to be sent
        self._under_way = 0  # batches
        self._failure: BaseException | None = None  # the first since the last flush
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="flymq-producer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, topic: str, value: bytes, key: bytes | None = None, partition: int = q.ANY) -> Delivery:
        """Take a record, to be sent soon."""
        with self._changed:
            while self._batcher.byte_size >= self._buffer_bytes and not self._closing:
                self._changed.wait()
            if self._closing:
                raise ValueError("the producer is closed")
            waiting = self._batcher.wait(0.0) is not None
            place = self._batcher.add(topic, value, key, partition, time.monotonic(), threading.Event)
            if not waiting or self._batcher.wait(time.monotonic()) == 0.0:
                self._changed.notify_all()
        return Delivery(*place)

    def flush(self) -> None:
        """Send everything now, and wait until it is stored. Raises the first failure since the last flush, whether or
        not somebody has asked for it."""
        with self._changed:
            self._flushes += 1
            self._changed.notify_all()
            while self._under_way or self._batcher.wait(0.0) is not None:
                self._changed.wait()
            self._flushes -= 1
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Flush, and let go of the connection. Raises as `flush` does."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            self._thread.join()
            self._client.close()

    def _work(self) -> None:
        while True:
            with self._changed:
                batches = self._next()
            if batches is None:
                return
            outcomes: Sequence[Any] = [OutcomeUnknown("The producer was interrupted")] * len(batches)
            try:
                outcomes = self._sent(batches)
            finally:
                self._settle(batches, outcomes)

    def _settle(self, batches: Sequence[Batch], outcomes: Sequence[Any]) -> None:
        with self._changed:
            for batch, outcome in zip(batches, outcomes, strict=True):
                self._batcher.settled(batch, outcome)
                batch.signal.set()
                if isinstance(outcome, FlyMqError) and self._failure is None:
                    self._failure = outcome
            self._under_way = 0
            self._changed.notify_all()

    def _next(self) -> list[Batch] | None:
        """Wait for batches to send; None if there will be none any more."""
        while True:
            now = time.monotonic()
            batches = self._batcher.due(now, everything=self._flushes > 0 or self._closing)
            if batches:
                self._under_way = len(batches)
                return batches
            if self._closing:
                return None
            self._changed.wait(self._batcher.wait(now))

    def _sent(self, batches: Sequence[Batch]) -> list[Any]:
        try:
            return self._client.pipeline([batch.question(self._retry) for batch in batches])
        except Exception as error:  # noqa: BLE001 - nobody above would see it
            return [_failure(error)] * len(batches)


class AsyncDelivery:
    """What becomes of a record: await it to know."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def done(self) -> bool:
        return self._batch.outcome is not None

    def __await__(self) -> Generator[Any, None, m.RecordMetadata]:
        """Where the record is stored; at offset `DIVERTED` it is among the topic's dead letters. Raises what kept it
        from being stored."""
        yield from self._batch.signal.wait().__await__()
        return self._batch.metadata(self._index)


class AsyncProducer:
    """The same as `Producer` for the tasks of one event loop, through their client."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
        linger: float = LINGER,
        buffer_bytes: int = BUFFER_BYTES,
        retry: bool = False,
    ) -> None:
        self._batcher = Batcher(max_records, max_bytes, linger)
        self._buffer_bytes = buffer_bytes
        self._retry = retry
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()  # nothing is on its way
        self._idle.set()
        self._room = asyncio.Event()
        self._room.set()
        self._flushes = 0
        self._failure: FlyMqError | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, topic: str, value: bytes, key: bytes | None = None, partition: int = q.ANY) -> AsyncDelivery:
        """Take a record, to be sent soon."""
        await self._room.wait()
        if self._closed:
            raise ValueError("the producer is closed")
        place = self._batcher.add(topic, value, key, partition, self._loop.time(), asyncio.Event)
        self._idle.clear()
        if self._batcher.byte_size >= self._buffer_bytes:
            self._room.clear()
        self._arrange()
        return AsyncDelivery(*place)

    async def flush(self) -> None:
        """Send everything now, and wait until it is stored. Raises the first failure since the last flush, whether or
        not somebody has asked for it."""
        self._flushes += 1
        try:
            self._arrange()
            await self._idle.wait()
        finally:
            self._flushes -= 1
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Flush; the client stays open. Raises as `flush` does."""
        try:
            await self.flush()
        finally:
            self._closed = True
            if self._sending is not None:
                await self._sending

    def _arrange(self) -> None:
        """See to it that what is waiting is sent in time. While a request is under way, its end sees to it."""
        if self._sending is not None:
            return
        wait = self._batcher.wait(self._loop.time())
        if wait is None:
            return
        if wait == 0.0 or self._flushes:
            self._start()
        elif self._timer is None:
            self._timer = self._loop.call_later(wait, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is None:
            self._sending = self._loop.create_task(self._work())

    async def _work(self) -> None:
        try:
            while batches := self._batcher.due(self._loop.time(), everything=self._flushes > 0):
                outcomes: Sequence[Any] = [OutcomeUnknown("The producer was interrupted")] * len(batches)
                try:
                    outcomes = await _outcomes(self._client, batches, self._retry)
                finally:
                    self._settle(batches, outcomes)
        finally:
            self._sending = None
        if self._batcher.wait(0.0) is None:
            self._idle.set()
        self._arrange()

    def _settle(self, batches: Sequence[Batch], outcomes: Sequence[Any]) -> None:
        for batch, outcome in zip(batches, outcomes, strict=True):
            self._batcher.settled(batch, outcome)
            batch.signal.set()
            if isinstance(outcome, FlyMqError) and self._failure is None:
                self._failure = outcome
        if self._batcher.byte_size < self._buffer_bytes:
            self._room.set()


async def _outcomes(client: AsyncClient, batches: Sequence[Batch], retry: bool) -> list[Any]:
    try:
        return await client.pipeline([batch.question(retry) for batch in batches])
    except Exception as error:  # noqa: BLE001 - nobody above would see it
        return [_failure(error)] * len(batches)


def _failure(error: Exception) -> FlyMqError:
    """Most likely there is no connection. Anything but a FlyMqError is a record that consists of no bytes."""
    if isinstance(error, FlyMqError):
        return error
    failure = Unsendable(f"The batch cannot be sent: {error!r}")
    failure.__cause__ = error
    return failure
