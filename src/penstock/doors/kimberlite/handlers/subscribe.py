"""Subscribing to a stream. Which events are pushed, and when, is the business of `Subscriptions`."""

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
    """For a client that reads by ReadEvents: where it, or its group, begins. Nothing is kept of it."""
    broker, identity, scope = context.broker, context.identity, context.scope
    broker.access.require(identity, Permission.READ, scope, topic.name)  # where it begins is also told to others
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
