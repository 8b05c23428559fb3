"""Clients for Felix: `FelixClient` blocks, `AsyncFelixClient` runs on asyncio. Both have the same methods and outcomes.

With a broker on this machine (`penstock serve`; it prints the fingerprint of its certificate):

    from penstock.clients.felix import FelixClient

    with FelixClient("127.0.0.1:5000", insecure=True) as client:  # or fingerprint="sha256:…", or ca="server.pem"
        client.publish("visits", b"the first")
        client.publish_many("visits", [b"one", b"batch"])  # returns when they are stored
        with client.subscribe("visits", start="earliest") as events:
            for event in events:
                print(event.offset, event.payload)
                if event.payload == b"batch":
                    break
        client.cache_put("greeting", b"hello", ttl_ms=60_000)
        print(client.cache_get("greeting"), client.cache_increment("visitors"))

The same on asyncio, where any number of tasks share a few connections, and with events in batches:

    async with AsyncFelixClient("127.0.0.1:5000", insecure=True) as client:
        await asyncio.gather(*[client.publish("visits", b"%d" % number) for number in range(1000)])
        async with client.subscribe("visits", start=3) as events:
            batch = await events.next_batch()
            print(batch.offset, len(batch.payloads))

Imports `clients._core`, wire/felix and transport/quic. Start with `client` (the public classes). `requests` has the
spec of each request; `publisher`, `cache` and `subscription` use them. A `connection` is QUIC with many streams, so
instead of the core's drivers, which are for one socket, `pool` manages connections and `request_stream`s; errors,
specs, retries and the thread of the blocking client are those of the core.
"""

from penstock.clients.felix.cache import Cache
from penstock.clients.felix.client import AsyncFelixClient, FelixClient
from penstock.clients.felix.errors import (
    AuthenticationFailed,
    BadReply,
    CacheNotFound,
    CertificateRefused,
    ClientClosed,
    ConnectionFailed,
    CursorError,
    FelixError,
    Forbidden,
    OutcomeUnknown,
    Overloaded,
    PipelineError,
    ReplyError,
    StreamNotFound,
    SubscriptionEnded,
    SubscriptionLost,
    TimedOut,
    Unsendable,
)
from penstock.clients.felix.options import Limits, Pools
from penstock.clients.felix.results import Batch, Event, Swapped
from penstock.clients.felix.subscription import AsyncSubscription, Subscription
from penstock.retry import RetryPolicy

__all__ = [
    "AsyncFelixClient",
    "AsyncSubscription",
    "AuthenticationFailed",
    "BadReply",
    "Batch",
    "Cache",
    "CacheNotFound",
    "CertificateRefused",
    "ClientClosed",
    "ConnectionFailed",
    "CursorError",
    "Event",
    "FelixClient",
    "FelixError",
    "Forbidden",
    "Limits",
    "OutcomeUnknown",
    "Overloaded",
    "PipelineError",
    "Pools",
    "ReplyError",
    "RetryPolicy",
    "StreamNotFound",
    "Subscription",
    "SubscriptionEnded",
    "SubscriptionLost",
    "Swapped",
    "TimedOut",
    "Unsendable",
]
