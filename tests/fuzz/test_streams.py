"""Streams of good and bad frames in both dialects, against a session over a real log in memory: how the bytes are cut
changes nothing, each frame gets one reply, and nothing is stored that was not acknowledged."""

from __future__ import annotations

import gc
import json
import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.rustlog.peer import Peer
from tests.fuzz.converse import converse as converse_with
from tests.fuzz.seeds import examples
from tests.fuzz.wire import (
    BINARY_PING,
    JSON_PING,
    MAX_FRAME,
    binary_create,
    binary_fetch,
    binary_produce,
    frame,
    json_request,
    split,
    string,
)

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS

EXAMPLES = examples(120)

# -- what is sent. Few names and small numbers, so that requests meet each other.

topics = st.sampled_from(["t", "u", "no-such"])
groups = st.sampled_from(["g", "h", ""])
partitions = st.sampled_from([0, 1, 2, 0xFFFFFFFF])
offsets = st.sampled_from([0, 1, 2, 5, 1 << 63, (1 << 64) - 1])
sizes = st.sampled_from([0, 1, 30, 1000, 0xFFFFFFFF])
values = st.lists(st.binary(max_size=40), max_size=5)


@st.composite
def binary_requests(draw: st.DrawFn) -> bytes:
    topic, group, partition = draw(topics).encode(), draw(groups).encode(), draw(partitions)
    place = string(topic) + struct.pack(">I", partition)
    kinds: list[Callable[[], bytes]] = [
        lambda: binary_produce(topic, partition, *draw(values)),
        lambda: binary_fetch(topic, partition, draw(offsets), draw(sizes), group),
        lambda: b"\x03" + string(group) + place + struct.pack(">Q", draw(offsets)),
        lambda: b"\x04" + string(group) + place,
        lambda: binary_create(topic, draw(st.sampled_from([0, 1, 3, 0xFFFFFFFF]))),
        lambda: b"\x06",
        lambda: b"\x07" + string(topic),
        lambda: b"\x08" + place,
        lambda: BINARY_PING,
    ]
    return draw(st.sampled_from(kinds))()


@st.composite
def json_requests(draw: st.DrawFn) -> bytes:
    place = {"topic": draw(topics), "partition": draw(partitions)}
    base64 = st.lists(st.sampled_from(["", "eA==", "eHg=", "eHh4", "eHh4eA=="]), max_size=5)
    kinds: list[Callable[[], bytes]] = [
        lambda: json_request("Produce", **place, records=draw(base64)),
        lambda: json_request("Fetch", **place, offset=draw(offsets), max_bytes=draw(sizes), group_id=draw(groups)),
        lambda: json_request("OffsetCommit", **place, offset=draw(offsets), group=draw(groups)),
        lambda: json_request("OffsetFetch", **place, group=draw(groups)),
        lambda: json_request("CreateTopic", topic=place["topic"], partition_count=draw(st.sampled_from([0, 1, 3]))),
        lambda: json_request("ListTopics"),
        lambda: json_request("DescribeTopic", topic=place["topic"]),
        lambda: json_request("DescribePartition", **place),
        lambda: JSON_PING,
    ]
    return draw(st.sampled_from(kinds))()


