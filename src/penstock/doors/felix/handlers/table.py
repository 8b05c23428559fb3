"""Every request that a client can make, and what carries it out."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.doors.felix.handlers import auth, cache, publish, subscribe
from penstock.doors.felix.produce_batch import ProduceBatch
from penstock.doors.felix.request_context import Handler
from penstock.wire.felix import messages as m


class Operation(NamedTuple):
    carry_out: Handler
    reads: bool  # waits until what this stream wrote before is committed, so that it finds it
    large: bool = False  # the reply may be: it is not made while others of this stream take much memory


OPERATIONS: Final[dict[type, Operation]] = {
    m.Auth: Operation(auth.auth, reads=True),
    ProduceBatch: Operation(publish.publish, reads=False),  # of `Publish`, `PublishBatch` and binary batches
    m.Subscribe: Operation(subscribe.subscribe, reads=True),
    # A change of the cache is seen by whoever comes next; the reply is what waits for the commit.
    m.CachePut: Operation(cache.put, reads=False),
    m.CacheGet: Operation(cache.get, reads=False, large=True),
    m.CacheDelete: Operation(cache.delete, reads=False),
    m.CacheCas: Operation(cache.compare_and_set, reads=False, large=True),
    m.CacheIncrement: Operation(cache.increment, reads=False),
}
