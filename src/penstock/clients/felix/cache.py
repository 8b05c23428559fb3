"""The cache: values under keys, requested by many at once over a few streams."""

from __future__ import annotations

from penstock.clients.felix import requests
from penstock.clients.felix.options import Options
from penstock.clients.felix.pool import RequestStreamPool
from penstock.clients.felix.results import Swapped


class Cache:
    """One cache of a server. Requests use the streams in turn, so concurrent ones may overtake each other."""

    def __init__(self, options: Options, streams: RequestStreamPool, namespace: str | None, cache: str) -> None:
        self._streams = streams
        self._scope = options.scope(namespace, "cache", cache)

    async def put(self, key: str, value: bytes, ttl_ms: int | None = None) -> None:
        """Store a value, for so many milliseconds, or for as long as there is room."""
        await self._streams.call_next(requests.cache_put(self._scope, key, value, ttl_ms))

    async def get(self, key: str) -> bytes | None:
        """The value, or None if there is none any more. Sent again if the connection breaks."""
        return await self._streams.call_next(requests.cache_get(self._scope, key))

    async def delete(self, key: str) -> bool:
        """Whether there was a value to remove."""
        return await self._streams.call_next(requests.cache_delete(self._scope, key))

    async def compare_and_set(
        self, key: str, expected: bytes | None, value: bytes, ttl_ms: int | None = None
    ) -> Swapped:
        """Store a value if the present one is as expected; None expects that there is none."""
        spec = requests.cache_compare_and_set(self._scope, key, expected, value, ttl_ms)
        return await self._streams.call_next(spec)

    async def increment(self, key: str, by: int = 1, ttl_ms: int | None = None) -> int:
        """Add to the number under a key, which is 0 if there is none. `ttl_ms` is for a number that is not there yet.
        The result is the sum."""
        return await self._streams.call_next(requests.cache_increment(self._scope, key, by, ttl_ms))
