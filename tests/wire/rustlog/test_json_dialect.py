"""The JSON dialect: the document's messages to the letter, and what it makes of everything else."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.rustlog.strategies import requests, responses, values
from tests.wire.vectors import vector_bytes

from penstock.log.batch import Batch, RecordSlice
from penstock.log.open_batch import OpenBatch
from penstock.wire.rustlog import messages as m
from penstock.wire.rustlog.codec.dialect import JSON
from penstock.wire.rustlog.codec.json_dialect import MAX_RECORD
from penstock.wire.rustlog.errors import InvalidRequest, MalformedPayload, ProtocolError, RecordUnfetchable
from penstock.wire.rustlog.frames import MAX_FRAME, frame

VECTORS = vector_bytes("rustlog")

REQUESTS: dict[str, m.Request] = {
    "message_valid/sample_frame": m.Produce("logs", 0, [b"Hello World"]),
    "message_json/produce_none": m.Produce("t", m.MAX_U32, []),
    "message_valid/fetch": m.Fetch("user-events", 0, 100, 1_048_576, "analytics-consumer"),
    "message_valid/offset_commit": m.OffsetCommit("analytics-pipeline", "user-events", 0, 150),
    "message_valid/offset_fetch": m.OffsetFetch("analytics-pipeline", "user-events", 0),
    "message_json/create_topic": m.CreateTopic("user-events", 3),
    "message_valid/list_topics": m.ListTopics(),
    "message_json/describe_topic": m.DescribeTopic("user-events"),
    "message_json/describe_partition": m.DescribePartition("user-events", 1),
    "message_valid/metrics_fetch": m.MetricsFetch(),
    "message_valid/ping": m.Ping(),
}

RESPONSES: dict[str, m.Response] = {
    "message_valid/produce_response": m.ProduceResponse(42, 2),
    "message_valid/fetch_response": m.FetchResponse(
        [
            m.FetchedRecord(100, 1641024000000000, b'{"user":"alice"}'),
            m.FetchedRecord(101, 1641024001000000, b'{"user":"bob"}'),
        ],
        102,
    ),
    "message_json/fetch_empty_reply": m.FetchResponse([], m.MAX_U64),
    "message_json/offset_commit_reply": m.OffsetCommitResponse(True),
    "message_valid/offset_fetch_response": m.OffsetFetchResponse(150),
    "message_valid/offset_fetch_response_none": m.OffsetFetchResponse(None),
    "message_valid/create_topic_response": m.CreateTopicResponse(True, 3),
    "message_json/list_topics_reply": m.ListTopicsResponse([m.TopicSummary("logs", 3), m.TopicSummary("metrics", 1)]),
    "message_json/describe_topic_reply": m.DescribeTopicResponse("logs", [m.PartitionSummary(0, 5, 2, 1)]),
    "message_json/describe_partition_reply": m.DescribePartitionResponse("logs", 1, 5, 2, 1),
    "message_json/metrics_reply": m.MetricsFetchResponse("up 1\n"),
    "message_valid/pong": m.Pong(),
    "message_json/topic_not_found": m.Error(
        404, "Topic 'nonexistent' not found", {"available_topics": ["events", "logs", "metrics"]}
    ),
    "message_valid/error_416": m.Error(
        416, "Offset 5000 out of range", {"valid_range": {"start": 0, "end": 1250}, "high_watermark": 1250}
    ),
    "message_json/error_without_details": m.Error(405, "Partition 7 not found in topic 'logs'", None),
}


def refusal(payload: bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        JSON.decode_request(payload)
    return caught.value


def request_bytes(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


# -- golden vectors


def test_the_vectors_cover_every_message() -> None:
    shown = {type(message) for message in (*REQUESTS.values(), *RESPONSES.values())}
    assert shown == set(m.Message.__subclasses__())


@pytest.mark.parametrize("name", REQUESTS)
def test_request_vectors(name: str) -> None:
    data, message = VECTORS[name], REQUESTS[name]
    assert frame(JSON.encode_request(message)) == data
    assert JSON.decode_request(data[4:]) == message


@pytest.mark.parametrize("name", RESPONSES)
def test_response_vectors(name: str) -> None:
    data, message = VECTORS[name], RESPONSES[name]
    assert frame(JSON.encode_response(message)) == data
    assert JSON.decode_response(data[4:]) == message


def test_the_documents_own_example_with_its_line_breaks() -> None:
    example = b"""{
  "type": "Produce",
  "topic": "user-events",
  "partition": 0,
  "records": [
    "eyJ1c2VyIjoiYWxpY2UiLCJhY3Rpb24iOiJsb2dpbiJ9",
    "eyJ1c2VyIjoiYm9iIiwiYWN0aW9uIjoic2lnbnVwIn0="
  ]
}"""
    records = [b'{"user":"alice","action":"login"}', b'{"user":"bob","action":"signup"}']
    assert JSON.decode_request(example) == m.Produce("user-events", 0, records)


# -- properties


@given(requests)
def test_requests_round_trip(message: m.Request) -> None:
    assert JSON.decode_request(JSON.encode_request(message)) == message


@given(responses(whole=True))
def test_responses_round_trip(message: m.Response) -> None:
    payload = JSON.encode_response(message)
    assert JSON.decode_response(payload) == message
    assert json.loads(payload)["type"] == type(message).__name__  # any JSON reader can read it


@given(requests)
def test_any_json_writer_is_understood(message: m.Request) -> None:
    """The same request with its fields in another order, and everything outside ASCII escaped."""
    fields = json.loads(JSON.encode_request(message))
    payload = json.dumps(dict(reversed(fields.items())), ensure_ascii=True, indent=1).encode()
    assert JSON.decode_request(payload) == message


@given(st.binary(min_size=1, max_size=60) | st.text(max_size=60).map(str.encode) | st.binary().map(lambda b: b"{" + b))
def test_junk_raises_nothing_but_protocol_errors(payload: bytes) -> None:
    for decode in (JSON.decode_request, JSON.decode_response):
        try:
            decode(payload)
        except ProtocolError as error:
            assert isinstance(JSON.decode_response(JSON.encode_error(error.reply)), m.Error)


plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
anything = (
    plain | st.lists(plain | st.lists(plain, max_size=1), max_size=2) | st.dictionaries(st.text(max_size=3), plain)
)
field_names = ["type", "topic", "partition", "records", "offset", "max_bytes", "group", "group_id", "partition_count"]
types = [name for name in (cls.__name__ for cls in m.Message.__subclasses__()) if "Response" not in name]


@given(st.sampled_from(types), st.dictionaries(st.sampled_from(field_names[1:]), anything))
def test_wrong_fields_are_refused_and_keep_the_connection(kind: str, fields: dict[str, Any]) -> None:
    try:
        JSON.decode_request(request_bytes(type=kind, **fields))
    except ProtocolError as error:
        assert isinstance(error, InvalidRequest)
        assert not error.closes


# -- fields


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b'{"type":"Snap"}', "Unknown request type 'Snap'"),
        (b'{"type":"ProduceResponse","base_offset":1,"record_count":1}', "Unknown request type 'ProduceResponse'"),
        (b'{"type":7}', "Field 'type': expected str"),
        (b'{"type":"DescribeTopic"}', "Missing field 'topic'"),
        (b'{"type":"DescribeTopic","topic":null}', "Field 'topic': expected str, got null"),
        (b'{"type":"OffsetFetch","topic":"t","partition":0}', "Missing field 'group'"),
        (b'{"type":"DescribePartition","topic":"t","partition":-1}', "Field 'partition': expected int >= 0"),
        (b'{"type":"DescribePartition","topic":"t","partition":1.0}', "Field 'partition': expected int, got float"),
        (b'{"type":"DescribePartition","topic":"t","partition":1e2}', "Field 'partition': expected int, got float"),
        (b'{"type":"DescribePartition","topic":"t","partition":true}', "Field 'partition': expected int, got bool"),
        (b'{"type":"DescribePartition","topic":"t","partition":"1"}', "Field 'partition': expected int, got str"),
        (
            b'{"type":"DescribePartition","topic":"t","partition":4294967296}',
            "Field 'partition': expected int <= 4294967295",
        ),
    ],
)
def test_a_wrong_field_is_named(payload: bytes, text: str) -> None:
    error = refusal(payload)
    assert str(error) == text
    assert not error.closes
    assert json.loads(JSON.encode_error(error.reply)) == {
        "type": "Error",
        "code": 400,
        "message": text,
        "details": None,
    }


@pytest.mark.parametrize("value", [m.MAX_U64 + 1, 10**40, -1, 1.0, True, "5", None])
@pytest.mark.parametrize("field", ["offset", "max_bytes"])
def test_u64_fields_take_nothing_else(field: str, value: object) -> None:
    fields = {"type": "Fetch", "topic": "t", "partition": 0, "offset": 0, "max_bytes": 1, field: value}
    assert f"'{field}'" in str(refusal(request_bytes(**fields)))


def test_a_number_of_a_million_digits_is_refused() -> None:
    number = b"9" * 1_000_000
    payload = b'{"type":"Fetch","topic":"t","partition":0,"max_bytes":1,"offset":' + number + b"}"
    assert isinstance(refusal(payload), InvalidRequest)


def test_error_texts_stay_short() -> None:
    error = refusal(request_bytes(type="x" * 100_000))
    assert len(JSON.encode_error(error.reply)) < 2_000


def test_a_batch_has_at_most_1000_records() -> None:
    assert isinstance(
        JSON.decode_request(request_bytes(type="Produce", topic="t", partition=0, records=[""] * 1000)), m.Produce
    )
    error = refusal(request_bytes(type="Produce", topic="t", partition=0, records=[""] * 1001))
    assert str(error) == "Field 'records': expected at most 1000 records"
    assert not error.closes


# -- decisions where the document contradicts itself or is silent


def test_decision_04_the_type_is_a_name_and_not_a_number() -> None:
    for number in (1, 0x0A, "0x01", "1"):
        assert not refusal(request_bytes(type=number)).closes
    assert b'"type":"Pong"' in JSON.encode_response(m.Pong())


def test_decision_11_group_and_group_id_are_both_read() -> None:
    place = {"topic": "t", "partition": 0}
    for name in ("group", "group_id"):
        group = {name: "g"}
        assert JSON.decode_request(request_bytes(type="Fetch", offset=1, max_bytes=2, **place, **group)) == m.Fetch(
            "t", 0, 1, 2, "g"
        )
        assert JSON.decode_request(request_bytes(type="OffsetCommit", offset=1, **place, **group)) == m.OffsetCommit(
            "g", "t", 0, 1
        )
        assert JSON.decode_request(request_bytes(type="OffsetFetch", **place, **group)) == m.OffsetFetch("g", "t", 0)
    both = request_bytes(type="OffsetFetch", group="written", group_id="other", **place)
    assert JSON.decode_request(both) == m.OffsetFetch("written", "t", 0)
    both = request_bytes(type="Fetch", offset=1, max_bytes=2, group="other", group_id="written", **place)
    assert JSON.decode_request(both) == m.Fetch("t", 0, 1, 2, "written")


@pytest.mark.parametrize("group", [{}, {"group_id": ""}, {"group_id": None}])
def test_decision_12_a_fetch_needs_no_group(group: dict[str, Any]) -> None:
    payload = request_bytes(type="Fetch", topic="t", partition=0, offset=1, max_bytes=2, **group)
    assert JSON.decode_request(payload) == m.Fetch("t", 0, 1, 2, "")


def test_decision_13_messages_that_the_document_only_names() -> None:
    assert JSON.decode_request(b'{"type":"DescribePartition","topic":"t","partition":1}') == m.DescribePartition("t", 1)
    assert json.loads(JSON.encode_response(m.DescribePartitionResponse("t", 1, 9, 4, 2))) == {
        "type": "DescribePartitionResponse",
        "topic": "t",
        "partition": 1,
        "high_watermark": 9,
        "log_start_offset": 4,
        "segment_count": 2,
    }
    assert JSON.decode_request(b'{"type":"MetricsFetch"}') == m.MetricsFetch()
    assert (
        JSON.encode_response(m.MetricsFetchResponse("x 1\n")) == b'{"type":"MetricsFetchResponse","metrics":"x 1\\n"}'
    )
    assert JSON.decode_request(b'{"type":"Ping"}') == m.Ping()
    assert JSON.encode_response(m.Pong()) == b'{"type":"Pong"}'


@pytest.mark.parametrize("payload", [b"[]", b"[1]", b"{}", b'"text"', b"3", b"null", b"true", b'{"topic":"t"}'])
def test_decision_17_json_that_is_no_request_keeps_the_connection(payload: bytes) -> None:
    assert not refusal(payload).closes


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b'{"type":"Ping"',
        b'{"type":"Ping"}}',
        b'{"type":"Ping"} {"type":"Ping"}',
        b"{'type':'Ping'}",
        b'{"type":"Ping",}',
        b'{"type":"Snap", garbage',  # the type is wrong, too, but this is no JSON
        b'{"type":"DescribePartition","topic":"t","partition":-1',
        b'{"type":"Ping","x":NaN}',
        b'{"type":"DescribeTopic","topic":"\\ud800"}',
        b'{"type":"DescribeTopic","topic":"a\x01b"}',
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_decision_17_bytes_that_are_no_json_close_the_connection(payload: bytes) -> None:
    error = refusal(payload)
    assert isinstance(error, MalformedPayload)
    assert error.closes
    assert str(error).startswith("Malformed JSON: ")


@pytest.mark.parametrize(
    "payload",
    [
        b'{"type":"DescribeTopic","topic":"\xff"}',
        b'{"type":"Ping","ignored":"\xff"}',
        b'{"type":"Ping","\xc3":1}',
        b'{"type":"Snap","x":"\xed\xa0\x80"}',
    ],
)
def test_invalid_utf8_closes_the_connection_wherever_it_is(payload: bytes) -> None:
    error = refusal(payload)
    assert error.closes
    assert str(error).startswith("Invalid UTF-8 at byte ")


@pytest.mark.parametrize("opening", [b'{"type":"Ping","x":', b'{"x":', b""])
@pytest.mark.parametrize("nesting", [b"[", b'{"a":'])
def test_deep_nesting_closes_the_connection(opening: bytes, nesting: bytes) -> None:
    error = refusal(opening + nesting * 200_000)
    assert str(error) == "Malformed JSON: nested too deeply"
    assert error.closes


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 255])
def test_decision_20_new_topics_have_plain_names(name: str) -> None:
    assert JSON.decode_request(request_bytes(type="CreateTopic", topic=name, partition_count=1)) == m.CreateTopic(
        name, 1
    )


@pytest.mark.parametrize("name", ["", "x" * 256, "a.b", "a b", "ä", "a/b", "٣", "a\n"])
def test_decision_20_other_names_are_refused_for_new_topics_only(name: str) -> None:
    error = refusal(request_bytes(type="CreateTopic", topic=name, partition_count=1))
    assert str(error) == "Field 'topic': expected 1 to 255 ASCII letters, digits, '_' or '-'"
    assert not error.closes
    # Topics made through another door may have such names, and are served.
    assert JSON.decode_request(request_bytes(type="DescribeTopic", topic=name)) == m.DescribeTopic(name)


@pytest.mark.parametrize("offset", [2**53 + 1, 2**63, m.MAX_U64])
def test_decision_21_offsets_above_2_53_are_exact(offset: int) -> None:
    payload = b'{"type":"OffsetCommit","group":"g","topic":"t","partition":0,"offset":%d}' % offset
    assert JSON.decode_request(payload) == m.OffsetCommit("g", "t", 0, offset)
    assert JSON.encode_response(m.OffsetFetchResponse(offset)) == b'{"type":"OffsetFetchResponse","offset":%d}' % offset


def test_decision_25_records_are_strings_and_not_arrays_of_numbers() -> None:
    error = refusal(request_bytes(type="Produce", topic="t", partition=0, records=[[104, 101]]))
    assert str(error) == "Field 'records[0]': expected bytes, got array"
    assert not error.closes


def test_decision_26_unknown_fields_are_ignored() -> None:
    payload = b'{"type":"Ping","version":2,"trace":{"id":[1,{"a":null}]}}'
    assert JSON.decode_request(payload) == m.Ping()


@pytest.mark.parametrize(
    ("text", "value"), [("", b""), ("+/+/", b"\xfb\xff\xbf"), ("YQ==", b"a"), ("YWI=", b"ab"), ("YWJj", b"abc")]
)
def test_decision_31_base64_has_the_standard_alphabet_and_padding(text: str, value: bytes) -> None:
    payload = request_bytes(type="Produce", topic="t", partition=0, records=[text])
    assert JSON.decode_request(payload) == m.Produce("t", 0, [value])


@pytest.mark.parametrize("text", ["YQ", "YQ=", "YQ===", "-_-_", "Y Q=", "YQ==\n", "=", "YQ==YQ==", "ä"])
def test_decision_31_other_base64_is_refused(text: str) -> None:
    error = refusal(request_bytes(type="Produce", topic="t", partition=0, records=["YQ==", text]))
    assert str(error) == "Field 'records[1]': invalid base64 encoded string"
    assert not error.closes


@pytest.mark.parametrize(
    ("payload", "topic"),
    [
        (b'{"type":"DescribeTopic","topic":"a","topic":"b"}', "b"),
        (b'{"topic":"a","type":"DescribeTopic","topic":"b"}', "b"),
        (b'{"type":"DescribeTopic","topic":"b","type":"DescribeTopic"}', "b"),
    ],
)
def test_decision_34_of_a_key_that_comes_twice_the_last_counts(payload: bytes, topic: str) -> None:
    assert JSON.decode_request(payload) == m.DescribeTopic(topic)
    error = refusal(b'{"type":"DescribeTopic","topic":"a","type":"Ping"}')
    assert not error.closes


@pytest.mark.parametrize(("text", "value"), [("YR==", b"a"), ("YWJ=", b"ab"), ("YWL=", b"ab")])
def test_decision_35_base64_with_stray_bits_is_read(text: str, value: bytes) -> None:
    payload = request_bytes(type="Produce", topic="t", partition=0, records=[text])
    assert JSON.decode_request(payload) == m.Produce("t", 0, [value])


# -- answers to Fetch, straight from the log


def slices(base: int, parts: list[list[bytes]], timestamp: int = 1_700_000_000_000_000) -> list[RecordSlice]:
    found = []
    for part in parts:
        batch = OpenBatch(1, base)
        batch.extend(part, None, None, None, timestamp)
        found.append(Batch(batch.build(0)).slice(base, base + len(part), 1 << 30, 1 << 30))
        base += len(part)
    return found


@given(st.lists(values.filter(bool), max_size=4), st.integers(0, 2**40))
def test_encode_fetch_gives_the_bytes_of_the_response(parts: list[list[bytes]], base: int) -> None:
    flat = [value for part in parts for value in part]
    records = [m.FetchedRecord(base + i, 1_700_000_000_000_000, value) for i, value in enumerate(flat)]
    expected = JSON.encode_response(m.FetchResponse(records, base + len(flat)))
    assert JSON.encode_fetch(slices(base, parts), base + len(flat)) == expected


@pytest.mark.parametrize("base", [0, 95, 10**12])
@pytest.mark.parametrize("size", [0, 1, 100, 99_991, 3_000_000])
def test_encode_fetch_fills_a_frame_and_no_more(base: int, size: int) -> None:
    """As many records as fit; one more would not; and the next offset is the first that was left out."""
    count = min(MAX_FRAME // (size + 40) + 10, JSON.read_limit(m.MAX_U64).max_records)
    part = [bytes(size)] * count

    payload = JSON.encode_fetch(slices(base, [part]), base + count)

    assert len(payload) <= MAX_FRAME
    reply = JSON.decode_response(payload)
    assert isinstance(reply, m.FetchResponse)
    assert reply.next_offset == base + len(reply.records)
    assert [record.offset for record in reply.records] == list(range(base, reply.next_offset))
    if len(reply.records) < count:
        following = m.FetchedRecord(reply.next_offset, 1_700_000_000_000_000, bytes(size))
        more = json.dumps({"offset": following.offset, "timestamp": following.timestamp, "payload": ""})
        longer = len(payload) + 1 + len(more.replace(" ", "")) + len(base64.b64encode(following.payload))
        longer += len(str(following.offset + 1)) - len(str(following.offset))
        assert longer > MAX_FRAME


def test_encode_fetch_cuts_at_the_very_byte() -> None:
    """Two records that fill a frame to the last byte are sent; a little more, and the second is left out."""
    left_over = set()
    for base in (8, 9):  # one digit more for the second record's offset
        for stamp in (1, 10):  # one digit more for both: so that every remainder of Base64's four bytes occurs
            records = [{"offset": offset, "timestamp": stamp, "payload": ""} for offset in (base, base + 1)]
            around = {"type": "FetchResponse", "records": records, "next_offset": base + 2}
            room = MAX_FRAME - len(json.dumps(around, separators=(",", ":")))
            left_over.add(room % 4)
            size = room // 4 * 3
            for value, expected in ((bytes(size), 2), (bytes(size + 1), 1)):
                payload = JSON.encode_fetch(slices(base, [[value, b""], [b"more"]], stamp), base + 3)
                reply = JSON.decode_response(payload)
                assert isinstance(reply, m.FetchResponse)
                assert len(reply.records) == expected
                assert reply.next_offset == base + expected
    assert left_over == {0, 1, 2, 3}


def test_the_largest_record_fits_at_every_offset() -> None:
    last = 2**63 - 2
    payload = JSON.encode_fetch(slices(last, [[bytes(MAX_RECORD)]], 2**63 - 1), last + 1)
    assert MAX_FRAME - 16 < len(payload) <= MAX_FRAME


def test_decision_06_a_record_that_fits_no_frame_is_named() -> None:
    """It can only have come through another door, or the binary dialect."""
    with pytest.raises(RecordUnfetchable) as caught:
        JSON.encode_fetch(slices(7, [[bytes(MAX_RECORD + 100), b"next"]]), 9)
    told = JSON.decode_response(JSON.encode_error(caught.value.reply))
    text = f"The record of {MAX_RECORD + 100} bytes at offset 7 does not fit a frame"
    assert told == m.Error(413, text, {"offset": 7, "next_offset": 8})
    assert not caught.value.closes


def test_read_limit_asks_for_no_more_than_a_frame_holds() -> None:
    assert JSON.read_limit(1000).max_bytes == 1000
    assert JSON.read_limit(m.MAX_U64).max_bytes == MAX_RECORD
    assert JSON.read_limit(m.MAX_U64).max_records * 40 <= MAX_FRAME
