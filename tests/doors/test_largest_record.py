"""The largest record that each door takes, at every door: what a frame can carry arrives as it was, and of what it
cannot, the reader is told the offset and gets what is behind it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.blipmq.peer import Peer as BlipMqPeer
from tests.doors.felix.peer import Binary
from tests.doors.felix.peer import Peer as FelixPeer
from tests.doors.felix.peer import original as felix_original
from tests.doors.flymq.peer import Peer as FlyMqPeer
from tests.doors.kimberlite.peer import Peer as KimberlitePeer
from tests.doors.rustlog.peer import Peer as RustLogPeer

from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ADMINISTRATOR, ANONYMOUS
from penstock.config.settings import Settings
from penstock.doors.kimberlite.handlers.streams import MAX_BYTES as MAX_APPEND
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.wire.blipmq import codec as blipmq
from penstock.wire.blipmq import frames as blipmq_frames
from penstock.wire.felix.codec.binary import Batch, decode_events, encode_batch
from penstock.wire.felix.codec.dialects import DOCUMENT, ORIGINAL
from penstock.wire.felix.frames import HEADER_SIZE
from penstock.wire.felix.frames import MAX_FRAME as FELIX_FRAME
from penstock.wire.flymq import messages as fm
from penstock.wire.flymq.codec import replies as flymq
from penstock.wire.flymq.codec.fetched_records import MAX_FETCHED
from penstock.wire.flymq.opcodes import MAX_PAYLOAD as FLYMQ_PAYLOAD
from penstock.wire.kimberlite import messages as km
from penstock.wire.kimberlite.codec.dialects import NAMED
from penstock.wire.kimberlite.frames import MAX_EVENT
from penstock.wire.rustlog import messages as rm
from penstock.wire.rustlog.codec.dialect import BINARY, JSON, Dialect

TOPIC = "t"
NAMES = ("default", "default", TOPIC)
BEFORE, BEHIND = b"before", b"behind"
BIG_AT = 1  # the offset of the largest record
KIMBERLITE = KimberliteSettings(tenants={42: "default"})

Read = tuple[list[bytes], str]
"""The values that a reader got, and what it was told of one that it did not get."""


# -- writers: the most that each can send, and how


def _rustlog(fixture: BrokerFixture, value: bytes, dialect: Dialect) -> None:
    assert isinstance(RustLogPeer(fixture, dialect).ask(rm.Produce(TOPIC, 0, [value])), rm.ProduceResponse)


def _blipmq(fixture: BrokerFixture, value: bytes, version: int) -> None:
    frame = blipmq.encode_publish(9, 1, TOPIC.encode(), value)
    assert len(frame) == 4 + blipmq_frames.MAX_FRAME
    assert BlipMqPeer(fixture, version).ask(frame) == [], "success is silent"


def _flymq(fixture: BrokerFixture, value: bytes) -> None:
    reply = FlyMqPeer(fixture).ask(fm.Produce(TOPIC, None, value))
    assert isinstance(reply, fm.RecordMetadata), reply


def _kimberlite(fixture: BrokerFixture, value: bytes) -> None:
    reply = _kimberlite_peer(fixture).ask(km.AppendEvents(_stream(fixture), [value], BIG_AT))
    assert isinstance(reply, km.AppendEventsResponse), reply


def _felix_document(fixture: BrokerFixture, value: bytes) -> None:
    request = {"type": "publish", **_named(), "payload": base64.b64encode(value).decode(), "ack": "per_message"}
    assert FelixPeer(fixture).stream().ask(request)["type"] == "ok"


def _felix_original(fixture: BrokerFixture, value: bytes) -> None:
    stream = felix_original(FelixPeer(fixture), "default")
    reply = stream.ask(encode_batch(Batch(*NAMES, [value], 5)))
    assert isinstance(reply, Binary) and reply.payload[0] == 0


def _named() -> dict[str, str]:
    return dict(zip(("tenant_id", "namespace", "stream"), NAMES, strict=True))


_DOCUMENT_PUBLISH = len(json.dumps({"type": "publish", **_named(), "payload": "", "ack": "per_message"}))
_ORIGINAL_PUBLISH = len(encode_batch(Batch(*NAMES, [b""], 5))) - HEADER_SIZE


@dataclass(frozen=True)
class Writer:
    size: int
    write: Callable[[BrokerFixture, bytes], None]


WRITERS = {
    "rustlog-json": Writer(JSON.max_record, lambda fixture, value: _rustlog(fixture, value, JSON)),
    "rustlog-binary": Writer(BINARY.max_record, lambda fixture, value: _rustlog(fixture, value, BINARY)),
    "blipmq-1": Writer(blipmq.DELIVERED_BYTES[1] - len(TOPIC), lambda fixture, value: _blipmq(fixture, value, 1)),
    "blipmq-2": Writer(blipmq.DELIVERED_BYTES[1] - len(TOPIC), lambda fixture, value: _blipmq(fixture, value, 2)),
    "flymq": Writer(FLYMQ_PAYLOAD - 14 - len(TOPIC), _flymq),
    "kimberlite": Writer(MAX_APPEND, _kimberlite),
    "felix-document": Writer((FELIX_FRAME - _DOCUMENT_PUBLISH) // 4 * 3, _felix_document),
    "felix-original": Writer(FELIX_FRAME - _ORIGINAL_PUBLISH, _felix_original),
}


# -- readers: the most that each can get, and how it reads from the first record to the end


def _fetch_rustlog(fixture: BrokerFixture, dialect: Dialect) -> Read:
    peer, at, values, notice = RustLogPeer(fixture, dialect), 0, list[bytes](), ""
    while at < 3:
        reply = peer.ask(rm.Fetch(TOPIC, 0, at, 1 << 30))
        if isinstance(reply, rm.Error):
            notice, at = reply.message, at + 1
            continue
        assert isinstance(reply, rm.FetchResponse) and reply.next_offset > at
        values += [record.payload for record in reply.records]
        at = reply.next_offset
    return values, notice


def _fetch_flymq(fixture: BrokerFixture, make: Callable[[int], Any]) -> Read:
    peer, at, values, notice = FlyMqPeer(fixture), 0, list[bytes](), ""
    while at < 3:
        reply = peer.ask(make(at))
        if isinstance(reply, fm.Failure):
            notice, at = reply.message, at + 1
        elif isinstance(reply, fm.Consumed):
            values.append(reply.value)
            at += 1
        else:
            assert isinstance(reply, fm.Fetched) and reply.next_offset > at, reply
            values += [record.value for record in reply.records]
            at = reply.next_offset
    return values, notice


def _read_kimberlite(fixture: BrokerFixture, dialect: str) -> Read:
    peer, at, values, notice = _kimberlite_peer(fixture, dialect), 0, list[bytes](), ""
    while at < 3:
        reply = peer.ask(km.ReadEvents(_stream(fixture), at, 1 << 30))
        if isinstance(reply, km.ErrorResponse):
            assert reply.code == km.ErrorCode.INVALID_OFFSET
            notice, at = reply.message, at + 1
            continue
        assert isinstance(reply, km.ReadEventsResponse) and reply.events
        values += reply.events
        at = 3 if reply.next_offset is None else reply.next_offset
    return values, notice


def _subscribe_kimberlite(fixture: BrokerFixture) -> Read:
    peer = _kimberlite_peer(fixture)
    peer.ask(km.Subscribe(_stream(fixture), 0, 100))
    pushes = [push for push in peer.pushed if isinstance(push, km.SubscriptionEvents)]
    assert len(pushes) == len(peer.pushed), "it is not closed"
    got = {push.start_offset + i for push in pushes for i in range(len(push.events))}
    missing = [offset for offset in range(3) if offset not in got]
    return [event for push in pushes for event in push.events], "".join(f"offset {offset}" for offset in missing)


def _kimberlite_peer(fixture: BrokerFixture, dialect: str = "5b") -> KimberlitePeer:
    return KimberlitePeer(fixture, dialect, settings=KIMBERLITE)


def _stream(fixture: BrokerFixture) -> int:
    return fixture.broker.topics.describe(ADMINISTRATOR, DEFAULT_SCOPE, TOPIC).topic.id


def _subscribe_felix(fixture: BrokerFixture, dialect: str) -> Read:
    peer = FelixPeer(fixture)
    stream = peer.stream() if dialect == "document" else felix_original(peer, "default")
    stream.feed({"type": "subscribe", **_named(), "start": "earliest"})
    (events,) = peer.line.opened
    assert events.reset_with is None and not events.closed
    values, notice, at = list[bytes](), "", 0
    for frame in events.replies()[1:]:
        if isinstance(frame, Binary):
            found = decode_events(frame.flags, frame.payload)
            assert found.base_offset is not None
            notice += "".join(f"offset {missing}" for missing in range(at, found.base_offset))
            at = found.base_offset + len(found.payloads)
            values += found.payloads
        elif frame["type"] == "error":
            notice = frame["message"]
        else:
            values += [base64.b64decode(each) for each in frame.get("payloads", [frame.get("payload")])]
    return values, notice


def _poll_blipmq(fixture: BrokerFixture, queue: int) -> Read:
    peer, values, notice = BlipMqPeer(fixture), list[bytes](), ""
    for number in range(3):
        peer.feed(blipmq.encode_poll(50 + number, queue))
        fixture.commit()
        ((kind, correlation, payload),) = peer.frames()
        if kind == blipmq_frames.NACK:
            code, notice = blipmq.decode_nack(payload) or (0, "")
            assert (correlation, code) == (50 + number, 413)
        else:
            values.append(_delivered(blipmq.decode_delivery(correlation, payload)))
    return values, notice


def _push_blipmq(fixture: BrokerFixture, queue: int) -> Read:
    """Version 2 has no word for it; the tags show that one is missing, and it is counted."""
    peer = BlipMqPeer(fixture, 2)
    peer.feed(blipmq.encode_poll(50, queue))
    fixture.commit()
    found = [(tag, _delivered(blipmq.decode_deliver(payload))) for _, tag, payload in peer.frames()]
    missing = {1, 2, 3} - {tag for tag, _ in found}
    return [value for _, value in found], "".join(f"offset {tag - 1}" for tag in missing)


def _delivered(message: Any) -> bytes:
    assert message is not None
    return bytes(message.value)


@dataclass(frozen=True)
class Reader:
    size: int
    read: Callable[[BrokerFixture, dict[int, int]], Read]


READERS = {
    "rustlog-json": Reader(JSON.max_record, lambda fixture, _: _fetch_rustlog(fixture, JSON)),
    "rustlog-binary": Reader(BINARY.max_record, lambda fixture, _: _fetch_rustlog(fixture, BINARY)),
    "blipmq-1": Reader(
        blipmq.DELIVERED_BYTES[1] - len(TOPIC), lambda fixture, queues: _poll_blipmq(fixture, queues[1])
    ),
    "blipmq-2": Reader(
        blipmq.DELIVERED_BYTES[2] - len(TOPIC), lambda fixture, queues: _push_blipmq(fixture, queues[2])
    ),
    "flymq-fetch": Reader(
        MAX_FETCHED, lambda fixture, _: _fetch_flymq(fixture, lambda at: fm.Fetch(TOPIC, 0, at, 10))
    ),
    "flymq-fetch-filter": Reader(
        MAX_FETCHED, lambda fixture, _: _fetch_flymq(fixture, lambda at: fm.Fetch(TOPIC, 0, at, 10, "b", True))
    ),
    "flymq-fetch-binary": Reader(
        MAX_FETCHED, lambda fixture, _: _fetch_flymq(fixture, lambda at: fm.FetchBinary(TOPIC, 0, at, 10))
    ),
    "flymq-consume": Reader(
        flymq.MAX_CONSUMED, lambda fixture, _: _fetch_flymq(fixture, lambda at: fm.Consume(TOPIC, 0, at))
    ),
    **{
        f"kimberlite-{dialect}": Reader(
            MAX_EVENT, lambda fixture, _, dialect=dialect: _read_kimberlite(fixture, dialect)  # type: ignore[misc]
        )
        for dialect in NAMED
    },
    "kimberlite-subscription": Reader(MAX_EVENT, lambda fixture, _: _subscribe_kimberlite(fixture)),
    "felix-document": Reader(
        DOCUMENT.largest_event(NAMES, None, FELIX_FRAME, offsets=True),
        lambda fixture, _: _subscribe_felix(fixture, "document"),
    ),
    "felix-original": Reader(
        ORIGINAL.largest_event(NAMES, 0x3F, FELIX_FRAME, offsets=True),
        lambda fixture, _: _subscribe_felix(fixture, "original"),
    ),
}  # fmt: skip


class Stored:
    """A topic with the largest record that a door takes between two small ones, and two queues of it."""

    def __init__(self, writer: Writer, *, restarted: bool) -> None:
        self.fixture = BrokerFixture()
        self.value = b"b" * writer.size
        self.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, TOPIC, 1)
        self.fixture.commit()
        self.queues = {version: BlipMqPeer(self.fixture).subscribe(TOPIC.encode()) for version in (1, 2)}
        _flymq(self.fixture, BEFORE)
        writer.write(self.fixture, self.value)
        _flymq(self.fixture, BEHIND)
        if restarted:
            self.fixture.restart()


@pytest.fixture(scope="module", params=[*WRITERS, "flymq, from disk"])
def stored(request: pytest.FixtureRequest) -> Stored:
    writer, _, place = request.param.partition(", ")
    return Stored(WRITERS[writer], restarted=place == "from disk")


@pytest.mark.parametrize("reader", READERS)
def test_the_largest_record_of_every_door_at_every_other(stored: Stored, reader: str) -> None:
    expected = READERS[reader]
    before = stored.fixture.broker.metrics.records_unsendable
    values, notice = expected.read(stored.fixture, stored.queues)
    fits = len(stored.value) <= expected.size
    due = [BEFORE, stored.value, BEHIND] if fits else [BEFORE, BEHIND]
    assert list(map(len, values)) == list(map(len, due))
    assert (values == due) is True, "not shown: they are long"
    assert (f"offset {BIG_AT}" in notice) is not fits
    assert stored.fixture.broker.metrics.records_unsendable - before == (not fits)
    assert stored.fixture.broker.metrics.internal_errors == 0


def test_no_record_is_too_large_for_a_frame_that_is_legal() -> None:
    """Each door's own largest message is below the broker's limit: that refuses nothing that a document allows."""
    assert max(writer.size for writer in WRITERS.values()) <= Limits().record_bytes == FLYMQ_PAYLOAD


# -- the pages of the protocols

PAGES = Path(__file__).parents[2] / "docs" / "protocols"
NAMELESS = ("", "", "")
_PUBLISH = '{"type":"publish","tenant_id":"","namespace":"","stream":"","payload":""}'

NAMED_LIMITS: dict[str, dict[str, int]] = {
    "rustlog": {
        "JSON, where Base64 makes it a third longer": JSON.max_record,
        "binary": BINARY.max_record,
    },
    "blipmq": {
        "PUBLISH without a TTL, and its delivery in version 1": blipmq.DELIVERED_BYTES[1],
        "DELIVER in version 2, which has a tag besides": blipmq.DELIVERED_BYTES[2],
    },
    "flymq": {
        "PRODUCE: key, value and the topic's name": WRITERS["flymq"].size + len(TOPIC),
        "CONSUME: key and value": flymq.MAX_CONSUMED,
        "FETCH: key and value": MAX_FETCHED,
    },
    "kimberlite": {
        "AppendEvents: all events together": MAX_APPEND,
        "ReadEvents and pushes": MAX_EVENT,
    },
    "felix": {
        "`0001`: a payload": FELIX_FRAME - len(encode_batch(Batch(*NAMELESS, [b""]))) + HEADER_SIZE,
        "`0009`: a payload": FELIX_FRAME - len(encode_batch(Batch(*NAMELESS, [b""], 1))) + HEADER_SIZE,
        "`publish`: a payload, in Base64": (FELIX_FRAME - len(_PUBLISH)) // 4 * 3,
        "`event`: an event, in Base64": DOCUMENT.largest_event(NAMELESS, None, FELIX_FRAME, offsets=True),
        "`0022`: an event": ORIGINAL.largest_event(NAMELESS, 0x22, FELIX_FRAME, offsets=True),
        "`0024`: an event": ORIGINAL.largest_event(NAMELESS, 0x24, FELIX_FRAME, offsets=True),
    },
}


@pytest.mark.parametrize("protocol", NAMED_LIMITS)
def test_the_page_of_a_protocol_names_the_limits_of_the_code(protocol: str) -> None:
    _, _, section = (PAGES / f"{protocol}.md").read_text().partition("## The largest record\n")
    section, _, _ = section.partition("\n## ")
    (limit,) = re.findall(r"has at most ([0-9,]+) bytes, `limits.record_bytes`", section)
    assert _number(limit) == Limits().record_bytes == Settings().limits.record_bytes
    rows = {label: _number(size) for label, size in re.findall(r"^\| (.+) \| ([0-9,]+) \|$", section, re.MULTILINE)}
    assert rows == NAMED_LIMITS[protocol]


def _number(text: str) -> int:
    return int(text.replace(",", ""))
