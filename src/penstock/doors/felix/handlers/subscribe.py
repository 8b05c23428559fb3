"""`subscribe`: determines the offset at which a subscription starts. `subscriptions` sends the events.

The document only has subscriptions to new events. A `start` is from the original, and accepted from all clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.errors import PartitionNotFound
from penstock.broker.names import Scope
from penstock.broker.security.access import Permission
from penstock.doors.felix.errors import TOO_MUCH, RequestRefused
from penstock.doors.felix.request_context import FelixContext
from penstock.doors.felix.stream_names import StreamTarget, ensure_topic, locate
from penstock.doors.felix.subscriptions import Subscription
from penstock.doors.reply import Reply
from penstock.doors.streams import StreamsUsedUp
from penstock.log.engine import Bounds
from penstock.wire.felix.features import STREAM_SHARDS
from penstock.wire.felix.messages import From, StreamShards, Subscribe


class CursorError(NamedTuple):
    """The reason why a subscription cannot start at an offset."""

    reason: str  # too_old or in_future
    requested: int
    available: int  # the oldest retained offset, or the next one


def subscribe(context: FelixContext, request: Subscribe) -> Reply:
    scope = context.scope(request.tenant_id, request.namespace)
    if len(context.connection.subscriptions) >= context.settings.subscriptions:
        raise RequestRefused("max subscriptions per connection exceeded", advice=TOO_MUCH)
    target = _target(context, request, locate(context, scope, request.stream, Permission.READ))
    partitions = _partitions(context, scope, target)
    starts = beginning(request.start, partitions)
    if isinstance(starts, CursorError):
        return Reply(context.dialect.cursor_error(*starts, request.request_id))
    names = (request.tenant_id, request.namespace, request.stream)
    number = _number(context, request)
    try:
        Subscription(context, names, number, offsets=len(starts) == 1).follow(context, scope, target.topic, starts)
    except StreamsUsedUp:
        text = "no more streams: the client allows none for these events"
        raise RequestRefused(text, advice=TOO_MUCH) from None
    return Reply(context.dialect.subscribed(number, request.request_id))


def stream_shards(context: FelixContext, request: StreamShards) -> Reply:
    """The number of partitions; 0 if the stream does not exist."""
    scope = context.scope(request.tenant_id, request.namespace)
    topic, partition = locate(context, scope, request.stream, Permission.READ)
    context.broker.access.require(context.identity, Permission.READ, scope, topic)
    count = len(context.broker.topics.bounds(context.identity, scope, [topic]).get(topic, ()))
    return Reply(context.dialect.stream_shards(min(count, 1) if partition is not None else count, request.request_id))


def _target(context: FelixContext, request: Subscribe, found: StreamTarget) -> StreamTarget:
    """The partition to follow, if only one. Clients that know about partitions omit the number of the first one."""
    shard = request.shard
    if shard is None:
        if found.partition is None and context.features & STREAM_SHARDS:
            return StreamTarget(found.topic, 0)
        return found
    if found.partition is not None and found.partition != shard:
        raise RequestRefused(f"shard {shard} of a stream that is partition {found.partition}")
    return StreamTarget(found.topic, shard)


def _partitions(context: FelixContext, scope: Scope, target: StreamTarget) -> Sequence[tuple[int, Bounds]]:
    """The partitions to follow, with their bounds. The topic is created on first use."""
    broker, topic = context.broker, target.topic
    broker.access.require(context.identity, Permission.READ, scope, topic)
    if not broker.topics.exists(scope, topic):
        ensure_topic(context, scope, topic, Permission.READ)
    bounds = broker.topics.bounds(context.identity, scope, [topic])[topic]
    if target.partition is None:
        return list(enumerate(bounds))
    if target.partition >= len(bounds):
        raise PartitionNotFound(topic, target.partition, len(bounds))
    return [(target.partition, bounds[target.partition])]


def beginning(
    start: str | From | None, partitions: Sequence[tuple[int, Bounds]]
) -> list[tuple[int, int | None]] | CursorError:
    """The offset at which to start, by partition; None is the end."""
    if start == "earliest":
        return [(number, bounds.start) for number, bounds in partitions]
    if not isinstance(start, From):
        return [(number, None) for number, _ in partitions]
    if len(partitions) > 1:
        raise RequestRefused(
            f"the stream has {len(partitions)} partitions, each with its own offsets: subscribe to one, as NAME#0"
        )
    ((number, bounds),) = partitions
    if start.offset < bounds.start:
        return CursorError("too_old", start.offset, bounds.start)
    if start.offset > bounds.high_watermark:
        return CursorError("in_future", start.offset, bounds.high_watermark)
    return [(number, start.offset)]


def _number(context: FelixContext, request: Subscribe) -> int:
    """The id of the subscription. The original's older clients choose it, and use it to tell their streams apart."""
    chosen = request.subscription_id
    return chosen if context.original and isinstance(chosen, int) else context.connection.next_subscription_id()
