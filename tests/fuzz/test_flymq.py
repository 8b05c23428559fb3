"""FlyMQ under fire: damaged streams in memory and against a running broker, and clients that take and do not give.

The frames are those of the golden exchanges, written by hand; what comes back is taken apart by hand too.
"""

from __future__ import annotations

import gzip
import random
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.flymq.peer import Peer
from tests.fuzz.converse import converse as converse_with
from tests.fuzz.seeds import examples, seeded
from tests.fuzz.test_resources import MIB, RECORD, Besieged, besieged, flood, read_by_broker
from tests.fuzz.test_streams import no_complaints
from tests.fuzz.wire import DEADLINE, JSON_PING, Wire
from tests.launcher import BrokerProcess
from tests.process_stats import open_files, resident_bytes
from tests.wire.flymq.exchanges import EXCHANGES, FORMS

from penstock.broker.state.state import encode_snapshot

MAX_PAYLOAD = 33_554_432
LARGEST = 16 << 20  # of a record
ERROR = 0xFF
PRODUCE, CREATE_TOPIC, FETCH, LIST_TOPICS, WHOAMI = 0x01, 0x03, 0x07, 0x08, 0x72


def frame(opcode: int, payload: bytes = b"", flags: int = 1) -> bytes:
    return struct.pack(">BBBBI", 0xAF, 1, opcode, flags, len(payload)) + payload


def text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def produce(topic: bytes, value: bytes) -> bytes:
    return frame(PRODUCE, text(topic) + struct.pack(">II", 0, len(value)) + value + b"\xff" * 4)


def fetch(topic: bytes, offset: int = 0, most: int = 10, wanted: bytes = b"") -> bytes:
    return frame(FETCH, text(topic) + struct.pack(">iQi", 0, offset, most) + text(wanted))


class Reply(NamedTuple):
    opcode: int
    payload: bytes


def replies_of(stream: bytes) -> list[Reply]:
    """The frames of a stream, which must be nothing but whole ones."""
    found, at = [], 0
    while at < len(stream):
        magic, version, opcode, flags, length = struct.unpack_from(">BBBBI", stream, at)
        assert (magic, version, flags) == (0xAF, 1, 1) and length <= MAX_PAYLOAD
        at += 8 + length
        assert at <= len(stream)
        found.append(Reply(opcode, stream[at - length : at]))
    return found


class FlyWire(Wire):
    """One connection, as bytes."""

    def reply(self) -> Reply:
        magic, version, opcode, flags, length = struct.unpack(">BBBBI", self._exactly(8))
        assert (magic, version, flags) == (0xAF, 1, 1) and length <= MAX_PAYLOAD
        return Reply(opcode, self._exactly(length))

    def asked(self, data: bytes) -> Reply:
        self.socket.sendall(data)
        return self.reply()


# -- damaged streams, in memory

REQUESTS = [(exchange.opcode, exchange.request_payload) for exchange in EXCHANGES]
REQUESTS += [(form.opcode, form.request_payload) for form in FORMS]

# What has another answer each time, or takes long: ids of transactions, passwords, what was compiled, and fetches that
# wait for records, for no time passes here.
UNSTEADY = {0x0E, 0x10, 0x40, *range(0x70, 0x80)}
STEADY = [request for request in REQUESTS if request[0] not in UNSTEADY]

EXAMPLES = examples(80)

