"""The Felix clients: `AsyncFelixClient`, and `FelixClient`, which runs it on an event loop in its own thread.

They connect when first used, and reconnect when a connection is lost.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypedDict, TypeVar, Unpack

from penstock.clients._core.backoff import AsyncSleep
from penstock.clients._core.closing import AsyncClosing, Closing
from penstock.clients._core.loop_thread import LoopThread
from penstock.clients.felix.cache import Cache
from penstock.clients.felix.connection import Connector, quic_connect
from penstock.clients.felix.errors import ClientClosed
from penstock.clients.felix.options import (
    DEFAULT_RETRY,
    DialectName,
    Encoding,
    Limits,
    Options,
    Pools,
    Token,
    make_trust,
    server_address,
)
from penstock.clients.felix.pool import ConnectionPool, RequestStreamPool
from penstock.clients.felix.publisher import Publisher
from penstock.clients.felix.results import Swapped
from penstock.clients.felix.subscription import AsyncSubscription, Start, Subscription
from penstock.retry import RetryPolicy

P = ParamSpec("P")
R = TypeVar("R")

CLOSE_TIMEOUT: Final = 5.0  # seconds that `close` waits for requests in flight


class ClientOptions(TypedDict, total=False):
    """Options of both clients: see `AsyncFelixClient`."""

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
    connector: Connector
    sleep: AsyncSleep


class AsyncFelixClient(AsyncClosing):
    """A Felix client for the tasks of one event loop, which share a few connections.

    The server's certificate is verified: `fingerprint` is its SHA-256, which the broker prints; `ca` is a file with
    trusted authorities (or with the server's certificate); `insecure` accepts any. `tenant` and `namespace` contain the
    streams and caches; methods accept another namespace. The token, or the result of a function given as token, is sent
    whenever a stream is opened.

    `dialect` is the variant of the protocol: `original` as spoken by the original's clients, with binary batches and
    offsets; `document` as in the specification. `encoding` is the format of acknowledged publishes, if the server reads
    both. `timeout` is how many seconds to wait for a connection and for a reply; a connection counts as lost if the
    server was silent for `idle` seconds, although probed. `pools` and `limits` set the numbers of connections and
    bytes. `connector` and `sleep` are for tests.

    A publish or a change of a cache whose reply is lost is never retried automatically: it raises OutcomeUnknown. All
    other requests are retried, up to `retry.attempts` times.
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
        retry: RetryPolicy = DEFAULT_RETRY,
        pools: Pools | None = None,
        limits: Limits | None = None,
        connector: Connector = quic_connect,
        sleep: AsyncSleep = asyncio.sleep,
    ) -> None:
        address = server_address(server)
        sizes = pools or Pools()
        self._options = options = Options(
            address, make_trust(address, ca, fingerprint, insecure, server_name), tenant, namespace, token, dialect,
            encoding, timeout, idle, retry, sizes, limits or Limits(),
        )  # fmt: skip
        self._sleep = sleep
        publishing = ConnectionPool(options, sizes.publish_connections, connector, sleep)
        caching = ConnectionPool(options, sizes.cache_connections, connector, sleep)
        self._event_connections = ConnectionPool(options, sizes.event_connections, connector, sleep)
        self._connection_pools = (publishing, caching, self._event_connections)
        self._publish_streams = RequestStreamPool(options, publishing, sizes.publish_streams, sleep)
        self._publisher = Publisher(options, self._publish_streams)
        self._cache_streams = RequestStreamPool(options, caching, sizes.cache_streams, sleep)
        self._subscriptions: set[AsyncSubscription] = set()
        self._closed = False

    @property
    def connections(self) -> int:
        """The number of connections opened so far."""
        return sum(pool.opened for pool in self._connection_pools)

    async def connect(self) -> None:
        """Connect now instead of with the first request, to find out at once whether the token is accepted."""
        self._check_open()
        await self._publish_streams.get(0)

    async def close(self) -> None:
        """End the subscriptions, and close the connections after all requests in flight are answered. The client cannot
        be used again."""
        if self._closed:
            return
        self._closed = True
        subscriptions = list(self._subscriptions)
        for subscription in subscriptions:
            await subscription.close()
        seconds = min(CLOSE_TIMEOUT, self._options.timeout)
        await asyncio.gather(*[pool.close(seconds) for pool in self._connection_pools])
        for subscription in subscriptions:
            await subscription.abandon()

    # -- publishing

    async def publish(
        self, stream: str, payload: bytes, *, key: bytes | None = None, namespace: str | None = None
    ) -> int | None:
        """Publish an event, and wait until it is stored. Returns its offset, if the server reports it."""
        return await self.publish_many(stream, (payload,), key=key, namespace=namespace)

    async def publish_many(
        self, stream: str, payloads: Sequence[bytes], *, key: bytes | None = None, namespace: str | None = None
    ) -> int | None:
        """Publish events in one batch, and wait until they are stored, all or none. Returns the offset of the first, if
        the server reports it. The key applies to all of them, and selects their partition.

        Concurrent calls do not wait for each other's replies, up to the window in `limits`."""
        self._check_open()
        return await self._publisher.publish(stream, payloads, namespace, key)

    async def publish_batches(
        self, stream: str, batches: Iterable[Sequence[bytes]], *, namespace: str | None = None, window: int = 64
    ) -> int:
        """Publish batches independently, without waiting for each reply; at most `window` of them, or the window in
        `limits` in bytes, are in flight. Returns their number. Stops at the first failure; PipelineError then has the
        outcome of each batch that was sent. The blocking client iterates over `batches` in the thread of its event
        loop."""
        self._check_open()
        if window < 1:
            raise ValueError("window must be at least 1")
        return await self._publisher.publish_batches(stream, batches, namespace, window)

    async def publish_nowait(self, stream: str, *payloads: bytes, namespace: str | None = None) -> None:
        """Publish events in one unacknowledged batch: fast, but silently lost if the server rejects them or the
        connection breaks. Waits only if the server does not keep up."""
        self._check_open()
        await self._publisher.publish_unacknowledged(stream, payloads, namespace)

    # -- subscribing

    def subscribe(
        self, stream: str, start: Start = "latest", *, namespace: str | None = None, allow_gaps: bool = False
    ) -> AsyncSubscription:
        """New events, or all from an offset or the earliest one on: see `AsyncSubscription`. Entering it as a context
        manager returns once the server has confirmed the subscription."""
        self._check_open()
        subscription = AsyncSubscription(
            self._options, self._event_connections, self._sleep, self._options.scope(namespace, "stream", stream),
            start, allow_gaps, self._subscriptions.discard,
        )  # fmt: skip
        self._subscriptions.add(subscription)
        return subscription

    # -- caches

    def cache(self, cache: str = "default", *, namespace: str | None = None) -> Cache:
        """A cache, for frequent use. The methods below are shorthands."""
        self._check_open()
        return Cache(self._options, self._cache_streams, namespace, cache)

    async def cache_put(
        self, key: str, value: bytes, ttl_ms: int | None = None, *, cache: str = "default", namespace: str | None = None
    ) -> None:
        """Store a value, for `ttl_ms` milliseconds, or as long as there is room."""
        await self.cache(cache, namespace=namespace).put(key, value, ttl_ms)

    async def cache_get(self, key: str, *, cache: str = "default", namespace: str | None = None) -> bytes | None:
        """The value, or None if it does not exist or has expired."""
        return await self.cache(cache, namespace=namespace).get(key)

    async def cache_delete(self, key: str, *, cache: str = "default", namespace: str | None = None) -> bool:
        """Remove a value. Returns whether there was one. Not in the specification."""
        return await self.cache(cache, namespace=namespace).delete(key)

    async def cache_compare_and_set(
        self, key: str, expected: bytes | None, value: bytes, ttl_ms: int | None = None, *, cache: str = "default",
        namespace: str | None = None,
    ) -> Swapped:  # fmt: skip
        """Store a value if the current one equals `expected`; None expects no value. Not in the specification."""
        return await self.cache(cache, namespace=namespace).compare_and_set(key, expected, value, ttl_ms)

    async def cache_increment(
        self, key: str, by: int = 1, ttl_ms: int | None = None, *, cache: str = "default", namespace: str | None = None
    ) -> int:
        """Add to the number under a key, and return the sum. Not in the specification."""
        return await self.cache(cache, namespace=namespace).increment(key, by, ttl_ms)

    def _check_open(self) -> None:
        if self._closed:
            raise _closed_error()


