"""Clients that take and do not give: length bombs, half-open, slow and greedy connections. The broker's memory stays
flat, its file descriptors come back, and everybody else is served.

The bound on memory is GROWTH above what the broker used before: a frame of 10 MiB may be held whole, decoded and
copied once on its way to the log (about 40 MiB for the largest request), small records cost more as objects than as
the bytes by which they are counted, and the allocator gives back late. What the clients here claim or ask for is far
more than that, so a broker that believed them would be over it at once.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from tests.fuzz.wire import (
    BINARY_PING,
    DEADLINE,
    JSON_PING,
    MAX_FRAME,
    Pump,
    Wire,
    binary_create,
    binary_error,
    binary_fetch,
    binary_fetched,
    binary_produce,
    frame,
    json_error,
    json_request,
    string,
)
from tests.launcher import BrokerProcess
from tests.preloaded import STARTED_WORKERS
from tests.process_stats import children, open_files, resident_bytes, unread_bytes

MIB = 1 << 20
GROWTH = 96 * MIB
FOUR_FRAMES = 2 * GROWTH  # four replies of 10 MiB that nobody takes, each with the batch that was read from disk for it
RECORD = bytes(range(256)) * 4096  # 1 MiB


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that is about to become true; the deadline only turns a hang into a failure."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


class Others:
    """A well-behaved client that goes on working on its own connection and checks each answer."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._wire = Wire(address)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failure: BaseException | None = None
        self.rounds = 0

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                assert self._wire.ask(binary_fetch(b"small", 0, 0, 100)) == binary_fetched(2, b"one", b"two")
                assert self._wire.ask_json("Ping") == {"type": "Pong"}
                produced = self._wire.ask_json("Produce", topic="busy", partition=0, records=["eA=="])
                assert produced == {"type": "ProduceResponse", "base_offset": self.rounds, "record_count": 1}
                self.rounds += 1
                self._stop.wait(0.005)
        except BaseException as failure:  # noqa: BLE001 - raised again where the test can see it
            self._failure = failure

    def served(self) -> None:
        """Wait until it was served once more, whatever else goes on."""
        rounds = self.rounds + 2
        until(lambda: self._failure is not None or self.rounds >= rounds, "another connection is not served any more")
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        self._thread.start()
        self.served()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(DEADLINE)
        self._wire.socket.close()


@dataclass
class Besieged:
    """A broker, somebody who works with it all the time, and what the broker used before the attack."""

    broker: BrokerProcess
    others: Others
    files: int = 0
    memory: int = 0

    def connect(self) -> Wire:
        return Wire(self.broker.endpoint("rustlog"))

    def holds(self, bound: int = GROWTH) -> None:
        """Others are served, and the memory is within its bound."""
        self.others.served()
        self.within_bound(bound)

    def within_bound(self, bound: int = GROWTH) -> None:
        grown = resident_bytes(self.broker.process.pid) - self.memory
        assert grown < bound, f"{grown >> 20} MiB more than before"

    def files_back(self) -> None:
        """Nothing is open that was not before, but the socket of a further process for SQL, which stays."""
        process = self.broker.process.pid

        def back() -> bool:
            return open_files(process) <= self.files + max(0, len(children(process)) - 1)

        until(back, f"{open_files(process)} files are open, {self.files} before")


