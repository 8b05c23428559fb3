"""Every class of malformed frame against a running broker, in both dialects: the exact reply, whether the connection
stays, and that nobody else notices."""

from __future__ import annotations

import base64
import json
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from tests.fuzz.seeds import seeded
from tests.fuzz.wire import (
    BINARY_PING,
    JSON_PING,
    MAX_FRAME,
    Wire,
    binary_create,
    binary_error,
    binary_fetch,
    binary_fetched,
    binary_produce,
    frame,
    json_error,
    json_request,
    split,
    string,
)
from tests.launcher import BrokerProcess

PONG = {"binary": b"\xff", "json": b'{"type":"Pong"}'}
PING = {"binary": BINARY_PING, "json": JSON_PING}
TOPICS = [{"name": "other", "partition_count": 1}, {"name": "t", "partition_count": 2}]


@dataclass
class Served:
    """A broker, and a connection that was there before all others."""

    broker: BrokerProcess
    witness: Wire

    def connect(self) -> Wire:
        return Wire(self.broker.endpoint("rustlog"))

    def state(self) -> list[Any]:
        """All that a client can see of what is stored."""
        offset = self.witness.ask_json("OffsetFetch", group="g", topic="t", partition=0)
        described = self.witness.ask_json("DescribeTopic", topic="t")
        return [self.witness.ask_json("ListTopics"), described, offset]

    def unharmed(self) -> None:
        """The old connection still has the right answers, in both dialects, and a new one too."""
        topics, described, offset = self.state()
        assert topics == {"type": "ListTopicsResponse", "topics": TOPICS}
        assert [partition["high_watermark"] for partition in described["partitions"]] == [2, 0]
        assert offset == {"type": "OffsetFetchResponse", "offset": 1}
        fetch = binary_fetch(b"t", 0, 0, 1000)
        assert self.witness.ask(fetch) == binary_fetched(2, b"one", b"two")
        with self.connect() as new:
            assert new.ask(fetch) == binary_fetched(2, b"one", b"two")
            assert new.ask(JSON_PING) == PONG["json"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("malformed")
    with BrokerProcess(directory, "--durability", "written", "--log-level", "warning") as broker:
        broker.ready()
        with Wire(broker.endpoint("rustlog")) as witness:
            witness.send(binary_create(b"t", 2), binary_create(b"other", 1), binary_produce(b"t", 0, b"one", b"two"))
            witness.payloads(3)
            witness.ask_json("OffsetCommit", group="g", topic="t", partition=0, offset=1)
            yield Served(broker, witness)
        broker.process.terminate()
        code, _, err = broker.finish()
        assert (code, err) == (0, ""), "bad input is no event for the operator"


class Case(NamedTuple):
    name: str
    payload: bytes
    reply: bytes | dict[str, Any]  # of the binary dialect, or of JSON
    closes: bool = False


def dialect_of(case: Case) -> str:
    return "binary" if isinstance(case.reply, bytes) else "json"


def decode_error(problem: str) -> bytes:
    return binary_error(2, f"Decode error: decode error: {problem}")


# -- frames that cannot be read


class BadFrame(NamedTuple):
    name: str
    data: bytes
    problem: str


BAD_FRAMES = [
    BadFrame("zero length", bytes(4), "invalid protocol: zero-length frame"),
    BadFrame("one too long", struct.pack(">I", MAX_FRAME + 1), "frame too large: 10485761 bytes (max: 10485760)"),
    BadFrame("longest", b"\xff\xff\xff\xff", "frame too large: 4294967295 bytes (max: 10485760)"),
    BadFrame("an http request", b"get / HTTP/1.1\r\n\r\n", "frame too large: 1734702112 bytes (max: 10485760)"),
    BadFrame(
        "bytes behind it",
        struct.pack(">I", 1 << 24) + bytes(1 << 22),
        "frame too large: 16777216 bytes (max: 10485760)",
    ),
]
bad_frames = pytest.mark.parametrize("bad", BAD_FRAMES, ids=lambda bad: bad.name)


@bad_frames
@pytest.mark.parametrize("dialect", ["binary", "json"])
def test_a_bad_length_is_answered_in_the_dialect_of_the_connection_and_closes_it(
    served: Served, bad: BadFrame, dialect: str
) -> None:
    with served.connect() as wire:
        assert wire.ask(PING[dialect]) == PONG[dialect]
        wire.socket.sendall(frame(PING[dialect]) + bad.data)  # what came before it in the same piece is answered
        assert wire.payload() == PONG[dialect]
        check_frame_error(wire.payload(), bad, dialect)
        assert wire.rest() == b""
    served.unharmed()


@bad_frames
def test_a_bad_length_as_the_first_thing_said_is_answered_in_json(served: Served, bad: BadFrame) -> None:
    with served.connect() as wire:
        wire.socket.sendall(bad.data)
        check_frame_error(wire.payload(), bad, "json")
        assert wire.rest() == b""
    served.unharmed()


def check_frame_error(reply: bytes, bad: BadFrame, dialect: str) -> None:
    if dialect == "binary":
        assert reply == binary_error(1, f"Frame error: {bad.problem}")
    else:
        assert json.loads(reply) == json_error(400, bad.problem)


@pytest.mark.parametrize("dialect", ["binary", "json"])
def test_the_longest_legal_frame_is_read(served: Served, dialect: str) -> None:
    filler = b"\x00" if dialect == "binary" else b" "  # bytes behind a binary request, white space behind a JSON one
    with served.connect() as wire:
        assert wire.ask(PING[dialect].ljust(MAX_FRAME, filler)) == PONG[dialect]
        assert wire.ask(PING[dialect]) == PONG[dialect]


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"\x00",
        b"\x00\x00\x00",
        frame(BINARY_PING)[:4],
        frame(JSON_PING)[:-1],
        frame(binary_fetch(b"t", 0, 0, 9))[:-1],
    ],
    ids=["nothing", "one byte", "half a length", "a length", "half of a JSON frame", "half of a binary frame"],
)
def test_the_end_of_the_stream_inside_a_frame_is_a_quiet_close(served: Served, part: bytes) -> None:
    with served.connect() as wire:
        wire.socket.sendall(part)
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.rest() == b""
    with served.connect() as wire:
        wire.socket.sendall(frame(BINARY_PING) + part)
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.rest() == frame(PONG["binary"])
    served.unharmed()


