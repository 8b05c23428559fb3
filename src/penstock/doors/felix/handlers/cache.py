"""The cache: put and get of both dialects; and delete, compare-and-set and increment, which are extensions.

A message that does not name a cache uses the configured one, in the stream's own tenant if `auth` named one. Every
request is answered, in order, with or without an id. A reply about a cache in memory waits for nothing; one about a
journalled cache waits until the value it shows is committed.
"""

from __future__ import annotations

from penstock.broker.cache.cache_store import CacheName, incremented
from penstock.doors.felix.errors import MAX_NAME, NOT_FOUND, TOO_MUCH, RequestRefused
from penstock.doors.felix.request_context import FelixContext
from penstock.doors.reply import Reply
from penstock.wire.felix.features import CACHE_DELETE
from penstock.wire.felix.frames import HEADER_SIZE
from penstock.wire.felix.messages import (
    CacheCas,
    CacheDelete,
    CacheGet,
    CacheIncrement,
    CachePut,
    CacheRequest,
    CounterAdd,
    CounterGet,
)


def put(context: FelixContext, request: CachePut) -> Reply:
    cache = _cache(context, request)
    group = context.broker.caches.put(context.identity, cache, request.key, request.value, request.ttl_ms)
    return Reply(context.dialect.cache_stored(request.request_id), group)


def get(context: FelixContext, request: CacheGet) -> Reply:
    cache = _cache(context, request)
    caches = context.broker.caches
    value = caches.get(context.identity, cache, request.key)
    return Reply(_fitting(context, context.dialect.cache_value(request, value), value), caches.settled(cache))


def delete(context: FelixContext, request: CacheDelete) -> Reply:
    cache = _cache(context, request)
    caches = context.broker.caches
    if context.features & CACHE_DELETE:  # the original's clients expect the old value
        value = caches.get(context.identity, cache, request.key)
        reply = _fitting(context, context.dialect.cache_value(request, value), value)
        return Reply(reply, caches.delete(context.identity, cache, request.key)[1])
    deleted, group = caches.delete(context.identity, cache, request.key)
    return Reply(context.dialect.cache_deleted(request.request_id, deleted), group)


def compare_and_set(context: FelixContext, request: CacheCas) -> Reply:
    cache = _cache(context, request)
    stored, value, group = context.broker.caches.compare_and_set(
        context.identity, cache, request.key, request.expected, request.value, request.ttl_ms
    )
    return Reply(_fitting(context, context.dialect.cache_compared(request, stored, value), value), group)


def increment(context: FelixContext, request: CacheIncrement) -> Reply:
    cache = _cache(context, request)
    number, group = context.broker.caches.increment(context.identity, cache, request.key, request.by, request.ttl_ms)
    return Reply(context.dialect.cache_value(request, b"%d" % number), group)


def counter_add(context: FelixContext, request: CounterAdd) -> Reply:
    """A counter is a number in the cache, like those of `increment`."""
    cache = _cache(context, request)
    number, group = context.broker.caches.increment(context.identity, cache, request.key, request.delta, None)
    return Reply(context.dialect.counter_value(number, request.request_id), group)


def counter_get(context: FelixContext, request: CounterGet) -> Reply:
    cache = _cache(context, request)
    caches = context.broker.caches
    value = caches.get(context.identity, cache, request.key)
    number = None if value is None else incremented(value, 0)
    return Reply(context.dialect.counter_value(number, request.request_id), caches.settled(cache))


def _fitting(context: FelixContext, reply: bytes, value: bytes | None) -> bytes:
    """The reply, if it fits a frame: a value may fit the message that put it, but not the longer one that returns
    it."""
    if len(reply) - HEADER_SIZE > context.settings.max_frame:
        text = f"the value has {len(value or b'')} bytes, more than a frame carries"
        raise RequestRefused(text, advice=TOO_MUCH)
    return reply


def _cache(context: FelixContext, request: CacheRequest) -> CacheName:
    """The cache of a request, if the client has access to it now. Raises the errors of `FelixContext.scope`."""
    settings = context.settings
    tenant, namespace, cache = request.tenant_id, request.namespace, request.cache
    if tenant is None:
        tenant = settings.cache_tenant if context.tenant is None else context.tenant
    if namespace is None:
        namespace = settings.cache_namespace
    if cache is None:
        cache = settings.cache
    context.scope(tenant, namespace)
    if not settings.auto_create_tenants:
        _check_tenant(context, tenant, namespace, cache)
    return context.broker.caches.name(tenant, namespace, cache)


def _check_tenant(context: FelixContext, tenant: str, namespace: str, cache: str) -> None:
    """Check that the tenant exists, if tenants are not created on first use. The configured tenant for messages without
    a scope always exists."""
    broker = context.broker
    if tenant == context.settings.cache_tenant:
        return
    broker.access.require_member(context.identity, broker.caches.name(tenant, namespace, cache).scope)
    if not broker.tenants.exists(tenant):
        text = f"cache scope not found: {tenant}/{namespace}/{cache[:MAX_NAME]}"
        raise RequestRefused(text, advice=NOT_FOUND)