@contextmanager
def besieged(directory: Path, **settings: str) -> Iterator[Besieged]:
    settings = {"log__file_bytes": "64MiB"} | settings  # open files are counted: no more of them than are needed
    environment = STARTED_WORKERS | {f"PENSTOCK_{name.upper()}": value for name, value in settings.items()}
    with BrokerProcess(directory, "--durability", "written", "--log-level", "warning", **environment) as broker:
        broker.ready()
        with Wire(broker.endpoint("rustlog")) as wire:
            wire.send(*(binary_create(topic, 1) for topic in (b"small", b"busy", b"large", b"flood")))
            wire.payloads(4)
            wire.ask(binary_produce(b"small", 0, b"one", b"two"))
            # The largest requests and replies of honest clients belong to what is used before.
            for _ in range(3):
                wire.ask(binary_produce(b"large", 0, *[RECORD] * 9))
                wire.ask(binary_fetch(b"large", 0, 0, MAX_FRAME))
                wire.ask(json_request("Fetch", topic="large", partition=0, offset=0, max_bytes=MAX_FRAME))
        with Others(broker.endpoint("rustlog")) as others:
            process = broker.process.pid
            yield Besieged(broker, others, open_files(process), resident_bytes(process))
            others.served()
        broker.process.terminate()
        code, _, err = broker.finish()
        assert code == 0 and "Traceback" not in err and '"level": "error"' not in err, err


@pytest.fixture(scope="module")
def one_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with besieged(tmp_path_factory.mktemp("resources")) as one:
        yield one
        one.within_bound(FOUR_FRAMES)


@pytest.fixture
def shared(one_for_all: Besieged) -> Besieged:
    """The same broker for many tests, so that what one leaves behind shows; but each has the whole bound, whatever the
    allocator has not given back of the others."""
    return replace(one_for_all, memory=max(one_for_all.memory, resident_bytes(one_for_all.broker.process.pid)))


# -- lengths and counts that promise more than there is


