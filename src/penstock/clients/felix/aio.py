"""The asyncio client: any number of tasks share a few connections, and none waits for the reply to another.

It connects when it first has something to do, and again when a connection is gone. Which reply belongs to what is in
`exchange`; what comes of a subscription, in `feed`; what the exceptions mean, in `errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self, TypedDict

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.felix.caching import Cache
from penstock.clients.felix.connection import Connections, Dial, Exchanges, Sleep
from penstock.clients.felix.dial import dial
from penstock.clients.felix.errors import ClientClosed
from penstock.clients.felix.options import (
    RETRY,
    DialectName,
    Encoding,
    Limits,
    Options,
    Pools,
    Token,
    address,
    name,
    trust,
)
from penstock.clients.felix.publishing import Publisher
from penstock.clients.felix.results import Swapped
from penstock.clients.felix.subscription import AsyncSubscription, Start

FAREWELL: Final = 5.0  # seconds that `close` waits for what is under way


class Told(TypedDict, total=False):
    """What a client of either kind is told, beside where the server is. See `AsyncFelixClient`."""

    tenant: str
    namespace: str
    token: Token
    ca: str | None
    fingerprint: str | None
    insecure: bool
    server_name: str | None
    dialect: DialectName
    encoding: Encoding
    timeout: float
    idle: float
    retry: RetryPolicy
    pools: Pools | None
    limits: Limits | None
    dial: Dial
    sleep: Sleep


class AsyncFelixClient:
    """A Felix client for the tasks of one event loop.

    The server is known by its certificate: `fingerprint` is its SHA-256, which the broker prints, `ca` a file with the
    certificates of those who may have signed it (or with its own), `insecure` believes anyone. `tenant` and `namespace`
    are where streams and caches are; methods may be told another namespace. It sends the token, or what a function
    answers that is given as one, whenever it opens a stream.

    `dialect` is how to speak: `original` as the clients of the original do, with binary batches and offsets;
    `document` as the specification says. `encoding` is how acknowledged publishes are written, if the server reads
    both. `timeout` is for how many seconds to wait for a connection and for a reply; a connection on which the server
    was silent for `idle` seconds, though asked, is lost. `pools` and `limits` say how many connections and how many
    bytes. `dial` and `sleep` are for tests.

    What was published or changed in a cache, and whose reply did not come, is never sent again by itself: it raises
    OutcomeUnknown. All else is asked again, up to `retry.attempts` times.
    """

    def __init__(
        self,
        server: str = "127.0.0.1",
        *,
        tenant: str = "default",
        namespace: str = "default",
        token: Token = None,
        ca: str | None = None,
        fingerprint: str | None = None,
        insecure: bool = False,
        server_name: str | None = None,
        dialect: DialectName = "original",
        encoding: Encoding = "binary",
        timeout: float = 30.0,
        idle: float = 10.0,
        retry: RetryPolicy = RETRY,
        pools: Pools | None = None,
        limits: Limits | None = None,
        dial: Dial = dial,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        place = address(server)
        self._options = own = Options(
            place, trust(place, ca, fingerprint, insecure, server_name), name("tenant", tenant),
            name("namespace", namespace), token, dialect, encoding, timeout, idle, retry, pools or Pools(),
            limits or Limits(),
        )  # fmt: skip
        self._sleep = sleep
        sizes = own.pools
        publishing = Connections(own, sizes.publish_connections, dial, sleep)
        caching = Connections(own, sizes.cache_connections, dial, sleep)
        self._events = Connections(own, sizes.event_connections, dial, sleep)
        self._kinds = (publishing, caching, self._events)
        self._publishes = Exchanges(own, publishing, sizes.publish_streams, sleep)
        self._publisher = Publisher(own, self._publishes)
        self._caches = Exchanges(own, caching, sizes.cache_streams, sleep)
        self._subscriptions: set[AsyncSubscription] = set()
        self._closed = False

    @property
    def connections(self) -> int:
        """How many were made so far."""
        return sum(kind.made for kind in self._kinds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect now, and not with the first request: shows at once whether the token is accepted."""
        self._check()
        await self._publishes.get(0)

    async def close(self) -> None:
        """End the subscriptions, and close the connections when all that is under way is done. For good."""
        if self._closed:
            return
        self._closed = True
        subscriptions = list(self._subscriptions)
        for subscription in subscriptions:
            await subscription.close()
        await asyncio.gather(*[kind.finish(min(FAREWELL, self._options.timeout)) for kind in self._kinds])
        for subscription in subscriptions:
            await subscription.abandon()

    # -- publishing

    async def publish(self, stream: str, payload: bytes, *, namespace: str | None = None) -> None:
        """Publish an event. Returns when it is stored."""
        await self.publish_many(stream, (payload,), namespace=namespace)

    async def publish_many(self, stream: str, payloads: Sequence[bytes], *, namespace: str | None = None) -> None:
        """Publish events in one batch. Returns when they are stored, all or none.

        Tasks that call this at the same time do not wait for each other's replies, up to the window of `limits`."""
        self._check()
        await self._publisher.publish(stream, payloads, namespace)

    async def publish_batches(
        self, stream: str, batches: Iterable[Sequence[bytes]], *, namespace: str | None = None, window: int = 64
    ) -> int:
        """Publish batches, each for itself, without waiting for each reply; `window` of them, or that of `limits` in
        bytes, are under way at most. How many there were. The first failure stops the sending; PipelineError then says
        what became of each batch that was sent."""
        self._check()
        if window < 1:
            raise ValueError("window must be at least 1")
        return await self._publisher.publish_batches(stream, batches, namespace, window)

    async def publish_nowait(self, stream: str, *payloads: bytes, namespace: str | None = None) -> None:
        """Publish events in one batch that nobody acknowledges: quick, and lost without a word if the server refuses
        them or the connection breaks. Waits only if the server does not keep up."""
        self._check()
        await self._publisher.tell(stream, payloads, namespace)

    # -- subscribing

    def subscribe(
        self, stream: str, start: Start = "latest", *, namespace: str | None = None, allow_gaps: bool = False
    ) -> AsyncSubscription:
        """Events to come, and those from an offset on, or from the earliest: see `AsyncSubscription`. Entering it, as a
        context manager, returns when the server has noted it."""
        self._check()
        place = self._options.namespace if namespace is None else name("namespace", namespace)
        subscription = AsyncSubscription(
            self._options, self._events, self._sleep, (self._options.tenant, place, stream), start, allow_gaps,
            self._subscriptions.discard,
        )  # fmt: skip
        self._subscriptions.add(subscription)
        return subscription

    # -- the cache

    def cache(self, cache: str = "default", *, namespace: str | None = None) -> Cache:
        """A cache, for those who use it often. The methods below are shorthands."""
        self._check()
        return Cache(self._options, self._caches, self._sleep, namespace, cache)

    async def cache_put(
        self, key: str, value: bytes, ttl_ms: int | None = None, *, cache: str = "default", namespace: str | None = None
    ) -> None:
        """Store a value, for so many milliseconds, or for as long as there is room."""
        await self.cache(cache, namespace=namespace).put(key, value, ttl_ms)

    async def cache_get(self, key: str, *, cache: str = "default", namespace: str | None = None) -> bytes | None:
        """The value, or None if there is none any more."""
        return await self.cache(cache, namespace=namespace).get(key)

    async def cache_delete(self, key: str, *, cache: str = "default", namespace: str | None = None) -> bool:
        """Whether there was a value to remove. Beyond the specification."""
        return await self.cache(cache, namespace=namespace).delete(key)

    async def cache_compare_and_set(
        self, key: str, expected: bytes | None, value: bytes, ttl_ms: int | None = None, *, cache: str = "default",
        namespace: str | None = None,
    ) -> Swapped:  # fmt: skip
        """Store a value if the present one is as expected; None expects that there is none. Beyond the
        specification."""
        return await self.cache(cache, namespace=namespace).compare_and_set(key, expected, value, ttl_ms)

    async def cache_increment(
        self, key: str, by: int = 1, ttl_ms: int | None = None, *, cache: str = "default", namespace: str | None = None
    ) -> int:
        """Add to the number under a key, and tell the sum. Beyond the specification."""
        return await self.cache(cache, namespace=namespace).increment(key, by, ttl_ms)

    def _check(self) -> None:
        if self._closed:
            raise ClientClosed("the client was closed")