# -- binary requests. All of these keep the connection.

UNKNOWN_TYPES = [0x00, *range(0x0B, 0x0D), *range(0x0E, 0x20), *range(0x7F, 0xFF)]  # the others begin JSON


def test_every_unknown_type_is_named_and_keeps_the_connection(served: Served) -> None:
    with served.connect() as wire:
        wire.send(*(bytes((number,)) + b"rest" for number in UNKNOWN_TYPES))
        for number in UNKNOWN_TYPES:
            assert wire.payload() == binary_error(2, f"Decode error: unknown request type: {number}")
        assert wire.ask(BINARY_PING) == PONG["binary"]
    served.unharmed()


# Type byte → its fields in the order of the wire: the bytes, and what is said if one of them is missing.
PLACE = [(b"\x00\x01", "missing topic length"), (b"t", "truncated topic"), (b"\x00\x00\x00\x00", "missing partition")]
GROUP = [(b"\x00\x01", "missing group length"), (b"g", "truncated group")]
OFFSET = (bytes(8), "missing offset")
FIELDS: dict[int, list[tuple[bytes, str]]] = {
    0x01: [
        *PLACE,
        (b"\x00\x00\x00\x02", "missing record count"),
        (b"\x00\x00\x00\x03", "truncated record length"),
        (b"abc", "truncated record"),
        (b"\x00\x00\x00\x05", "truncated record length"),
        (b"defgh", "truncated record"),
    ],
    0x02: [
        (b"\x00\x01", "missing group_id length"),
        (b"g", "truncated group_id"),
        *PLACE,
        OFFSET,
        (b"\x00\x00\x10\x00", "missing max_bytes"),
    ],
    0x03: [*GROUP, *PLACE, OFFSET],
    0x04: [*GROUP, *PLACE],
    0x05: [
        (b"\x00\x03", "missing topic length"),
        (b"new", "truncated topic"),
        (b"\x00\x00\x00\x01", "missing partition count"),
    ],
    0x07: PLACE[:2],
    0x08: PLACE,
}


@pytest.mark.parametrize("kind", FIELDS, ids="type {:#04x}".format)
def test_a_binary_request_cut_anywhere_names_the_field(served: Served, kind: int) -> None:
    payload = bytes((kind,))
    cut: list[tuple[bytes, str]] = []
    for data, problem in FIELDS[kind]:
        cut += [(payload + data[:size], problem) for size in range(len(data))]
        payload += data
    with served.connect() as wire:
        wire.send(*(short for short, _ in cut))
        for short, problem in cut:
            assert wire.payload() == decode_error(problem), short
        assert wire.ask(BINARY_PING) == PONG["binary"]
    served.unharmed()


