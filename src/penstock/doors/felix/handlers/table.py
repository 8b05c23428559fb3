"""Every request with its handler."""

from __future__ import annotations

from typing import Final

from penstock.doors.felix.handlers import auth, cache, publish, subscribe
from penstock.doors.felix.produce_batch import ProduceBatch
from penstock.doors.handlers import Handler, reads, writes
from penstock.wire.felix import messages as m

HANDLERS: Final[dict[type, Handler]] = {
    m.Auth: reads(auth.auth),
    ProduceBatch: writes(publish.publish),  # of `Publish`, `PublishBatch` and binary batches
    m.Subscribe: reads(subscribe.subscribe),
    # A change of the cache is seen by whoever comes next; the reply is what waits for the commit.
    m.CachePut: writes(cache.put),
    m.CacheGet: writes(cache.get, large=True),
    m.CacheDelete: writes(cache.delete),
    m.CacheCas: writes(cache.compare_and_set, large=True),
    m.CacheIncrement: writes(cache.increment),
}
