"""The cache: put and get as both dialects have them, and delete, compare-and-set and increment, which are ours.

A message that does not name a cache means that of the configuration, which is in the stream's own tenant if `auth`
named one. Every request is answered, in order, whether or not it has an id. A reply about a cache that is in memory
only waits for nothing; one about a journalled cache waits until what it shows is committed.
"""

from __future__ import annotations

from penstock.broker.cache.cache_store import CacheName
from penstock.doors.felix.errors import MAX_NAME, RequestRefused
from penstock.doors.felix.request_context import RequestContext
from penstock.doors.reply import Reply
from penstock.wire.felix.messages import CacheCas, CacheDelete, CacheGet, CacheIncrement, CachePut, CacheRequest


def put(call: RequestContext, request: CachePut) -> Reply:
    cache = _cache(call, request)
    group = call.broker.caches.put(call.identity, cache, request.key, request.value, request.ttl_ms)
    return Reply(call.dialect.cache_stored(request.request_id), group)


def get(call: RequestContext, request: CacheGet) -> Reply:
    cache = _cache(call, request)
    caches = call.broker.caches
    value = caches.get(call.identity, cache, request.key)
    return Reply(call.dialect.cache_value(request, value), caches.settled(cache))


def delete(call: RequestContext, request: CacheDelete) -> Reply:
    cache = _cache(call, request)
    deleted, group = call.broker.caches.delete(call.identity, cache, request.key)
    return Reply(call.dialect.cache_deleted(request.request_id, deleted), group)


def compare_and_set(call: RequestContext, request: CacheCas) -> Reply:
    cache = _cache(call, request)
    stored, value, group = call.broker.caches.compare_and_set(
        call.identity, cache, request.key, request.expected, request.value, request.ttl_ms
    )
    return Reply(call.dialect.cache_compared(request, stored, value), group)


def increment(call: RequestContext, request: CacheIncrement) -> Reply:
    cache = _cache(call, request)
    number, group = call.broker.caches.increment(call.identity, cache, request.key, request.by, request.ttl_ms)
    return Reply(call.dialect.cache_value(request, b"%d" % number), group)


def _cache(call: RequestContext, request: CacheRequest) -> CacheName:
    """The cache that is meant, if the client may ask anything there now. Raises what `RequestContext.scope` does."""
    settings = call.settings
    tenant, namespace, cache = request.tenant_id, request.namespace, request.cache
    if tenant is None:
        tenant = settings.cache_tenant if call.tenant is None else call.tenant
    if namespace is None:
        namespace = settings.cache_namespace
    if cache is None:
        cache = settings.cache
    call.scope(tenant, namespace)
    if not settings.auto_create_tenants:
        _check_tenant(call, tenant, namespace, cache)
    return call.broker.caches.name(tenant, namespace, cache)


def _check_tenant(call: RequestContext, tenant: str, namespace: str, cache: str) -> None:
    """Where tenants do not come into being on first use, only those have caches that are there; the one that the
    configuration names for messages without a scope has."""
    broker = call.broker
    if tenant == call.settings.cache_tenant:
        return
    broker.access.require_member(call.identity, broker.caches.name(tenant, namespace, cache).scope)
    if not broker.tenants.exists(tenant):
        raise RequestRefused(f"cache scope not found: {tenant}/{namespace}/{cache[:MAX_NAME]}")
