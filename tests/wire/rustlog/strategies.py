"""Messages of RustLog for property tests: any that a dialect can carry."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.wire.rustlog import messages as m

u32 = st.integers(0, m.MAX_U32)
u64 = st.integers(0, m.MAX_U64)
text = st.text(max_size=20)
new_topic = st.text("abcXYZ019_-", min_size=1, max_size=20)
equal_values = st.integers(0, 5).flatmap(lambda n: st.lists(st.binary(min_size=n, max_size=n), max_size=8))
values = st.lists(st.binary(max_size=12), max_size=8) | equal_values

requests: st.SearchStrategy[m.Request] = st.one_of(
    st.builds(m.Produce, text, u32, values),
    st.builds(m.Fetch, text, u32, u64, u32, text),
    st.builds(m.OffsetCommit, text, text, u32, u64),
    st.builds(m.OffsetFetch, text, text, u32),
    st.builds(m.CreateTopic, new_topic, u32),
    st.just(m.ListTopics()),
    st.builds(m.DescribeTopic, text),
    st.builds(m.DescribePartition, text, u32),
    st.just(m.MetricsFetch()),
    st.just(m.Ping()),
)


def responses(*, whole: bool) -> st.SearchStrategy[m.Response]:
    """Responses with all fields, or without those that the binary dialect leaves out."""
    extra = u64 if whole else st.none()
    details = st.none() | st.just({"available_topics": ["a", "b"]}) if whole else st.none()
    described = st.builds(m.PartitionSummary, u32, u64, extra, extra)
    topics = st.lists(st.builds(m.TopicSummary, text, u32), max_size=5, unique_by=lambda topic: topic.name)
    return st.one_of(
        st.builds(m.ProduceResponse, u64, u32),
        st.builds(_fetched, u32, values, st.integers(0, m.MAX_U32) if whole else st.none()),
        st.builds(m.OffsetCommitResponse, st.booleans()),
        st.builds(m.OffsetFetchResponse, st.none() | u64),
        st.builds(m.CreateTopicResponse, st.booleans(), extra),
        st.builds(m.ListTopicsResponse, topics.map(lambda found: sorted(found, key=lambda topic: topic.name))),
        st.builds(m.DescribeTopicResponse, text, st.lists(described, max_size=4)),
        st.builds(m.DescribePartitionResponse, text, u32, u64, extra, extra),
        st.builds(m.MetricsFetchResponse, text),
        st.just(m.Pong()),
        st.builds(m.Error, st.integers(0, 0xFFFF), text, details),
    )


def _fetched(base: int, payloads: list[bytes], timestamp: int | None) -> m.FetchResponse:
    records = [m.FetchedRecord(base + i, timestamp, payload) for i, payload in enumerate(payloads)]
    return m.FetchResponse(records, base + len(records))
