"""FlyMQ's original clients, as far as bytes go, against a running broker.

`Original` sends what the original's Python client sends, in the same pieces, and reads replies as that client does: it
leaves Nagle's algorithm on, always has a filter in FETCH, knows no opcodes but its own, and drops six bytes of an
error. `Document` reads as the protocol's document has it. Neither shares code with the product. The tests are named
after the decisions in `docs/protocols/flymq.md`.
"""

from __future__ import annotations

import gzip
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.clients.flymq.running_server import RunningServer
from tests.launcher import BrokerProcess

from penstock.clients.blipmq import Client as BlipMqClient

SCHEMA = b'{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'

# What the original's Python client knows as the opcode of a reply; it refuses all others.
KNOWN = {
    *range(0x01, 0x0A),
    *range(0x10, 0x16),
    *range(0x20, 0x23),
    *(0x30, 0x31, 0x35),
    *range(0x40, 0x44),
    *range(0x50, 0x54),
    *range(0x60, 0x67),
    *range(0x70, 0x73),
    *(0xA0, 0xA1, 0xFF),
}
BUFFERED = 8192  # what its buffer holds: header and body go out together up to this, and else apart
MAX_MESSAGE = 32 << 20


class ServerError(Exception):
    pass


def s16(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()


def s8(text: str) -> bytes:
    return struct.pack(">B", len(text.encode())) + text.encode()


def b32(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


class Reading:
    """Takes fields off a payload."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, layout: str) -> Any:
        size = struct.calcsize(">" + layout)
        (value,) = struct.unpack(">" + layout, self.data[self.at : self.at + size])
        self.at += size
        return value

    def text(self, length: str = "H") -> str:
        size = self.take(length)
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def octets(self) -> bytes:
        size: int = self.take("I")
        self.at += size
        assert self.at <= len(self.data)
        return self.data[self.at - size : self.at]

    def texts(self, length: str = "H") -> list[str]:
        return [self.text(length) for _ in range(self.take("I"))]

    @property
    def rest(self) -> bytes:
        return self.data[self.at :]


class Stored(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key_size: int
    value_size: int


def stored(payload: bytes) -> Stored:
    reading = Reading(payload)
    place = Stored(reading.text(), *(reading.take(layout) for layout in "iQqii"))
    assert reading.rest == b""
    return place


class Connection:
    """A socket on which one request is under way at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=10)
        assert not self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError("closed")
            data += part
        return data

    def reply(self) -> tuple[int, bytes]:
        magic, version, opcode, flags, length = struct.unpack(">BBBBI", self.exactly(8))
        assert (magic, version, flags) == (0xAF, 0x01, 0x01)
        assert length <= MAX_MESSAGE
        return opcode, self.exactly(length)

    def nothing_more(self) -> bool:
        """Whether nothing was sent beyond what was asked for."""
        self.socket.settimeout(0.2)
        try:
            self.socket.recv(1)
        except TimeoutError:
            self.socket.settimeout(10)
            return True
        return False


class Original(Connection):
    def ask(self, opcode: int, payload: bytes = b"", flags: int = 0x01) -> bytes:
        """The payload of the reply; the opcode must be one that the client knows."""
        header = struct.pack(">BBBBI", 0xAF, 0x01, opcode, flags, len(payload))
        if len(header) + len(payload) > BUFFERED:
            self.socket.sendall(header)
            self.socket.sendall(payload)
        else:
            self.socket.sendall(header + payload)
        got, answer = self.reply()
        assert got in KNOWN, f"the client would refuse opcode 0x{got:02X}"
        if got == 0xFF:
            raise ServerError(self.error_text(answer))
        assert got == (0x71 if opcode == 0x70 else opcode)
        return answer

    @staticmethod
    def error_text(payload: bytes) -> str:
        """A code of four bytes, a length of two, and the text: that is what it believes to be there."""
        if len(payload) < 6:
            return payload.decode(errors="replace")
        (length,) = struct.unpack(">H", payload[4:6])
        text = payload[6 : 6 + length] if 6 + length <= len(payload) else payload[6:]
        return text.decode(errors="replace")

    def produce(self, topic: str, value: bytes, key: bytes = b"", partition: int = -1) -> Stored:
        return stored(self.ask(0x01, s16(topic) + b32(key) + b32(value) + struct.pack(">i", partition)))

    def fetch(self, topic: str, offset: int, most: int = 100, wanted: str = "") -> tuple[list[Any], int]:
        request = s16(topic) + struct.pack(">iQi", 0, offset, most) + s16(wanted)
        reading = Reading(self.ask(0x07, request))
        count, following = reading.take("I"), reading.take("Q")
        records = [(reading.take("Q"), reading.octets(), reading.octets()) for _ in range(count)]
        assert reading.rest == b""
        return records, following


class Document(Connection):
    def ask(self, opcode: int, payload: bytes = b"", flags: int = 0x01) -> bytes:
        self.socket.sendall(struct.pack(">BBBBI", 0xAF, 0x01, opcode, flags, len(payload)) + payload)
        got, answer = self.reply()
        if got == 0xFF:
            reading = Reading(answer)
            assert reading.take("?") is False
            raise ServerError(reading.text())
        return answer


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all; each test has topics of its own."""
    queues = {"PENSTOCK_QUEUES__ATTEMPTS": "1", "PENSTOCK_QUEUES__BACKOFF_SECONDS": "0.02"}
    with BrokerProcess(tmp_path_factory.mktemp("original"), **queues) as broker:
        yield broker.ready()


@pytest.fixture
def original(broker: BrokerProcess) -> Iterator[Original]:
    with Original(broker.endpoint("flymq")) as client:
        yield client


@pytest.fixture
def document(broker: BrokerProcess) -> Iterator[Document]:
    with Document(broker.endpoint("flymq")) as client:
        yield client


# -- the decisions


def test_decision_01_the_printed_produce_works_and_leaves_the_connection_usable(document: Document) -> None:
    """Its header counts 19 bytes, and 23 follow."""
    printed = "AF 01 01 01 00 00 00 13  00 04 74 65 73 74  00 00 00 00  00 00 00 05 68 65 6C 6C 6F  FF FF FF FF"
    for offset in range(3):
        document.socket.sendall(bytes.fromhex(printed))
        opcode, payload = document.reply()
        assert (opcode, len(payload)) == (0x01, 0x22)
        place = stored(payload)
        assert place[:3] == ("test", 0, offset)
        assert place[4:] == (-1, 5)
    assert document.ask(0x02, s16("test") + struct.pack(">iQ", 0, 1)) == b32(b"") + b32(b"hello")
    assert document.nothing_more()


def test_decision_02_a_timestamp_is_in_milliseconds(original: Original) -> None:
    assert abs(original.produce("d2", b"x").timestamp - time.time() * 1000) < 86_400_000


def test_decision_03_a_mode_has_one_byte_of_length_or_two(original: Original, document: Document) -> None:
    for _ in range(3):
        original.produce("d3", b"x")
    for mode, offset in (("earliest", 0), ("latest", 3), ("commit", 0), ("", 3)):
        before = s16("d3") + s16("g") + struct.pack(">i", 0)
        assert original.ask(0x05, before + s8(mode)) == struct.pack(">Q", offset)
        assert document.ask(0x05, before + s16(mode)) == struct.pack(">Q", offset)
    with pytest.raises(ServerError, match=r"^unknown subscribe mode: sometimes$"):
        original.ask(0x05, before + s8("sometimes"))


def test_decision_04_a_filter_field_asks_for_the_originals_order(original: Original, document: Document) -> None:
    original.produce("d4", b"apple", b"k")
    original.produce("d4", b"pear")
    assert original.fetch("d4", 0) == ([(0, b"k", b"apple"), (1, b"", b"pear")], 2)
    assert original.fetch("d4", 0, wanted="pea") == ([(1, b"", b"pear")], 2)
    reading = Reading(document.ask(0x07, s16("d4") + struct.pack(">iQi", 0, 0, 10)))
    assert reading.take("I") == 2
    assert [(reading.octets(), reading.octets(), reading.take("Q")) for _ in range(2)] == [
        (b"k", b"apple", 0),
        (b"", b"pear", 1),
    ]
    assert reading.take("Q") == 2
    assert reading.rest == b""
    nothing = s16("d4") + struct.pack(">iQi", 0, 2, 10)
    assert document.ask(0x07, nothing) == original.ask(0x07, nothing + s16("")) == struct.pack(">IQ", 0, 2)


class Login(NamedTuple):
    success: bool
    error: str
    username: str
    roles: list[str]


def as_original(payload: bytes) -> Login:
    reading = Reading(payload)
    success, username, roles = reading.take("B") == 1, reading.text(), reading.texts("B")
    return Login(success, reading.text(), username, roles)


def as_document(payload: bytes) -> Login:
    reading = Reading(payload)
    return Login(reading.take("B") == 1, reading.text(), reading.text(), reading.texts())


GOOD, BAD = s16("alice") + s16("wonderland rabbit"), s16("alice") + s16("guess")


@pytest.mark.parametrize("style", ["both", "spec", "original"])
def test_decision_05_and_06_a_login_is_understood(tmp_path: Path, style: str) -> None:
    settings = {"security__mode": "on", "security__lockout_failures": "0", "flymq__auth_reply": style}
    with RunningServer(tmp_path, **settings) as server:
        server.add_user("root", "root password", "admin")
        server.add_user("alice", "wonderland rabbit", "producer")
        with Original(("127.0.0.1", server.port)) as client:
            client.ask(0x70, s16("root") + s16("root password"))
            client.ask(0x03, s16("d5") + struct.pack(">i", 1))
        with Original(("127.0.0.1", server.port)) as client:  # `ask` sees to it that the opcode is 71
            with pytest.raises(ServerError, match=r"^authentication required$"):
                client.produce("d5", b"x")
            refused = client.ask(0x70, BAD)
            why = Login(False, "invalid username or password", "", [])
            if style != "spec":
                read = as_original(refused)
                assert (read.success, read.error.lstrip(), read.roles) == (why.success, why.error, why.roles)
            if style != "original":
                read = as_document(refused)
                assert (read.success, read.error, read.username) == (why.success, why.error, why.username)
            accepted = client.ask(0x70, GOOD)
            whole = Login(True, "", "alice", ["producer"])
            if style != "spec":
                assert as_original(accepted) == (whole if style == "original" else Login(True, "", "", []))
            if style != "original":
                assert as_document(accepted) == (whole if style == "spec" else Login(True, "", "", []))
            assert client.produce("d5", b"x").offset == 0
            check_decision_09(client)


def check_decision_09(client: Original) -> None:
    """WHOAMI in the layout that the Python client reads, and in that of the Go client."""
    told = client.ask(0x72)
    reading = Reading(told)
    assert (reading.take("B"), reading.text(), reading.texts(), reading.texts()) == (1, "alice", [], ["write"])
    assert as_original(told) == Login(True, "", "alice", [])


def test_decision_07_an_error_keeps_its_whole_text(original: Original, document: Document) -> None:
    missing = s16("nowhere") + struct.pack(">iQ", 0, 0)
    with pytest.raises(ServerError, match=r"^topic not found$"):
        original.ask(0x02, missing)
    with pytest.raises(ServerError, match=r"^E: topic not found$"):
        document.ask(0x02, missing)
    long = "é" * 15_000
    with pytest.raises(ServerError) as caught:
        original.ask(0x07, s16(long) + struct.pack(">iQi", 0, 0, 10) + s16(""))
    assert 0 < len(str(caught.value)) < 8000
    with pytest.raises(ServerError, match=r"^unknown opcode: 238$"):
        original.ask(0xEE)
    for opcode in (0xA0, 0xA1):  # the numbers that the Python and Java clients have for the audit log
        with pytest.raises(ServerError, match=f"^unknown opcode: {opcode}$"):
            original.ask(opcode)


def test_decision_08_what_has_no_result_is_answered_by_a_flag_and_a_text(original: Original) -> None:
    place = s16("d8") + s16("g") + struct.pack(">i", 0)
    for opcode, payload in (
        (0x03, s16("d8") + struct.pack(">i", 3)),
        (0x03, s16("d8") + struct.pack(">i", 3)),  # exists already, and that is fine
        (0x06, place + struct.pack(">Q", 0)),
        (0x61, place + s8("earliest")),
        (0x61, place + s8("offset") + struct.pack(">Q", 0)),
        (0x61, place + s8("latest") + struct.pack(">Q", 0)),  # the Java client always has an offset
        (0x65, s16("d8") + s16("g")),
        (0x22, s16("d8")),
        (0x09, s16("d8")),
        (0x09, s16("d8")),  # is gone already, and that is fine
    ):
        reading = Reading(original.ask(opcode, payload))
        assert reading.take("B") == 1, opcode
        reading.text()
        assert reading.rest == b""


def test_decision_10_and_11_schemas(original: Original) -> None:
    assert Reading(original.ask(0x10, s16("d10") + s8("json") + b32(SCHEMA))).text() == "d10"
    listed = Reading(original.ask(0x12, s16("")))
    schemas = [(listed.text(), listed.text("B"), listed.take("I")) for _ in range(listed.take("I"))]
    assert ("d10", "json", 1) in schemas
    found = Reading(original.ask(0x11, s16("d10") + struct.pack(">I", 0)))  # read as a list, and the rest ignored
    assert (found.take("I"), found.text(), found.text("B"), found.take("I")) == (1, "d10", "json", 1)

    assert original.ask(0x13, s16("d10") + b32(b'{"n": 1}'))[:1] == b"\1"
    assert original.ask(0x13, s16("d10") + b32(b"{}"))[:1] == b"\0"
    good, wrong = b32(b'{"n": 1}'), b32(b'{"n": "one"}')
    for offset, layout in enumerate((s16("d10") + good, good + s16("d10"))):  # Go, then Python and Java
        assert stored(original.ask(0x14, s16("d11") + layout)).offset == offset
    for layout in (s16("d10") + wrong, wrong + s16("d10")):
        with pytest.raises(ServerError, match=r"^schema validation failed"):
            original.ask(0x14, s16("d11") + layout)
    assert original.ask(0x15, s16("d10") + struct.pack(">I", 1))[:1] == b"\1"
    with pytest.raises(ServerError, match=r"schema (not )?found"):
        original.ask(0x15, s16("d10") + struct.pack(">I", 1))


def letters(client: Original, topic: str) -> list[tuple[str, bytes, str, int]]:
    reading = Reading(client.ask(0x20, s16(topic) + struct.pack(">I", 100)))
    return [(reading.text(), reading.octets(), reading.text(), reading.take("i")) for _ in range(reading.take("I"))]


def test_decision_12_13_and_14_dead_letters(broker: BrokerProcess, original: Original) -> None:
    assert letters(original, "d12") == []
    with BlipMqClient(*broker.endpoint("blipmq"), key="any") as queues:
        subscription = queues.subscribe("d12")
        queues.publish_many("d12", [b"one", b"two"])
        queues.flush()
        end = time.monotonic() + 20
        while len(found := letters(original, "d12")) < 2 and time.monotonic() < end:
            subscription.poll_many(2)  # and never an acknowledgement
            time.sleep(0.05)
    assert [value for _, value, _, _ in found] == [b"one", b"two"]

    def replay(which: bytes) -> None:
        reading = Reading(original.ask(0x21, s16("d12") + which))
        assert reading.take("B") == 1
        reading.take("I")  # as the Python client does, whatever it is

    replay(s16(found[0][0]))
    assert [value for _, value, _, _ in letters(original, "d12")] == [b"two"]
    replay(struct.pack(">Q", 1))
    assert letters(original, "d12") == []
    assert [value for _, _, value in original.fetch("d12", 2)[0]] == [b"one", b"two"]
    for which in (s16(found[0][0]), struct.pack(">Q", 1), s16("none"), struct.pack(">Q", 99)):
        with pytest.raises(ServerError, match="not found"):
            replay(which)
    assert original.ask(0x22, s16("d12"))[:1] == b"\1"


def test_decision_14_a_transaction_that_fails_is_an_error(original: Original) -> None:
    def begin() -> str:
        return Reading(original.ask(0x40)).text()

    original.ask(0x03, s16("d14") + struct.pack(">i", 1))
    for _ in range(2):
        first = begin()
        place = stored(original.ask(0x43, s16(first) + s16("d14") + b32(b"kept")))
        assert (place.topic, place.partition, place.offset) == ("d14", 0, 0)
        assert Reading(original.ask(0x41, s16(first))).text() == first
        second = begin()
        original.ask(0x43, s16(second) + s16("d14") + b32(b"dropped"))
        assert Reading(original.ask(0x42, s16(second))).text() == second
    assert original.fetch("d14", 0) == ([(0, b"", b"kept"), (1, b"", b"kept")], 2)
    for opcode in (0x41, 0x42):
        with pytest.raises(ServerError, match=r"^transaction"):
            original.ask(opcode, s16("no such transaction"))
        with pytest.raises(ServerError, match=r"^transaction is not active"):
            original.ask(opcode, s16(second))
    with pytest.raises(ServerError, match=r"^transaction"):
        original.ask(0x43, s16(first) + s16("d14") + b32(b"late"))


def test_decision_15_a_request_may_be_compressed(original: Original) -> None:
    value = b"compress me " * 10_000
    payload = s16("d15") + b32(b"") + b32(value) + struct.pack(">i", -1)
    place = stored(original.ask(0x01, gzip.compress(payload), flags=0x03))
    assert (place.offset, place.value_size) == (0, len(value))
    assert original.fetch("d15", 0)[0] == [(0, b"", value)]
    for flags, name in ((0x05, "lz4"), (0x07, "zstd"), (0x09, "snappy")):
        with pytest.raises(ServerError, match=f"^unsupported compression: {name}$"):
            original.ask(0x01, payload, flags=flags)
    with pytest.raises(ServerError, match=r"^invalid gzip data$"):
        original.ask(0x01, payload, flags=0x03)


def test_decision_16_replies_come_under_known_opcodes_and_unasked_for_there_is_none(original: Original) -> None:
    """`ask` refuses opcodes that the client does not know. Here is what it sends beside all that is above."""
    original.ask(0x03, s16("d16") + struct.pack(">i", 2))
    original.produce("d16", b"x", b"key", 1)
    assert Reading(original.ask(0x02, s16("d16") + struct.pack(">iQ", 1, 0))).octets() == b"key"
    assert "d16" in Reading(original.ask(0x08)).texts()
    place = s16("d16") + s16("g") + struct.pack(">i", 1)
    original.ask(0x05, place + s8("earliest"))
    original.ask(0x06, place + struct.pack(">Q", 1))
    assert original.ask(0x60, place) == struct.pack(">Q", 1)
    assert original.ask(0x64, place) == struct.pack(">QQQQ", 1, 1, 1, 0)
    for opcode, payload in ((0x62, b""), (0x63, s16("d16") + s16("g"))):
        reading = Reading(original.ask(opcode, payload))
        groups = [
            (
                reading.text(),
                reading.text(),
                reading.take("I"),
                [(reading.take("i"), reading.take("Q")) for _ in range(reading.take("I"))],
            )
            for _ in range(reading.take("I") if opcode == 0x62 else 1)
        ]
        assert ("d16", "g", 1, [(1, 1)]) in groups
        assert reading.rest == b""
    metadata = Reading(original.ask(0x53, s16("d16")))
    assert (metadata.text(), metadata.take("I"), metadata.text(), metadata.take("I")) == ("standalone", 1, "d16", 2)
    for number in range(2):
        assert metadata.take("i") == number
        assert metadata.text() == "penstock"
        metadata.text()
        assert (metadata.take("Q"), metadata.text()) == (1, "online")
        assert metadata.texts() == metadata.texts() == ["penstock"]
    assert metadata.rest == b""
    for opcode, milliseconds in ((0x30, 3_600_000), (0x35, 3_600_000)):
        assert stored(original.ask(opcode, s16("d16") + b32(b"y") + struct.pack(">Q", milliseconds))).value_size == 1
    with pytest.raises(ServerError, match="standalone"):
        original.ask(0x50, s16("127.0.0.1:9"))
    assert original.nothing_more()


@pytest.mark.parametrize("size", [100, 8_150, 10_000, 60_000])
def test_decision_17_a_body_that_comes_after_its_header_is_not_waited_for(tmp_path: Path, size: int) -> None:
    """With Nagle's algorithm on, the body waits until the header is acknowledged. A server that takes its time for that
    makes every request last 40 ms; one that does not, lets some of them be quick even on a busy machine."""
    with RunningServer(tmp_path) as server, Original(("127.0.0.1", server.port)) as client:

        def quick_ones(first: int) -> int:
            found = 0
            for offset in range(first, first + 40):
                begin = time.monotonic()
                assert client.produce("d17", bytes(size)).offset == offset
                found += time.monotonic() - begin < 0.035
            return found

        assert any(quick_ones(first) > 5 for first in range(0, 400, 40)), "every request waits for an acknowledgement"
        assert len(client.fetch("d17", 39)[0][0][2]) == size
