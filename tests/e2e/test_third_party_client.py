"""Clients that are not ours. One is the Python of the protocol document, with its `recv` completed, going through the
document's own examples. The other writes the original's binary bytes by hand, and goes through the cases that the
original's own tests have. Neither shares code with the product."""

from __future__ import annotations

import base64
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.launcher import BrokerProcess


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """One broker for all; each test has topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("third-party")) as broker:
        yield broker.ready().endpoint("rustlog")


# -- the document's client

MAX_FRAME_SIZE = 10_485_760


class ProtocolError(Exception):
    pass


def recv_all(connection: socket.socket, length: int) -> bytes:
    """The document calls `recv` once, which may return less than was asked for."""
    data = b""
    while len(data) < length and (part := connection.recv(length - len(data))):
        data += part
    return data


def read_frame(connection: socket.socket) -> Any:
    # Read length header
    length_bytes = recv_all(connection, 4)
    if len(length_bytes) < 4:
        raise ConnectionError("Incomplete frame header")

    length = struct.unpack(">I", length_bytes)[0]  # big-endian u32

    if length > MAX_FRAME_SIZE:
        raise ProtocolError(f"Frame too large: {length}")

    # Read payload
    payload = recv_all(connection, length)
    if len(payload) < length:
        raise ConnectionError("Incomplete frame payload")

    return json.loads(payload.decode("utf-8"))


class DocumentClient:
    def __init__(self, address: tuple[str, int]) -> None:
        self.connection = socket.create_connection(address, 20)

    def ask(self, request: dict[str, Any]) -> Any:
        return self.ask_text(json.dumps(request))

    def ask_text(self, text: str) -> Any:
        payload = text.encode()
        self.connection.sendall(struct.pack(">I", len(payload)) + payload)
        return read_frame(self.connection)


@pytest.fixture
def document(address: tuple[str, int]) -> Iterator[DocumentClient]:
    client = DocumentClient(address)
    yield client
    client.connection.close()


ALICE = "eyJ1c2VyIjoiYWxpY2UiLCJhY3Rpb24iOiJsb2dpbiJ9"
BOB = "eyJ1c2VyIjoiYm9iIiwiYWN0aW9uIjoic2lnbnVwIn0="


def test_the_examples_of_the_document(document: DocumentClient) -> None:
    """In the document's order. The log is filled up to the offsets that its examples begin with."""
    created = document.ask({"type": "CreateTopic", "topic": "user-events", "partition_count": 3})
    assert created == {"type": "CreateTopicResponse", "success": True, "partitions_created": 3}
    filled = document.ask({"type": "Produce", "topic": "user-events", "partition": 0, "records": ["eA=="] * 42})
    assert filled == {"type": "ProduceResponse", "base_offset": 0, "record_count": 42}

    produced = document.ask_text(
        f"""{{
          "type": "Produce",
          "topic": "user-events",
          "partition": 0,
          "records": [
            "{ALICE}",
            "{BOB}"
          ]
        }}"""
    )
    assert produced == {"type": "ProduceResponse", "base_offset": 42, "record_count": 2}

    document.ask({"type": "Produce", "topic": "user-events", "partition": 0, "records": ["eA=="] * 56})
    before = time.time_ns() // 1000
    two = ["eyJ1c2VyIjoiYWxpY2UifQ==", "eyJ1c2VyIjoiYm9iIn0="]
    produced = document.ask({"type": "Produce", "topic": "user-events", "partition": 0, "records": two})
    assert produced == {"type": "ProduceResponse", "base_offset": 100, "record_count": 2}
    fetched = document.ask(
        {
            "type": "Fetch",
            "group_id": "analytics-consumer",
            "topic": "user-events",
            "partition": 0,
            "offset": 100,
            "max_bytes": 1048576,
        }
    )
    stamps = [record.pop("timestamp") for record in fetched["records"]]
    assert fetched == {
        "type": "FetchResponse",
        "records": [
            {"offset": 100, "payload": "eyJ1c2VyIjoiYWxpY2UifQ=="},
            {"offset": 101, "payload": "eyJ1c2VyIjoiYm9iIn0="},
        ],
        "next_offset": 102,
    }
    assert all(before - 60_000_000 < stamp < before + 60_000_000 for stamp in stamps), "µs since 1970"

    place = {"group": "analytics-pipeline", "topic": "user-events", "partition": 0}
    assert document.ask({"type": "OffsetFetch", **place}) == {"type": "OffsetFetchResponse", "offset": None}
    committed = document.ask({"type": "OffsetCommit", **place, "offset": 150})
    assert committed == {"type": "OffsetCommitResponse", "success": True}
    assert document.ask({"type": "OffsetFetch", **place}) == {"type": "OffsetFetchResponse", "offset": 150}
    nowhere = document.ask({"type": "OffsetCommit", **place, "topic": "nonexistent", "offset": 1})
    assert nowhere == {"type": "OffsetCommitResponse", "success": False}

    described = document.ask({"type": "DescribeTopic", "topic": "user-events"})
    assert described == {
        "type": "DescribeTopicResponse",
        "topic": "user-events",
        "partitions": [
            {"partition": 0, "high_watermark": 102, "log_start_offset": 0, "segment_count": 1},
            {"partition": 1, "high_watermark": 0, "log_start_offset": 0, "segment_count": 0},
            {"partition": 2, "high_watermark": 0, "log_start_offset": 0, "segment_count": 0},
        ],
    }
    listed = document.ask({"type": "ListTopics"})
    assert listed["type"] == "ListTopicsResponse"
    assert {"name": "user-events", "partition_count": 3} in listed["topics"]
    assert document.ask({"type": "Ping"}) == {"type": "Pong"}


