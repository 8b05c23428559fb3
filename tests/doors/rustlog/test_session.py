from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.broker_fixture import START, BrokerFixture, later
from tests.doors.rustlog.peer import Peer
from tests.effort import scaled

from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import Records, partition_id
from penstock.log.file_engine import LogSettings
from penstock.wire.rustlog.codec.dialect import BINARY, JSON, Dialect
from penstock.wire.rustlog.frames import MAX_FRAME, frame
from penstock.wire.rustlog.messages import (
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
    TopicSummary,
)

BIG = 1 << 30
both = pytest.mark.parametrize("dialect", [JSON, BINARY], ids=["json", "binary"])


@pytest.fixture
def fixture() -> BrokerFixture:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 2)
    fixture.commit()
    return fixture


def payloads(response: object) -> list[bytes]:
    assert isinstance(response, FetchResponse), response
    return [record.payload for record in response.records]


def code(response: object) -> int:
    assert isinstance(response, Error), response
    return response.code


def trim(fixture: BrokerFixture, start: int, partition: int = 0) -> None:
    fixture.engine.trim({partition_id(1, partition): start})
    fixture.commit()


# -- every request


@both
def test_create_and_list_topics(dialect: Dialect) -> None:
    peer = Peer(BrokerFixture(), dialect)
    reply = peer.ask(CreateTopic("orders", 3))
    assert reply == CreateTopicResponse(True, 3 if dialect is JSON else None)
    peer.ask(CreateTopic("a-b_C", 1000))
    assert peer.ask(ListTopics()) == ListTopicsResponse([TopicSummary("a-b_C", 1000), TopicSummary("orders", 3)])


@both
def test_an_empty_list_of_topics(dialect: Dialect) -> None:
    assert Peer(BrokerFixture(), dialect).ask(ListTopics()) == ListTopicsResponse([])


