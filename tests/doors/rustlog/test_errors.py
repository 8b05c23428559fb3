"""The table of errors: every failure of `core` and `log` has its code and text in both dialects."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker import errors as core
from penstock.doors.rustlog.errors import error_reply
from penstock.log import errors as log
from penstock.wire.rustlog.codec.dialect import BINARY, JSON
from penstock.wire.rustlog.errors import (
    DecodeError,
    FrameTooLarge,
    InvalidRequest,
    MalformedPayload,
    ProtocolError,
    ReplyTooLarge,
    ZeroLengthFrame,
    closes_connection,
)
from penstock.wire.rustlog.messages import (
    CreateTopic,
    DescribePartition,
    DescribeTopic,
    Error,
    Fetch,
    ListTopics,
    MetricsFetch,
    OffsetCommit,
    OffsetFetch,
    Ping,
    Produce,
    Request,
    Response,
)

PRODUCE = Produce("t", 7, [b"x"])
FETCH = Fetch("t", 7, 5, 100)
COMMIT = OffsetCommit("g", "t", 7, 5)
CREATE = CreateTopic("t", 0)
DESCRIBE = DescribeTopic("t")
DESCRIBE_PARTITION = DescribePartition("t", 7)
REQUESTS: list[Request | None] = [
    None, PRODUCE, FETCH, COMMIT, OffsetFetch("g", "t", 7), CREATE, ListTopics(), DESCRIBE, DESCRIBE_PARTITION,
    MetricsFetch(), Ping(),
]  # fmt: skip

NO_TOPIC = core.TopicNotFound("t")
NO_PARTITION = core.PartitionNotFound("t", 7, 3)
FULL_TEXT = "Insufficient space: nothing was stored"
READ_ONLY_TEXT = "Storage error: the log takes no writes; this request stored nothing"
UNKNOWN_TEXT = "Storage error: outcome unknown: the disk failed during the write, which may be stored, or not"


def in_json(error: Exception, request: Request | None, topics: tuple[str, ...] = ()) -> Response:
    return JSON.decode_response(JSON.encode_error(error_reply(error, request, topics)))


def in_binary(error: Exception, request: Request | None) -> Response:
    return BINARY.decode_response(BINARY.encode_error(error_reply(error, request)))


@pytest.mark.parametrize(
    ("error", "request_", "json_code", "binary_code", "binary_text"),
    [
        (NO_TOPIC, PRODUCE, 404, 10, "Topic or partition does not exist: topic=t, partition=7"),
        (NO_TOPIC, FETCH, 404, 10, "Topic or partition does not exist: topic=t, partition=7"),
        (NO_TOPIC, DESCRIBE, 404, 13, "DescribeTopic failed: Topic 't' not found"),
        (NO_TOPIC, DESCRIBE_PARTITION, 404, 14, "DescribePartition failed: Partition 7 not found in topic 't'"),
        (NO_TOPIC, COMMIT, 404, 5, "Offset commit failed: Topic 't' not found"),
        (NO_PARTITION, PRODUCE, 405, 10, "Topic or partition does not exist: topic=t, partition=7"),
        (NO_PARTITION, FETCH, 405, 10, "Topic or partition does not exist: topic=t, partition=7"),
        (NO_PARTITION, DESCRIBE_PARTITION, 405, 14, "DescribePartition failed: Partition 7 not found in topic 't'"),
        (NO_PARTITION, COMMIT, 405, 5, "Offset commit failed: Partition 7 not found in topic 't'"),
        (core.TopicExists("t", 3), CREATE, 400, 11, "Topic 't' already exists"),
        (core.InvalidPartitionCount(0, 1000), CREATE, 400, 12, "Invalid partition count: 0"),
        (core.InvalidArgument("bad value"), FETCH, 400, 2, "Invalid request: bad value"),
        (core.LimitReached("too many topics"), CREATE, 507, 500, "too many topics"),
        (core.QuotaReached("its limit"), CREATE, 507, 500, "its limit"),
        (core.QuotaReached("its limit"), PRODUCE, 507, 500, "Failed to write record: its limit"),
        (core.TooFast("its rate"), FETCH, 429, 500, "its rate"),
        (core.LimitReached("too many groups"), COMMIT, 507, 5, "Offset commit failed: too many groups"),
        (core.StateUnreadable("newer"), CREATE, 503, 500, "Storage error"),
        (core.InvalidName("bad name"), CREATE, 400, 2, "Invalid request: bad name"),
        (core.AccessDenied("not allowed"), PRODUCE, 403, 15, "not allowed"),
        (
            core.RecordTooLarge(9, 8),
            PRODUCE,
            413,
            500,
            "Failed to write record: Record of 9 bytes is larger than the limit of 8 bytes",
        ),
        (log.OffsetOutOfRange(5, 10, 20), FETCH, 416, 4, "Fetch failed: offset 5 out of range: the log holds 10 to 20"),
        (core.ShuttingDown("x"), PRODUCE, 503, 500, "The broker is shutting down"),
        (log.LogClosed("x"), FETCH, 503, 500, "The broker is shutting down"),
        (log.LogFull("x"), PRODUCE, 507, 500, f"Failed to write record: {FULL_TEXT}"),
        (log.LogFull("x"), COMMIT, 507, 5, f"Offset commit failed: {FULL_TEXT}"),
        (log.LogFull("x"), CREATE, 507, 500, "Internal server error during topic creation"),
        (log.CommitFailed("x"), PRODUCE, 503, 500, f"Failed to write record: {UNKNOWN_TEXT}"),
        (log.CommitFailed("x"), COMMIT, 503, 5, f"Offset commit failed: {UNKNOWN_TEXT}"),
        (log.CommitFailed("x"), CREATE, 503, 500, UNKNOWN_TEXT),
        (log.LogReadOnly("x"), PRODUCE, 503, 500, f"Failed to write record: {READ_ONLY_TEXT}"),
        (log.LogReadOnly("x"), COMMIT, 503, 5, f"Offset commit failed: {READ_ONLY_TEXT}"),
        (log.LogDamaged("/d/f", 3, "y"), FETCH, 503, 4, "Fetch failed: Stored data is damaged"),
        (log.OffsetMismatch(1, 2), PRODUCE, 503, 500, "Failed to write record: Storage error"),
        (ValueError("x"), ListTopics(), 500, 500, "Failed to list topics"),
        (ValueError("x"), CREATE, 500, 500, "Internal server error during topic creation"),
        (ValueError("x"), PRODUCE, 500, 500, "Internal server error"),
    ],
)
def test_codes_and_texts(
    error: Exception, request_: Request, json_code: int, binary_code: int, binary_text: str
) -> None:
    reply = in_json(error, request_)
    assert isinstance(reply, Error)
    assert reply.code == json_code
    assert in_binary(error, request_) == Error(binary_code, binary_text, None)
    assert not closes_connection(error)


# -- details of the JSON dialect


def test_decision_15_topic_not_found_names_the_topics() -> None:
    """404 is for topics, 405 for partitions."""
    assert in_json(NO_TOPIC, PRODUCE, ("logs", "events")) == Error(
        404, "Topic 't' not found", {"available_topics": ["events", "logs"]}
    )
    assert in_json(NO_PARTITION, PRODUCE, ("logs",)) == Error(405, "Partition 7 not found in topic 't'", None)


def test_at_most_100_topics_are_named() -> None:
    reply = in_json(NO_TOPIC, PRODUCE, tuple(f"t{i:03}" for i in range(500)))
    assert isinstance(reply, Error)
    assert reply.details is not None
    assert reply.details["available_topics"] == [f"t{i:03}" for i in range(100)]


def test_decision_03_below_the_start_has_the_documented_details() -> None:
    """The end is exclusive: it is the high watermark."""
    assert in_json(log.OffsetOutOfRange(5, 10, 20), FETCH) == Error(
        416, "Offset 5 out of range", {"valid_range": {"start": 10, "end": 20}, "high_watermark": 20}
    )


def test_decision_14_a_duplicate_topic_tells_its_partitions() -> None:
    assert in_json(core.TopicExists("t", 3), CREATE) == Error(400, "Topic 't' already exists", {"partition_count": 3})


def test_decision_28_storage_and_shutdown_have_503_and_space_507() -> None:
    for error in (core.ShuttingDown("x"), log.LogClosed("x"), log.LogReadOnly("x"), log.LogDamaged("f", 1, "x")):
        reply = in_json(error, PRODUCE)
        assert isinstance(reply, Error)
        assert reply.code == 503
    assert in_json(log.LogFull("x"), PRODUCE) == Error(507, FULL_TEXT, None)


# -- every error has an answer


def _texts(kind: type[Exception]) -> list[str]:
    """The arguments of an error that takes only texts."""
    _, *parameters = inspect.signature(kind.__init__).parameters.values()
    return ["text" for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]


def every_error() -> Iterator[Exception]:
    built = [
        NO_TOPIC, NO_PARTITION, core.TopicExists("t", 1), core.RecordTooLarge(2, 1), core.InvalidPartitionCount(0, 9),
        core.RecordUnsendable(7, 3, 2),
        log.OffsetMismatch(1, 2), log.OffsetOutOfRange(1, 2, 3), log.LogDamaged("f", 1, "r"),
        log.TableDamaged("f", "t", 0, 1, 2, "r"),
        core.DelayTooLong(2, 1),
    ]  # fmt: skip
    yield from built
    for family in (core, log):
        for kind in vars(family).values():
            if isinstance(kind, type) and issubclass(kind, Exception) and kind not in map(type, built):
                yield kind(*_texts(kind))
    yield from (ValueError("secret"), KeyError("secret"), OSError(5, "secret"), RecursionError(), UnicodeError())
    yield from (ZeroLengthFrame(), FrameTooLarge(1 << 31, 10), MalformedPayload("x"), InvalidRequest("x"))
    yield from (DecodeError("x"), ReplyTooLarge(3, 2))


def test_every_error_is_told_for_every_request_in_both_dialects() -> None:
    for error in every_error():
        for request in REQUESTS:
            for reply in (in_json(error, request), in_binary(error, request)):
                assert isinstance(reply, Error), (error, request)
                assert reply.message, (error, request)
                assert "secret" not in reply.message


def test_paths_of_the_server_are_not_told() -> None:
    error = log.LogDamaged("/var/lib/penstock/0001.journal", 512, "wrong checksum")
    for reply in (JSON.encode_error(error_reply(error, FETCH)), BINARY.encode_error(error_reply(error, FETCH))):
        assert b"/var" not in reply
        assert b"0001" not in reply


@pytest.mark.parametrize(
    ("error", "closes", "json_reply", "binary_reply"),
    [
        (
            ZeroLengthFrame(),
            True,
            Error(400, "invalid protocol: zero-length frame"),
            Error(1, "Frame error: invalid protocol: zero-length frame"),
        ),
        (
            FrameTooLarge(10_485_761, 10_485_760),
            True,
            Error(400, "frame too large: 10485761 bytes (max: 10485760)"),
            Error(1, "Frame error: frame too large: 10485761 bytes (max: 10485760)"),
        ),
        (MalformedPayload("Malformed JSON: x"), True, Error(400, "Malformed JSON: x"), None),
        (InvalidRequest("Missing field 'x'"), False, Error(400, "Missing field 'x'"), None),
        (DecodeError("decode error: x"), False, None, Error(2, "Decode error: decode error: x")),
    ],
)
def test_violations_of_the_protocol(
    error: ProtocolError, closes: bool, json_reply: Error | None, binary_reply: Error | None
) -> None:
    assert closes_connection(error) is closes
    if json_reply is not None:
        assert in_json(error, None) == json_reply
    if binary_reply is not None:
        assert in_binary(error, None) == binary_reply


# -- the document


def test_the_document_has_all_decisions_and_names_tests_that_exist() -> None:
    root = Path(__file__).parents[3]
    document = (root / "docs" / "protocols" / "rustlog.md").read_text()
    tests = "".join(path.read_text() for path in root.glob("tests/*/rustlog/test_*.py"))
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", document, re.MULTILINE)] == list(range(1, 38))
    for name in re.findall(r"`(test_\w+)`", document):
        assert f"def {name}(" in tests, name
    for name in re.findall(r"def (test_decision_\w+)\(", tests):
        assert f"`{name}`" in document, name
