"""The messages of RustLog, shared by both dialects.

A message is a request or a reply, with the field names of the specification; the dialects encode it. The class name of
a tagged message is its `type` in the JSON dialect.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

MAX_U32 = 0xFFFF_FFFF
MAX_U64 = 0xFFFF_FFFF_FFFF_FFFF
MAX_RECORDS = 1000  # records in one JSON Produce; the binary dialect has no such limit

U32 = Annotated[int, Meta(ge=0, le=MAX_U32)]
U64 = Annotated[int, Meta(ge=0)]  # msgspec cannot express the upper bound; the JSON dialect checks it


class RecordSpan(Protocol):
    """Consecutive stored records, as the server passes them to `Dialect.encode_fetch`."""

    @property
    def base_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    def values(self) -> list[bytes]: ...

    def timestamps(self) -> list[int]: ...


class Message(Struct, frozen=True, gc=False, tag_field="type", tag=True):
    """Any message of one frame."""


# -- requests


class Produce(Message, frozen=True, gc=False):
    topic: str
    partition: U32
    records: list[bytes]


class Fetch(Message, frozen=True, gc=False):
    topic: str
    partition: U32
    offset: U64
    max_bytes: U64
    group_id: str = ""


class OffsetCommit(Message, frozen=True, gc=False):
    group: str
    topic: str
    partition: U32
    offset: U64


class OffsetFetch(Message, frozen=True, gc=False):
    group: str
    topic: str
    partition: U32


class CreateTopic(Message, frozen=True, gc=False):
    topic: str
    partition_count: U32


class ListTopics(Message, frozen=True, gc=False):
    pass


class DescribeTopic(Message, frozen=True, gc=False):
    topic: str


class DescribePartition(Message, frozen=True, gc=False):
    topic: str
    partition: U32


class MetricsFetch(Message, frozen=True, gc=False):
    pass


class Ping(Message, frozen=True, gc=False):
    pass


Request = (
    Produce
    | Fetch
    | OffsetCommit
    | OffsetFetch
    | CreateTopic
    | ListTopics
    | DescribeTopic
    | DescribePartition
    | MetricsFetch
    | Ping
)


# -- responses


class ProduceResponse(Message, frozen=True, gc=False):
    base_offset: int
    record_count: int


class FetchedRecord(Struct, frozen=True, gc=False):
    offset: int
    timestamp: int | None  # µs since 1970; None in the binary dialect, which does not carry it
    payload: bytes


class FetchResponse(Message, frozen=True, gc=False):
    records: list[FetchedRecord]
    next_offset: int


class OffsetCommitResponse(Message, frozen=True, gc=False):
    success: bool


class OffsetFetchResponse(Message, frozen=True, gc=False):
    offset: int | None


class CreateTopicResponse(Message, frozen=True, gc=False):
    success: bool
    partitions_created: int | None  # None in the binary dialect


class TopicSummary(Struct, frozen=True, gc=False):
    name: str
    partition_count: int


class ListTopicsResponse(Message, frozen=True, gc=False):
    topics: list[TopicSummary]


class PartitionSummary(Struct, frozen=True, gc=False):
    partition: int
    high_watermark: int
    log_start_offset: int | None  # None in the binary dialect
    segment_count: int | None  # None in the binary dialect


class DescribeTopicResponse(Message, frozen=True, gc=False):
    topic: str
    partitions: list[PartitionSummary]


class DescribePartitionResponse(Message, frozen=True, gc=False):
    topic: str
    partition: int
    high_watermark: int
    log_start_offset: int | None  # None in the binary dialect
    segment_count: int | None  # None in the binary dialect


class MetricsFetchResponse(Message, frozen=True, gc=False):
    metrics: str  # Prometheus text


class Pong(Message, frozen=True, gc=False):
    pass


class Error(Message, frozen=True, gc=False):
    code: int
    message: str
    details: dict[str, Any] | None = None


Response = (
    ProduceResponse
    | FetchResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | CreateTopicResponse
    | ListTopicsResponse
    | DescribeTopicResponse
    | DescribePartitionResponse
    | MetricsFetchResponse
    | Pong
    | Error
)