def _closed_error() -> ClientClosed:
    return ClientClosed("the client was closed")


def _blocking(
    method: Callable[Concatenate[AsyncFelixClient, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[FelixClient, P], R]:
    """The blocking client's method that runs this one on its event loop."""

    @functools.wraps(method)
    def call(self: FelixClient, /, *args: P.args, **options: P.kwargs) -> R:
        return self._loop_thread.run(method(self._client, *args, **options))

    return call


class FelixClient(Closing):
    """A Felix client for any number of threads, with the options and guarantees of `AsyncFelixClient`."""

    def __init__(self, server: str = "127.0.0.1", **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncFelixClient(server, **options)
        self._loop_thread = LoopThread("felix-client", _closed_error)

    @property
    def connections(self) -> int:
        """The number of connections opened so far."""
        return self._client.connections

    def close(self) -> None:
        """End the subscriptions, and close the connections after all requests in flight are answered. The client cannot
        be used again."""
        self._loop_thread.stop(self._client.close)

    def subscribe(
        self, stream: str, start: Start = "latest", *, namespace: str | None = None, allow_gaps: bool = False
    ) -> Subscription:
        """New events, or all from an offset or the earliest one on: see `Subscription`."""
        inner = self._client.subscribe(stream, start, namespace=namespace, allow_gaps=allow_gaps)
        return Subscription(self._loop_thread, inner)

    connect = _blocking(AsyncFelixClient.connect)
    publish = _blocking(AsyncFelixClient.publish)
    publish_many = _blocking(AsyncFelixClient.publish_many)
    publish_batches = _blocking(AsyncFelixClient.publish_batches)
    publish_nowait = _blocking(AsyncFelixClient.publish_nowait)
    cache_put = _blocking(AsyncFelixClient.cache_put)
    cache_get = _blocking(AsyncFelixClient.cache_get)
    cache_delete = _blocking(AsyncFelixClient.cache_delete)
    cache_compare_and_set = _blocking(AsyncFelixClient.cache_compare_and_set)
    cache_increment = _blocking(AsyncFelixClient.cache_increment)
