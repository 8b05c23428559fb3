"""The binary dialect: the original's wire to the byte, and its texts for what is short or wrong."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.rustlog.strategies import requests, responses, values
from tests.wire.vectors import vector_bytes

from penstock.log.batch import Batch, RecordSlice
from penstock.log.open_batch import OpenBatch
from penstock.wire.rustlog import messages as m
from penstock.wire.rustlog.codec.dialect import BINARY
from penstock.wire.rustlog.errors import DecodeError, InvalidRequest, ProtocolError, RecordUnfetchable, ReplyTooLarge
from penstock.wire.rustlog.frames import MAX_FRAME, frame

VECTORS = vector_bytes("rustlog")

REQUESTS: dict[str, m.Request] = {
    "message_binary/produce_one": m.Produce("logs", 0, [b"Hello World"]),
    "message_binary/produce_mixed": m.Produce("t", 1, [b"a", b"bb", b""]),
    "message_binary/produce_equal": m.Produce("t", 0, [b"ab", b"cd"]),
    "message_binary/produce_none": m.Produce("t", 0, []),
    "message_binary/fetch_with_group": m.Fetch("logs", 2, 100, 1_048_576, "g1"),
    "message_binary/fetch_without_group": m.Fetch("logs", 0, 0, 4096, ""),
    "message_binary/offset_commit": m.OffsetCommit("g1", "logs", 0, 150),
    "message_binary/offset_fetch": m.OffsetFetch("g1", "logs", 0),
    "message_valid/binary_create_topic": m.CreateTopic("logs", 3),
    "message_valid/binary_list_topics": m.ListTopics(),
    "message_valid/binary_describe_topic": m.DescribeTopic("logs"),
    "message_binary/describe_partition": m.DescribePartition("logs", 1),
    "message_valid/binary_metrics_fetch": m.MetricsFetch(),
    "message_valid/binary_ping": m.Ping(),
}

RESPONSES: dict[str, m.Response] = {
    "message_valid/binary_produce_response": m.ProduceResponse(42, 2),
    "message_binary/fetch_reply": m.FetchResponse(
        [m.FetchedRecord(100, None, b"a"), m.FetchedRecord(101, None, b"bb")], 102
    ),
    "message_binary/fetch_empty_reply": m.FetchResponse([], 7),
    "message_valid/binary_offset_commit_response": m.OffsetCommitResponse(True),
    "message_valid/binary_offset_fetch_response": m.OffsetFetchResponse(150),
    "message_valid/binary_offset_fetch_response_none": m.OffsetFetchResponse(None),
    "message_valid/binary_create_topic_response": m.CreateTopicResponse(True, None),
    "message_binary/list_topics_reply": m.ListTopicsResponse([m.TopicSummary("logs", 3), m.TopicSummary("metrics", 1)]),
    "message_binary/describe_topic_reply": m.DescribeTopicResponse(
        "logs", [m.PartitionSummary(0, 5, None, None), m.PartitionSummary(1, 0, None, None)]
    ),
    "message_binary/describe_partition_reply": m.DescribePartitionResponse("logs", 1, 5, None, None),
    "message_binary/metrics_reply": m.MetricsFetchResponse("up 1\n"),
    "message_valid/binary_error": m.Error(2, "Decode error: unknown request type: 123", None),
    "message_valid/binary_pong": m.Pong(),
}

# What each field of each request is called when it is cut off: (bytes of the field, text if any of them is missing).
STRING = {name: [(2, f"missing {name} length"), (-1, f"truncated {name}")] for name in ("topic", "group", "group_id")}
FIELDS: dict[int, list[tuple[int, str]]] = {
    0x01: [*STRING["topic"], (4, "missing partition"), (4, "missing record count")],
    0x02: [
        *STRING["group_id"],
        *STRING["topic"],
        (4, "missing partition"),
        (8, "missing offset"),
        (4, "missing max_bytes"),
    ],
    0x03: [*STRING["group"], *STRING["topic"], (4, "missing partition"), (8, "missing offset")],
    0x04: [*STRING["group"], *STRING["topic"], (4, "missing partition")],
    0x05: [*STRING["topic"], (4, "missing partition count")],
    0x06: [],
    0x07: [*STRING["topic"]],
    0x08: [*STRING["topic"], (4, "missing partition")],
    0x09: [],
    0xFF: [],
}


def texts_of_prefixes(payload: bytes) -> list[str]:
    """For every proper prefix of a request, the text that it must get, by walking along the fields."""
    texts = []
    at = 1
    for size, text in FIELDS[payload[0]]:
        length = int.from_bytes(payload[at - 2 : at], "big") if size < 0 else size
        texts += [text] * length
        at += length
    if payload[0] == 0x01:
        while at < len(payload):
            length = int.from_bytes(payload[at : at + 4], "big")
            texts += ["truncated record length"] * 4 + ["truncated record"] * length
            at += 4 + length
    assert at == len(payload)
    return texts


def refusal(payload: bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        BINARY.decode_request(payload)
    return caught.value


def told(error: ProtocolError) -> m.Error:
    reply = BINARY.decode_response(BINARY.encode_error(error.reply))
    assert isinstance(reply, m.Error)
    return reply


# -- golden vectors


def test_the_vectors_cover_every_message() -> None:
    shown = {type(message) for message in (*REQUESTS.values(), *RESPONSES.values())}
    assert shown == set(m.Message.__subclasses__())


@pytest.mark.parametrize("name", REQUESTS)
def test_request_vectors(name: str) -> None:
    data, message = VECTORS[name], REQUESTS[name]
    assert frame(BINARY.encode_request(message)) == data
    assert BINARY.decode_request(data[4:]) == message


@pytest.mark.parametrize("name", RESPONSES)
def test_response_vectors(name: str) -> None:
    data, message = VECTORS[name], RESPONSES[name]
    assert frame(BINARY.encode_response(message)) == data
    assert BINARY.decode_response(data[4:]) == message


# -- properties


@given(requests)
def test_requests_round_trip(message: m.Request) -> None:
    assert BINARY.decode_request(BINARY.encode_request(message)) == message


@given(responses(whole=False))
def test_responses_round_trip(message: m.Response) -> None:
    assert BINARY.decode_response(BINARY.encode_response(message)) == message


@given(requests, st.binary(max_size=9))
def test_bytes_behind_the_last_field_are_ignored(message: m.Request, rest: bytes) -> None:
    assert BINARY.decode_request(BINARY.encode_request(message) + rest) == message


@given(
    st.binary(min_size=1, max_size=80)
    | st.builds(bytes.__add__, st.sampled_from([bytes([b]) for b in FIELDS]), st.binary(max_size=60))
)
def test_junk_raises_nothing_but_protocol_errors(payload: bytes) -> None:
    for decode in (BINARY.decode_request, BINARY.decode_response):
        try:
            decode(payload)
        except ProtocolError as error:
            assert told(error).code == 2
            assert not error.closes


@given(requests)
def test_every_truncated_request_gets_the_documented_text(message: m.Request) -> None:
    payload = BINARY.encode_request(message)
    texts = texts_of_prefixes(payload)
    assert len(texts) == len(payload) - 1
    for size, text in enumerate(texts, start=1):
        error = refusal(payload[:size])
        assert told(error) == m.Error(2, f"Decode error: decode error: {text}", None)
        assert not error.closes


@pytest.mark.parametrize("name", REQUESTS)
def test_every_truncated_vector_gets_the_documented_text(name: str) -> None:
    payload = VECTORS[name][4:]
    texts = texts_of_prefixes(payload)
    assert [told(refusal(payload[:size])).message for size in range(1, len(payload))] == [
        f"Decode error: decode error: {text}" for text in texts
    ]


# -- what the original says


@pytest.mark.parametrize("kind", sorted(set(range(256)) - FIELDS.keys()))
def test_unknown_types(kind: int) -> None:
    error = refusal(bytes([kind]) + b"anything")
    assert told(error) == m.Error(2, f"Decode error: unknown request type: {kind}", None)
    assert not error.closes


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (b"\xff", "invalid utf8 topic: invalid utf-8 sequence of 1 bytes from index 0"),
        (b"ab\xe2\x82", "invalid utf8 topic: incomplete utf-8 byte sequence from index 2"),
    ],
)
def test_a_name_that_is_no_utf8(topic: bytes, text: str) -> None:
    error = refusal(b"\x07" + len(topic).to_bytes(2, "big") + topic)
    assert told(error).message == f"Decode error: decode error: {text}"
    assert not error.closes


@pytest.mark.parametrize("rest", [b"", bytes(3), bytes(400), b"\0\0\0\1a" * 50])
def test_a_count_without_the_records_allocates_nothing(rest: bytes) -> None:
    payload = bytes.fromhex("01 0001 74 00000000 ffffffff") + rest
    tracemalloc.start()
    try:
        error = refusal(payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, DecodeError)
    assert peak < 200_000


def test_a_record_length_beyond_the_frame() -> None:
    payload = bytes.fromhex("01 0001 74 00000000 00000002 ffffffff 61")
    assert told(refusal(payload)).message == "Decode error: decode error: truncated record"


@given(st.integers(0, 300), st.integers(1, 40), st.data())
def test_records_of_almost_equal_length(size: int, count: int, data: st.DataObject) -> None:
    """One record of another length, anywhere, and lengths that differ in any of their four bytes."""
    records = [bytes(size)] * count
    odd = data.draw(st.integers(0, count - 1))
    records[odd] = bytes(data.draw(st.integers(0, 600)))
    message = m.Produce("t", 0, records)
    assert BINARY.decode_request(BINARY.encode_request(message)) == message


@pytest.mark.parametrize("byte", [1, 2])
def test_lengths_that_differ_in_one_byte_only(byte: int) -> None:
    message = m.Produce("t", 0, [b"x", bytes(1 + 256**byte), b"y"])
    assert BINARY.decode_request(BINARY.encode_request(message)) == message


def test_a_length_that_differs_in_its_first_byte_only() -> None:
    payload = bytes.fromhex("01 0001 74 00000000 00000002 00000001 61 01000001 62")
    assert told(refusal(payload)).message == "Decode error: decode error: truncated record"


def test_long_error_texts_are_cut_to_a_well_formed_frame() -> None:
    reply = told(DecodeError("ä" * 70_000))
    assert len(reply.message) == 1024
    assert reply.message.endswith("ä…")


def test_what_the_dialect_cannot_carry_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidRequest):
        BINARY.encode_request(m.DescribeTopic("x" * 65_536))
    with pytest.raises(InvalidRequest):
        BINARY.encode_request(m.Fetch("t", 0, 0, 2**32))


def test_topics_are_listed_by_name() -> None:
    reply = BINARY.encode_response(m.ListTopicsResponse([m.TopicSummary("b", 1), m.TopicSummary("a", 2)]))
    assert BINARY.decode_response(reply) == m.ListTopicsResponse([m.TopicSummary("a", 2), m.TopicSummary("b", 1)])


def test_a_reply_larger_than_a_frame_is_an_error_that_keeps_the_connection() -> None:
    with pytest.raises(ReplyTooLarge) as caught:
        BINARY.encode_response(m.MetricsFetchResponse("x" * MAX_FRAME))
    assert told(caught.value).code == 500
    assert not caught.value.closes


# -- answers to Fetch, straight from the log


def slices(base: int, parts: list[list[bytes]]) -> list[RecordSlice]:
    found = []
    for part in parts:
        batch = OpenBatch(1, base)
        batch.extend(part, None, None, None, 1)
        found.append(Batch(batch.build(0)).slice(base, base + len(part), 1 << 30, 1 << 30))
        base += len(part)
    return found


def fetched(parts: list[list[bytes]], base: int, max_bytes: int = MAX_FRAME) -> m.FetchResponse:
    count = sum(map(len, parts))
    payload = BINARY.encode_fetch(slices(base, parts), base + count, max_bytes)
    assert len(payload) <= MAX_FRAME
    reply = BINARY.decode_response(payload)
    assert isinstance(reply, m.FetchResponse)
    return reply


@given(st.lists(values.filter(bool), max_size=4), st.integers(0, 2**40))
def test_encode_fetch_gives_the_bytes_of_the_response(parts: list[list[bytes]], base: int) -> None:
    flat = [value for part in parts for value in part]
    records = [m.FetchedRecord(base + i, None, value) for i, value in enumerate(flat)]
    expected = BINARY.encode_response(m.FetchResponse(records, base + len(flat)))
    assert BINARY.encode_fetch(slices(base, parts), base + len(flat)) == expected


@pytest.mark.parametrize(
    ("max_bytes", "count"), [(0, 0), (1, 1), (21, 1), (22, 1), (43, 1), (44, 2), (66, 3), (67, 3), (1000, 3)]
)
def test_max_bytes_counts_12_bytes_for_each_record(max_bytes: int, count: int) -> None:
    """And lets at least one record through, unless it is 0."""
    reply = fetched([[b"0123456789"] * 2, [b"0123456789"]], 100, max_bytes)
    assert len(reply.records) == count
    assert reply.next_offset == 100 + count


@pytest.mark.parametrize("size", [0, 1, 100, 99_991, 3_000_000])
def test_encode_fetch_fills_a_frame_and_no_more(size: int) -> None:
    limit = BINARY.read_limit(2**32 - 1)
    count = min(MAX_FRAME // (size + 4) + 5, limit.max_records)
    reply = fetched([[bytes(size)] * count], 10, 2**32 - 1)
    assert reply.next_offset == 10 + len(reply.records)
    if len(reply.records) < count:
        assert 13 + (len(reply.records) + 1) * (size + 4) > MAX_FRAME


def test_the_largest_record_of_a_frame() -> None:
    largest = MAX_FRAME - 13 - 4
    assert len(fetched([[bytes(largest), b"x"]], 0).records) == 1
    with pytest.raises(RecordUnfetchable) as caught:
        fetched([[bytes(largest + 1)]], 5)
    assert told(caught.value) == m.Error(
        4, f"Fetch failed: The record of {largest + 1} bytes at offset 5 does not fit a frame", None
    )


def test_read_limit_asks_for_no_more_than_the_answer_may_hold() -> None:
    assert BINARY.read_limit(1200) == (1200, 100)
    assert BINARY.read_limit(5) == (5, 1)
    assert BINARY.read_limit(2**32 - 1).max_bytes == MAX_FRAME