def test_the_errors_of_the_document(document: DocumentClient) -> None:
    for topic in ("logs", "metrics", "events"):
        document.ask({"type": "CreateTopic", "topic": topic, "partition_count": 1})
    fetch = {"type": "Fetch", "group_id": "g", "topic": "nonexistent", "partition": 0, "offset": 0, "max_bytes": 1}
    unknown = document.ask(fetch)
    available = unknown["details"].pop("available_topics")
    assert unknown == {"type": "Error", "code": 404, "message": "Topic 'nonexistent' not found", "details": {}}
    assert {"logs", "metrics", "events"} <= set(available)
    # The rules say: empty beyond the high watermark. The document's example of 416 shows that case too, against them.
    beyond = document.ask({**fetch, "topic": "logs", "offset": 5000})
    assert beyond == {"type": "FetchResponse", "records": [], "next_offset": 5000}
    no_partition = document.ask({**fetch, "topic": "logs", "partition": 7})
    assert (no_partition["type"], no_partition["code"], no_partition["details"]) == ("Error", 405, None)
    assert document.ask({"type": "Unheard"})["code"] == 400
    assert document.ask({"type": "Ping"}) == {"type": "Pong"}


def test_the_sample_frame_of_the_document_with_its_length_put_right(document: DocumentClient) -> None:
    """The document gives 74 for what is 78 bytes long."""
    document.ask({"type": "CreateTopic", "topic": "logs", "partition_count": 1})
    end = document.ask({"type": "DescribePartition", "topic": "logs", "partition": 0})["high_watermark"]
    payload = b'{"type":"Produce","topic":"logs","partition":0,"records":["SGVsbG8gV29ybGQ="]}'
    document.connection.sendall(b"\x00\x00\x00\x4e" + payload)
    assert read_frame(document.connection) == {"type": "ProduceResponse", "base_offset": end, "record_count": 1}
    fetched = document.ask({"type": "Fetch", "topic": "logs", "partition": 0, "offset": end, "max_bytes": 100})
    assert base64.b64decode(fetched["records"][0]["payload"]) == b"Hello World"
    # With the document's own length, the JSON is cut short: a violation, told and then closed.
    document.connection.sendall(b"\x00\x00\x00\x4a" + payload)
    assert read_frame(document.connection)["code"] == 400
    with pytest.raises(ConnectionError, match="Incomplete frame header"):
        read_frame(document.connection)


def test_unicode_and_unknown_fields(document: DocumentClient) -> None:
    record = base64.b64encode("Größe: 名前 🚰".encode()).decode()
    document.ask({"type": "CreateTopic", "topic": "text", "partition_count": 1, "comment": "ü"})
    produced = document.ask(
        {"records": [record], "partition": 0, "trace": {"id": [1]}, "topic": "text", "type": "Produce"}
    )
    assert produced["base_offset"] == 0
    place = {"topic": "text", "partition": 0}
    fetched = document.ask({"type": "Fetch", **place, "group_id": "gruppe-ä", "offset": 0, "max_bytes": 1000})
    assert base64.b64decode(fetched["records"][0]["payload"]).decode() == "Größe: 名前 🚰"
    assert document.ask({"type": "OffsetCommit", **place, "group": "gruppe-ä", "offset": 1})["success"]
    assert document.ask({"type": "OffsetFetch", **place, "group": "gruppe-ä"})["offset"] == 1