steady = st.sampled_from(STEADY)
cuts = st.lists(st.integers(0, 1 << 16), max_size=12)
endings = st.sampled_from([b"", b"\xaf", b"\xaf\x02", b"\xae", frame(PRODUCE)[:7], b"\xaf\x01\x01\x01\xff\xff\xff\xff"])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good request whose payload is cut short, lengthened, or has some bytes changed, in a frame that fits it."""
    opcode, good = draw(steady)
    payload = bytearray(good)
    match draw(st.sampled_from(["cut", "add", "change", "flags"])):
        case "cut":
            del payload[draw(st.integers(0, len(payload))) :]
        case "add":
            payload[(at := draw(st.integers(0, len(payload)))) : at] = draw(st.binary(min_size=1, max_size=8))
        case "change" if payload:
            for at in draw(st.lists(st.integers(0, len(payload) - 1), min_size=1, max_size=4)):
                payload[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        case _:
            return frame(opcode, bytes(payload), draw(st.integers(0, 255)))
    return frame(opcode, bytes(payload))


good = steady.map(lambda request: frame(*request))
streams = st.lists(good | damaged(), max_size=15)


def furnished() -> BrokerFixture:
    fixture = BrokerFixture()
    Peer(fixture).all(frame(CREATE_TOPIC, text(b"t") + struct.pack(">i", 4)), *[produce(b"t", b"v")] * 8)
    return fixture


def converse(
    fixture: BrokerFixture, stream: bytes, pieces: Sequence[int] = (), commits: Sequence[bool] = ()
) -> list[Reply]:
    return replies_of(converse_with(Peer(fixture), fixture, stream, pieces, commits))


def stored(fixture: BrokerFixture) -> object:
    state = fixture.broker.state_log.state
    peer = Peer(fixture)
    names = sorted(name for topics in state.topics.values() for name in topics)
    for name in names:
        for partition in range(4):
            place = text(name.encode()) + struct.pack(">iQi", partition, 0, 1000)
            peer.feed(frame(FETCH, place))
    return encode_snapshot(state), b"".join(peer.sent)


@EXAMPLES
@given(streams, endings, cuts, st.lists(st.booleans(), max_size=12))
def test_how_a_stream_is_cut_changes_neither_replies_nor_state(
    frames: list[bytes], ending: bytes, pieces: list[int], commits: list[bool]
) -> None:
    stream = b"".join(frames) + ending
    with no_complaints():
        whole, cut = furnished(), furnished()
        assert converse(whole, stream) == converse(cut, stream, pieces, commits)
        assert stored(whole) == stored(cut)


@EXAMPLES
@given(streams)
def test_every_frame_gets_one_reply_and_none_is_a_mistake_of_ours(frames: list[bytes]) -> None:
    with no_complaints():
        replies = converse(furnished(), b"".join(frames))
    assert len(replies) == len(frames) or any(sends_a_short_produce(one) for one in frames)
    assert not any(reply.opcode == ERROR and b"internal error" in reply.payload for reply in replies)


def sends_a_short_produce(data: bytes) -> bool:
    """A PRODUCE without its partition: four bytes behind it that begin no frame are passed over, or are the end."""
    return data[2] == PRODUCE


@EXAMPLES
@given(streams, cuts, st.integers(0, 1 << 16))
def test_a_connection_that_breaks_anywhere_leaves_whole_requests_or_nothing(
    frames: list[bytes], pieces: list[int], end: int
) -> None:
    stream = b"".join(frames)
    stream = stream[: end % (len(stream) + 1)]
    lost, whole = furnished(), furnished()
    converse(whole, stream)
    with no_complaints():
        peer = Peer(lost)
        for start, stop in pairwise(sorted({0, *(piece % (len(stream) + 1) for piece in pieces), len(stream)})):
            if not peer.closed:
                peer.session.receive(stream[start:stop])
                lost.commit()
        peer.session.lost()
        assert peer.session.held_bytes == 0
        assert stored(lost) == stored(whole)


@EXAMPLES
@given(st.binary(max_size=300), cuts)
def test_junk_changes_nothing_but_by_whole_frames(junk: bytes, pieces: list[int]) -> None:
    fixture = furnished()
    before = stored(fixture)
    with no_complaints():
        replies = converse(fixture, b"\xaf" + junk, pieces)
    if not replies:
        assert stored(fixture) == before


# -- damaged streams, against a running broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with besieged(tmp_path_factory.mktemp("flymq"), log__tail_bytes="1MiB", log__cache_bytes="1MiB") as one:
        used(one)
        yield one


def used(one: Besieged) -> None:
    """The largest requests and replies of honest clients belong to what is used before."""
    with connected(one) as wire:
        for _ in range(8):
            assert wire.asked(produce(b"fly", RECORD)).opcode == PRODUCE
        assert wire.asked(fetch(b"fly", 0, 8)).opcode == FETCH
        for _ in range(3):
            assert wire.asked(produce(b"largest", bytes(LARGEST))).opcode == PRODUCE
            assert wire.asked(frame(PRODUCE, gzip.compress(bytes(MAX_PAYLOAD)), flags=3)).opcode == ERROR
            assert wire.asked(fetch(b"largest", 0, 1)).opcode == FETCH
    one.memory, one.files = resident_bytes(one.broker.process.pid), open_files(one.broker.process.pid)


def connected(one: Besieged) -> FlyWire:
    return FlyWire(one.broker.endpoint("flymq"))


def mutated(rng: random.Random) -> bytes:
    """Some golden frames, one after the other, with damage anywhere: headers, lengths and payloads."""
    data = bytearray()
    for _ in range(rng.randrange(1, 8)):
        data += frame(*rng.choice(REQUESTS))
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xAF, 0xFE, 0xFF))
            case 1:
                del data[at : at + rng.randrange(1, 12)]
            case 2:
                data[at:at] = rng.randbytes(rng.randrange(1, 12))
            case 3:
                data[at:at] = frame(*rng.choice(REQUESTS))[: rng.randrange(1, 40)]
            case _:
                data[at : at + 4] = struct.pack(">I", rng.choice((0, 1, 0xFFFF, MAX_PAYLOAD, 0x7FFFFFFF, 0xFFFFFFFF)))
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("seed", range(6))
def test_mutated_streams_are_answered_in_frames_and_harm_nobody(broker: Besieged, seed: int) -> None:
    rng = seeded(seed)
    with connected(broker) as witness:
        for _ in range(60):
            with connected(broker) as wire:
                wire.socket.sendall(mutated(rng))
                wire.socket.shutdown(socket.SHUT_WR)
                for reply in replies_of(wire.rest()):
                    assert not (reply.opcode == ERROR and b"internal error" in reply.payload)
            assert witness.asked(frame(LIST_TOPICS)).opcode == LIST_TOPICS
    broker.holds()


def test_random_bytes_behind_a_good_frame(broker: Besieged) -> None:
    rng = seeded(7)
    for _ in range(100):
        with connected(broker) as wire:
            wire.socket.sendall(frame(WHOAMI) + rng.randbytes(rng.randrange(1, 2000)))
            wire.socket.shutdown(socket.SHUT_WR)
            assert replies_of(wire.rest())[0].opcode == WHOAMI
    broker.holds()


# -- clients that take and do not give


def test_200_connections_that_announce_32_mib_and_send_nothing(broker: Besieged) -> None:
    with ExitStack() as stack:
        for number in range(200):
            wire = stack.enter_context(connected(broker))
            wire.socket.sendall(struct.pack(">BBBBI", 0xAF, 1, PRODUCE, 1 + 2 * (number % 2), MAX_PAYLOAD) + b"\0")
        broker.holds()
    broker.files_back()
    broker.holds()


HUGE = b"\xff\xff\xff\xff"
COUNTS = {
    "roles": frame(0x73, text(b"u") + text(b"p") + text(b"") + HUGE + b"\0"),
    "users of a list": frame(0x78, text(b"t") + b"\0" + HUGE + bytes(8)),
    "records of a batch": frame(0x0C, text(b"t") + HUGE + bytes(100)),
    "bytes of a key": frame(PRODUCE, text(b"t") + HUGE + bytes(100)),
    "bytes of a value": frame(PRODUCE, text(b"t") + bytes(4) + HUGE + bytes(100)),
    "partitions": frame(CREATE_TOPIC, text(b"huge") + struct.pack(">i", 0x7FFFFFFF)),
    "types of events": frame(0x80, bytes(16) + HUGE + bytes(16)),
}


@pytest.mark.parametrize("data", COUNTS.values(), ids=COUNTS)
def test_a_count_is_not_believed(broker: Besieged, data: bytes) -> None:
    with connected(broker) as wire:
        for _ in range(50):
            assert wire.asked(data).opcode == ERROR
    broker.holds()


def test_many_bombs_take_no_more_than_one(broker: Besieged) -> None:
    bomb = frame(PRODUCE, gzip.compress(bytes(1 << 28), 9), flags=3)
    with ExitStack() as stack:
        wires = [stack.enter_context(connected(broker)) for _ in range(12)]
        for _ in range(2):
            for wire in wires:
                wire.socket.sendall(bomb)
            for wire in wires:
                assert wire.reply().opcode == ERROR
    broker.holds()


def test_requests_without_a_payload_behind_one_that_waits(tmp_path: Path) -> None:
    """Each takes more memory than it has bytes, and none of them is carried out for some seconds."""
    with besieged(tmp_path, flymq__fetch_wait_seconds="5") as one, connected(one) as wire:
        assert wire.asked(frame(CREATE_TOPIC, text(b"empty") + struct.pack(">i", 1))).opcode == CREATE_TOPIC
        wire.socket.sendall(fetch(b"empty"))
        sent = flood(wire, frame(WHOAMI) * 10_000)
        assert read_by_broker(wire, sent) < 32 * MIB, "the broker does not stop reading"
        one.holds()
        assert wire.reply().opcode == FETCH


def test_clients_that_ask_for_much_and_read_nothing(broker: Besieged) -> None:
    """Each asks for terabytes. What is made for one is a reply of 8 MiB, which is read, put together and sent: about
    three times that, and as much again that the allocator keeps. For four clients, 256 MiB is plenty."""
    process = broker.broker.process.pid
    memory, broker.files = resident_bytes(process), open_files(process)
    with ExitStack() as stack:
        greedy = [stack.enter_context(connected(broker)) for _ in range(4)]
        for wire in greedy:
            sent = flood(wire, fetch(b"fly", 0, 0x7FFFFFFF) * 1000)
            assert read_by_broker(wire, sent) < 64 * MIB, "the broker does not stop reading"
            broker.others.served()
            assert resident_bytes(process) - memory < 256 * MIB
        first = greedy[0].reply()
        assert first.opcode == FETCH and struct.unpack_from(">I", first.payload) == (8,)
    broker.files_back()


def test_a_path_through_a_record_of_many_small_values(broker: Besieged) -> None:
    """As values, this record would be 300 MB."""
    value = b'{"a":{"b":[' + b"[]," * 5_000_000 + b"[]]}}"
    with connected(broker) as wire:
        assert wire.asked(frame(CREATE_TOPIC, text(b"json") + struct.pack(">i", 1))).opcode == CREATE_TOPIC
        assert wire.asked(produce(b"json", value)).opcode == PRODUCE
        for path, found in ((b"$.a.b", 1), (b"$.b.a", 0)):
            for _ in range(3):
                reply = wire.asked(fetch(b"json", 0, 10, path))
                assert reply.opcode == FETCH and struct.unpack_from(">I", reply.payload) == (found,)
        assert wire.asked(frame(0x09, text(b"json"))).opcode == 0x09
        del reply
    broker.holds()


def test_an_expression_that_takes_seconds_holds_up_nobody(broker: Besieged) -> None:
    rng = seeded(1)
    value = bytes(rng.choices(b"ab", k=400_000))
    with connected(broker) as wire:
        assert wire.asked(produce(b"slow", value)).opcode == PRODUCE
        # Each takes 360 million steps, which is seconds: everybody else is done long before.
        with ExitStack() as stack:
            slow = [stack.enter_context(connected(broker)) for _ in range(4)]
            for one in slow:
                one.socket.sendall(fetch(b"slow", 0, 10, b"[ab]*a[ab]{900}c"))
            with Wire(broker.broker.endpoint("rustlog")) as other:
                for _ in range(5):
                    assert other.ask(JSON_PING) == b'{"type":"Pong"}'
            assert wire.asked(fetch(b"fly", 0, 1)).opcode == FETCH  # which comes without a filter
            assert select.select([one.socket for one in slow], [], [], 0)[0] == [], "it took no time at all"
            broker.others.served()
            for one in slow:
                one.socket.settimeout(10 * DEADLINE)
                assert one.reply() == Reply(FETCH, bytes(11) + b"\x01")
    broker.within_bound()


def test_logins_that_fail_take_no_more_than_their_share(tmp_path: Path) -> None:
    """Each of 100 connections tries passwords as fast as it can. Two are looked at at a time, and then none."""
    with besieged(tmp_path, security__lockout_failures="0") as one, ExitStack() as stack:
        wires = [stack.enter_context(connected(one)) for _ in range(100)]
        for wire in wires:
            wire.socket.sendall(frame(0x70, text(b"admin") + text(b"x" * 65_535)) * 3)
        one.holds()
        for wire in wires:
            for _ in range(3):
                assert wire.reply().opcode == 0x71
        one.holds()


def test_a_broker_that_was_attacked_stops_and_starts_again(tmp_path: Path) -> None:
    rng = seeded(11)
    with besieged(tmp_path) as one:
        with connected(one) as wire:
            assert wire.asked(produce(b"kept", b"v")).opcode == PRODUCE
        for _ in range(30):
            with connected(one) as wire:
                wire.socket.sendall(mutated(rng))
                time.sleep(0.001)
        one.holds()
    with BrokerProcess(tmp_path) as again, FlyWire(again.ready().endpoint("flymq")) as wire:
        kept = struct.pack(">IQQII", 1, 1, 0, 0, 1) + b"v"
        assert wire.asked(fetch(b"kept")) == Reply(FETCH, kept)