good = binary_requests() | json_requests()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good request that is cut short, lengthened, or has some bytes changed."""
    payload = bytearray(draw(good))
    match draw(st.sampled_from(["cut", "add", "change"])):
        case "cut":
            del payload[draw(st.integers(1, len(payload))) :]
        case "add":
            payload[(at := draw(st.integers(0, len(payload)))) : at] = draw(st.binary(min_size=1, max_size=8))
        case _:
            for at in draw(st.lists(st.integers(0, len(payload) - 1), min_size=1, max_size=4)):
                payload[at] = draw(st.integers(0, 255))
    return bytes(payload)


noise = st.binary(min_size=1, max_size=60)
endings = st.sampled_from(
    [b"", bytes(4), b"\xff" * 4, struct.pack(">I", MAX_FRAME + 1), struct.pack(">I", MAX_FRAME), b"\x00\x00\x01"]
)
cuts = st.lists(st.integers(0, 1 << 16), max_size=12)


# -- what comes of it


@contextmanager
def no_complaints() -> Iterator[None]:
    """Bad input is no event for the operator: nothing is logged that an operator would see by default."""
    seen: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name != "penstock.server.watchdog":  # which finds a busy machine, not bad input
                seen.append(record.getMessage())

    handler = Collector(logging.WARNING)
    logging.getLogger("penstock").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("penstock").removeHandler(handler)
    assert seen == []


def fixture_with_records() -> BrokerFixture:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 2)
    fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"first", b"second"])
    fixture.broker.groups.commit(ANONYMOUS, DEFAULT_SCOPE, "g", "t", 0, 1)
    fixture.commit()
    return fixture


def stored(fixture: BrokerFixture) -> list[bytes]:
    """Everything that a client can see of what is stored, as the replies to a fixed list of questions."""
    peer = Peer(fixture)
    asked = [json_request("ListTopics")]
    for topic in ("t", "u"):
        asked.append(json_request("DescribeTopic", topic=topic))
        for partition in (0, 1, 2):
            asked.append(json_request("Fetch", topic=topic, partition=partition, offset=0, max_bytes=1 << 20))
            place = {"topic": topic, "partition": partition}
            asked += [json_request("OffsetFetch", group=group, **place) for group in ("g", "h")]
    peer.session.receive(b"".join(map(frame, asked)))
    fixture.commit()
    return peer.payloads()


def converse(
    fixture: BrokerFixture, stream: bytes, pieces: Sequence[int] = (), commits: Sequence[bool] = ()
) -> list[bytes]:
    return list(split(converse_with(Peer(fixture), fixture, stream, pieces, commits)))


def is_error(reply: bytes) -> bool:
    return reply[0] == 0xFE or (reply[:1] == b"{" and json.loads(reply)["type"] == "Error")


def acknowledges_a_write(reply: bytes) -> bool:
    """Whether the reply says that something was stored. By hand, from the document and the reference."""
    if reply[:1] == b"{":
        said: dict[str, Any] = json.loads(reply)
        if said["type"] == "ProduceResponse":
            return bool(said["record_count"])
        return said["type"] in ("OffsetCommitResponse", "CreateTopicResponse") and bool(said["success"])
    if reply[0] == 0x01:
        return reply[-4:] != bytes(4)
    return reply[0] in (0x03, 0x05)


@EXAMPLES
@given(st.lists(good | damaged() | noise, max_size=12), endings, cuts, st.lists(st.booleans(), max_size=12))
def test_how_a_stream_is_cut_changes_neither_replies_nor_state(
    payloads: list[bytes], ending: bytes, pieces: list[int], commits: list[bool]
) -> None:
    stream = b"".join(map(frame, payloads)) + ending
    with no_complaints():
        whole, cut = fixture_with_records(), fixture_with_records()
        # A MetricsFetch, which noise may turn into, tells figures that move with every piece.
        replies = [reply for reply in converse(whole, stream) if not tells_metrics(reply)]
        assert [reply for reply in converse(cut, stream, pieces, commits) if not tells_metrics(reply)] == replies
        assert stored(whole) == stored(cut)
        whole.restart()
        assert stored(whole) == stored(cut)


def tells_metrics(reply: bytes) -> bool:
    return reply[0] == 0x09 or reply.startswith(b'{"type":"MetricsFetchResponse"')


@examples(40)
@given(st.lists(good | damaged(), min_size=1, max_size=6))
def test_a_byte_at_a_time_is_as_good_as_all_at_once(payloads: list[bytes]) -> None:
    stream = b"".join(map(frame, payloads))
    with no_complaints():
        replies = [reply for reply in converse(fixture_with_records(), stream) if not tells_metrics(reply)]
        single = converse(fixture_with_records(), stream, range(len(stream)))
        assert [reply for reply in single if not tells_metrics(reply)] == replies


@EXAMPLES
@given(st.lists(good | damaged() | noise, max_size=12))
def test_every_frame_gets_one_reply_up_to_the_first_violation(payloads: list[bytes]) -> None:
    with no_complaints():
        replies = converse(fixture_with_records(), b"".join(map(frame, payloads)))
        assert len(replies) <= len(payloads)
        if len(replies) < len(payloads):
            # Only JSON that cannot be parsed ends a connection, and its error is the last thing said.
            assert json.loads(replies[-1])["code"] == 400
            assert unparsable(payloads[len(replies) - 1])
        assert not any(unparsable(payload) for payload in payloads[: len(replies) - 1])


def unparsable(payload: bytes) -> bool:
    """Whether a payload begins as JSON does, and is none. Told by the standard library."""
    looks_like_json = 0x20 <= payload[0] <= 0x7E or payload[0] in b"\r\n"
    if payload[0] == 0x09:
        looks_like_json = payload.lstrip(b" \t\r\n")[:1] == b"{"
    if not looks_like_json:
        return False
    try:
        json.loads(payload.decode(), parse_constant=_refuse)
    except ValueError:
        return True
    return False


def _refuse(constant: str) -> None:
    raise ValueError(constant)


@EXAMPLES
@given(st.lists(damaged() | noise, max_size=12), cuts)
def test_nothing_is_stored_that_was_not_acknowledged(payloads: list[bytes], pieces: list[int]) -> None:
    fixture = fixture_with_records()
    before = stored(fixture)
    with no_complaints():
        replies = converse(fixture, b"".join(map(frame, payloads)), pieces)
    if not any(map(acknowledges_a_write, replies)):
        assert stored(fixture) == before


@EXAMPLES
@given(st.binary(max_size=300), cuts)
def test_junk_without_frames_is_never_more_than_an_error(junk: bytes, pieces: list[int]) -> None:
    fixture = fixture_with_records()
    before = stored(fixture)
    with no_complaints():
        replies = converse(fixture, junk, pieces)
    if not any(map(acknowledges_a_write, replies)):
        assert stored(fixture) == before
    assert not any(is_error(reply) and b"nternal server error" in reply for reply in replies)


@EXAMPLES
@given(st.lists(good | damaged() | noise, min_size=1, max_size=12), cuts, st.integers(0, 1 << 16))
def test_a_connection_that_breaks_anywhere_leaves_whole_requests_or_nothing(
    payloads: list[bytes], pieces: list[int], end: int
) -> None:
    stream = b"".join(map(frame, payloads))
    stream = stream[: end % (len(stream) + 1)]
    lost, whole = fixture_with_records(), fixture_with_records()
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


@pytest.mark.parametrize(
    "payload",
    [
        b'{"x":' + b"[" * 5000,
        b"{",
        b'{"x":"\xff"}',
        b"[]",
        b'{"type":"Delete"}',
        b'{"type":"Fetch"}',
        json_request("Produce", topic="no-such", partition=0, records=["eA=="]),
        json_request("CreateTopic", topic="t", partition_count=1),
        b"\x01",
        b"\x80",
        binary_produce(b"no-such", 0, b"v"),
        binary_create(b"u", 0),
    ],
)
def test_a_refused_request_is_let_go_at_once(payload: bytes) -> None:
    """An error that held on to its request until the next garbage collection would cost 10 MiB a frame till then."""
    peer = Peer(fixture_with_records())
    gc.collect()
    gc.disable()
    try:
        peer.session.receive(frame(payload))
        assert is_error(peer.payloads()[0])
        assert gc.collect() == 0
    finally:
        gc.enable()