# -- the original's binary bytes, by hand


class BinaryClient:
    def __init__(self, address: tuple[str, int]) -> None:
        self.connection = socket.create_connection(address, 20)

    def ask(self, payload: bytes) -> bytes:
        self.connection.sendall(len(payload).to_bytes(4, "big") + payload)
        (length,) = struct.unpack(">I", recv_all(self.connection, 4))
        return recv_all(self.connection, length)


@pytest.fixture
def client(address: tuple[str, int]) -> Iterator[BinaryClient]:
    client = BinaryClient(address)
    yield client
    client.connection.close()


@pytest.fixture
def other(address: tuple[str, int]) -> Iterator[BinaryClient]:
    client = BinaryClient(address)
    yield client
    client.connection.close()


CREATED = b"\x05\x01"
COMMITTED = b"\x03\x01"
NO_COMMIT = b"\x04\x00"


def test_ping(client: BinaryClient) -> None:
    client.connection.sendall(b"\x00\x00\x00\x01\xff")
    assert recv_all(client.connection, 5) == b"\x00\x00\x00\x01\xff"


def test_produce_after_create(client: BinaryClient) -> None:
    assert client.ask(b"\x05\x00\x03pac\x00\x00\x00\x01") == CREATED
    two = b"\x01\x00\x03pac\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x05hello\x00\x00\x00\x03abc"
    assert client.ask(two) == b"\x01" + b"\x00\x00\x00\x00\x00\x00\x00\x00" + b"\x00\x00\x00\x02"
    assert client.ask(two) == b"\x01" + b"\x00\x00\x00\x00\x00\x00\x00\x02" + b"\x00\x00\x00\x02"


def test_produce_and_fetch_of_an_unknown_topic(client: BinaryClient) -> None:
    said = b"Topic or partition does not exist: topic=nope, partition=0"
    error = b"\xfe\x00\x0a" + len(said).to_bytes(2, "big") + said
    assert client.ask(b"\x01\x00\x04nope\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01x") == error
    assert client.ask(b"\x02\x00\x00\x00\x04nope" + bytes(4) + bytes(8) + b"\x00\x00\x10\x00") == error
    assert client.ask(b"\xff") == b"\xff"


def test_commit_then_fetch_offset(client: BinaryClient) -> None:
    client.ask(b"\x05\x00\x03ctf\x00\x00\x00\x01")
    place = b"\x00\x02g1\x00\x03ctf\x00\x00\x00\x00"
    assert client.ask(b"\x04" + place) == NO_COMMIT
    assert client.ask(b"\x03" + place + b"\x00\x00\x00\x00\x00\x00\x00\x2a") == COMMITTED
    assert client.ask(b"\x04" + place) == b"\x04\x01\x00\x00\x00\x00\x00\x00\x00\x2a"


def test_a_later_commit_overwrites_also_backwards(client: BinaryClient) -> None:
    client.ask(b"\x05\x00\x03owr\x00\x00\x00\x01")
    place = b"\x00\x02g1\x00\x03owr\x00\x00\x00\x00"
    for offset in (10, 200, 3):
        assert client.ask(b"\x03" + place + offset.to_bytes(8, "big")) == COMMITTED
        assert client.ask(b"\x04" + place) == b"\x04\x01" + offset.to_bytes(8, "big")


def test_groups_and_partitions_are_isolated(client: BinaryClient, other: BinaryClient) -> None:
    client.ask(b"\x05\x00\x03iso\x00\x00\x00\x02")
    client.ask(b"\x03\x00\x01a\x00\x03iso\x00\x00\x00\x00" + (5).to_bytes(8, "big"))
    other.ask(b"\x03\x00\x01b\x00\x03iso\x00\x00\x00\x00" + (9).to_bytes(8, "big"))
    assert other.ask(b"\x04\x00\x01a\x00\x03iso\x00\x00\x00\x00") == b"\x04\x01" + (5).to_bytes(8, "big")
    assert client.ask(b"\x04\x00\x01b\x00\x03iso\x00\x00\x00\x00") == b"\x04\x01" + (9).to_bytes(8, "big")
    assert client.ask(b"\x04\x00\x01a\x00\x03iso\x00\x00\x00\x01") == NO_COMMIT
    assert client.ask(b"\x04\x00\x01c\x00\x03iso\x00\x00\x00\x00") == NO_COMMIT


