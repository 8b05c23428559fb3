"""Requests of RustLog: for each a function that makes a `RequestSpec` from plain arguments. Both clients have a method
with the same name and arguments for each of these functions.

Most requests are idempotent. Exceptions are Produce, and CreateTopic, whose repetition would report that the topic
exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.clients._core.binding import Binding
from penstock.clients._core.inflight import OrderedRequests
from penstock.clients._core.requests import RequestSpec, nothing, whole
from penstock.clients.rustlog.errors import FAMILY, BadReply, Unsendable, reply_error
from penstock.wire.rustlog import messages as m
from penstock.wire.rustlog.codec.dialect import DIALECTS, Dialect
from penstock.wire.rustlog.errors import ProtocolError
from penstock.wire.rustlog.frames import MAX_FRAME, Framer, frame


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


class RustLogRequests(OrderedRequests[bytes]):
    """Requests in flight on one connection."""

    def __init__(self, dialect: Dialect, timeout: float) -> None:
        super().__init__(timeout, FAMILY)
        self._dialect = dialect
        self._framer = Framer()

    @property
    def buffered(self) -> bool:
        return self._framer.buffered > 0

    def frames(self, data: bytes) -> Iterable[bytes]:
        frames = self._framer.feed(data)
        return frames if self._framer.error is None else self._until_error(frames)

    def _until_error(self, frames: Iterable[bytes]) -> Iterator[bytes]:
        yield from frames
        raise BadReply(f"The server sent a bad frame: {self._framer.error}")

    def message(self, spec: RequestSpec[Any], frame: bytes) -> Any:
        try:
            reply = self._dialect.decode_response(frame)
        except ProtocolError as error:
            raise BadReply(f"The server sent an unreadable reply: {error}") from error
        if isinstance(reply, spec.reply):
            return reply
        if isinstance(reply, m.Error):
            raise reply_error(reply)
        raise BadReply(f"The server sent {type(reply).__name__} where {spec.reply.__name__} was due")


class RustLogBinding(Binding):
    errors = FAMILY

    def __init__(self, dialect: str, timeout: float) -> None:
        self._dialect = DIALECTS[dialect]
        self._timeout = timeout

    def encode(self, spec: RequestSpec[Any], request_id: int) -> bytes:  # noqa: ARG002
        try:
            payload = self._dialect.encode_request(spec.request)
        except (ProtocolError, UnicodeEncodeError) as error:
            raise Unsendable(str(error)) from error
        if len(payload) > MAX_FRAME:
            raise Unsendable(f"The request of {len(payload)} bytes does not fit a frame (max: {MAX_FRAME})")
        return frame(payload)

    def in_flight(self) -> RustLogRequests:
        return RustLogRequests(self._dialect, self._timeout)
