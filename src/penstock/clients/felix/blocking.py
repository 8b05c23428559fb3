"""The blocking client: for any number of threads. The work is done by the asyncio client, in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from penstock.clients.felix.aio import AsyncFelixClient, Told
from penstock.clients.felix.errors import ClientClosed
from penstock.clients.felix.results import Batch, Event, Swapped
from penstock.clients.felix.subscription import AsyncSubscription, Start

R = TypeVar("R")


class _Engine:
    """An event loop in a thread, from the first call on until it is stopped."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._over = False

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Have it done, and wait for it. What interrupts the waiting cancels it."""
        with self._guard:
            if self._over:
                work.close()
                raise ClientClosed("the client was closed")
            loop = self._loop = self._loop or self._started()
            future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosed("the client was closed") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have one thing done more, and end."""
        with self._guard:
            over, self._over = self._over, True
        if over or self._loop is None or self._thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(last(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, args=(loop,), name="felix-client", daemon=True)
        self._thread.start()
        return loop

    @staticmethod
    def _turn(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            loop.run_until_complete(_end_all())
        finally:
            loop.close()


async def _end_all() -> None:
    """Somebody may still wait for something, which will not come any more."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class FelixClient:
    """A Felix client for any number of threads. What it is told and what it guarantees is as for `AsyncFelixClient`."""

    def __init__(self, server: str = "127.0.0.1", **told: Unpack[Told]) -> None:
        self._client = AsyncFelixClient(server, **told)
        self._engine = _Engine()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def connections(self) -> int:
        """How many were made so far."""
        return self._client.connections

    def connect(self) -> None:
        """Connect now, and not with the first request: shows at once whether the token is accepted."""
        self._engine.run(self._client.connect())

    def close(self) -> None:
        """End the subscriptions, and close the connections when all that is under way is done. For good."""
        self._engine.stop(self._client.close)

    # -- publishing

    def publish(self, stream: str, payload: bytes, *, namespace: str | None = None) -> None:
        """Publish an event. Returns when it is stored."""
        self._engine.run(self._client.publish(stream, payload, namespace=namespace))

    def publish_many(self, stream: str, payloads: Sequence[bytes], *, namespace: str | None = None) -> None:
        """Publish events in one batch. Returns when they are stored, all or none."""
        self._engine.run(self._client.publish_many(stream, payloads, namespace=namespace))

    def publish_batches(
        self, stream: str, batches: Iterable[Sequence[bytes]], *, namespace: str | None = None, window: int = 64
    ) -> int:
        """Publish batches, each for itself, without waiting for each reply. `batches` is iterated over in the client's
        own thread. About the rest see `AsyncFelixClient`."""
        return self._engine.run(self._client.publish_batches(stream, batches, namespace=namespace, window=window))

    def publish_nowait(self, stream: str, *payloads: bytes, namespace: str | None = None) -> None:
        """Publish events in one batch that nobody acknowledges: see `AsyncFelixClient`."""
        self._engine.run(self._client.publish_nowait(stream, *payloads, namespace=namespace))

    # -- subscribing

    def subscribe(
        self, stream: str, start: Start = "latest", *, namespace: str | None = None, allow_gaps: bool = False
    ) -> Subscription:
        """Events to come, and those from an offset on, or from the earliest: see `Subscription`."""
        return Subscription(
            self._engine, self._client.subscribe(stream, start, namespace=namespace, allow_gaps=allow_gaps)
        )

    # -- the cache

    def cache_put(
        self, key: str, value: bytes, ttl_ms: int | None = None, *, cache: str = "default", namespace: str | None = None
    ) -> None:
        """Store a value, for so many milliseconds, or for as long as there is room."""
        self._engine.run(self._client.cache_put(key, value, ttl_ms, cache=cache, namespace=namespace))

    def cache_get(self, key: str, *, cache: str = "default", namespace: str | None = None) -> bytes | None:
        """The value, or None if there is none any more."""
        return self._engine.run(self._client.cache_get(key, cache=cache, namespace=namespace))

    def cache_delete(self, key: str, *, cache: str = "default", namespace: str | None = None) -> bool:
        """Whether there was a value to remove. Beyond the specification."""
        return self._engine.run(self._client.cache_delete(key, cache=cache, namespace=namespace))

    def cache_compare_and_set(
        self, key: str, expected: bytes | None, value: bytes, ttl_ms: int | None = None, *, cache: str = "default",
        namespace: str | None = None,
    ) -> Swapped:  # fmt: skip
        """Store a value if the present one is as expected; None expects that there is none. Beyond the
        specification."""
        return self._engine.run(
            self._client.cache_compare_and_set(key, expected, value, ttl_ms, cache=cache, namespace=namespace)
        )

    def cache_increment(
        self, key: str, by: int = 1, ttl_ms: int | None = None, *, cache: str = "default", namespace: str | None = None
    ) -> int:
        """Add to the number under a key, and tell the sum. Beyond the specification."""
        return self._engine.run(self._client.cache_increment(key, by, ttl_ms, cache=cache, namespace=namespace))


class Subscription:
    """Events of a stream as they come; iterate over it, over `batches()`, or call `next`. Use it as a context manager,
    or close it. It is for one thread at a time; what it guarantees is as for `AsyncSubscription`."""

    def __init__(self, engine: _Engine, inner: AsyncSubscription) -> None:
        self._engine = engine
        self._inner = inner
        self._batches: deque[Batch] = deque()  # fetched together, because to ask the other thread takes a while
        self._batch = Batch([], None)
        self._at = 0
        self._next: int | None = None

    def __enter__(self) -> Self:
        self._engine.run(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Want no more events. What was not taken is thrown away."""
        self._batches.clear()
        with contextlib.suppress(ClientClosed):  # and this with it
            self._engine.run(self._inner.close())

    @property
    def position(self) -> int | None:
        """The offset behind the last event that was taken, as far as it is known."""
        return self._next

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event. None if none has come in so many seconds, or if this was closed."""
        if self._at == len(self._batch.payloads) and not self._more(timeout):
            return None
        payloads, offset = self._batch
        at, self._at = self._at, self._at + 1
        self._next = None if offset is None else offset + at + 1
        return Event(payloads[at], None if offset is None else offset + at)

    def next_batch(self, timeout: float | None = None) -> Batch | None:
        """The next events, as many as have come together. None as for `next`."""
        if self._at == len(self._batch.payloads) and not self._more(timeout):
            return None
        payloads, offset = self._batch
        if self._at:
            payloads, offset = payloads[self._at :], None if offset is None else offset + self._at
        self._at = len(self._batch.payloads)
        self._next = None if offset is None else offset + len(payloads)
        return Batch(payloads, offset)

    def batches(self) -> Iterator[Batch]:
        """Events as they come, many at a time: much quicker than one by one."""
        while (batch := self.next_batch()) is not None:
            yield batch

    def _more(self, timeout: float | None) -> bool:
        if not self._batches:
            self._engine.run(self._fetch(timeout))
        if not self._batches:
            return False
        self._batch, self._at = self._batches.popleft(), 0
        return True

    async def _fetch(self, timeout: float | None) -> None:  # noqa: ASYNC109
        """In the other thread. What was taken there is kept, also if the caller is interrupted meanwhile."""
        batch = await self._inner.next_batch(timeout)
        if batch is not None:
            self._batches.append(batch)
            self._batches.extend(self._inner.ready_batches())
