"""Messages of RustLog for property tests: any that a dialect can carry."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.wire.rustlog.messages import (
    MAX_U32,
    MAX_U64,
    CreateTopic,
    CreateTopicResponse,
    DescribePartition,
    DescribePartitionResponse,
    DescribeTopic,
    DescribeTopicResponse,
    Error,
    Fetch,
    FetchedRecord,
    FetchResponse,
    ListTopics,
    ListTopicsResponse,
    MetricsFetch,
    MetricsFetchResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionSummary,
    Ping,
    Pong,
    Produce,
    ProduceResponse,
    Request,
    Response,
    TopicSummary,
)

u32 = st.integers(0, MAX_U32)
u64 = st.integers(0, MAX_U64)
text = st.text(max_size=20)
new_topic = st.text("abcXYZ019_-", min_size=1, max_size=20)
equal_values = st.integers(0, 5).flatmap(lambda n: st.lists(st.binary(min_size=n, max_size=n), max_size=8))
values = st.lists(st.binary(max_size=12), max_size=8) | equal_values

requests: st.SearchStrategy[Request] = st.one_of(
    st.builds(Produce, text, u32, values),
    st.builds(Fetch, text, u32, u64, u32, text),
    st.builds(OffsetCommit, text, text, u32, u64),
    st.builds(OffsetFetch, text, text, u32),
    st.builds(CreateTopic, new_topic, u32),
    st.just(ListTopics()),
    st.builds(DescribeTopic, text),
    st.builds(DescribePartition, text, u32),
    st.just(MetricsFetch()),
    st.just(Ping()),
)


def responses(*, whole: bool) -> st.SearchStrategy[Response]:
    """Responses with all fields, or without those that the binary dialect leaves out."""
    extra = u64 if whole else st.none()
    details = st.none() | st.just({"available_topics": ["a", "b"]}) if whole else st.none()
    described = st.builds(PartitionSummary, u32, u64, extra, extra)
    topics = st.lists(st.builds(TopicSummary, text, u32), max_size=5, unique_by=lambda topic: topic.name)
    return st.one_of(
        st.builds(ProduceResponse, u64, u32),
        st.builds(_fetched, u32, values, st.integers(0, MAX_U32) if whole else st.none()),
        st.builds(OffsetCommitResponse, st.booleans()),
        st.builds(OffsetFetchResponse, st.none() | u64),
        st.builds(CreateTopicResponse, st.booleans(), extra),
        st.builds(ListTopicsResponse, topics.map(lambda found: sorted(found, key=lambda topic: topic.name))),
        st.builds(DescribeTopicResponse, text, st.lists(described, max_size=4)),
        st.builds(DescribePartitionResponse, text, u32, u64, extra, extra),
        st.builds(MetricsFetchResponse, text),
        st.just(Pong()),
        st.builds(Error, st.integers(0, 0xFFFF), text, details),
    )


def _fetched(base: int, payloads: list[bytes], timestamp: int | None) -> FetchResponse:
    records = [FetchedRecord(base + i, timestamp, payload) for i, payload in enumerate(payloads)]
    return FetchResponse(records, base + len(records))