def topic_of_every_kind(name: bytes) -> list[bytes]:
    place = string(name) + bytes(4)
    return [
        b"\x01" + place + bytes(4),
        b"\x02" + string(b"") + place + bytes(12),
        b"\x03" + string(b"g") + place + bytes(8),
        b"\x04" + string(b"g") + place,
        b"\x05" + string(name) + b"\x00\x00\x00\x01",
        b"\x07" + string(name),
        b"\x08" + place,
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (b"\xff", "invalid utf-8 sequence of 1 bytes from index 0"),
        (b"ab\x80c", "invalid utf-8 sequence of 1 bytes from index 2"),
        (b"\xed\xa0\x80", "invalid utf-8 sequence of 1 bytes from index 0"),  # a surrogate
        (b"a\xf0\x90A", "invalid utf-8 sequence of 2 bytes from index 1"),
        (b"abc\xe2\x82", "incomplete utf-8 byte sequence from index 3"),
    ],
)
def test_names_that_are_no_utf8_are_refused_in_every_request(served: Served, name: bytes, problem: str) -> None:
    place = string(b"t") + bytes(12)
    cases = [(payload, f"invalid utf8 topic: {problem}") for payload in topic_of_every_kind(name)]
    cases += [(b"\x02" + string(name) + place, f"invalid utf8 group_id: {problem}")]
    cases += [(kind + string(name) + place, f"invalid utf8 group: {problem}") for kind in (b"\x03", b"\x04")]
    with served.connect() as wire:
        for payload, said in cases:
            assert wire.ask(payload) == decode_error(said), payload
    served.unharmed()


NO_TOPIC = "Topic or partition does not exist: topic={}, partition={}"
BINARY = [
    Case("produce to no topic", binary_produce(b"x", 0, b"v"), binary_error(10, NO_TOPIC.format("x", 0))),
    Case("produce to no partition", binary_produce(b"t", 2, b"v"), binary_error(10, NO_TOPIC.format("t", 2))),
    Case("produce of nothing to no topic", binary_produce(b"", 7), binary_error(10, NO_TOPIC.format("", 7))),
    Case(
        "2^32-1 records declared",
        b"\x01" + string(b"t") + struct.pack(">II", 0, 0xFFFFFFFF),
        decode_error("truncated record length"),
    ),
    Case(
        "2^32-1 records declared, one there",
        b"\x01" + string(b"t") + struct.pack(">IIIc", 0, 0xFFFFFFFF, 1, b"a"),
        decode_error("truncated record length"),
    ),
    Case(
        "2^32-1 empty records declared, 1000 there",
        b"\x01" + string(b"t") + struct.pack(">II", 0, 0xFFFFFFFF) + bytes(4000),
        decode_error("truncated record length"),
    ),
    Case(
        "a record of 2^32-1 bytes declared",
        b"\x01" + string(b"t") + struct.pack(">III", 0, 1, 0xFFFFFFFF) + bytes(100),
        decode_error("truncated record"),
    ),
    Case("fetch from no topic", binary_fetch(b"x", 3, 0, 9), binary_error(10, NO_TOPIC.format("x", 3))),
    Case(
        "fetch from no partition",
        binary_fetch(b"t", 0xFFFFFFFF, 0, 9),
        binary_error(10, NO_TOPIC.format("t", 0xFFFFFFFF)),
    ),
    Case("fetch from beyond all offsets", binary_fetch(b"t", 0, (1 << 64) - 1, 9), binary_fetched((1 << 64) - 1)),
    Case("a topic that exists", binary_create(b"t", 9), binary_error(11, "Topic 't' already exists")),
    Case("no partitions", binary_create(b"new", 0), binary_error(12, "Invalid partition count: 0")),
    Case(
        "2^32-1 partitions", binary_create(b"new", 0xFFFFFFFF), binary_error(12, "Invalid partition count: 4294967295")
    ),
    Case("describe no topic", b"\x07" + string(b"x"), binary_error(13, "DescribeTopic failed: Topic 'x' not found")),
    Case(
        "describe a partition of no topic",
        b"\x08" + string(b"x") + bytes(4),
        binary_error(14, "DescribePartition failed: Partition 0 not found in topic 'x'"),
    ),
    Case(
        "describe no partition",
        b"\x08" + string(b"t") + b"\x00\x00\x00\x02",
        binary_error(14, "DescribePartition failed: Partition 2 not found in topic 't'"),
    ),
    Case(
        "a record that no frame could bring back",
        binary_produce(b"t", 0, bytes(10_485_744)),
        binary_error(
            500, "Failed to write record: Record of 10485744 bytes is larger than the limit of 10485743 bytes"
        ),
    ),
    Case("bytes behind the last field", b"\xff" + b"behind", b"\xff"),
    Case(
        "a JSON byte order mark",
        b"\xef\xbb\xbf" + JSON_PING,
        binary_error(2, "Decode error: unknown request type: 239"),
    ),
]