def fetch(topic: bytes, offset: int, group: bytes = b"", max_bytes: int = 4096) -> bytes:
    names = b"".join(len(name).to_bytes(2, "big") + name for name in (group, topic))
    return b"\x02" + names + bytes(4) + offset.to_bytes(8, "big") + max_bytes.to_bytes(4, "big")


def fetched(next_offset: int, *records: bytes) -> bytes:
    values = b"".join(len(record).to_bytes(4, "big") + record for record in records)
    return b"\x02" + len(records).to_bytes(4, "big") + values + next_offset.to_bytes(8, "big")


def three_records(client: BinaryClient, topic: bytes) -> None:
    name = len(topic).to_bytes(2, "big") + topic
    assert client.ask(b"\x05" + name + b"\x00\x00\x00\x01") == CREATED
    values = b"\x00\x00\x00\x03\x00\x00\x00\x02r0\x00\x00\x00\x02r1\x00\x00\x00\x02r2"
    assert client.ask(b"\x01" + name + bytes(4) + values)[-4:] == b"\x00\x00\x00\x03"


def test_fetch_with_a_group_uses_the_committed_offset_and_does_not_move_it(client: BinaryClient) -> None:
    three_records(client, b"fco")
    place = b"\x00\x01g\x00\x03fco" + bytes(4)
    assert client.ask(fetch(b"fco", 0)) == fetched(3, b"r0", b"r1", b"r2")
    assert client.ask(fetch(b"fco", 0, b"g")) == fetched(0), "no commit, no records"
    assert client.ask(fetch(b"nope", 0, b"g")) == fetched(0), "decided before the topic is looked up"
    client.ask(b"\x03" + place + (1).to_bytes(8, "big"))
    for offset in (0, 2, 99):
        assert client.ask(fetch(b"fco", offset, b"g")) == fetched(3, b"r1", b"r2"), "whatever offset was asked for"
    assert client.ask(b"\x04" + place) == b"\x04\x01" + (1).to_bytes(8, "big")
    assert client.ask(fetch(b"fco", 0)) == fetched(3, b"r0", b"r1", b"r2")


def test_fetch_is_bounded_and_empty_out_of_range(client: BinaryClient) -> None:
    three_records(client, b"fbo")
    assert client.ask(fetch(b"fbo", 3)) == fetched(3)
    assert client.ask(fetch(b"fbo", 1000)) == fetched(1000)
    assert client.ask(fetch(b"fbo", 0, max_bytes=0)) == fetched(0)
    assert client.ask(fetch(b"fbo", 0, max_bytes=1)) == fetched(1, b"r0"), "one record, however little is asked for"
    assert client.ask(fetch(b"fbo", 0, max_bytes=28)) == fetched(2, b"r0", b"r1"), "12 bytes are counted beside each"
    assert client.ask(fetch(b"fbo", 1, max_bytes=27)) == fetched(2, b"r1")


def test_a_produce_of_nothing_is_no_error(client: BinaryClient) -> None:
    assert client.ask(b"\x05\x00\x03pon\x00\x00\x00\x01") == CREATED
    assert client.ask(b"\x01\x00\x03pon" + bytes(8)) == b"\x01" + bytes(12)


def test_a_duplicate_create(client: BinaryClient, other: BinaryClient) -> None:
    assert client.ask(b"\x05\x00\x03dup\x00\x00\x00\x02") == CREATED
    said = b"Topic 'dup' already exists"
    for one in (client, other):
        assert one.ask(b"\x05\x00\x03dup\x00\x00\x00\x03") == b"\xfe\x00\x0b\x00\x1a" + said
    assert client.ask(b"\x07\x00\x03dup")[:10] == b"\x07\x00\x03dup\x00\x00\x00\x02"


def test_create_with_no_partitions(client: BinaryClient) -> None:
    said = b"Invalid partition count: 0"
    assert client.ask(b"\x05\x00\x03cnp\x00\x00\x00\x00") == b"\xfe\x00\x0c\x00\x1a" + said


def test_describe(client: BinaryClient) -> None:
    three_records(client, b"dsc")
    partition = b"\x00\x00\x00\x00" + b"\x00\x00\x00\x00\x00\x00\x00\x03"
    assert client.ask(b"\x07\x00\x03dsc") == b"\x07\x00\x03dsc\x00\x00\x00\x01\x00\x00\x00\x01" + partition
    assert client.ask(b"\x08\x00\x03dsc" + bytes(4)) == b"\x08\x00\x03dsc" + partition


