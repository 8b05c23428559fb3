"""Caches: values under keys, with an optional lifetime. They use Felix's door, whose address and certificate
fingerprint come from the administration API. Felix does not accept passwords: for users with a password, caches use
that API itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import RequestSpec, result_of
from penstock.clients.felix import AsyncFelixClient, FelixClient, Swapped
from penstock.clients.http import requests
from penstock.clients.http.errors import NotFound
from penstock.connection.options import DEFAULT, ConnectionOptions
from penstock.connection.records import Text, milliseconds, optional_bytes, to_bytes
from penstock.connection.views import Door


def felix_arguments(options: ConnectionOptions, door: Door) -> dict[str, Any]:
    """Arguments for a Felix client."""
    credentials = options.credentials
    host = f"[{options.address.host}]" if ":" in options.address.host else options.address.host
    return {
        "server": f"{host}:{door.address.rpartition(':')[2]}", "token": credentials.secret,
        "fingerprint": door.fingerprint, "timeout": options.timeout, "retry": options.retry,
        "tenant": options.tenant or DEFAULT, "namespace": options.namespace or DEFAULT,
    }  # fmt: skip


class CachedValue(msgspec.Struct):
    value: bytes


class SwappedValue(msgspec.Struct):
    stored: bool
    value: bytes | None


class Incremented(msgspec.Struct):
    number: int


class HttpCacheMethods:
    """The cache methods of Felix's client, over HTTP. `run` is that of an HTTP client; if it is a coroutine function,
    results must be awaited."""

    def __init__(self, run: Callable[[Procedure[Any]], Any]) -> None:
        self._run = run

    def cache_get(self, key: str, *, cache: str) -> Any:
        spec = requests.call("GET", "caches", cache, key, reply=CachedValue)
        return self._run(_result(spec, lambda found: found.value, None))

    def cache_put(self, key: str, value: bytes, ttl_ms: int | None, *, cache: str) -> Any:
        body = {"value": value, "ttl_ms": ttl_ms}
        return self._run(_result(requests.change("PUT", "caches", cache, key, body=body), lambda _: None))

    def cache_delete(self, key: str, *, cache: str) -> Any:
        return self._run(_result(requests.change("DELETE", "caches", cache, key), lambda _: True, False))

    def cache_compare_and_set(
        self, key: str, expected: bytes | None, value: bytes, ttl_ms: int | None, *, cache: str
    ) -> Any:
        body = {"expected": expected, "value": value, "ttl_ms": ttl_ms}
        spec = requests.call("POST", "caches", cache, key, "compare-and-set", reply=SwappedValue, body=body)
        return self._run(_result(spec, lambda found: Swapped(found.stored, found.value)))

    def cache_increment(self, key: str, by: int, ttl_ms: int | None, *, cache: str) -> Any:
        body = {"by": by, "ttl_ms": ttl_ms}
        spec = requests.call("POST", "caches", cache, key, "increment", reply=Incremented, body=body)
        return self._run(_result(spec, lambda found: found.number))


_RAISE: Final = object()


def _result(spec: RequestSpec[Any], value: Callable[[Any], Any], absent: Any = _RAISE) -> Procedure[Any]:
    """The value in a reply, or `absent` if the key does not exist."""
    (outcome,) = yield [spec]
    if isinstance(outcome, NotFound) and absent is not _RAISE:
        return absent
    return value(result_of(outcome))


def _life(ttl: float | None) -> int | None:
    return None if ttl is None else milliseconds(ttl, "ttl")


class Cache:
    """One cache of the broker. `ttl` is how many seconds a value is kept; without it, as long as there is room."""

    def __init__(self, client: FelixClient | HttpCacheMethods, name: str) -> None:
        self._client = client
        self.name = name

    def get(self, key: str) -> bytes | None:
        """The value, or None if it does not exist or has expired."""
        return self._client.cache_get(key, cache=self.name)

    def put(self, key: str, value: Text, ttl: float | None = None) -> None:
        """Store a value."""
        self._client.cache_put(key, to_bytes(value), _life(ttl), cache=self.name)

    def delete(self, key: str) -> bool:
        """Remove a value. Returns whether there was one."""
        return self._client.cache_delete(key, cache=self.name)

    def compare_and_set(self, key: str, expected: Text | None, value: Text, ttl: float | None = None) -> Swapped:
        """Store a value if the current one equals `expected`; None expects no value. The result says whether it was
        stored, and has the current value."""
        present = optional_bytes(expected)
        return self._client.cache_compare_and_set(key, present, to_bytes(value), _life(ttl), cache=self.name)

    def increment(self, key: str, by: int = 1, ttl: float | None = None) -> int:
        """Add to the number under a key, starting at 0 if there is none. `ttl` only applies to a number created by this
        call."""
        return self._client.cache_increment(key, by, _life(ttl), cache=self.name)


class AsyncCache:
    """`Cache` for asyncio: every method is a coroutine."""

    def __init__(self, client: AsyncFelixClient | HttpCacheMethods, name: str) -> None:
        self._client = client
        self.name = name

    async def get(self, key: str) -> bytes | None:
        """The value, or None if it does not exist or has expired."""
        return await self._client.cache_get(key, cache=self.name)

    async def put(self, key: str, value: Text, ttl: float | None = None) -> None:
        """Store a value."""
        await self._client.cache_put(key, to_bytes(value), _life(ttl), cache=self.name)

    async def delete(self, key: str) -> bool:
        """Remove a value. Returns whether there was one."""
        return await self._client.cache_delete(key, cache=self.name)

    async def compare_and_set(self, key: str, expected: Text | None, value: Text, ttl: float | None = None) -> Swapped:
        """Store a value if the current one equals `expected`; see `Cache.compare_and_set`."""
        present = optional_bytes(expected)
        return await self._client.cache_compare_and_set(key, present, to_bytes(value), _life(ttl), cache=self.name)

    async def increment(self, key: str, by: int = 1, ttl: float | None = None) -> int:
        """Add to the number under a key; see `Cache.increment`."""
        return await self._client.cache_increment(key, by, _life(ttl), cache=self.name)
