"""Every request with its handler."""

from __future__ import annotations

from typing import Final

from penstock.broker.security.access import Permission
from penstock.doors.felix.handlers import auth, cache, publish, subscribe
from penstock.doors.felix.produce_batch import ProduceBatch
from penstock.doors.handlers import Handler, logs_in, reads, writes
from penstock.wire.felix import messages as m

HANDLERS: Final[dict[type, Handler]] = {
    m.Auth: logs_in(reads(auth.auth)),
    ProduceBatch: writes(publish.publish, Permission.WRITE),  # for `Publish`, `PublishBatch` and binary batches
    m.Subscribe: reads(subscribe.subscribe, Permission.READ),
    m.StreamShards: reads(subscribe.stream_shards, Permission.READ),
    # Cache changes are visible to later requests immediately; only the reply waits for the commit.
    m.CachePut: writes(cache.put, Permission.CACHE_WRITE),
    m.CacheGet: writes(cache.get, Permission.CACHE_READ, large=True),
    m.CacheDelete: writes(cache.delete, Permission.CACHE_WRITE),
    m.CacheCas: writes(cache.compare_and_set, Permission.CACHE_WRITE, large=True),
    m.CacheIncrement: writes(cache.increment, Permission.CACHE_WRITE),
    m.CounterAdd: writes(cache.counter_add, Permission.CACHE_WRITE),
    m.CounterGet: writes(cache.counter_get, Permission.CACHE_READ),
}
