"""Topics, and what is known about them."""

from __future__ import annotations

from penstock.broker.errors import InvalidPartitionCount, TopicExists, TopicNotFound
from penstock.broker.security.access import Permission
from penstock.doors.flymq.request_context import SCOPE, Call
from penstock.doors.reply import Answer
from penstock.wire.flymq import messages as m


def create(call: Call, request: m.CreateTopic) -> Answer:
    """A topic that exists is left as it is. No partitions means one.

    Whoever may write brings a topic into being by writing to it; to choose what it is like is for administrators, as in
    the original."""
    call.broker.access.require(call.identity, Permission.ALTER, SCOPE, request.topic)
    if request.partitions < 0:
        raise InvalidPartitionCount(request.partitions, call.broker.limits.partitions_per_topic)
    try:
        _, group = call.broker.create_topic(call.identity, SCOPE, request.topic, request.partitions or 1)
    except TopicExists:
        return Answer(m.Done(message="topic exists"))
    return Answer(m.Done(), group)


def delete(call: Call, request: m.DeleteTopic) -> Answer:
    """A topic that is not there is deleted already."""
    try:
        return Answer(m.Done(), call.broker.delete_topic(call.identity, SCOPE, request.topic))
    except TopicNotFound:
        return Answer(m.Done(message="no such topic"))


def list_topics(call: Call, _request: m.ListTopics) -> Answer:
    names = [topic.name for topic in call.broker.list_topics(call.identity, SCOPE)]
    return Answer(m.TopicList([name for name in names if not name.startswith("__")]))


def metadata(call: Call, request: m.Metadata) -> Answer:
    """This node leads every partition; its number is 0."""
    described = call.broker.describe_topic(call.identity, SCOPE, request.topic)
    partitions = [
        m.PartitionMetadata(part.partition, 0, part.log_start, part.high_watermark) for part in described.partitions
    ]
    return Answer(m.TopicMetadata(request.topic, partitions))