# -- JSON requests


def produce(**changes: Any) -> bytes:
    return json_request("Produce", **{"topic": "t", "partition": 0, "records": ["eA=="], **changes})


def fetch(**changes: Any) -> bytes:
    return json_request("Fetch", **{"topic": "t", "partition": 0, "offset": 0, "max_bytes": 100, **changes})


def commit(**changes: Any) -> bytes:
    return json_request("OffsetCommit", **{"group": "g", "topic": "t", "partition": 0, "offset": 0, **changes})


def without(payload: bytes, field: str) -> bytes:
    request = json.loads(payload)
    del request[field]
    return json.dumps(request).encode()


REQUESTS = {
    "Produce": (produce(), ["topic", "partition", "records"]),
    "Fetch": (fetch(), ["topic", "partition", "offset", "max_bytes"]),
    "OffsetCommit": (commit(), ["group", "topic", "partition", "offset"]),
    "OffsetFetch": (json_request("OffsetFetch", group="g", topic="t", partition=0), ["group", "topic", "partition"]),
    "CreateTopic": (json_request("CreateTopic", topic="new", partition_count=1), ["topic", "partition_count"]),
    "DescribeTopic": (json_request("DescribeTopic", topic="t"), ["topic"]),
    "DescribePartition": (json_request("DescribePartition", topic="t", partition=0), ["topic", "partition"]),
}
MISSING = [
    Case(f"{kind} without {field}", without(payload, field), json_error(400, f"Missing field '{field}'"))
    for kind, (payload, fields) in REQUESTS.items()
    for field in fields
]


def invalid(name: str, payload: bytes, message: str) -> Case:
    return Case(name, payload, json_error(400, message))


def malformed(name: str, payload: bytes, problem: str) -> Case:
    return Case(name, payload, json_error(400, f"Malformed JSON: {problem}"), closes=True)


NAME_RULE = "Field 'topic': expected 1 to 255 ASCII letters, digits, '_' or '-'"
COUNT_RULE = "Invalid partition count: {}; 1 to 1000 are allowed"
BASE64 = "Field 'records[0]': invalid base64 encoded string"
AVAILABLE = {"available_topics": ["other", "t"]}