@both
def test_produce_and_fetch(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    assert peer.ask(Produce("t", 1, [b"a", b""])) == ProduceResponse(0, 2)
    fixture.pass_time(1)
    assert peer.ask(Produce("t", 1, [b"\x00\xff"])) == ProduceResponse(2, 1)
    reply = peer.ask(Fetch("t", 1, 0, BIG))
    stamps = [START, START, START + 1_000_000] if dialect is JSON else [None] * 3
    values = [b"a", b"", b"\x00\xff"]
    assert reply == FetchResponse([FetchedRecord(*record) for record in zip(range(3), stamps, values, strict=True)], 3)
    assert payloads(peer.ask(Fetch("t", 1, 2, BIG))) == [b"\x00\xff"]
    assert payloads(peer.ask(Fetch("t", 0, 0, BIG))) == []


@both
def test_commit_and_fetch_offsets(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    assert peer.ask(OffsetFetch("g", "t", 0)) == OffsetFetchResponse(None)
    assert peer.ask(OffsetCommit("g", "t", 0, 7)) == OffsetCommitResponse(True)
    assert peer.ask(OffsetCommit("g", "t", 0, 5)) == OffsetCommitResponse(True)
    assert peer.ask(OffsetFetch("g", "t", 0)) == OffsetFetchResponse(5)
    assert peer.ask(OffsetFetch("g", "t", 1)) == OffsetFetchResponse(None)
    assert peer.ask(OffsetFetch("h", "t", 0)) == OffsetFetchResponse(None)


@both
def test_describe(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    peer.ask(Produce("t", 1, [b"v"] * 5))
    trim(fixture, 2, partition=1)
    expected: list[tuple[int | None, ...]] = [(0, 0, 0, 0), (1, 5, 2, 1)]
    if dialect is BINARY:
        expected = [(partition, end, None, None) for partition, end, _, _ in expected]
    reply = peer.ask(DescribeTopic("t"))
    assert reply == DescribeTopicResponse("t", [PartitionSummary(*row) for row in expected])  # type: ignore[arg-type]
    assert peer.ask(DescribePartition("t", 1)) == DescribePartitionResponse("t", *expected[1])  # type: ignore[arg-type]


@both
def test_ping(dialect: Dialect) -> None:
    assert Peer(BrokerFixture(), dialect).ask(Ping()) == Pong()


@both
def test_metrics_are_true(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    peer.ask(Produce("t", 0, [b"12345"] * 10))
    peer.ask(Fetch("t", 0, 4, BIG))
    peer.ask(Fetch("t", 0, 0, 30))
    fetched = 6 + (6 if dialect is JSON else 1)  # binary counts twelve bytes more for each record
    reply = peer.ask(MetricsFetch())
    assert isinstance(reply, MetricsFetchResponse)
    lines = reply.metrics.splitlines()
    assert "messages_produced_total 10" in lines
    assert "bytes_in_total 50" in lines
    assert f"messages_fetched_total {fetched}" in lines
    assert f"bytes_out_total {fetched * 5}" in lines


def test_the_group_of_a_json_fetch_is_for_metrics_only(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, JSON)
    peer.ask(Produce("t", 0, [b"a", b"b", b"c"]))
    peer.ask(OffsetCommit("g", "t", 0, 2))
    assert payloads(peer.ask(Fetch("t", 0, 0, 1, "other"))) == [b"a"]
    assert payloads(peer.ask(Fetch("t", 0, 0, 1, "g"))) == [b"a"]
    reply = peer.ask(MetricsFetch())
    assert isinstance(reply, MetricsFetchResponse)
    assert (
        'consumer_lag{group="other",namespace="default",partition="0",tenant="default",topic="t"} 2\n' in reply.metrics
    )
    assert 'consumer_lag{group="g",namespace="default",partition="0",tenant="default",topic="t"} 1\n' in reply.metrics


def test_the_group_of_a_binary_fetch_says_where_to_start(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, BINARY)
    peer.ask(Produce("t", 0, [b"a", b"b", b"c"]))
    assert peer.ask(Fetch("t", 0, 1, BIG, "g")) == FetchResponse([], 0)
    assert peer.ask(Fetch("unknown", 9, 1, BIG, "g")) == FetchResponse([], 0)
    peer.ask(OffsetCommit("g", "t", 0, 2))
    for _ in range(2):  # fetching does not move it
        assert payloads(peer.ask(Fetch("t", 0, 0, BIG, "g"))) == [b"c"]
    peer.ask(OffsetCommit("g", "unknown", 0, 2))
    assert code(peer.ask(Fetch("unknown", 0, 0, BIG, "g"))) == 10
    assert payloads(peer.ask(Fetch("t", 0, 0, BIG))) == [b"a", b"b", b"c"]


def test_both_dialects_on_one_connection_see_the_same_log(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, JSON)
    peer.ask(Produce("t", 0, [b"from json"]))
    peer.dialect = BINARY
    peer.ask(Produce("t", 0, [b"from binary"]))
    for dialect in (JSON, BINARY):
        peer.dialect = dialect
        assert payloads(peer.ask(Fetch("t", 0, 0, BIG))) == [b"from json", b"from binary"]


# -- errors

NO_X, NO_PARTITION = "Topic 'x' not found", "Partition 2 not found in topic 't'"
NO_PLACE, NOT_DESCRIBED = (
    "Topic or partition does not exist: ",
    "DescribePartition failed: Partition 2 not found in topic ",
)
BAD_COUNT = "Invalid partition count: "

ERRORS: list[tuple[Request, int, str, int, str]] = [
    # request, code and text in JSON, code and text in binary
    (Produce("x", 3, [b"v"]), 404, NO_X, 10, NO_PLACE + "topic=x, partition=3"),
    (Produce("t", 2, [b"v"]), 405, NO_PARTITION, 10, NO_PLACE + "topic=t, partition=2"),
    (Produce("x", 0, []), 404, NO_X, 10, NO_PLACE + "topic=x, partition=0"),
    (Fetch("x", 0, 0, 1), 404, NO_X, 10, NO_PLACE + "topic=x, partition=0"),
    (Fetch("t", 2, 0, 1), 405, NO_PARTITION, 10, NO_PLACE + "topic=t, partition=2"),
    (CreateTopic("t", 1), 400, "Topic 't' already exists", 11, "Topic 't' already exists"),
    (CreateTopic("n", 0), 400, BAD_COUNT + "0; 1 to 1000 are allowed", 12, BAD_COUNT + "0"),
    (CreateTopic("n", 1001), 400, BAD_COUNT + "1001; 1 to 1000 are allowed", 12, BAD_COUNT + "1001"),
    (DescribeTopic("x"), 404, NO_X, 13, "DescribeTopic failed: Topic 'x' not found"),
    (DescribePartition("t", 2), 405, NO_PARTITION, 14, NOT_DESCRIBED + "'t'"),
    (DescribePartition("x", 2), 404, NO_X, 14, NOT_DESCRIBED + "'x'"),
]


@pytest.mark.parametrize(("request_", "json_code", "json_text", "binary_code", "binary_text"), ERRORS)
def test_errors(
    fixture: BrokerFixture, request_: Request, json_code: int, json_text: str, binary_code: int, binary_text: str
) -> None:
    peer = Peer(fixture, JSON)
    error = peer.ask(request_)
    assert isinstance(error, Error)
    assert (error.code, error.message) == (json_code, json_text)
    peer.dialect = BINARY
    assert peer.ask(request_) == Error(binary_code, binary_text)
    assert peer.ask(Ping()) == Pong()


@both
def test_names_that_no_topic_or_group_may_have(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    invalid = 400 if dialect is JSON else 2
    assert code(peer.ask(CreateTopic("", 1))) == invalid
    assert code(peer.ask(CreateTopic("a/../b", 1))) == invalid
    assert code(peer.ask(OffsetCommit("", "t", 0, 1))) == invalid


@both
def test_limits_of_the_broker_are_told(dialect: Dialect) -> None:
    fixture = BrokerFixture(limits=Limits(topics=1, groups_per_scope=1, tenant_share=1))
    peer = Peer(fixture, dialect)
    peer.ask(CreateTopic("t", 1))
    refusal = peer.ask(CreateTopic("u", 1))
    assert isinstance(refusal, Error)
    assert refusal.code == (507 if dialect is JSON else 500)
    assert dialect is BINARY or "1 topics" in refusal.message
    peer.ask(OffsetCommit("g", "t", 0, 1))
    assert code(peer.ask(OffsetCommit("h", "t", 0, 1))) == (507 if dialect is JSON else 5)


@both
def test_what_may_not_be_done_is_refused_and_nothing_is_revealed(dialect: Dialect) -> None:
    grants = [Grant("alice", frozenset({Permission.READ, Permission.DESCRIBE}), topic="open")]
    fixture = BrokerFixture(
        access=AccessPolicy(enforced=True, grants=[*grants, Grant("root", frozenset({Permission.ADMIN}))])
    )
    root = Peer(fixture, dialect, Identity("root"))
    root.ask_all(CreateTopic("open", 1), CreateTopic("secret", 1))
    alice = Peer(fixture, dialect, Identity("alice"))
    denied = 403 if dialect is JSON else 15
    requests: list[Callable[[str], Request]] = [
        lambda topic: Produce(topic, 0, [b"v"]),
        lambda topic: Produce(topic, 0, []),
        lambda topic: Fetch(topic, 0, 0, 1),
        lambda topic: Fetch(topic, 0, 0, 1, "g"),
        lambda topic: OffsetCommit("g", topic, 0, 1),
        lambda topic: OffsetFetch("g", topic, 0),
        lambda topic: CreateTopic(topic, 1),
        lambda topic: DescribeTopic(topic),
        lambda topic: DescribePartition(topic, 0),
    ]
    for request in requests:
        existing, missing = alice.ask_all(request("secret"), request("nothing"))
        assert isinstance(existing, Error) and isinstance(missing, Error)
        assert existing.code == missing.code == denied
        assert existing.message.replace("secret", "nothing") == missing.message
    assert code(alice.ask(MetricsFetch())) == denied
    assert alice.ask(ListTopics()) == ListTopicsResponse([TopicSummary("open", 1)])
    assert payloads(alice.ask(Fetch("open", 0, 0, 1))) == []


def test_a_missing_topic_is_told_with_the_names_that_this_client_may_see() -> None:
    allowed = frozenset({Permission.READ})
    grants = [
        Grant("alice", allowed),
        Grant("alice", frozenset({Permission.DESCRIBE}), topic="open-*"),
        Grant("bob", allowed),
    ]
    fixture = BrokerFixture()
    for name in ("open-b", "secret", "open-a"):
        fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, name, 1)
    fixture.commit()
    fixture.broker.access.apply(AccessPolicy(enforced=True, grants=grants))
    error = Peer(fixture, JSON, Identity("alice")).ask(Fetch("x", 0, 0, 1))
    assert isinstance(error, Error) and error.details == {"available_topics": ["open-a", "open-b"]}
    error = Peer(fixture, JSON, Identity("bob")).ask(Fetch("x", 0, 0, 1))
    assert isinstance(error, Error) and error.details == {"available_topics": []}


def test_a_mistake_of_ours_is_told_logged_and_ends_the_connection(
    fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(fixture.broker.topics, "list", fail)
    peer = Peer(fixture, JSON)
    with caplog.at_level(logging.ERROR):
        peer.send_requests(Ping(), ListTopics(), Ping())
    assert peer.replies() == [Pong(), Error(500, "Internal server error")]
    assert peer.closed
    assert caplog.text.count("ZeroDivisionError: a secret") == 1 and peer.peer in caplog.text


@both
def test_a_reply_too_large_for_a_frame_is_an_error_not_a_dead_connection(
    fixture: BrokerFixture, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixture.broker.exposition, "text", lambda: "x" * MAX_FRAME)
    peer = Peer(fixture, dialect)
    replies = peer.ask_all(MetricsFetch(), Ping())
    assert code(replies[0]) == 500
    assert replies[1] == Pong()


# -- decisions: see docs/protocols/rustlog.md


@both
def test_decision_02_fetch_beyond_the_end_is_empty(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    peer.ask(Produce("t", 0, [b"v"]))
    for offset in (1, 2, 5000, 2**63, 2**64 - 1):
        assert peer.ask(Fetch("t", 0, offset, BIG)) == FetchResponse([], offset)


def test_decision_03_fetch_below_the_start_is_416(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, JSON)
    peer.ask(Produce("t", 0, [b"v"] * 5))
    trim(fixture, 3)
    details = {"valid_range": {"start": 3, "end": 5}, "high_watermark": 5}
    assert peer.ask(Fetch("t", 0, 2, BIG)) == Error(416, "Offset 2 out of range", details)
    peer.dialect = BINARY
    assert peer.ask(Fetch("t", 0, 2, BIG)) == FetchResponse([], 3)
    assert len(payloads(peer.ask(Fetch("t", 0, 3, BIG)))) == 2


@both
def test_decision_33_next_offset_leads_behind_expired_records(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    peer.ask(Produce("t", 0, [b"v"]))
    fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"w"] * 4, expires=[fixture.now + 1] * 4)
    fixture.commit()
    fixture.now += 1
    found = peer.ask(Fetch("t", 0, 0, BIG))
    assert payloads(found) == [b"v"]
    assert isinstance(found, FetchResponse)
    assert found.next_offset == (5 if dialect is JSON else 1)  # binary: offsets are counted back from it
    assert peer.ask(Fetch("t", 0, 1, BIG)) == FetchResponse([], 5)


def test_decision_36_whole_numbers_in_metrics_are_integers(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, BINARY)
    peer.ask(Produce("t", 0, [b"v"] * 3))
    answer = peer.ask(MetricsFetch())
    assert isinstance(answer, MetricsFetchResponse)
    assert "\nmessages_produced_total 3\n" in answer.metrics
    samples = [line for line in answer.metrics.splitlines() if not line.startswith("#")]
    assert samples and not [line for line in samples if line.endswith(".0")]


@both
def test_decision_37_an_empty_group_commits_nothing(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    assert code(peer.ask(OffsetCommit("", "t", 0, 1))) == (400 if dialect is JSON else 2)
    assert fixture.broker.state_log.state.groups == {}


@both
def test_decision_05_record_over_the_limit_is_413(dialect: Dialect) -> None:
    fixture = BrokerFixture(limits=Limits(record_bytes=100))
    peer = Peer(fixture, dialect)
    peer.ask(CreateTopic("t", 1))
    too_large = 413 if dialect is JSON else 500
    assert code(peer.ask(Produce("t", 0, [b"x" * 101]))) == too_large
    assert peer.ask(Produce("t", 0, [b"x" * 100])) == ProduceResponse(0, 1)


@both
def test_decision_05_the_largest_record_can_be_produced_and_fetched(dialect: Dialect) -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=64 << 20), limits=Limits(record_bytes=1 << 30))
    peer = Peer(fixture, dialect)
    peer.ask(CreateTopic("t", 1))
    largest = dialect.max_record
    assert code(peer.ask(Produce("t", 0, [b"x" * (largest + 1)]))) == (413 if dialect is JSON else 500)
    assert peer.ask(Produce("t", 0, [b"x" * largest])) == ProduceResponse(0, 1)
    assert payloads(peer.ask(Fetch("t", 0, 0, BIG))) == [b"x" * largest]


@both
def test_decision_06_fetch_never_exceeds_a_frame(dialect: Dialect) -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=64 << 20))
    peer = Peer(fixture, dialect)
    peer.ask(CreateTopic("t", 1))
    records = [bytes([number]) * 1_000_000 for number in range(25)]
    for start in range(0, 25, 5):
        peer.ask(Produce("t", 0, records[start : start + 5]))
    found: list[bytes] = []
    rounds = 0
    while len(found) < 25:
        reply = peer.ask(Fetch("t", 0, len(found), 2**32 - 1))
        assert isinstance(reply, FetchResponse)
        assert len(peer.sent[-1]) <= MAX_FRAME + 4
        found += payloads(reply)
        assert reply.next_offset == len(found)
        rounds += 1
    assert found == records
    assert rounds == (4 if dialect is JSON else 3)


def test_decision_06_a_record_that_no_frame_can_hold_is_named(fixture: BrokerFixture) -> None:
    """It came through another door."""
    value = b"x" * (MAX_FRAME + 1)
    fixture.engine.append([Records(partition_id(1, 0), [b"small", value, b"small"])])
    fixture.commit()
    peer = Peer(fixture, JSON)
    assert payloads(peer.ask(Fetch("t", 0, 0, BIG))) == [b"small"]
    error = peer.ask(Fetch("t", 0, 1, BIG))
    assert isinstance(error, Error)
    assert error.code == 413 and "offset 1" in error.message
    peer.dialect = BINARY
    assert code(peer.ask(Fetch("t", 0, 1, BIG))) == 4
    assert payloads(peer.ask(Fetch("t", 0, 2, BIG))) == [b"small"]


def test_decision_07_max_bytes_counts_payload_bytes(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, JSON)
    peer.ask(Produce("t", 0, [b"x" * 10] * 10))
    for max_bytes, expected in ((0, 1), (9, 1), (10, 1), (19, 1), (20, 2), (99, 9), (100, 10)):
        assert len(payloads(peer.ask(Fetch("t", 0, 0, max_bytes)))) == expected
    peer.dialect = BINARY
    for max_bytes, expected in ((0, 0), (1, 1), (22, 1), (43, 1), (44, 2), (220, 10)):
        reply = peer.ask(Fetch("t", 0, 0, max_bytes))
        assert len(payloads(reply)) == expected
        assert isinstance(reply, FetchResponse) and reply.next_offset == expected


@both
def test_decision_08_empty_fetch_keeps_the_offset(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    assert peer.ask(Fetch("t", 0, 0, BIG)) == FetchResponse([], 0)
    assert peer.ask(Fetch("t", 0, 42, BIG)) == FetchResponse([], 42)


def test_decision_09_commit_for_unknown_topic(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, JSON)
    for topic, partition in (("x", 0), ("t", 2)):
        assert peer.ask(OffsetCommit("g", topic, partition, 1)) == OffsetCommitResponse(False)
        assert peer.ask(OffsetFetch("g", topic, partition)) == OffsetFetchResponse(None)
    peer.dialect = BINARY
    for topic, partition in (("x", 0), ("t", 2)):
        assert peer.ask(OffsetCommit("g", topic, partition, 1)) == OffsetCommitResponse(True)
        assert peer.ask(OffsetFetch("g", topic, partition)) == OffsetFetchResponse(1)


@both
def test_decision_10_offset_of_unknown_topic_is_null(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    assert peer.ask(OffsetFetch("g", "x", 0)) == OffsetFetchResponse(None)
    assert peer.ask(OffsetFetch("g", "t", 99)) == OffsetFetchResponse(None)


def test_decision_14_duplicate_topic_is_400(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, JSON)
    assert peer.ask(CreateTopic("t", 5)) == Error(400, "Topic 't' already exists", {"partition_count": 2})
    peer.dialect = BINARY
    assert peer.ask(CreateTopic("t", 5)) == Error(11, "Topic 't' already exists")
    assert peer.ask(ListTopics()) == ListTopicsResponse([TopicSummary("t", 2)])


def test_decision_15_topic_404_partition_405(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, JSON)
    for request in (Produce("x", 0, [b"v"]), Fetch("x", 0, 0, 1), DescribeTopic("x"), DescribePartition("x", 0)):
        assert peer.ask(request) == Error(404, "Topic 'x' not found", {"available_topics": ["t"]})
    for request in (Produce("t", 2, [b"v"]), Fetch("t", 2, 0, 1), DescribePartition("t", 2)):
        assert peer.ask(request) == Error(405, "Partition 2 not found in topic 't'", None)


@both
def test_decision_16_recoverable_errors_keep_the_connection(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    peer.ask(Produce("x", 0, [b"v"]))
    assert peer.ask(Ping()) == Pong()
    assert not peer.closed
    peer.session.receive(frame(b"{"))
    peer.session.receive(peer.encode(Ping()))
    assert [code(reply) for reply in peer.replies()] == [400]
    assert peer.closed


def test_decision_17_wrong_json_keeps_unparsable_closes(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    for wrong in (b"{}", b"[]", b"7", b'{"type":"Nothing"}', b'{"type":"Fetch"}'):
        peer.session.receive(frame(wrong))
        assert [code(reply) for reply in peer.replies()] == [400]
    assert peer.ask(Ping()) == Pong()
    for broken in (b"{", b'{"type":"Ping"', b'{"type":"Ping"} x', b'"\xff"'):
        peer = Peer(fixture)
        peer.session.receive(frame(broken))
        assert [code(reply) for reply in peer.replies()] == [400]
        assert peer.closed


@both
def test_decision_18_zero_length_frame_closes(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    peer.session.receive(peer.encode(Produce("t", 0, [b"v"]), Fetch("t", 0, 0, BIG)) + bytes(4) + peer.encode(Ping()))
    assert peer.replies() == []
    fixture.commit()
    produced, fetched, error = peer.replies()
    assert produced == ProduceResponse(0, 1)
    assert payloads(fetched) == [b"v"]
    assert code(error) == (400 if dialect is JSON else 1)
    assert peer.closed


def test_decision_18_without_a_frame_before_it_the_error_is_json(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    peer.session.receive(bytes(4))
    assert [code(reply) for reply in peer.replies()] == [400]
    assert peer.closed


@pytest.mark.parametrize(
    "violation",
    [b"\x00\xa0\x00\x01", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", frame(b'{"a":'), frame(b'{"type":"\xff"}')],
)
def test_decision_19_error_is_sent_before_the_close(fixture: BrokerFixture, violation: bytes) -> None:
    peer = Peer(fixture)
    peer.session.receive(violation)
    peer.session.receive(peer.encode(Ping()))
    assert [code(reply) for reply in peer.replies()] == [400]
    assert peer.closed
    assert peer.session.held_bytes == 0


def test_decision_22_committed_offset_is_the_next_to_process(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, BINARY)
    peer.ask(Produce("t", 0, [b"a", b"b", b"c"]))
    peer.ask(OffsetCommit("g", "t", 0, 1))
    fixture.restart()
    peer = Peer(fixture, BINARY)
    assert peer.ask(OffsetFetch("g", "t", 0)) == OffsetFetchResponse(1)
    assert payloads(peer.ask(Fetch("t", 0, 0, BIG, "g"))) == [b"b", b"c"]
    peer.ask(OffsetCommit("g", "t", 0, 3))
    assert peer.ask(Fetch("t", 0, 0, BIG, "g")) == FetchResponse([], 3)


def test_decision_23_range_end_is_exclusive(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    peer.ask(Produce("t", 0, [b"v"] * 4))
    trim(fixture, 1)
    error = peer.ask(Fetch("t", 0, 0, 1))
    described = peer.ask(DescribePartition("t", 0))
    assert isinstance(error, Error) and error.details is not None
    assert isinstance(described, DescribePartitionResponse)
    assert error.details["valid_range"]["end"] == error.details["high_watermark"] == described.high_watermark == 4
    assert peer.ask(Produce("t", 0, [b"v"])) == ProduceResponse(4, 1)


@both
def test_decision_27_held_bytes_follow_the_bytes_present(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    assert peer.session.held_bytes == 0
    peer.session.receive((10_000_000).to_bytes(4, "big"))
    assert peer.session.held_bytes <= 4
    peer = Peer(fixture, dialect)
    data = peer.encode(Produce("t", 0, [b"x" * 1000]))
    peer.session.receive(data[:500])
    assert peer.session.held_bytes == 500
    peer.session.receive(data[500:])
    assert peer.session.held_bytes >= len(data) - 4  # until it is committed
    fixture.commit()
    assert peer.session.held_bytes == 0
    assert peer.progressed


@both
def test_decision_28_busy_and_stopping_are_503(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    writes = (Produce("t", 0, [b"v"]), OffsetCommit("g", "t", 0, 1), CreateTopic("n", 1))
    fixture.break_disk()
    for _ in range(2):  # the requests that meet the failure, and those that come later
        codes = [code(reply) for reply in peer.ask_all(*writes)]
        assert codes == ([503, 503, 503] if dialect is JSON else [500, 5, 500])
    assert payloads(peer.ask(Fetch("t", 0, 0, BIG))) == []
    fixture.broker.close()
    assert code(peer.ask(Fetch("t", 0, 0, BIG))) == (503 if dialect is JSON else 500)
    assert code(peer.ask(Produce("t", 0, [b"v"]))) == (503 if dialect is JSON else 500)


@both
def test_decision_28_a_full_disk_is_507(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    fault = fixture.fill_disk()
    writes = (Produce("t", 0, [b"lost"]), OffsetCommit("g", "t", 0, 1), CreateTopic("n", 1))
    for _ in range(2):
        codes = [code(reply) for reply in peer.ask_all(*writes)]
        assert codes == ([507, 507, 507] if dialect is JSON else [500, 5, 500])
    assert peer.ask(ListTopics()) == ListTopicsResponse([TopicSummary("t", 2)])
    fixture.free_disk(fault)
    assert peer.ask(Produce("t", 0, [b"kept"])) == ProduceResponse(0, 1)
    assert payloads(peer.ask(Fetch("t", 0, 0, BIG))) == [b"kept"]


@both
def test_decision_32_produce_is_all_or_nothing(dialect: Dialect) -> None:
    fixture = BrokerFixture(limits=Limits(record_bytes=10))
    peer = Peer(fixture, dialect)
    peer.ask(CreateTopic("t", 1))
    assert isinstance(peer.ask(Produce("t", 0, [b"a", b"x" * 11, b"b"])), Error)
    assert payloads(peer.ask(Fetch("t", 0, 0, BIG))) == []
    assert peer.ask(Produce("t", 0, [])) == ProduceResponse(0, 0)
    replies = peer.ask_all(Produce("t", 0, [b"a", b"b"]), Produce("t", 0, []))
    assert replies == [ProduceResponse(0, 2), ProduceResponse(2, 0)]
    assert code(peer.ask(Produce("x", 0, []))) == (404 if dialect is JSON else 10)


# -- order


@both
def test_nothing_that_was_written_is_acknowledged_before_it_is_committed(
    fixture: BrokerFixture, dialect: Dialect
) -> None:
    peer = Peer(fixture, dialect)
    peer.send_requests(Produce("t", 0, [b"v"]), OffsetCommit("g", "t", 0, 1), CreateTopic("n", 1))
    assert peer.sent == []
    fixture.committer.run()
    assert len(peer.sent) == 1  # all three replies at once
    assert [type(reply) for reply in peer.replies()] == [ProduceResponse, OffsetCommitResponse, CreateTopicResponse]


@both
def test_replies_keep_the_order_of_requests(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    good, bad = Produce("t", 0, [b"v"]), Produce("x", 0, [b"v"])
    peer.send_requests(Ping(), good, Ping(), bad, good, Ping())
    assert peer.replies() == [Pong()]
    fixture.commit()
    first, pong, error, second, last = peer.replies()
    assert (first, second) == (ProduceResponse(0, 1), ProduceResponse(1, 1))
    assert pong == last == Pong()
    assert isinstance(error, Error)


@both
def test_a_client_that_does_not_wait_reads_its_own_writes(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    replies = peer.ask_all(
        CreateTopic("mine", 1),
        Produce("mine", 0, [b"a"]),
        Fetch("mine", 0, 0, BIG),
        Produce("mine", 0, [b"b"]),
        OffsetCommit("g", "mine", 0, 1),
        DescribePartition("mine", 0),
        OffsetFetch("g", "mine", 0),
        ListTopics(),
    )
    created, first, fetched, second, stored, described, offset, listed = replies
    assert isinstance(created, CreateTopicResponse) and stored == OffsetCommitResponse(True)
    assert (first, second) == (ProduceResponse(0, 1), ProduceResponse(1, 1))
    assert payloads(fetched) == [b"a"]
    assert isinstance(described, DescribePartitionResponse) and described.high_watermark == 2
    assert offset == OffsetFetchResponse(1)
    assert isinstance(listed, ListTopicsResponse) and [topic.name for topic in listed.topics] == ["mine", "t"]


def test_a_read_that_waits_is_held_and_the_requests_behind_it_too(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    peer.send_requests(Produce("t", 0, [b"a"]), Fetch("t", 0, 0, BIG), Produce("t", 0, [b"b"]))
    fixture.committer.run()
    first, fetched = peer.replies()
    assert first == ProduceResponse(0, 1)
    assert payloads(fetched) == [b"a"]  # the second write was not carried out before the read
    fixture.committer.run()
    assert peer.replies() == [ProduceResponse(1, 1)]


@both
def test_nobody_is_shown_what_a_crash_could_take_back(fixture: BrokerFixture, dialect: Dialect) -> None:
    writer, reader = Peer(fixture, dialect), Peer(fixture, dialect)
    writer.send_requests(CreateTopic("new", 1), OffsetCommit("g", "t", 0, 5))
    looks = (ListTopics(), OffsetFetch("g", "t", 0), CreateTopic("new", 1), DescribeTopic("new"), Fetch("new", 0, 0, 1))
    for request in looks:
        reader = Peer(fixture, dialect)
        reader.send_requests(request)
        assert reader.sent == [], request
    fixture.committer.run()
    assert len(reader.replies()) == 1


@both
def test_what_was_seen_of_a_change_that_failed_is_taken_back(fixture: BrokerFixture, dialect: Dialect) -> None:
    writer, reader = Peer(fixture, dialect), Peer(fixture, dialect)
    fault = fixture.fill_disk()
    writer.send_requests(CreateTopic("new", 1))
    reader.send_requests(ListTopics())
    fixture.commit()
    assert isinstance(writer.replies()[0], Error)
    assert isinstance(reader.replies()[0], Error)
    fixture.free_disk(fault)
    assert reader.ask(ListTopics()) == ListTopicsResponse([TopicSummary("t", 2)])


@both
def test_each_request_that_waits_hears_of_a_failed_commit_and_the_rest_goes_on(
    fixture: BrokerFixture, dialect: Dialect
) -> None:
    peer = Peer(fixture, dialect)
    peer.ask(Produce("t", 0, [b"before"]))
    fixture.fill_disk()
    produce = Produce("t", 0, [b"lost"])
    full = 507 if dialect is JSON else 500
    replies = peer.ask_all(produce, produce, Fetch("t", 0, 0, BIG), produce, Ping())
    assert [code(replies[index]) for index in (0, 1, 3)] == [full] * 3
    assert payloads(replies[2]) == [b"before"]
    assert replies[4] == Pong()


@both
def test_one_callback_for_each_group_however_many_requests(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    peer.send_requests(*[Produce("t", 0, [b"v"])] * 100)
    (group,) = {entry[0] for entry in peer.session.replies.waiting}  # type: ignore[attr-defined]
    assert len(group._callbacks) == 2  # the session's, and that of the metrics
    fixture.commit()
    assert len(peer.sent) == 1
    assert peer.replies() == [ProduceResponse(number, 1) for number in range(100)]


def test_batches_of_several_connections_stay_whole(fixture: BrokerFixture) -> None:
    peers = [Peer(fixture, dialect) for dialect in (JSON, BINARY) * 2]
    for _ in range(3):
        for number, peer in enumerate(peers):
            peer.send_requests(Produce("t", 0, [b"%d" % number] * 5))
    fixture.commit()
    found = payloads(Peer(fixture).ask(Fetch("t", 0, 0, BIG)))
    assert found == [b"%d" % number for _ in range(3) for number in range(4) for _ in range(5)]


@both
def test_a_client_that_takes_nothing_does_not_make_replies_pile_up(fixture: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(fixture, dialect)
    peer.ask(Produce("t", 0, [b"x" * 100_000]))
    fetch = Fetch("t", 0, 0, BIG)
    peer.limit = 500_000
    peer.send_requests(*[fetch] * 100)
    sent = sum(map(len, peer.sent))
    assert 500_000 < sent < 1_000_000
    assert peer.session.held_bytes < 100 * 200
    peer.session.end_of_input()
    peer.limit = 2_000_000  # the client took some of it
    peer.session.receive(b"")
    assert 2_000_000 < sum(map(len, peer.sent)) < 2_500_000
    assert not peer.closed
    peer.limit = None
    peer.session.receive(b"")
    assert len(peer.replies()) == 100
    assert peer.closed


@pytest.mark.parametrize("request_", [Produce("x", 0, [b"v"]), Fetch("x", 0, 0, 1), DescribeTopic("x")])
def test_errors_do_not_pile_up_either(fixture: BrokerFixture, request_: Request) -> None:
    for number in range(100):
        fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, f"{number}".rjust(255, "n"), 1)
    fixture.commit()
    peer = Peer(fixture)
    peer.limit = 500_000
    peer.send_requests(*[request_] * 200)  # each is answered with all these names
    assert 500_000 < sum(map(len, peer.sent)) < 1_000_000
    assert peer.session.held_bytes < 1_000_000
    peer.limit = None
    peer.session.receive(b"")
    assert [code(reply) for reply in peer.replies()] == [404] * 200


# -- reads from the disk


@pytest.fixture
def disk_broker() -> BrokerFixture:
    """Nothing stays in memory, so that every read goes to the disk; the test decides when it is done."""
    calls: list[Any] = []
    fixture = BrokerFixture(LogSettings(file_bytes=64 << 10, tail_bytes=0, cache_bytes=0), executor=later(calls))
    fixture.options["calls"] = calls
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1)
    for number in range(40):
        fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"%d" % number + b"x" * 5000])
        fixture.commit()
    return fixture


def run(fixture: BrokerFixture) -> None:
    work, done = fixture.options["calls"].pop(0)
    work()
    done()


@both
def test_while_a_read_is_at_the_disk_everything_behind_it_waits(disk_broker: BrokerFixture, dialect: Dialect) -> None:
    peer = Peer(disk_broker, dialect)
    peer.send_requests(Ping(), Fetch("t", 0, 0, 6000), Ping(), Fetch("t", 0, 1, 6000), Produce("t", 0, [b"new"]))
    assert peer.replies() == [Pong()]
    assert len(disk_broker.options["calls"]) == 1
    run(disk_broker)
    first, pong = peer.replies()
    assert payloads(first)[0][:6] == b"0xxxxx"
    assert pong == Pong()
    assert peer.progressed
    run(disk_broker)
    disk_broker.commit()
    second, produced = peer.replies()
    assert payloads(second)[0][:6] == b"1xxxxx"
    assert produced == ProduceResponse(40, 1)
    assert peer.session.held_bytes == 0


def test_a_read_that_fails_is_told_and_the_connection_goes_on(disk_broker: BrokerFixture) -> None:
    for path in disk_broker.disk.paths():
        if path.endswith(".journal"):
            data = disk_broker.disk.content(path)
            disk_broker.disk.replace(path, data.replace(b"xxxxx", b"xxxxy"))
    peer = Peer(disk_broker)
    peer.send_requests(Fetch("t", 0, 0, BIG), Ping())
    run(disk_broker)
    error, pong = peer.replies()
    assert error == Error(503, "Stored data is damaged")
    assert pong == Pong()
    assert disk_broker.broker.metrics.messages_fetched == 0


def test_a_connection_that_is_lost_while_it_reads_is_forgotten(disk_broker: BrokerFixture) -> None:
    peer = Peer(disk_broker)
    peer.send_requests(Fetch("t", 0, 0, BIG), Ping())
    peer.session.lost()
    run(disk_broker)
    assert peer.sent == [] and not peer.closed
    assert peer.session.held_bytes == 0
    assert disk_broker.broker.metrics.messages_fetched == 0


def test_a_write_behind_a_read_is_not_carried_out_before_it(disk_broker: BrokerFixture) -> None:
    peer = Peer(disk_broker)
    peer.send_requests(Fetch("t", 0, 0, 1), Produce("t", 0, [b"new"]))
    assert disk_broker.broker.pending_bytes == 0
    run(disk_broker)
    assert disk_broker.broker.pending_bytes > 0


def test_a_shutdown_waits_for_a_read(disk_broker: BrokerFixture) -> None:
    peer = Peer(disk_broker)
    peer.send_requests(Fetch("t", 0, 0, 1), Ping())
    peer.session.stop()
    assert not peer.closed
    run(disk_broker)
    assert len(peer.replies()) == 2
    assert peer.closed


# -- the end


@both
@pytest.mark.parametrize("end", ["end_of_input", "stop"])
def test_at_the_end_what_was_accepted_is_answered_first(fixture: BrokerFixture, dialect: Dialect, end: str) -> None:
    peer = Peer(fixture, dialect)
    peer.send_requests(Produce("t", 0, [b"v"]), Fetch("t", 0, 0, BIG), Produce("t", 0, [b"w"]))
    peer.session.receive(peer.encode(Ping())[:3])
    getattr(peer.session, end)()
    assert not peer.closed
    peer.session.receive(peer.encode(Ping())[3:] + peer.encode(Ping()))
    fixture.commit()
    produced, fetched, second = peer.replies()
    assert (produced, second) == (ProduceResponse(0, 1), ProduceResponse(1, 1))
    assert payloads(fetched) == [b"v"]
    assert peer.closed


@pytest.mark.parametrize("end", ["end_of_input", "stop"])
def test_an_idle_connection_is_closed_at_once(fixture: BrokerFixture, end: str) -> None:
    peer = Peer(fixture)
    getattr(peer.session, end)()
    assert peer.closed and peer.sent == []


def test_after_the_connection_is_lost_nothing_is_sent(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    peer.send_requests(Produce("t", 0, [b"v"]), Fetch("t", 0, 0, BIG))
    peer.session.lost()
    fixture.commit()
    assert peer.sent == [] and not peer.closed and peer.progressed == 0
    assert peer.session.held_bytes == 0
    assert payloads(Peer(fixture).ask(Fetch("t", 0, 0, BIG))) == [b"v"]  # it had been accepted


# -- any split


REQUESTS: list[Request] = [
    CreateTopic("t", 2),
    CreateTopic("t", 2),
    Produce("t", 0, [b"a", b"bb"]),
    Produce("t", 1, [b"c"]),
    Produce("x", 0, [b"d"]),
    Fetch("t", 0, 0, BIG),
    Fetch("t", 0, 1, 1, "g"),
    OffsetCommit("g", "t", 0, 1),
    OffsetFetch("g", "t", 0),
    ListTopics(),
    DescribeTopic("t"),
    DescribePartition("t", 1),
    Ping(),
]
ENDINGS = [b"", bytes(4), frame(b"{"), b"\xff\xff\xff\xff", frame(b"\x42"), b"\x00\x00"]

one_request = st.tuples(st.sampled_from([JSON, BINARY]), st.sampled_from(REQUESTS))


def transcript(data: bytes, cuts: list[int]) -> tuple[bytes, bool]:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    points = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
    for start, end in pairwise(points):
        if not peer.closed:
            peer.session.receive(data[start:end])
            fixture.commit()
    if not peer.closed:
        peer.session.end_of_input()
        fixture.commit()
    return b"".join(peer.sent), peer.closed


@settings(max_examples=scaled(60), deadline=None)
@given(st.lists(one_request, max_size=12), st.sampled_from(ENDINGS), st.lists(st.integers(0, 5000), max_size=20))
def test_any_split_of_the_input_gives_the_same_output(
    requests: list[tuple[Dialect, Request]], ending: bytes, cuts: list[int]
) -> None:
    data = b"".join(frame(dialect.encode_request(request)) for dialect, request in requests) + ending
    whole = transcript(data, [])
    assert transcript(data, cuts) == whole
    assert whole[1]


@settings(max_examples=scaled(150), deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_no_input_makes_a_session_fail(data: bytes, framed: bool) -> None:
    peer = Peer(BrokerFixture())
    peer.session.receive(frame(data) if framed and data else data)
    peer.fixture.commit()
    assert 500 not in [reply.code for reply in peer.replies() if isinstance(reply, Error)]


def test_topics_with_names_of_other_doors_can_be_used(fixture: BrokerFixture) -> None:
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "eu/Bestellungen.für-uns", 1, TopicSettings())
    for dialect in (JSON, BINARY):
        peer = Peer(fixture, dialect)
        peer.ask(Produce("eu/Bestellungen.für-uns", 0, [b"v"]))
        assert payloads(peer.ask(Fetch("eu/Bestellungen.für-uns", 0, 0, 1))) == [b"v"]