def test_describe_unknown(client: BinaryClient) -> None:
    client.ask(b"\x05\x00\x03dun\x00\x00\x00\x01")
    for payload, code, said in (
        (b"\x07\x00\x04nope", 13, b"DescribeTopic failed: Topic 'nope' not found"),
        (b"\x08\x00\x04nope\x00\x00\x00\x00", 14, b"DescribePartition failed: Partition 0 not found in topic 'nope'"),
        (b"\x08\x00\x03dun\x00\x00\x00\x01", 14, b"DescribePartition failed: Partition 1 not found in topic 'dun'"),
    ):
        assert client.ask(payload) == b"\xfe" + code.to_bytes(2, "big") + len(said).to_bytes(2, "big") + said


def topics(client: BinaryClient) -> list[tuple[bytes, int]]:
    reply = client.ask(b"\x06")
    kind, count = struct.unpack_from(">BI", reply)
    assert kind == 0x06
    found, position = [], 5
    for _ in range(count):
        (length,) = struct.unpack_from(">H", reply, position)
        name = reply[position + 2 : position + 2 + length]
        position += 2 + length + 4
        found.append((name, int.from_bytes(reply[position - 4 : position], "big")))
    assert position == len(reply)
    return found


def test_the_list_of_topics_is_sorted(client: BinaryClient) -> None:
    for name, count in ((b"lst-z", 1), (b"lst-a", 3), (b"lst-M", 2)):
        client.ask(b"\x05\x00\x05" + name + count.to_bytes(4, "big"))
    listed = topics(client)
    assert listed == sorted(listed)
    assert [topic for topic in listed if topic[0].startswith(b"lst-")] == [(b"lst-M", 2), (b"lst-a", 3), (b"lst-z", 1)]


def test_metrics_are_prometheus_text(client: BinaryClient) -> None:
    reply = client.ask(b"\x09")
    assert reply[0] == 0x09 and int.from_bytes(reply[1:5], "big") == len(reply) - 5
    text = reply[5:].decode()
    for name in ("messages_produced_total", "bytes_in_total", "active_connections", "fetch_latency_ns_p99"):
        assert f"# HELP {name}" in text and f"# TYPE {name}" in text


def test_end_to_end(client: BinaryClient, other: BinaryClient) -> None:
    """A producer and a consumer with a group, as the original's examples do it: read from the commit, commit, go on."""
    assert client.ask(b"\x05\x00\x03e2e\x00\x00\x00\x01") == CREATED
    place = b"\x00\x01c\x00\x03e2e" + bytes(4)
    assert other.ask(b"\x03" + place + bytes(8)) == COMMITTED
    seen = []
    for number in range(5):
        value = b"message %d" % number
        produce = b"\x01\x00\x03e2e" + bytes(4) + b"\x00\x00\x00\x01" + len(value).to_bytes(4, "big") + value
        assert client.ask(produce) == b"\x01" + number.to_bytes(8, "big") + b"\x00\x00\x00\x01"
        reply = other.ask(fetch(b"e2e", 0, b"c"))
        assert reply == fetched(number + 1, value)
        seen.append(value)
        assert other.ask(b"\x03" + place + reply[-8:]) == COMMITTED
    assert other.ask(fetch(b"e2e", 0, b"c")) == fetched(5)
    assert other.ask(fetch(b"e2e", 0)) == fetched(5, *seen)


def test_pipelined_requests_are_answered_in_order(client: BinaryClient) -> None:
    create, ping = b"\x05\x00\x03pip\x00\x00\x00\x01", b"\xff"
    produce = b"\x01\x00\x03pip" + bytes(4) + b"\x00\x00\x00\x01\x00\x00\x00\x01x"
    requests = [create, produce, ping, fetch(b"pip", 0), produce, b"\x08\x00\x03pip" + bytes(4)]
    client.connection.sendall(b"".join(len(one).to_bytes(4, "big") + one for one in requests))
    replies = [recv_all(client.connection, int.from_bytes(recv_all(client.connection, 4), "big")) for _ in requests]
    first, second = (b"\x01" + number.to_bytes(8, "big") + b"\x00\x00\x00\x01" for number in (0, 1))
    described = b"\x08\x00\x03pip" + bytes(4) + (2).to_bytes(8, "big")
    assert replies == [CREATED, first, ping, fetched(1, b"x"), second, described]
