"""Requests of RustLog: for each a function that makes a `RequestSpec` from plain arguments. Both clients have a method
with the same name and arguments for each of these functions.

Most requests are idempotent. Exceptions are Produce, and CreateTopic, whose repetition would report that the topic
exists.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.clients._core.requests import RequestSpec, nothing, whole
from penstock.wire.rustlog import messages as m


def create_topic(topic: str, partition_count: int = 1) -> RequestSpec[m.CreateTopicResponse]:
    """Create a topic."""
    return RequestSpec(m.CreateTopic(topic, partition_count), whole, m.CreateTopicResponse)


def produce(topic: str, partition: int, records: Iterable[bytes]) -> RequestSpec[m.ProduceResponse]:
    """Append the records atomically, at consecutive offsets."""
    return produce_request(m.Produce(topic, partition, list(records)))


def produce_request(request: m.Produce) -> RequestSpec[m.ProduceResponse]:
    return RequestSpec(request, whole, m.ProduceResponse)


def fetch(
    topic: str, partition: int, offset: int, max_bytes: int = 1_048_576, group_id: str = ""
) -> RequestSpec[m.FetchResponse]:
    """Records from `offset` on. In the binary dialect, a group's committed offset takes precedence over `offset`."""
    request = m.Fetch(topic, partition, offset, max_bytes, group_id)
    return RequestSpec(request, whole, m.FetchResponse, idempotent=True)


def commit_offset(group: str, topic: str, partition: int, offset: int) -> RequestSpec[bool]:
    """Commit the next offset to process. False if there is no such topic or partition."""
    request = m.OffsetCommit(group, topic, partition, offset)
    return RequestSpec(
        request, lambda reply: bool(reply.success), m.OffsetCommitResponse, idempotent=True, changes=True
    )


def _offset(reply: m.OffsetFetchResponse) -> int | None:
    return reply.offset


def fetch_offset(group: str, topic: str, partition: int) -> RequestSpec[int | None]:
    """The next offset to process, or None if the group has committed none."""
    return RequestSpec(m.OffsetFetch(group, topic, partition), _offset, m.OffsetFetchResponse, idempotent=True)


def _topics(reply: m.ListTopicsResponse) -> list[m.TopicSummary]:
    return reply.topics


def list_topics() -> RequestSpec[list[m.TopicSummary]]:
    """All topics, with their number of partitions."""
    return RequestSpec(m.ListTopics(), _topics, m.ListTopicsResponse, idempotent=True)


def describe_topic(topic: str) -> RequestSpec[m.DescribeTopicResponse]:
    """The partitions of a topic."""
    return RequestSpec(m.DescribeTopic(topic), whole, m.DescribeTopicResponse, idempotent=True)


def describe_partition(topic: str, partition: int) -> RequestSpec[m.DescribePartitionResponse]:
    """The offset range of a partition."""
    request = m.DescribePartition(topic, partition)
    return RequestSpec(request, whole, m.DescribePartitionResponse, idempotent=True)


def metrics() -> RequestSpec[str]:
    """The server's metrics as Prometheus text."""
    return RequestSpec(m.MetricsFetch(), lambda reply: str(reply.metrics), m.MetricsFetchResponse, idempotent=True)


def ping() -> RequestSpec[None]:
    """Check that the server answers."""
    return RequestSpec(m.Ping(), nothing, m.Pong, idempotent=True)
