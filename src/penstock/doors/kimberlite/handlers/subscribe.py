"""Subscribing to a stream. `Subscriptions` pushes the events."""

from __future__ import annotations

from penstock.broker.names import check_group
from penstock.broker.security.access import Permission
from penstock.broker.state.state import Topic
from penstock.doors.kimberlite.request_context import KimberliteContext
from penstock.doors.kimberlite.subscriptions import subscription_id
from penstock.doors.reply import Reply
from penstock.log.errors import OffsetOutOfRange
from penstock.wire.kimberlite import messages as m


def subscribe(context: KimberliteContext, request: m.Subscribe) -> Reply:
    identity, scope = context.identity, context.scope
    topic, partition = context.broker.topics.stream(identity, scope, request.stream_id)
    if not context.codec.pushes:
        return _acknowledge(context, request, topic, partition)
    return context.subscriptions.open(identity, scope, context.tenant, topic.name, partition, request)


def credit(context: KimberliteContext, request: m.SubscribeCredit) -> Reply:
    return context.subscriptions.credit(context.scope, request)


def unsubscribe(context: KimberliteContext, request: m.Unsubscribe) -> Reply:
    return context.subscriptions.unsubscribe(context.scope, request)


def _acknowledge(context: KimberliteContext, request: m.Subscribe, topic: Topic, partition: int) -> Reply:
    """The offset at which the client, or its group, begins, for a client that uses ReadEvents. Stores nothing."""
    broker, identity, scope = context.broker, context.identity, context.scope
    broker.access.require(identity, Permission.READ, scope, topic.name)  # `bounds` alone requires less
    start: int | None = None
    if request.consumer_group is not None:
        check_group(request.consumer_group)
        start = broker.groups.committed(identity, scope, request.consumer_group, topic.name, partition)
    bounds = broker.topics.bounds(identity, scope, [topic.name])[topic.name][partition]
    if start is None and request.from_offset < bounds.start:
        raise OffsetOutOfRange(request.from_offset, *bounds)
    number = subscription_id(context.tenant, request.stream_id)
    offset = request.from_offset if start is None else max(start, bounds.start)
    return Reply(m.SubscribeResponse(number, offset, request.initial_credits))