@pytest.mark.parametrize("first", [b"", b"{", b"\x01"], ids=["nothing", "a brace", "a binary type"])
def test_200_connections_that_announce_10_mib_and_send_nothing(shared: Besieged, first: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(200):
            wire = stack.enter_context(shared.connect())
            wire.socket.sendall(struct.pack(">I", MAX_FRAME) + first)
        shared.holds()
    shared.files_back()
    shared.holds()


COUNTS = [
    ("2^32-1 records", b"\x01" + string(b"small") + struct.pack(">II", 0, 0xFFFFFFFF)),
    (
        "2^32-1 records of no bytes, some there",
        b"\x01" + string(b"small") + struct.pack(">II", 0, 0xFFFFFFFF) + bytes(400),
    ),
    ("a record of 2^32-1 bytes", b"\x01" + string(b"small") + struct.pack(">III", 0, 1, 0xFFFFFFFF)),
    ("2^31 records of 2^31 bytes", b"\x01" + string(b"small") + struct.pack(">III", 0, 1 << 31, 1 << 31)),
    ("2^32-1 partitions", binary_create(b"new", 0xFFFFFFFF)),
    ("2^31 partitions", binary_create(b"new", 1 << 31)),
]


@pytest.mark.parametrize("payload", [payload for _, payload in COUNTS], ids=[name for name, _ in COUNTS])
def test_a_count_is_not_believed(shared: Besieged, payload: bytes) -> None:
    with shared.connect() as wire:
        for _ in range(50):
            assert wire.ask(payload)[0] == 0xFE
        assert wire.ask(BINARY_PING) == b"\xff"
    shared.holds()


def test_a_fetch_of_everything_is_held_to_one_frame(shared: Besieged) -> None:
    with shared.connect() as wire:
        for _ in range(10):
            reply = wire.ask(binary_fetch(b"large", 0, 0, 0xFFFFFFFF))
            (count,) = struct.unpack_from(">I", reply, 1)
            assert count == 9 and reply[-8:] == struct.pack(">Q", 9)
            said = wire.ask_json("Fetch", topic="large", partition=0, offset=0, max_bytes=(1 << 64) - 1)
            assert len(said["records"]) == 7 and said["next_offset"] == 7
    shared.holds()


# -- JSON that is hard to read

TOO_DEEP = "Malformed JSON: nested too deeply"
LONG = b"n" * MIB
DIGITS = b"9" * MIB
NAME_RULE = "Field 'topic': expected 1 to 255 ASCII letters, digits, '_' or '-'"


def request(kind: bytes, fields: bytes) -> bytes:
    return b'{"type":"%s",%s}' % (kind, fields)


def fetch_at(offset: bytes) -> bytes:
    return request(b"Fetch", b'"topic":"small","partition":0,"max_bytes":1,"offset":' + offset)


HARD: list[tuple[str, bytes, str]] = [
    ("10 MB of open arrays", b'{"type":"Ping","x":' + b"[" * 10_000_000, TOO_DEEP),
    ("10 MB of open objects", b'{"x":' * 2_000_000, TOO_DEEP),
    ("10 MB of balanced arrays", b'{"x":' + b"[" * 5_000_000 + b"]" * 5_000_000 + b"}", TOO_DEEP),
    ("a number of a million digits", fetch_at(DIGITS), "Field 'offset': integer value out of range"),
    ("an exponent of a million digits", fetch_at(b"1e" + DIGITS), "Field 'offset': number out of range"),
    (
        "a number of a million digits nobody reads",
        request(b"DescribeTopic", b'"topic":5,"x":' + DIGITS),
        "Field 'topic': expected str, got int",
    ),
    ("a type of 1 MB", b'{"type":"' + LONG + b'"}', "Unknown request type '" + "n" * 1001 + "…"),
    ("a key of 1 MB", b'{"' + LONG + b'":1}', "Missing field 'type'"),
    (
        "a topic of 1 MB to create",
        request(b"CreateTopic", b'"partition_count":1,"topic":"' + LONG + b'"'),
        NAME_RULE,
    ),
    (
        "a group of 1 MB",
        request(b"OffsetCommit", b'"topic":"small","partition":0,"offset":1,"group":"' + LONG + b'"'),
        "Group name of 1048576 characters; 1 to 256 are allowed",
    ),
    (
        "three million records",
        request(b"Produce", b'"topic":"small","partition":0,"records":[' + b'"",' * 3_000_000 + b'""]'),
        "Field 'records': expected at most 1000 records",
    ),
]


@pytest.mark.parametrize(("payload", "message"), [(p, m) for _, p, m in HARD], ids=[name for name, *_ in HARD])
def test_json_that_is_hard_to_read_is_an_error(shared: Besieged, payload: bytes, message: str) -> None:
    for _ in range(3):
        with shared.connect() as wire:
            reply = json.loads(wire.ask(payload))
            assert reply == json_error(400, message)
            if message is TOO_DEEP:
                assert wire.rest() == b""
            else:
                assert wire.ask(JSON_PING) == b'{"type":"Pong"}'
    shared.holds()


def test_a_name_of_any_length_is_told_in_a_short_error(shared: Besieged) -> None:
    with shared.connect() as wire:
        for topic in (LONG, b"n" * 0xFFFF):
            said = wire.ask_json("DescribeTopic", topic=topic.decode())
            assert said["code"] == 404 and said["message"].startswith("Topic 'nnn") and len(said["message"]) == 1024
        reply = wire.ask(b"\x07" + string(b"n" * 0xFFFF))
        assert reply == binary_error(13, "DescribeTopic failed: Topic '" + "n" * 994 + "…")
        reply = wire.ask(binary_create(b"n" * 0xFFFF, 1))
        assert reply == binary_error(2, "Invalid request: Topic name of 65535 characters; 1 to 256 are allowed")
    shared.holds()


# -- connections that take their time, or are not there any more


def test_500_connections_opened_and_dropped_in_every_way(shared: Besieged) -> None:
    for number in range(500):
        wire = shared.connect()
        match number % 5:
            case 1:
                wire.socket.sendall(b"\x00\x00")
            case 2:
                wire.socket.sendall(frame(BINARY_PING) * 3)  # and does not wait for the replies
            case 3:
                wire.socket.sendall(frame(binary_fetch(b"large", 0, 0, MAX_FRAME)))
            case 4:  # a reset instead of a close
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                wire.socket.sendall(frame(BINARY_PING))
        wire.socket.close()
    shared.holds(FOUR_FRAMES)  # a hundred have asked for 10 MiB, and a few are being answered
    shared.files_back()


def test_slow_connections_are_answered_when_they_are_done(shared: Besieged) -> None:
    """100 connections, each sending its request a byte at a time, all at once."""
    requests = [binary_fetch(b"small", 0, 0, 100), json_request("DescribePartition", topic="small", partition=0)]
    described = {"type": "DescribePartitionResponse", "topic": "small", "partition": 0, "high_watermark": 2}
    with ExitStack() as stack:
        slow = [(stack.enter_context(shared.connect()), frame(requests[n % 2])) for n in range(100)]
        for position in range(max(len(data) for _, data in slow)):
            for wire, data in slow:
                wire.socket.sendall(data[position : position + 1])
        shared.holds()
        for number, (wire, _) in enumerate(slow):
            reply = wire.payload()
            if number % 2 == 0:
                assert reply == binary_fetched(2, b"one", b"two")
            else:
                assert json.loads(reply).items() >= described.items()
    shared.files_back()


def flood(wire: Wire, data: bytes) -> int:
    """Send the same over and over until the other side takes no more, or closes; how many bytes it took."""
    return Pump(wire.socket, data).send(64 * MIB, seconds=0.3)


def read_by_broker(wire: Wire, sent: int) -> int:
    """The number of sent bytes that have left the system's buffers, which may be large."""
    return sent - unread_bytes(wire.socket)


@pytest.mark.parametrize("dialect", ["binary", "json"])
def test_clients_that_ask_for_much_and_read_nothing(shared: Besieged, dialect: str) -> None:
    """Each asks for more than a hundred GiB. Those that begin to read at last get what they asked for, in order."""
    request = (
        binary_fetch(b"large", 0, 0, MAX_FRAME)
        if dialect == "binary"
        else json_request("Fetch", topic="large", partition=0, offset=0, max_bytes=MAX_FRAME)
    )
    with ExitStack() as stack:
        greedy = [stack.enter_context(shared.connect()) for _ in range(4)]
        for wire in greedy:
            assert read_by_broker(wire, flood(wire, frame(request) * 1000)) < 64 * MIB, (
                "the broker does not stop reading"
            )
            shared.holds(FOUR_FRAMES)
        with shared.connect() as patient:
            whole = patient.ask(request)
        for _ in range(3):
            assert greedy[0].payload() == whole
        shared.holds(FOUR_FRAMES)
    shared.files_back()


def test_a_client_that_produces_much_and_reads_nothing(shared: Besieged) -> None:
    """Its replies pile up, so reading stops; what was acknowledged in the end is what is stored."""
    request = frame(binary_produce(b"flood", 0, b"v"))
    with shared.connect() as greedy:
        sent = flood(greedy, request * 10_000)
        assert read_by_broker(greedy, sent) < 64 * MIB, "the broker does not stop reading"
        shared.holds()
        whole = sent // len(request)
        for offset in range(whole):
            assert greedy.payload() == struct.pack(">BQI", 0x01, offset, 1)
        assert end_of_flood(shared) == whole
    shared.files_back()
    shared.holds()


def end_of_flood(besieged: Besieged) -> int:
    with besieged.connect() as wire:
        described = wire.ask_json("DescribePartition", topic="flood", partition=0)
    return int(described["high_watermark"])


# -- limits of the configuration


IDLE_SECONDS = 3  # as much as a client that is not idle may have to wait on a busy machine before it can say a word


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with besieged(tmp_path_factory.mktemp("impatient"), limits__idle_seconds=str(IDLE_SECONDS)) as one:
        yield one


def test_idle_connections_are_closed_unless_their_client_may_be_waiting(impatient: Besieged) -> None:
    broker = impatient
    with ExitStack() as stack:
        silent = [
            stack.enter_context(broker.connect()),  # never says a word
            *(stack.enter_context(broker.connect()) for _ in range(4)),
        ]
        silent[1].socket.sendall(b"\x00\x00")  # too little to tell the protocol
        silent[2].socket.sendall(struct.pack(">IB", MAX_FRAME, 0x01))  # the rest of the frame never comes
        assert silent[3].ask(BINARY_PING) == b"\xff"  # and has nothing more to say for now
        flood(silent[4], frame(binary_fetch(b"large", 0, 0, MAX_FRAME)) * 1000)  # and reads nothing
        for wire in silent[:3]:
            assert wire.closed()
        until(lambda: open_files(broker.broker.process.pid) <= broker.files + 1, "the one that reads nothing stays")
        assert silent[3].ask(BINARY_PING) == b"\xff"
        silent[3].socket.close()
        broker.holds()


def test_a_connection_that_trickles_is_not_idle(impatient: Besieged) -> None:
    with impatient.connect() as wire:
        data = frame(JSON_PING)
        wire.socket.sendall(data[:5])  # enough to tell its protocol, for which there is less patience
        slowly = data[5:-5]
        for byte in slowly:
            wire.socket.sendall(bytes((byte,)))
            time.sleep(1.1 * IDLE_SECONDS / len(slowly))
        wire.socket.sendall(data[-5:])
        assert wire.payload() == b'{"type":"Pong"}'


def test_the_limit_of_connections_holds_and_leaves_those_inside_alone(tmp_path: Path) -> None:
    with besieged(tmp_path, limits__connections="20") as broker, ExitStack() as stack:
        inside = [stack.enter_context(broker.connect()) for _ in range(19)]  # and the one that works all the time
        for wire in inside:
            assert wire.ask(BINARY_PING) == b"\xff"
        for _ in range(100):
            with broker.connect() as outside:
                assert outside.closed()
        for wire in inside:
            assert wire.ask(BINARY_PING) == b"\xff"
        broker.holds()
        inside.pop().socket.close()

        def admitted() -> bool:
            with broker.connect() as wire:
                wire.send(BINARY_PING)
                try:
                    return wire.payload() == b"\xff"
                except (EOFError, ConnectionError):
                    return False

        until(admitted, "the place of one that left is not given to another")


def test_halves_of_large_requests_are_held_to_the_limit_of_all_together(tmp_path: Path) -> None:
    """50 clients send all but the last byte of 10 MiB each, with a limit of 32 MiB for all. The broker holds that, and
    what it allows each client when there is too little for all: 32 MiB / 50 and a read. Twice the limit and 256 KiB for
    each are 77 MiB, and 96 with the allocator's loss; it would be 500 without a limit. Everybody else is served."""
    half = (struct.pack(">I", MAX_FRAME) + b"\x01").ljust(MAX_FRAME + 3, b"\x00")
    with besieged(tmp_path, limits__total_bytes="32MiB") as broker, ExitStack() as stack:
        early = [stack.enter_context(broker.connect()) for _ in range(40)]
        for wire in early:
            assert wire.ask(BINARY_PING) == b"\xff"
        taken = [pour(wire, half) for wire in early]
        assert min(taken) < len(half), "the broker does not stop reading"
        broker.others.served()
        late = [stack.enter_context(broker.connect()) for _ in range(10)]
        assert max(pour(wire, half) for wire in late) < len(half), "those who come too late are read without a limit"
        broker.others.served()
        assert resident_bytes(broker.broker.process.pid) - broker.memory < 96 * MIB


def pour(wire: Wire, data: bytes) -> int:
    """Send as much as the other side takes without being waited for; how much of it the broker has read."""
    wire.socket.setblocking(False)
    sent = attempts = 0
    while sent < len(data) and attempts < 10:
        try:
            sent += wire.socket.send(data[sent : sent + MIB])
        except BlockingIOError:
            attempts += 1
            time.sleep(0.002)
        except ConnectionError:
            break
    return sent - unread_bytes(wire.socket)
