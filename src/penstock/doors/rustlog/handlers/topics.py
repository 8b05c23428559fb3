"""Topics: creating, listing and describing them."""

from __future__ import annotations

from penstock.doors.reply import Reply
from penstock.doors.rustlog.request_context import SCOPE, RustLogContext
from penstock.wire.rustlog.messages import (
    CreateTopic,
    CreateTopicResponse,
    DescribePartition,
    DescribePartitionResponse,
    DescribeTopic,
    DescribeTopicResponse,
    ListTopics,
    ListTopicsResponse,
    PartitionSummary,
    TopicSummary,
)


def create(context: RustLogContext, request: CreateTopic) -> Reply:
    count = request.partition_count
    _, group = context.broker.topics.create(context.identity, SCOPE, request.topic, count)
    return Reply(CreateTopicResponse(True, count), group)


def list_topics(context: RustLogContext, _request: ListTopics) -> Reply:
    topics = context.broker.topics.list(context.identity, SCOPE)
    return Reply(ListTopicsResponse([TopicSummary(topic.name, topic.partitions) for topic in topics]))


def describe(context: RustLogContext, request: DescribeTopic) -> Reply:
    described = context.broker.topics.describe(context.identity, SCOPE, request.topic)
    partitions = [PartitionSummary(*partition) for partition in described.partitions]
    return Reply(DescribeTopicResponse(request.topic, partitions))


def describe_partition(context: RustLogContext, request: DescribePartition) -> Reply:
    described = context.broker.topics.describe_partition(context.identity, SCOPE, request.topic, request.partition)
    return Reply(DescribePartitionResponse(request.topic, *described))
