"""A connection and its streams from the first frame to the last: dialects, order, violations, ends."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, LaterScheduler, later
from tests.doors.felix.peer import NAMES, TENANT, Peer, Stream, ack, auth, batch, frame, original, publish, values

from penstock.broker.limits import Limits
from penstock.broker.names import Scope
from penstock.broker.runtime.turns import MAX_PER_TURN
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy, Grant, Identity, Permission
from penstock.doors.felix.connection import MAX_TENANTS, ViolationLog
from penstock.doors.felix.handlers.table import HANDLERS
from penstock.doors.felix.produce_batch import PUBLICATIONS, ProduceBatch
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.felix.session import felix_door
from penstock.doors.handlers import writes
from penstock.doors.reply import Reply
from penstock.wire.felix import messages as m
from penstock.wire.felix.messages import Request

OK = {"type": "ok"}


@pytest.fixture
def peer(fixture: BrokerFixture) -> Peer:
    return Peer(fixture)


def header(magic: bytes = b"FLX1", version: int = 1, flags: int = 0, length: int = 0) -> bytes:
    return struct.pack(">4sHHI", magic, version, flags, length)


def error(reply: Any) -> str:
    assert reply["type"] == "error", reply
    text = reply["message"]
    assert isinstance(text, str)
    return text


def test_every_request_has_an_operation() -> None:
    asked = set(Request.__args__) | {m.CachePut, m.CacheGet, m.CacheDelete, m.CacheCas, m.CacheIncrement}
    assert set(HANDLERS) | set(PUBLICATIONS) >= asked
    assert ProduceBatch in HANDLERS


# -- which dialect a stream speaks (row 1)


def test_a_stream_that_begins_with_auth_speaks_as_the_original_does(peer: Peer) -> None:
    stream = peer.stream()
    assert stream.ask(auth(client_flags=25)) == {"type": "auth_ok", "server_flags": 25}
    assert stream.ask(publish(b"x", 7)) == {"type": "publish_ok", "request_id": 7}


def test_without_client_flags_auth_is_answered_by_ok_alone(peer: Peer) -> None:
    stream = peer.stream()
    stream.feed(auth(client_flags=None))
    assert b"".join(stream.sent) == bytes.fromhex("464c5831000100000000000d") + b'{"type":"ok"}'


def test_any_other_stream_speaks_as_the_document_says(peer: Peer) -> None:
    stream = peer.stream()
    assert stream.ask(publish(b"x", ack="per_message")) == OK
    assert stream.ask(publish(b"y", "seven", ack="per_message")) == {**OK, "request_id": "seven"}


def test_the_streams_of_a_connection_have_each_their_own_dialect(peer: Peer) -> None:
    first, second = original(peer), peer.stream()
    assert second.ask(publish(b"x", 3)) == {**OK, "request_id": 3}
    assert first.ask(publish(b"y", 3)) == {"type": "publish_ok", "request_id": 3}


def test_a_frame_that_cannot_be_read_decides_too(peer: Peer) -> None:
    stream = peer.stream()
    assert error(stream.ask(frame(b"{")))
    assert "first frame" in error(stream.ask(auth()))
    assert stream.finished


def test_auth_is_said_once(peer: Peer) -> None:
    stream = original(peer)
    assert error(stream.ask(auth())) == "auth already established"
    assert stream.finished


def test_auth_required_if_configured(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, FelixSettings(require_auth=True))
    stream = peer.stream()
    (reply,) = stream.all(publish(b"x"), publish(b"y"), {"type": "cache_get", "key": "k"})
    assert error(reply) == "auth required"
    assert stream.finished
    assert original(peer).ask(publish(b"x", 1))["type"] == "publish_ok"
    assert values(fixture) == [b"x"]


def test_a_tenant_with_a_name_that_no_tenant_has_is_refused(peer: Peer) -> None:
    stream = peer.stream()
    assert error(stream.ask(auth("no/tenant"))).startswith("auth failed: Tenant name 'no/tenant'")
    assert stream.finished


# -- request ids come back as they came (rows 2, 3, 4, 11)


@pytest.mark.parametrize("request_id", ["a", "", "7", 0, 7, (1 << 64) - 1])
def test_ids_of_the_document_are_echoed_with_their_type(peer: Peer, request_id: object) -> None:
    stream = peer.stream()
    assert stream.ask(publish(b"x", request_id)) == {**OK, "request_id": request_id}
    refused = stream.ask(publish(b"x", request_id, tenant_id="no/tenant"))
    assert refused["request_id"] == request_id
    assert error(refused)


def test_the_original_wants_an_id_for_what_is_acknowledged(peer: Peer) -> None:
    stream = original(peer)
    assert error(stream.ask(publish(b"x"))) == "missing request_id for acked publish"
    one = {"type": "publish_batch", **NAMES, "payloads": ["eA=="], "ack": "per_batch"}
    assert error(stream.ask(one)) == "missing request_id for acked publish batch"
    assert stream.ask(publish(b"y", 1))["type"] == "publish_ok"
    assert values(stream.line.fixture) == [b"y"]


def test_absent_ack_is_acknowledged_and_none_is_not(peer: Peer) -> None:
    """Row 18."""
    for stream in (peer.stream(), original(peer)):
        acked = [reply["request_id"] for reply in stream.all(publish(b"a", 1), publish(b"b", 2, ack="none"))]  # type: ignore[call-overload]
        assert acked == [1]


# -- what cannot be understood (rows 12, 13, 14, 15)


@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b"null", b'{"type":"dance"}', b'{"type":"publish"}', b"\xff\xfe"])
def test_bad_json_is_answered_and_the_stream_goes_on(peer: Peer, bad: bytes) -> None:
    for stream in (peer.stream(), original(peer)):
        first, second = stream.all(frame(bad), publish(b"x", 1))
        assert error(first)
        assert second["request_id"] == 1  # type: ignore[call-overload]
    assert peer.line.aborted is None


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x01t\x00\x01n\x00\x01s\xff\xff\xff\xff"])
def test_a_bad_batch_is_answered_and_the_stream_goes_on(peer: Peer, body: bytes) -> None:
    first, second = peer.stream().all(frame(body, 0x0001), publish(b"x", 1))
    assert error(first).startswith("malformed publish batch")
    assert second["request_id"] == 1  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "bad",
    [
        frame(b"", 0x0001), frame(b"\x00", 0x0041), batch(b"x", extra=0x8000), batch(b"x", extra=0x0040),
        frame(publish(b"x", 1) | {"ack": "none", "payload": "!"}), frame({"type": "publish_batch", "ack": "none"}),
    ],
    ids=["empty", "keyed", "unknown flag", "no key", "base64", "fields"],
)  # fmt: skip
def test_an_error_that_nobody_awaits_is_never_taken_for_the_answer_to_another_request(peer: Peer, bad: bytes) -> None:
    """The original's clients take any error on the stream for the answer to what they wait for. So they get none; the
    stream ends, nothing behind it is stored, and what was before it is acknowledged."""
    stream = original(peer, client_flags=0x7F)
    assert stream.all(publish(b"before", 1), bad, publish(b"behind", 2)) == [{"type": "publish_ok", "request_id": 1}]
    assert stream.finished
    assert values(peer.fixture) == [b"before"]
    assert peer.line.aborted is None


def test_a_bad_publication_that_wants_an_acknowledgement_gets_its_own(peer: Peer) -> None:
    stream = original(peer, client_flags=0x7F)
    replies = stream.all(publish(b"x", 1) | {"payload": "!"}, batch(b"x", request_id=2, extra=0x8000), publish(b"y", 3))
    assert replies[0] == {
        "type": "publish_error", "request_id": 1, "message": "field 'payload': invalid base64 encoded string",
    }  # fmt: skip
    assert replies[1:] == [ack(2, "unsupported frame flags"), {"type": "publish_ok", "request_id": 3}]


def test_a_request_of_an_unknown_type_is_told_as_the_client_reads_it(peer: Peer) -> None:
    request = {"type": "group_poll", "request_id": 5, "tenant_id": "t1"}
    said = {"type": "error", "request_id": 5, "message": "unknown message type 'group_poll'"}
    assert original(peer).ask(request) == said
    stream = peer.stream()
    assert stream.ask(auth() | {"client_features": 0x2000}) == {
        "type": "auth_ok", "server_flags": 63, "server_features": 0x2000,
    }  # fmt: skip
    assert stream.ask(request) == {"type": "unsupported", "request_type": "group_poll", "request_id": 5}
    assert stream.ask(publish(b"x", 6)) == {"type": "publish_ok", "request_id": 6}


@pytest.mark.parametrize("kind", ["producer_init", "publish_idempotent", "publish_if"])
def test_idempotent_producers_are_refused_in_words_and_nothing_is_stored(peer: Peer, kind: str) -> None:
    request = publish(b"x", 5) | {"type": kind, "producer_id": 7, "sequence": 0, "expected_offset": 0}
    said = {"type": "error", "request_id": 5, "message": f"unknown message type '{kind}'"}
    assert original(peer).ask(request) == said
    stream = peer.stream()
    stream.ask(auth() | {"client_features": 0x2000})
    assert stream.ask(request) == {"type": "unsupported", "request_type": kind, "request_id": 5}
    assert stream.ask(publish(b"y", 6)) == {"type": "publish_ok", "request_id": 6}
    assert values(peer.fixture) == [b"y"]


def test_a_batch_that_says_who_published_it_is_refused_in_words(peer: Peer) -> None:
    """Flag 0x2000 is not among those that the broker tells, also if the client offers it."""
    stream = original(peer, client_flags=0x2009)
    assert stream.ask(batch(b"x", request_id=4, extra=0x2000)) == ack(4, "unsupported frame flags")
    assert stream.ask(batch(b"y", request_id=5)) == ack(5)
    assert values(peer.fixture) == [b"y"]


def test_a_bad_batch_with_an_id_is_answered_in_binary(peer: Peer) -> None:
    reply = original(peer).ask(frame(struct.pack(">QB", 9, 2) + b"\x00", 0x0009))
    assert reply.flags == 0x0010
    assert reply.payload[:9] == b"\x01" + (9).to_bytes(8)
    assert b"malformed publish batch" in reply.payload


@pytest.mark.parametrize("flags", [0x0002, 0x0008, 0x0010, 0x0040, 0x8000, 0xFFFE])
def test_unknown_flags_are_ignored_by_the_document(peer: Peer, flags: int) -> None:
    stream = peer.stream()
    assert stream.ask(frame(publish(b"x"), flags)) == OK
    stream.feed(batch(b"y", extra=flags))
    assert stream.ask(publish(b"z")) == OK
    assert values(peer.fixture) == [b"x", b"y", b"z"]


@pytest.mark.parametrize("flags", [0x0002, 0x0008, 0x0010, 0x0040, 0x2000, 0x8000])
def test_unknown_flags_are_refused_in_the_originals_dialect(peer: Peer, flags: int) -> None:
    stream = original(peer)
    first, second = stream.all(frame(publish(b"x", 1), flags), publish(b"y", 2))
    assert error(first) == "unsupported frame flags"
    assert second == {"type": "publish_ok", "request_id": 2}
    assert values(peer.fixture) == [b"y"]


@pytest.mark.parametrize("offered", [None, 0, 7, 0x37])
def test_binary_acknowledgements_only_for_who_has_offered_them(peer: Peer, offered: int | None) -> None:
    """Row 20."""
    stream = original(peer, client_flags=offered)
    assert error(stream.ask(batch(b"x", request_id=4))) == "unsupported frame flags"
    assert original(peer, client_flags=0x18).ask(batch(b"x", request_id=4)) == ack(4)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (header(b"HTTP"), 1),
        (header(b"GET "), 1),
        (b"G", 1),
        (header(version=2), 2),
        (header(version=0), 2),
        (header(length=(16 << 20) + 1), 3),
        (header(length=0xFFFFFFFF), 3),
    ],
)
@pytest.mark.parametrize("speaks", ["document", "original", "uni"])
def test_a_malformed_header_closes_the_connection(fixture: BrokerFixture, bad: bytes, code: int, speaks: str) -> None:
    peer = Peer(fixture)
    stream = original(peer) if speaks == "original" else peer.stream(uni=speaks == "uni")
    other = peer.stream()
    other.feed(publish(b"of another stream"))
    stream.feed(publish(b"before it", 1, ack="none"), bad)
    assert peer.line.aborted is not None
    assert peer.line.aborted[0] == code
    fixture.commit()
    assert values(fixture) == [b"of another stream", b"before it"]
    assert Peer(fixture).stream().ask(publish(b"of another connection")) == OK


def test_violations_are_logged_once_a_minute_for_each_host(
    fixture: BrokerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    door = felix_door(FelixSettings())
    with caplog.at_level(logging.WARNING, logger="penstock.doors.felix"):
        for port in range(5):
            Peer(fixture, port=port, door=door).stream().feed(b"GET / HTTP/1.1\r\n")
        assert len(caplog.records) == 1
        assert "127.0.0.1" in caplog.text
        fixture.pass_time(61)
        Peer(fixture, door=door).stream().feed(b"GET / HTTP/1.1\r\n")
        assert len(caplog.records) == 2


def test_complaints_are_bounded_and_survive_a_clock_that_goes_back() -> None:
    complaints = ViolationLog()
    for number in range(2000):
        complaints.due(f"host {number}", 1_000_000_000)
    assert len(complaints._when) == 1000
    assert not complaints.due("host 0", 1_000_000_001)
    assert complaints.due("host 0", 1)


# -- ends


@pytest.mark.parametrize("cut", [1, 4, 11])
def test_the_end_inside_a_header_is_a_clean_end(peer: Peer, cut: int) -> None:
    for stream in (peer.stream(), original(peer)):
        stream.feed(publish(b"x", 1), frame(b"{}")[:cut])
        stream.end()
        peer.fixture.commit()
        assert [reply["request_id"] for reply in stream.replies()] == [1]  # type: ignore[call-overload]
        assert stream.finished


@pytest.mark.parametrize("cut", [12, 13, 40])
def test_the_end_inside_a_payload_is_told(peer: Peer, cut: int) -> None:
    for stream in (peer.stream(), original(peer)):
        stream.feed(publish(b"x", 1), frame(publish(b"y", 2))[:cut])
        stream.end()
        peer.fixture.commit()
        first, second = stream.replies()
        assert first["request_id"] == 1  # type: ignore[call-overload]
        assert "midst of a frame" in error(second)
        assert stream.finished
    assert peer.line.aborted is None


def test_our_end_follows_the_clients_and_all_replies(peer: Peer) -> None:
    stream = original(peer)
    stream.feed(publish(b"x", 1))
    stream.end()
    assert not stream.finished
    assert stream.replies() == []
    peer.fixture.commit()
    assert stream.replies() == [{"type": "publish_ok", "request_id": 1}]
    assert stream.finished


def test_a_shutdown_answers_what_was_accepted(peer: Peer) -> None:
    stream, quiet, uni = original(peer), peer.stream(), peer.stream(uni=True)
    stream.feed(publish(b"x", 1), frame(publish(b"y", 2))[:40])
    uni.feed(batch(b"z"))
    peer.stop()
    assert quiet.finished
    assert not stream.finished
    assert not uni.finished
    peer.fixture.commit()
    assert stream.replies() == [{"type": "publish_ok", "request_id": 1}]
    assert stream.finished
    assert uni.finished
    assert peer.stream().finished  # one that came too late


def test_a_connection_that_is_lost_leaves_what_was_accepted(peer: Peer) -> None:
    stream = original(peer)
    stream.feed(publish(b"x", 1), frame(publish(b"y", 2))[:40])
    peer.line.lose()
    peer.fixture.commit()
    assert stream.replies() == []
    assert values(peer.fixture) == [b"x"]
    assert stream.session.held_bytes == 0


def test_who_wants_no_replies_is_not_answered(peer: Peer) -> None:
    stream = original(peer)
    stream.feed(publish(b"x", 1))
    stream.session.refused(0)
    peer.fixture.commit()
    assert stream.replies() == []
    assert (stream.refused_with, stream.finished) == (0, True)
    assert values(peer.fixture) == [b"x"]


# -- order, and whose turn it is


def waiting(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[Any], None]]:
    """Makes `cache_get` an answer that takes its time; the list gets what gives it."""
    given: list[Callable[[Any], None]] = []

    class Slow:
        def start(self, done: Callable[[Any], None]) -> None:
            given.append(done)

        def cancel(self) -> None:
            given.append(lambda _: None)

    monkeypatch.setitem(HANDLERS, m.CacheGet, writes(lambda _context, _request: Slow()))
    return given


GET = {"type": "cache_get", "request_id": 1, "key": "k"}


def test_what_takes_its_time_is_waited_for(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    given = waiting(monkeypatch)
    stream = peer.stream()
    assert stream.all(GET, publish(b"x", 2)) == []
    given[0](Reply(frame({"type": "cache_value", "request_id": 1})))
    peer.fixture.commit()
    assert [reply["request_id"] for reply in stream.replies()] == [1, 2]  # type: ignore[call-overload]


def test_what_fails_late_is_told(peer: Peer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    given = waiting(monkeypatch)
    stream = peer.stream()
    stream.feed(GET)
    given[0](RuntimeError("a bug"))
    (reply,) = stream.replies()
    assert error(reply) == "internal error"
    assert stream.finished
    assert "a bug" in caplog.text


def test_what_takes_its_time_is_called_off_with_the_stream(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    given = waiting(monkeypatch)
    stream = peer.stream()
    stream.feed(GET)
    stream.session.lost()
    assert len(given) == 2
    given[0](Reply(b"too late"))
    assert stream.replies() == []


def test_a_mistake_of_ours_is_logged_once_and_ends_the_stream_only(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_call: object, _run: object) -> Reply:
        raise RuntimeError("a bug")

    stream, other = original(peer), original(peer)
    with monkeypatch.context() as patch:
        patch.setitem(HANDLERS, ProduceBatch, writes(broken))
        replies = stream.all(publish(b"x", 1), publish(b"y", 2))
    assert replies == [{"type": "publish_error", "request_id": n, "message": "internal error"} for n in (1, 2)]
    assert stream.finished
    assert len(caplog.records) == 1
    assert other.ask(publish(b"z", 3))["type"] == "publish_ok"


def test_others_have_a_turn_after_a_stretch_of_requests() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(executor=later(calls), scheduler=LaterScheduler(calls))
    stream = Peer(fixture).stream()
    stream.feed(*[frame(b"{")] * (MAX_PER_TURN + 10))
    assert len(stream.replies()) == MAX_PER_TURN
    (work, done) = calls.pop()
    work()
    done()
    assert len(stream.replies()) == 10
    assert calls == []


def test_large_requests_take_turns_sooner() -> None:
    calls: list[Any] = []
    stream = Peer(BrokerFixture(executor=later(calls), scheduler=LaterScheduler(calls))).stream()
    stream.feed(*[frame(b" " * (256 << 10))] * 8)
    assert len(stream.replies()) == 4  # a MiB of JSON
    (_, done) = calls.pop()
    done()
    assert len(stream.replies()) == 4


def test_publications_of_one_input_take_turns_too() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(executor=later(calls), scheduler=LaterScheduler(calls))
    stream = Peer(fixture).stream()
    stream.feed(*[publish(b"x", number) for number in range(MAX_PER_TURN + 10)])
    fixture.commit()
    assert len(stream.replies()) == MAX_PER_TURN
    (_, done) = calls.pop()
    done()
    fixture.commit()
    assert [reply["request_id"] for reply in stream.replies()] == list(range(MAX_PER_TURN, MAX_PER_TURN + 10))  # type: ignore[call-overload]


def test_a_client_that_takes_no_replies_is_not_served_without_end(peer: Peer) -> None:
    stream = peer.stream()
    stream.limit = 1000
    for _ in range(100):
        stream.feed(*[frame(b'{"type":"' + b"x" * 1000 + b'"}')] * 100)
    sent, held = sum(map(len, stream.sent)), stream.session.held_bytes
    assert sent < 1 << 16  # of more than a million bytes of errors
    assert held > 1 << 20  # so `net` stops reading
    count = len(stream.drain())
    while (more := len(stream.drain())) > 0:
        count += more
    assert count == 10_000
    assert stream.session.held_bytes == 0


def test_what_a_slow_disk_has_not_stored_is_held(peer: Peer) -> None:
    for stream in (peer.stream(), original(peer), peer.stream(uni=True)):
        stream.feed(batch(b"x" * 100_000), publish(b"y" * 1000, ack="none"))
        assert stream.session.held_bytes >= 101_000
        progressed = stream.progressed
        peer.fixture.commit()
        assert stream.session.held_bytes == 0
        assert stream.progressed > progressed


# -- the tenants of a connection


def test_a_connection_counts_once_for_each_of_its_tenants(fixture: BrokerFixture) -> None:
    first, second = Peer(fixture), Peer(fixture)
    for _ in range(3):
        original(first)
        original(first, "t2")
        first.stream().ask(publish(b"x"))
    original(second)
    rate_limits = fixture.broker.rate_limits
    assert (rate_limits.connections("t1"), rate_limits.connections("t2")) == (2, 1)
    first.line.lose()
    assert (rate_limits.connections("t1"), rate_limits.connections("t2")) == (1, 0)
    second.line.lose()
    assert rate_limits.connections("t1") == 0


def test_a_connection_that_goes_through_many_tenants_is_bounded(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, FelixSettings(auto_create_tenants=False))
    stream = peer.stream()
    for number in range(MAX_TENANTS + 5):
        stream.feed(publish(b"x", tenant_id=f"tenant-{number}"))
    rate_limits = fixture.broker.rate_limits
    assert len(rate_limits._connections) == MAX_TENANTS
    assert rate_limits.connections("tenant-4") == 0
    peer.line.lose()
    assert rate_limits._connections == {}


def test_a_tenant_with_too_many_connections_gets_no_more() -> None:
    fixture = BrokerFixture(limits=Limits(tenant_connections=1))
    first = Peer(fixture)
    original(first)
    second = Peer(fixture)
    stream = second.stream()
    assert "has 1 connections" in error(stream.ask(auth()))
    assert stream.finished
    asked = second.stream()
    assert error(asked.ask(publish(b"x"))).startswith("server overloaded: ")
    first.line.lose()
    assert asked.ask(publish(b"x")) == OK


def test_who_may_do_nothing_in_a_tenant_takes_nothing_from_it() -> None:
    fixture = BrokerFixture(access=AccessPolicy(enforced=True), limits=Limits(tenant_connections=1, tenant_requests=1))
    stream = Peer(fixture).stream()
    for _ in range(3):
        assert error(stream.ask(publish(b"x"))).startswith("unauthorized")
    assert fixture.broker.rate_limits.connections(TENANT) == 0


def test_who_may_not_use_a_stream_does_not_learn_whether_it_is_a_partition() -> None:
    grants = [ADMINISTRATION, Grant("bob", frozenset({Permission.DESCRIBE}))]
    fixture = BrokerFixture(access=AccessPolicy(enforced=True, grants=grants))
    stream = Peer(fixture, identity=Identity("bob")).stream()

    def told() -> list[str]:
        asked = publish(b"x", stream="orders#1"), {"type": "subscribe", **NAMES, "stream": "orders#1"}
        return [error(stream.ask(each)) for each in asked]

    before = told()
    fixture.broker.topics.create(ADMINISTRATOR, Scope(TENANT, "default"), "orders", 3)
    assert told() == before


def test_a_tenant_that_asks_too_much_is_told(fixture: BrokerFixture) -> None:
    fixture = BrokerFixture(limits=Limits(tenant_requests=3))
    stream = Peer(fixture).stream()
    replies: Any = stream.all(*[publish(b"%d" % number, number) for number in range(5)])
    assert [reply["type"] for reply in replies] == ["ok"] * 3 + ["error"] * 2
    assert replies[3]["message"].startswith("server overloaded: Tenant 't1' sends more than 3 requests")
    assert values(fixture) == [b"0", b"1", b"2"]
    fixture.pass_time(1)
    assert stream.ask(publish(b"5")) == OK


def test_the_tenant_of_a_request_is_that_of_the_stream(peer: Peer) -> None:
    stream = original(peer)
    refused = stream.ask(publish(b"x", 1, tenant_id="t2"))
    assert refused == {"type": "publish_error", "request_id": 1, "message": "tenant mismatch"}
    assert stream.ask(batch(b"x", request_id=2, tenant="t2")) == ack(2, "tenant mismatch")
    assert error(stream.ask({"type": "subscribe", **NAMES, "tenant_id": "t2"})) == "tenant mismatch"
    assert stream.ask(publish(b"x", 3))["type"] == "publish_ok"


@pytest.mark.parametrize("size", [1, 2, 7, 13])
def test_frames_may_come_in_any_pieces(peer: Peer, size: int) -> None:
    stream = peer.stream()
    data = frame(auth()) + b"".join(frame(publish(b"x" * 30, number)) for number in range(3))
    for at in range(0, len(data), size):
        stream.session.receive(data[at : at + size])
    peer.fixture.commit()
    assert [reply["type"] for reply in stream.replies()] == ["auth_ok"] + ["publish_ok"] * 3  # type: ignore[call-overload]


# -- streams on which only the client sends (row 19)


def taken(stream: Stream) -> bool:
    return stream.refused_with is None and not stream.finished


def test_a_stream_without_replies_takes_publications(peer: Peer) -> None:
    """In every form, acknowledged or not: nobody can be told."""
    bare, said = peer.stream(uni=True), peer.stream(uni=True)
    bare.feed(publish(b"1"), batch(b"2", b"3"), publish(b"4", ack="none"))
    said.feed(auth(), batch(b"5", request_id=9), publish(b"6", 9), publish(b"7"), batch())
    peer.fixture.commit()
    assert taken(bare)
    assert not taken(said)  # `publish` without an id
    assert values(peer.fixture) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    bare.end()
    assert bare.finished


@pytest.mark.parametrize(
    "bad",
    [
        frame(b"{"),
        frame({"type": "subscribe", **NAMES}),
        frame({"type": "cache_get", "key": "k"}),
        frame(b"", 0x0001),
        frame(auth()),
    ],
)
def test_what_has_no_business_there_ends_it_quietly(peer: Peer, bad: bytes) -> None:
    stream = peer.stream(uni=True)
    stream.feed(batch(b"x"), bad, batch(b"y"))
    assert stream.refused_with == 0
    assert not stream.finished  # what came before is not stored yet
    peer.fixture.commit()
    assert stream.finished
    assert values(peer.fixture) == [b"x"]
    assert peer.line.aborted is None


def test_a_publication_that_cannot_be_stored_is_dropped(fixture: BrokerFixture) -> None:
    fixture = BrokerFixture(limits=Limits(record_bytes=10))
    peer = Peer(fixture)
    stream = peer.stream(uni=True)
    stream.feed(batch(b"x"), batch(b"y" * 11), batch(b"z"))
    fixture.commit()
    assert taken(stream)
    assert values(fixture) == [b"x", b"z"]


def test_the_end_inside_a_frame_needs_no_refusal(peer: Peer) -> None:
    stream = peer.stream(uni=True)
    stream.feed(batch(b"x"), batch(b"y")[:20])
    stream.end()
    peer.fixture.commit()
    assert (stream.refused_with, stream.finished) == (None, True)


def test_messages_are_compact_json(peer: Peer) -> None:
    stream = peer.stream()
    stream.feed(publish(b"x", "a"))
    peer.fixture.commit()
    text = b"".join(stream.sent)[12:].decode()
    assert text == json.dumps(json.loads(text), separators=(",", ":"))
    assert TENANT not in text