JSON_RECOVERABLE = [
    invalid("an array", b"[1,2]", "Request: expected object, got array"),
    invalid("a string", b'"Ping"', "Request: expected object, got str"),
    invalid("a number", b"123", "Request: expected object, got int"),
    invalid("null", b"null", "Request: expected object, got null"),
    invalid("no type", b'{"topic":"t"}', "Missing field 'type'"),
    invalid("an empty object", b"{}", "Missing field 'type'"),
    invalid("an unknown type", b'{"type":"Delete"}', "Unknown request type 'Delete'"),
    invalid("a type in other letters", b'{"type":"ping"}', "Unknown request type 'ping'"),
    invalid("the type of a response", b'{"type":"Pong"}', "Unknown request type 'Pong'"),
    invalid("a number as type", b'{"type":1}', "Field 'type': expected str"),
    invalid("null as type", b'{"type":null}', "Field 'type': expected str"),
    invalid("two types", b'{"type":"Ping","type":"ListTopics"}', "Unknown request type 'ListTopics'"),
    *MISSING,
    invalid("a topic that is a number", produce(topic=5), "Field 'topic': expected str, got int"),
    invalid("a partition that is a string", produce(partition="0"), "Field 'partition': expected int, got str"),
    invalid("a partition that is a fraction", produce(partition=0.5), "Field 'partition': expected int, got float"),
    invalid("a partition that is true", produce(partition=True), "Field 'partition': expected int, got bool"),
    invalid("a negative partition", produce(partition=-1), "Field 'partition': expected int >= 0"),
    invalid("a partition over u32", produce(partition=1 << 32), "Field 'partition': expected int <= 4294967295"),
    invalid("a negative offset", fetch(offset=-1), "Field 'offset': expected int >= 0"),
    invalid("an offset over u64", fetch(offset=1 << 64), "Field 'offset': expected int <= 18446744073709551615"),
    invalid("max_bytes over u64", fetch(max_bytes=1 << 64), "Field 'max_bytes': expected int <= 18446744073709551615"),
    invalid("a commit over u64", commit(offset=1 << 64), "Field 'offset': expected int <= 18446744073709551615"),
    invalid("a group that is a list", commit(group=[]), "Field 'group': expected str | null, got array"),
    invalid("an empty group", commit(group=""), "Group name of 0 characters; 1 to 256 are allowed"),
    invalid("records that are a string", produce(records="eA=="), "Field 'records': expected array, got str"),
    invalid("a record that is a number", produce(records=[7]), "Field 'records[0]': expected bytes, got int"),
    invalid("a record that is null", produce(records=["", None]), "Field 'records[1]': expected bytes, got null"),
    invalid("Base64 without padding", produce(records=["eA"]), BASE64),
    invalid("Base64 of one letter", produce(records=["e"]), BASE64),
    invalid("Base64 for addresses", produce(records=["_-8="]), BASE64),
    invalid("Base64 with a line feed", produce(records=["eA==\n"]), BASE64),
    invalid("no Base64 at all", produce(records=["ä!"]), BASE64),
    invalid("the last of the records", produce(records=[""] * 9 + ["?"]), BASE64.replace("0", "9")),
    invalid("1001 records", produce(records=[""] * 1001), "Field 'records': expected at most 1000 records"),
    invalid("an empty topic name", json_request("CreateTopic", topic="", partition_count=1), NAME_RULE),
    invalid("256 characters", json_request("CreateTopic", topic="n" * 256, partition_count=1), NAME_RULE),
    invalid("a dot in a name", json_request("CreateTopic", topic="a.b", partition_count=1), NAME_RULE),
    invalid("a path as a name", json_request("CreateTopic", topic="../../etc", partition_count=1), NAME_RULE),
    invalid("letters beyond ASCII", json_request("CreateTopic", topic="größe", partition_count=1), NAME_RULE),
    invalid("a line feed in a name", json_request("CreateTopic", topic="a\n", partition_count=1), NAME_RULE),
    invalid("no partitions", json_request("CreateTopic", topic="new", partition_count=0), COUNT_RULE.format(0)),
    invalid("1001 partitions", json_request("CreateTopic", topic="new", partition_count=1001), COUNT_RULE.format(1001)),
    invalid(
        "2^32-1 partitions",
        json_request("CreateTopic", topic="new", partition_count=0xFFFFFFFF),
        COUNT_RULE.format(0xFFFFFFFF),
    ),
    Case(
        "a topic that exists",
        json_request("CreateTopic", topic="t", partition_count=1),
        json_error(400, "Topic 't' already exists", {"partition_count": 2}),
    ),
    Case("produce to no topic", produce(topic="x"), json_error(404, "Topic 'x' not found", AVAILABLE)),
    Case("fetch from no topic", fetch(topic="x"), json_error(404, "Topic 'x' not found", AVAILABLE)),
    Case("produce to no partition", produce(partition=2), json_error(405, "Partition 2 not found in topic 't'")),
    Case("fetch from no partition", fetch(partition=2), json_error(405, "Partition 2 not found in topic 't'")),
    Case(
        "describe no topic",
        json_request("DescribeTopic", topic="x"),
        json_error(404, "Topic 'x' not found", AVAILABLE),
    ),
    Case(
        "describe no partition",
        json_request("DescribePartition", topic="t", partition=9),
        json_error(405, "Partition 9 not found in topic 't'"),
    ),
    Case("commit for no topic", commit(topic="x"), {"type": "OffsetCommitResponse", "success": False}),
    Case("commit for no partition", commit(partition=2), {"type": "OffsetCommitResponse", "success": False}),
    Case(
        "fetch from beyond all offsets",
        fetch(offset=(1 << 64) - 1, max_bytes=(1 << 64) - 1),
        {"type": "FetchResponse", "records": [], "next_offset": (1 << 64) - 1},
    ),
    Case(
        "a record that no frame could bring back",
        produce(records=[base64.b64encode(bytes(7_864_250)).decode()]),
        json_error(413, "Record of 7864250 bytes is larger than the limit of 7864206 bytes"),
    ),
    Case("unknown fields", b'{"x":[{"y":null}],"type":"Ping","\\u00e9":1e999}', {"type": "Pong"}),
]

