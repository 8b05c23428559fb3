"""Request specs: every request with a single reply. `pool` chooses the stream for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.clients._core import requests as core
from penstock.clients._core.requests import nothing
from penstock.clients.felix.errors import BadReply, FelixError, OutcomeUnknown, StreamLost, TimedOut, Unsendable
from penstock.clients.felix.options import Options
from penstock.clients.felix.results import Swapped
from penstock.wire.felix import messages as m
from penstock.wire.felix.codec.binary import Batch, encode_batch
from penstock.wire.felix.frames import ACKED, KEYED
from penstock.wire.felix.routing import MAX_KEY

T = TypeVar("T")

Scope: TypeAlias = tuple[str, str, str]
"""Tenant, namespace, and the name of a stream or cache."""

_PUBLISHED: Final = "what was published may be stored, or not"
_CHANGED: Final = "the cache may be changed, or not"


class PublishRequest(NamedTuple):
    """A batch to publish, in an encoding that the server reads."""

    scope: Scope
    payloads: Sequence[bytes]
    binary: bool
    key: bytes | None = None  # of all payloads

    def encode(self, request_id: m.RequestId, flags: int) -> bytes:
        scope, payloads, binary, key = self
        if key is not None and isinstance(request_id, int) and not flags & KEYED:
            raise Unsendable("the server is too old for keys: it would ignore them")
        if binary and flags & ACKED and isinstance(request_id, int):
            return encode_batch(Batch(*scope, list(payloads), request_id, key=key))
        if len(payloads) == 1:
            return m.encode(m.Publish(*scope, payloads[0], request_id, "per_message", key))
        return m.encode(m.PublishBatch(*scope, list(payloads), request_id, "per_batch", key))


@dataclass(slots=True)
class RequestSpec(core.RequestSpec[T]):
    """`uncertainty` is the text of OutcomeUnknown, for requests that are not idempotent."""

    uncertainty: str = ""

    def encode(self, request_id: m.RequestId, flags: int) -> bytes:
        """The encoded frame with this id, for a server that reads the frame types in `flags`."""
        request = self.request
        if type(request) is PublishRequest:
            return request.encode(request_id, flags)
        try:
            return m.encode(msgspec.structs.replace(request, request_id=request_id))
        except UnicodeEncodeError as error:
            raise Unsendable(f"the key is not text: {error}") from error

    def result(self, reply: m.Reply) -> T:
        if not isinstance(reply, self.reply):
            raise BadReply(f"{type(reply).__name__} is no answer to this")
        return self.decode(reply)

    def failure(self, error: FelixError) -> FelixError:
        """The exception for the caller, if sending the request ended in this error."""
        if self.idempotent or not isinstance(error, StreamLost | TimedOut):
            return error
        kind = TimedOut if isinstance(error, TimedOut) else OutcomeUnknown
        return kind(f"{self.uncertainty}: {error}")


def publish(
    options: Options, scope: Scope, payloads: Sequence[bytes], key: bytes | None = None
) -> RequestSpec[int | None]:
    """Store payloads as one atomic batch. The result is the offset of the first, if the server reports it."""
    if key is not None and len(key) > MAX_KEY:
        raise Unsendable(f"a key of {len(key)} bytes; the most is {MAX_KEY}")
    binary = options.original and options.encoding == "binary"
    return RequestSpec(PublishRequest(scope, payloads, binary, key), _offset, uncertainty=_PUBLISHED)


def _offset(reply: m.Reply) -> int | None:
    return reply.offset if isinstance(reply, m.PublishOk) else None


def cache_put(scope: Scope, key: str, value: bytes, ttl_ms: int | None) -> RequestSpec[None]:
    return _change(m.CachePut, scope, object, nothing, key=key, value=value, ttl_ms=ttl_ms)


def cache_get(scope: Scope, key: str) -> RequestSpec[bytes | None]:
    tenant, namespace, cache = scope
    request = m.CacheGet(tenant_id=tenant, namespace=namespace, cache=cache, key=key)
    return RequestSpec(request, lambda reply: reply.value, m.CacheValue, idempotent=True)


def cache_delete(scope: Scope, key: str) -> RequestSpec[bool]:
    return _change(m.CacheDelete, scope, object, lambda reply: bool(getattr(reply, "deleted", False)), key=key)


def cache_compare_and_set(
    scope: Scope, key: str, expected: bytes | None, value: bytes, ttl_ms: int | None
) -> RequestSpec[Swapped]:
    def decode(reply: m.CacheCasOk) -> Swapped:
        return Swapped(reply.stored, reply.value)

    return _change(m.CacheCas, scope, m.CacheCasOk, decode, key=key, expected=expected, value=value, ttl_ms=ttl_ms)


def cache_increment(scope: Scope, key: str, by: int, ttl_ms: int | None) -> RequestSpec[int]:
    def decode(reply: m.CacheValue) -> int:
        try:
            return int(reply.value or b"")
        except ValueError:
            raise BadReply(f"{reply.value!r} is no number") from None

    return _change(m.CacheIncrement, scope, m.CacheValue, decode, key=key, by=by, ttl_ms=ttl_ms)


def _change(
    kind: type[m.CacheRequest], scope: Scope, reply: type, decode: Callable[[Any], T], **fields: Any
) -> RequestSpec[T]:
    tenant, namespace, cache = scope
    request = kind(tenant_id=tenant, namespace=namespace, cache=cache, **fields)
    return RequestSpec(request, decode, reply, uncertainty=_CHANGED)
