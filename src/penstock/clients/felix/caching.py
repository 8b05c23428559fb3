"""The cache: values under keys, asked by many at once over a few streams."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.clients.felix.connection import Exchanges, Sleep
from penstock.clients.felix.errors import BadReply, ConnectionFailed, OutcomeUnknown, Unsendable
from penstock.clients.felix.exchange import Lost, Outcome, result_of
from penstock.clients.felix.options import Options, name
from penstock.clients.felix.results import Swapped
from penstock.wire.felix import messages as m

R = TypeVar("R", bound=m.Reply)


class Cache:
    """One cache of a server. Requests take the streams in turn, so concurrent ones may overtake each other."""

    def __init__(self, options: Options, exchanges: Exchanges, sleep: Sleep, namespace: str | None, cache: str) -> None:
        self._options = options
        self._exchanges = exchanges
        self._sleep = sleep
        place = options.namespace if namespace is None else name("namespace", namespace)
        self._scope = options.tenant, place, name("cache", cache)

    async def put(self, key: str, value: bytes, ttl_ms: int | None = None) -> None:
        """Store a value, for so many milliseconds, or for as long as there is room."""
        await self._change(m.CachePut, key=key, value=value, ttl_ms=ttl_ms)

    async def get(self, key: str) -> bytes | None:
        """The value, or None if there is none any more. Asked again if the connection breaks."""
        attempt = 0
        while True:
            outcome = await self._ask(m.CacheGet, {"key": key})
            if not isinstance(outcome, Lost):
                return _reply(outcome, m.CacheValue).value
            attempt += 1
            if attempt >= self._options.retry.attempts:
                raise ConnectionFailed(f"the connection was lost {attempt} times: {outcome}") from outcome
            await self._sleep(self._options.retry.delay(attempt - 1))

    async def delete(self, key: str) -> bool:
        """Whether there was a value to remove."""
        reply = await self._change(m.CacheDelete, key=key)
        return bool(getattr(reply, "deleted", False))

    async def compare_and_set(
        self, key: str, expected: bytes | None, value: bytes, ttl_ms: int | None = None
    ) -> Swapped:
        """Store a value if the present one is as expected; None expects that there is none."""
        reply = await self._change(m.CacheCas, key=key, expected=expected, value=value, ttl_ms=ttl_ms)
        found = _reply(reply, m.CacheCasOk)
        return Swapped(found.stored, found.value)

    async def increment(self, key: str, by: int = 1, ttl_ms: int | None = None) -> int:
        """Add to the number under a key, which is 0 if there is none. `ttl_ms` is for a number that is not there yet.
        The result is the sum."""
        value = _reply(await self._change(m.CacheIncrement, key=key, by=by, ttl_ms=ttl_ms), m.CacheValue).value
        try:
            return int(value or b"")
        except ValueError:
            raise BadReply(f"{value!r} is no number") from None

    async def _change(self, kind: type[m.CacheRequest], **fields: Any) -> m.Reply:
        """Ask what must not be carried out twice without the caller's knowing."""
        outcome = await self._ask(kind, fields)
        if isinstance(outcome, Lost):
            raise OutcomeUnknown(f"the cache may be changed, or not: {outcome}") from outcome
        return result_of(outcome)

    async def _ask(self, kind: type[m.CacheRequest], fields: dict[str, Any]) -> Outcome:
        tenant, namespace, cache = self._scope
        at = self._exchanges.turn()
        while True:
            exchange = self._exchanges.ready(at) or await self._exchanges.get(at)
            number = exchange.next_id()
            request = kind(tenant_id=tenant, namespace=namespace, cache=cache, request_id=number, **fields)
            try:
                data = m.encode(request)
            except UnicodeEncodeError as error:
                raise Unsendable(f"the key is not text: {error}") from error
            if exchange.full:
                await exchange.room()
            if exchange.lost is None:
                return await exchange.ask(number, data)


def _reply(outcome: Outcome, kind: type[R]) -> R:
    reply = result_of(outcome)
    if not isinstance(reply, kind):
        raise BadReply(f"{type(reply).__name__} is no answer to this")
    return reply
