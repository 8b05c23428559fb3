"""Request specs: every request that is answered by one reply, as it is written and as its reply is understood.

A spec says how to encode the request under an id, what the reply means to the caller, and whether it may be sent a
second time when the first reply was lost. Which stream it goes by is decided in `pool`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from penstock.clients.felix.errors import BadReply, FelixError, OutcomeUnknown, StreamLost, TimedOut, Unsendable
from penstock.clients.felix.options import Options
from penstock.clients.felix.results import Swapped
from penstock.wire.felix import messages as m
from penstock.wire.felix.codec.binary import Batch, encode_batch
from penstock.wire.felix.frames import ACKED

R = TypeVar("R")
M = TypeVar("M", bound=m.Reply)

Scope: TypeAlias = tuple[str, str, str]
"""Tenant, namespace, and the name of a stream or cache."""

_PUBLISHED: Final = "what was published may be stored, or not"
_CHANGED: Final = "the cache may be changed, or not"


@dataclass(slots=True)
class RequestSpec(Generic[R]):
    encode: Callable[[m.RequestId, int], bytes]  # of its id and of the flags that the server understands
    decode: Callable[[m.Reply], R]
    uncertain: str | None  # the state after a lost reply; None for idempotent requests, which are sent again

    def failure(self, error: FelixError) -> FelixError:
        """The exception for the caller, when the request was sent and this came of it."""
        if self.uncertain is not None and isinstance(error, StreamLost | TimedOut):
            kind = TimedOut if isinstance(error, TimedOut) else OutcomeUnknown
            return kind(f"{self.uncertain}: {error}")
        return error


def publish(options: Options, scope: Scope, payloads: Sequence[bytes]) -> RequestSpec[None]:
    """Store payloads as one batch, all or none."""
    binary = options.original and options.encoding == "binary"

    def encode(request_id: m.RequestId, flags: int) -> bytes:
        if binary and flags & ACKED and isinstance(request_id, int):
            return encode_batch(Batch(*scope, list(payloads), request_id))
        if len(payloads) == 1:
            return m.encode(m.Publish(*scope, payloads[0], request_id, "per_message"))
        return m.encode(m.PublishBatch(*scope, list(payloads), request_id, "per_batch"))

    return RequestSpec(encode, _nothing, _PUBLISHED)


def cache_put(scope: Scope, key: str, value: bytes, ttl_ms: int | None) -> RequestSpec[None]:
    return _cache_request(scope, m.CachePut, _nothing, _CHANGED, key=key, value=value, ttl_ms=ttl_ms)


def cache_get(scope: Scope, key: str) -> RequestSpec[bytes | None]:
    return _cache_request(scope, m.CacheGet, _cache_value, None, key=key)


def cache_delete(scope: Scope, key: str) -> RequestSpec[bool]:
    return _cache_request(scope, m.CacheDelete, lambda reply: bool(getattr(reply, "deleted", False)), _CHANGED, key=key)


def cache_compare_and_set(
    scope: Scope, key: str, expected: bytes | None, value: bytes, ttl_ms: int | None
) -> RequestSpec[Swapped]:
    def decode(reply: m.Reply) -> Swapped:
        swap = _expect(reply, m.CacheCasOk)
        return Swapped(swap.stored, swap.value)

    return _cache_request(scope, m.CacheCas, decode, _CHANGED, key=key, expected=expected, value=value, ttl_ms=ttl_ms)


def cache_increment(scope: Scope, key: str, by: int, ttl_ms: int | None) -> RequestSpec[int]:
    def decode(reply: m.Reply) -> int:
        value = _cache_value(reply)
        try:
            return int(value or b"")
        except ValueError:
            raise BadReply(f"{value!r} is no number") from None

    return _cache_request(scope, m.CacheIncrement, decode, _CHANGED, key=key, by=by, ttl_ms=ttl_ms)


def _cache_request(
    scope: Scope, kind: type[m.CacheRequest], decode: Callable[[m.Reply], R], uncertain: str | None, **fields: Any
) -> RequestSpec[R]:
    tenant, namespace, cache = scope

    def encode(request_id: m.RequestId, _flags: int) -> bytes:
        request = kind(tenant_id=tenant, namespace=namespace, cache=cache, request_id=request_id, **fields)
        try:
            return m.encode(request)
        except UnicodeEncodeError as error:
            raise Unsendable(f"the key is not text: {error}") from error

    return RequestSpec(encode, decode, uncertain)


def _nothing(_reply: m.Reply) -> None:
    return None


def _cache_value(reply: m.Reply) -> bytes | None:
    return _expect(reply, m.CacheValue).value


def _expect(reply: m.Reply, kind: type[M]) -> M:
    if not isinstance(reply, kind):
        raise BadReply(f"{type(reply).__name__} is no answer to this")
    return reply
