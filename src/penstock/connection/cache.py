"""Caches: values under keys, for a time. Felix's door carries them; its address and the fingerprint of its certificate
are those that the administration API tells."""

from __future__ import annotations

from typing import Any

from penstock.clients.felix import AsyncFelixClient, FelixClient, Swapped
from penstock.connection.errors import DoorClosed
from penstock.connection.options import ConnectionOptions
from penstock.connection.records import Text, milliseconds, optional_bytes, to_bytes
from penstock.connection.views import Door


def felix_arguments(options: ConnectionOptions, door: Door) -> dict[str, Any]:
    """Arguments of a client for Felix. Raises DoorClosed."""
    credentials = options.credentials
    if credentials.user is not None:
        raise DoorClosed("Felix's door, which has the cache, takes no passwords: connect with an API key or a token")
    host = f"[{options.address.host}]" if ":" in options.address.host else options.address.host
    return {
        "server": f"{host}:{door.address.rpartition(':')[2]}", "token": credentials.secret,
        "fingerprint": door.fingerprint, "timeout": options.timeout, "retry": options.retry,
    }  # fmt: skip


def _life(ttl: float | None) -> int | None:
    return None if ttl is None else milliseconds(ttl, "ttl")


class Cache:
    """One cache of the broker. `ttl` is for how many seconds a value is kept; else as long as there is room."""

    def __init__(self, client: FelixClient, name: str) -> None:
        self._client = client
        self.name = name

    def get(self, key: str) -> bytes | None:
        """The value, or None if there is none any more."""
        return self._client.cache_get(key, cache=self.name)

    def put(self, key: str, value: Text, ttl: float | None = None) -> None:
        """Keep a value."""
        self._client.cache_put(key, to_bytes(value), _life(ttl), cache=self.name)

    def delete(self, key: str) -> bool:
        """Whether there was a value to remove."""
        return self._client.cache_delete(key, cache=self.name)

    def compare_and_set(self, key: str, expected: Text | None, value: Text, ttl: float | None = None) -> Swapped:
        """Keep a value if the present one is as expected; None expects that there is none. The result says whether it
        was done, and what is there now."""
        present = optional_bytes(expected)
        return self._client.cache_compare_and_set(key, present, to_bytes(value), _life(ttl), cache=self.name)

    def increment(self, key: str, by: int = 1, ttl: float | None = None) -> int:
        """Add to the number under a key, which is 0 if there is none; `ttl` is for a number that is not there yet."""
        return self._client.cache_increment(key, by, _life(ttl), cache=self.name)


class AsyncCache:
    """The same as `Cache`, to be awaited."""

    def __init__(self, client: AsyncFelixClient, name: str) -> None:
        self._client = client
        self.name = name

    async def get(self, key: str) -> bytes | None:
        """The value, or None if there is none any more."""
        return await self._client.cache_get(key, cache=self.name)

    async def put(self, key: str, value: Text, ttl: float | None = None) -> None:
        """Keep a value."""
        await self._client.cache_put(key, to_bytes(value), _life(ttl), cache=self.name)

    async def delete(self, key: str) -> bool:
        """Whether there was a value to remove."""
        return await self._client.cache_delete(key, cache=self.name)

    async def compare_and_set(self, key: str, expected: Text | None, value: Text, ttl: float | None = None) -> Swapped:
        """Keep a value if the present one is as expected; see `Cache.compare_and_set`."""
        present = optional_bytes(expected)
        return await self._client.cache_compare_and_set(key, present, to_bytes(value), _life(ttl), cache=self.name)

    async def increment(self, key: str, by: int = 1, ttl: float | None = None) -> int:
        """Add to the number under a key; see `Cache.increment`."""
        return await self._client.cache_increment(key, by, _life(ttl), cache=self.name)
