"""Topics and their metadata."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.errors import InvalidPartitionCount, TopicExists, TopicNotFound
from penstock.broker.names import Scope
from penstock.broker.security.access import Identity, Permission
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import Reply
from penstock.log.engine import CommitGroup
from penstock.wire.flymq import messages as m


def create(context: FlyMqContext, request: m.CreateTopic) -> Reply:
    """An existing topic is left unchanged. 0 partitions means one.

    Producers create topics implicitly by writing to them; explicit settings require an administrator, as in the
    original."""
    group = create_topic(context.broker, context.identity, context.scope, request.topic, request.partitions)
    return Reply(m.Done(message="topic exists") if group is None else m.Done(), group)


def create_topic(broker: Broker, identity: Identity, scope: Scope, name: str, partitions: int) -> CommitGroup | None:
    """Create a topic; None if it exists."""
    with broker.audit.attempt(identity, "topic.create", scope=scope, resource=name):
        broker.access.require(identity, Permission.ALTER, scope, name)
        if partitions < 0:
            raise InvalidPartitionCount(partitions, broker.limits.partitions_per_topic)
        try:
            _, group = broker.topics.create(identity, scope, name, partitions or 1)
        except TopicExists:
            return None
    return group


def delete(context: FlyMqContext, request: m.DeleteTopic) -> Reply:
    """A missing topic counts as deleted."""
    with context.broker.audit.attempt(context.identity, "topic.delete", scope=context.scope, resource=request.topic):
        try:
            return Reply(m.Done(), context.broker.topics.delete(context.identity, context.scope, request.topic))
        except TopicNotFound:
            return Reply(m.Done(message="no such topic"))


def list_topics(context: FlyMqContext, _request: m.ListTopics) -> Reply:
    names = [topic.name for topic in context.broker.topics.list(context.identity, context.scope)]
    return Reply(m.TopicList([name for name in names if not name.startswith("__")]))


def metadata(context: FlyMqContext, request: m.Metadata) -> Reply:
    """This node leads every partition; its number is 0."""
    described = context.broker.topics.describe(context.identity, context.scope, request.topic)
    partitions = [
        m.PartitionMetadata(part.partition, 0, part.log_start, part.high_watermark) for part in described.partitions
    ]
    return Reply(m.TopicMetadata(request.topic, partitions))
