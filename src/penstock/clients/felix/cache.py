"""The cache: values under keys; concurrent requests share a few streams."""

from __future__ import annotations

from penstock.clients.felix import requests
from penstock.clients.felix.options import Options
from penstock.clients.felix.pool import RequestStreamPool
from penstock.clients.felix.results import Swapped


class Cache:
    """One cache of a server. Requests alternate between the streams, so concurrent ones may overtake each other."""

    def __init__(self, options: Options, streams: RequestStreamPool, namespace: str | None, cache: str) -> None:
        self._streams = streams
        self._scope = options.scope(namespace, "cache", cache)

    async def put(self, key: str, value: bytes, ttl_ms: int | None = None) -> None:
        """Store a value, for `ttl_ms` milliseconds, or as long as there is room."""
        await self._streams.call_next(requests.cache_put(self._scope, key, value, ttl_ms))

    async def get(self, key: str) -> bytes | None:
        """The value, or None if it does not exist or has expired. Retried if the connection breaks."""
        return await self._streams.call_next(requests.cache_get(self._scope, key))

    async def delete(self, key: str) -> bool:
        """Remove a value. Returns whether there was one."""
        return await self._streams.call_next(requests.cache_delete(self._scope, key))

    async def compare_and_set(
        self, key: str, expected: bytes | None, value: bytes, ttl_ms: int | None = None
    ) -> Swapped:
        """Store a value if the current one equals `expected`; None expects no value."""
        spec = requests.cache_compare_and_set(self._scope, key, expected, value, ttl_ms)
        return await self._streams.call_next(spec)

    async def increment(self, key: str, by: int = 1, ttl_ms: int | None = None) -> int:
        """Add to the number under a key, starting at 0 if there is none, and return the sum. `ttl_ms` only applies to a
        number created by this call."""
        return await self._streams.call_next(requests.cache_increment(self._scope, key, by, ttl_ms))