JSON_VIOLATIONS = [
    malformed("half an object", b'{"type":"Ping"', "input data was truncated"),
    malformed("a brace", b"{", "input data was truncated"),
    malformed("white space alone", b"  \r\n", "input data was truncated"),
    malformed("plain words", b"PING", "invalid character (byte 0)"),
    malformed("a comma too much", b'{"type":"Ping",}', "trailing comma in object (byte 15)"),
    malformed("two objects", b'{"type":"Ping"}{"type":"Ping"}', "trailing characters (byte 16)"),
    malformed("NaN", b'{"type":"Ping","x":NaN}', "invalid character (byte 19)"),
    malformed("a control character", b'{"type":"Pi\x00ng"}', "invalid character (byte 11)"),
    malformed("an unknown type and no JSON behind it", b'{"type":"Delete",!', "expected '\"' (byte 17)"),
    malformed("a bad value and no JSON behind it", b'{"type":"Produce","partition":-1', "input data was truncated"),
    malformed("deep arrays", b'{"type":"Ping","x":' + b"[" * 200_000, "nested too deeply"),
    malformed("deep objects", b'{"x":' * 200_000, "nested too deeply"),
    Case(
        "no UTF-8 in a name",
        b'{"type":"DescribeTopic","topic":"\xff"}',
        json_error(400, "Invalid UTF-8 at byte 33"),
        True,
    ),
    Case(
        "no UTF-8 in a field nobody reads",
        b'{"x":"\xc3","type":"Ping"}',
        json_error(400, "Invalid UTF-8 at byte 6"),
        True,
    ),
    Case("a surrogate", b'{"type":"\xed\xa0\x80"}', json_error(400, "Invalid UTF-8 at byte 9"), True),
]


@pytest.mark.parametrize(
    "case", [*BINARY, *JSON_RECOVERABLE, *JSON_VIOLATIONS], ids=lambda case: f"{dialect_of(case)} {case.name}"
)
def test_the_reply_and_what_becomes_of_the_connection(served: Served, case: Case) -> None:
    dialect = dialect_of(case)
    with served.connect() as wire:
        for _ in range(1 if case.closes else 2):  # as the first thing said, and again
            reply = wire.ask(case.payload)
            assert (reply if dialect == "binary" else json.loads(reply)) == case.reply
        if case.closes:
            assert wire.rest() == b""
        else:
            assert wire.ask(PING[dialect]) == PONG[dialect]
    with served.connect() as wire:
        wire.send(PING[dialect], case.payload, PING[dialect])  # in one piece, between two good requests
        assert wire.payload() == PONG[dialect]
        reply = wire.payload()
        assert (reply if dialect == "binary" else json.loads(reply)) == case.reply
        if case.closes:
            assert wire.rest() == b"", "what follows a violation is not looked at"
        else:
            assert wire.payload() == PONG[dialect]
    served.unharmed()


def test_junk_of_every_kind_gets_errors_or_a_close_and_changes_nothing(served: Served) -> None:
    """Fixed seeds, so that the same bytes come every time: plain noise, and good requests with noise in them."""
    good = [binary_produce(b"t", 0, b"v"), fetch(), produce(), commit(), binary_fetch(b"t", 0, 0, 9), JSON_PING]
    noise = seeded(20)
    for number in range(150):
        if number % 3 == 0:
            data = noise.randbytes(noise.randrange(1, 400))
        else:
            payload = bytearray(noise.choice(good))
            for _ in range(noise.randrange(1, 4)):
                payload[noise.randrange(len(payload))] = noise.randrange(0x80, 0x100)
            payload[0] = payload[0] | 0x40 if payload[0] < 0x20 else payload[0]  # never a binary write that means it
            data = frame(bytes(payload))
        with served.connect() as wire:
            wire.socket.sendall(data)
            wire.socket.shutdown(socket.SHUT_WR)
            try:
                replies = list(split(wire.rest()))
            except ConnectionError:
                replies = []  # not even the first bytes of a protocol: dropped
        for reply in replies:
            assert reply[0] in (0x02, 0xFE, 0xFF) or json.loads(reply)["type"] in ("Error", "FetchResponse", "Pong")
    served.unharmed()
