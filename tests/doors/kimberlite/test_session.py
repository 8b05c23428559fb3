"""A connection from its first byte to its last: handshake, order, ends."""

from __future__ import annotations

import logging
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.kimberlite.peer import TENANT, Peer
from tests.doors.kimberlite.test_operations import FIRST, LATER, queries
from tests.effort import scaled

from penstock.broker.limits import Limits
from penstock.broker.queries.query import Rows
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy, Permission
from penstock.broker.security.audit_event import AuditPolicy
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.lockout import LockoutPolicy
from penstock.doors.kimberlite.handlers.table import HANDLERS
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.generations import GENERATIONS, REQUESTS
from penstock.wire.kimberlite.messages import DataClass, ErrorCode

GREETED = "05 05 7175657279 06 617070656e64 09 737562736372696265 08 71756572795f6174 04 73796e63"
CAPABILITIES = ["query", "append", "subscribe", "query_at", "sync"]


def secured(**options: Any) -> BrokerFixture:
    return BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION]), audit=AuditPolicy(enabled=True), **options)


def key(fixture: BrokerFixture, tenant: int = TENANT, *roles: str) -> str:
    terms = KeyTerms("test", str(tenant), (), roles=roles or ("Admin",))
    new, _ = fixture.broker.keys.add(ADMINISTRATOR, terms)
    fixture.commit()
    return new.secret


def frame(payload: bytes, version: int = 5) -> bytes:
    return struct.pack(">IHII", 0x56444220, version, len(payload), zlib.crc32(payload)) + payload


# -- the specification's own session


@pytest.mark.parametrize("dialect", FIRST + LATER)
@pytest.mark.parametrize("castagnoli", [False, True])
def test_the_specifications_example_session(fixture: BrokerFixture, dialect: str, castagnoli: bool) -> None:
    queries(fixture, Rows(["count"], [[2]]))
    peer = Peer(fixture, dialect, greets=False, castagnoli=castagnoli)
    assert peer.greet() == m.HandshakeResponse(peer.wire.version, True, CAPABILITIES)
    made = peer.ask(m.CreateStream("events", DataClass.PHI, m.Everywhere()))
    assert isinstance(made, m.CreateStreamResponse)
    appended = peer.ask(m.AppendEvents(made.stream_id, [b"event1", b"event2"], 0))
    assert appended == m.AppendEventsResponse(0, 2)
    counted = peer.ask(m.Query("SELECT COUNT(*) as count FROM events", []))
    assert counted == m.QueryResponse(["count"], [[2]])
    peer.session.end_of_input()
    assert peer.closed


def test_the_frames_of_the_newest_version_byte_for_byte(fixture: BrokerFixture) -> None:
    """The requests are those that the original's client sent; see the reference, section 5."""
    peer = Peer(fixture, greets=False)
    exchanges = [
        ("00 01 2a 00 00 05 00", "01 01 01 05 01" + GREETED),
        ("00 02 2a 00 01 06 65 76 65 6e 74 73 00 01", "01 02 02 01"),
        ("00 03 2a 00 02 01 02 06 65 76 65 6e 74 31 06 65 76 65 6e 74 32 00", "01 03 03 00 02"),
        ("00 04 2a 00 05 01 00 80 80 40", "01 04 06 02 06 65 76 65 6e 74 31 06 65 76 65 6e 74 32 00"),
        ("00 05 2a 00 06 01", "01 05 07 02"),
        ("00 06 2a 00 08", "01 06 09 01"),
    ]
    for request, reply in exchanges:
        peer.feed(frame(bytes.fromhex(request)))
        fixture.commit()
        assert peer.raw() == frame(bytes.fromhex(reply))


@pytest.mark.parametrize("size", [1, 2, 7, 13])
def test_frames_may_come_in_any_pieces(fixture: BrokerFixture, size: int) -> None:
    peer = Peer(fixture)
    number = peer.create()
    data = b"".join(peer.frame(m.AppendEvents(number, [b"x" * 50], offset)) for offset in range(3))
    for at in range(0, len(data), size):
        peer.session.receive(data[at : at + size])
    fixture.commit()
    assert [response.payload for response in peer.responses()] == [m.AppendEventsResponse(at, 1) for at in range(3)]


def test_every_request_of_every_generation_has_an_operation() -> None:
    asked = {shape.make for shape in REQUESTS}
    assert len(asked) > 40
    assert asked | {m.Ambiguous} == set(HANDLERS)


# -- the handshake


@pytest.mark.parametrize("dialect", FIRST + LATER)
def test_without_a_handshake_nothing_is_served_and_the_connection_goes_on(fixture: BrokerFixture, dialect: str) -> None:
    peer = Peer(fixture, dialect, greets=False)
    refused = peer.refused(m.CreateStream("a_stream_with_a_name", DataClass.PHI, m.Everywhere()))
    assert (refused.code, refused.message) == (ErrorCode.INVALID_REQUEST, "handshake required")
    assert isinstance(peer.greet(), m.HandshakeResponse)
    assert peer.create() > 0


def test_a_version_that_is_not_that_of_the_frames_is_refused(fixture: BrokerFixture) -> None:
    refused = Peer(fixture, greets=False).refused(m.Handshake(4))
    assert refused.code == ErrorCode.INVALID_REQUEST
    assert refused.message == "unsupported client version: 4, server is 5"


@pytest.mark.parametrize("dialect", ("seed", "v0.1", "v0.4", "v3", "5b"))
def test_a_key_of_the_tenant_opens_the_connection(dialect: str) -> None:
    fixture = secured()
    peer = Peer(fixture, dialect, token=key(fixture))
    assert peer.create() > 0


def test_without_a_token_the_connection_is_of_no_use_where_security_is_on() -> None:
    peer = Peer(secured(), greets=False)
    assert peer.greet() == m.HandshakeResponse(5, False, CAPABILITIES)
    for _ in range(2):
        refused = peer.refused(m.Sync())
        assert (refused.code, refused.message) == (ErrorCode.AUTHENTICATION_FAILED, "authentication required")
        assert peer.greet("") == m.HandshakeResponse(5, False, CAPABILITIES)
    assert not peer.closed


def test_a_key_that_was_chosen_may_have_points_in_it() -> None:
    fixture = secured()
    chosen = "a.key.that.somebody.chose"
    fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("test", str(TENANT), (), roles=("Admin",)), chosen)
    fixture.commit()
    assert isinstance(Peer(fixture, greets=False).greet(chosen), m.HandshakeResponse)


def test_a_wrong_token_is_an_error_and_after_too_many_it_is_locked_out() -> None:
    fixture = secured(lockout=LockoutPolicy(3, 60))
    good = key(fixture)
    peer = Peer(fixture, greets=False)
    for token in ("a.b.c", "eyJhbGciOiJub25lIn0.e30.", "psk_1_wrong", "psk_1_no", "psk_1_neither"):
        reply = peer.greet(token)
        assert isinstance(reply, m.ErrorResponse) and reply.code == ErrorCode.AUTHENTICATION_FAILED
    assert isinstance(locked := peer.greet("psk_1_x"), m.ErrorResponse) and "try again later" in locked.message
    assert peer.greet(good) == m.HandshakeResponse(5, True, CAPABILITIES)


def test_wrong_tokens_end_the_connection() -> None:
    peer = Peer(secured(), greets=False)
    asked = 0
    while not peer.closed:
        peer.feed(m.Handshake(peer.wire.version, f"psk_{asked}_wrong"))
        peer.fixture.commit()
        asked += 1
        assert asked < 20, "it may guess as often as it likes"
    assert "logins were in vain" in repr(peer.responses()[-1])


def test_a_key_is_for_its_own_tenant_in_the_handshake_and_in_every_request() -> None:
    fixture = secured()
    token = key(fixture)
    other = Peer(fixture, tenant=43, greets=False)
    assert isinstance(reply := other.greet(token), m.ErrorResponse)
    assert (reply.code, reply.message) == (ErrorCode.AUTHENTICATION_FAILED, "the token is not for this tenant")
    assert other.refused(m.Sync()).message == "authentication required"
    peer = Peer(fixture, token=token)
    assert peer.refused(m.Sync(), tenant=43) == reply
    assert peer.ask(m.Sync()) == m.SyncResponse(True)


def test_a_key_that_is_revoked_is_of_no_use_on_open_connections() -> None:
    fixture = secured()
    peer = Peer(fixture, token=key(fixture))
    number = peer.create()
    (one,) = fixture.broker.keys.list(ADMINISTRATOR)
    fixture.broker.keys.revoke(ADMINISTRATOR, one.id)
    for request in (m.ReadEvents(number, 0, 10), m.Sync(), m.GetServerInfo(), m.AppendEvents(number, [b"x"], 0)):
        assert peer.refused(request).code == ErrorCode.AUTHENTICATION_FAILED


def test_a_second_handshake_changes_who_the_client_is() -> None:
    fixture = secured()
    peer = Peer(fixture, token=key(fixture, TENANT, "Analyst"))
    refused = peer.refused(m.CreateStream("t", DataClass.PII, m.Everywhere()))
    assert refused.code == ErrorCode.AUTHENTICATION_FAILED
    peer.greet(key(fixture))
    assert peer.create("t") > 0
    peer.greet("psk_9_wrong")  # changes nothing
    assert peer.create("u") > 0


# -- limits of a tenant


def test_a_tenant_has_so_many_connections_and_no_more() -> None:
    fixture = BrokerFixture(limits=Limits(tenant_connections=2))
    peers = [Peer(fixture), Peer(fixture)]
    third = Peer(fixture, greets=False)
    assert isinstance(reply := third.greet(), m.ErrorResponse) and reply.code == ErrorCode.RATE_LIMITED
    assert isinstance(Peer(fixture, tenant=7), Peer)  # another tenant's do not count
    assert isinstance(peers[0].greet(), m.HandshakeResponse)  # nor does a second handshake
    peers[0].session.lost()
    assert third.greet() == m.HandshakeResponse(5, True, CAPABILITIES)
    assert fixture.broker.rate_limits.connections("42") == 2
    for peer in (peers[1], third):
        peer.session.end_of_input()
        peer.session.lost()  # once more changes nothing
    assert fixture.broker.rate_limits.connections("42") == 0


def test_a_connection_counts_for_the_tenant_that_it_greeted_last(fixture: BrokerFixture) -> None:
    peer, rate_limits = Peer(fixture), fixture.broker.rate_limits
    peer.ask(m.Handshake(5), tenant=7)
    assert (rate_limits.connections("42"), rate_limits.connections("7")) == (0, 1)


def test_a_tenant_that_asks_too_often_is_told_so() -> None:
    fixture = BrokerFixture(limits=Limits(tenant_requests=5))
    peer = Peer(fixture)
    replies = peer.all(*[m.Sync()] * 7)
    assert replies[:5] == [m.SyncResponse(True)] * 5
    assert all(isinstance(reply, m.ErrorResponse) and reply.code == ErrorCode.RATE_LIMITED for reply in replies[5:])
    assert Peer(fixture, tenant=7).ask(m.Sync()) == m.SyncResponse(True)
    fixture.pass_time(1)
    assert peer.ask(m.Sync()) == m.SyncResponse(True)


# -- what cannot be read


def test_a_frame_that_cannot_be_read_is_answered_and_ends_the_connection(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    number = peer.create()
    peer.feed(peer.frame(m.AppendEvents(number, [b"x"], 0)), frame(b"\x00\x09\x2a\x00\x63"), peer.frame(m.Sync()))
    assert not peer.closed
    fixture.commit()
    first, second = [response.payload for response in peer.responses()]
    assert first == m.AppendEventsResponse(0, 1)
    assert isinstance(second, m.ErrorResponse) and second.code == ErrorCode.INVALID_REQUEST
    assert peer.closed and peer.session.held_bytes == 0


def test_before_the_dialect_is_known_the_connection_just_closes(fixture: BrokerFixture) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", frame(b"\x63" * 30, 1), frame(b"", 5), b"VDB \x00\x05\x7f\xff\xff\xff    "):
        peer = Peer(fixture, greets=False)
        peer.feed(data)
        assert peer.closed and peer.raw() == b""


@pytest.mark.parametrize("version", [0, 6, 65535])
def test_an_unknown_version_is_told_so_under_its_own_number(fixture: BrokerFixture, version: int) -> None:
    peer = Peer(fixture, greets=False)
    peer.feed(frame(b"\x00\x01\x2a\x00\x00\x06\x00", version))
    reply = peer.raw()
    assert peer.closed
    assert reply.startswith(struct.pack(">IH", 0x56444220, version)) and b"unsupported protocol version" in reply


@settings(max_examples=scaled(150), deadline=None)
@given(
    dialect=st.sampled_from(FIRST + LATER),
    kinds=st.lists(st.integers(0, 8), max_size=4),
    cuts=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    tail=st.binary(max_size=40),
)
def test_whatever_comes_is_answered_or_ends_the_connection(
    dialect: str, kinds: list[int], cuts: list[tuple[int, int]], tail: bytes
) -> None:
    """Requests with bytes changed in them, checksums too: nothing is raised, and the broker is as it was."""
    fixture = BrokerFixture()
    peer = Peer(fixture, dialect)
    about = [m.Sync(), m.ReadEvents(1, 0, 10), m.AppendEvents(1, [b"x"], 0), m.Query("SELECT 1", [1, "x", None])]
    about += [m.QueryAt("SELECT 1", [], 3), m.CreateStream("s", DataClass.PHI, m.Everywhere()), m.Handshake(1)]
    about += [m.AppendEvents(2**63, [], 2**64 - 1), m.ReadEvents(2**64 - 1, 2**64 - 1, 2**64 - 1)]
    data = bytearray(b"".join(peer.frame(about[kind]) for kind in kinds))
    for place, byte in cuts:
        if place < len(data):
            data[place] = byte
    peer.feed(bytes(data) + tail)
    fixture.commit()
    if peer.closed:
        assert peer.session.held_bytes == 0
    else:
        peer.session.end_of_input()
        assert peer.closed
    assert Peer(fixture).create("fine") > 0


# -- order, ends


def test_the_answer_is_void_if_what_it_depends_on_is_lost(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    fixture.fill_disk()
    replies = peer.all(
        m.CreateStream("a", DataClass.PII, m.Everywhere()), m.CreateStream("a", DataClass.PII, m.Everywhere())
    )
    assert [reply.code for reply in replies if isinstance(reply, m.ErrorResponse)] == [ErrorCode.STORAGE_ERROR] * 2


def test_nobody_is_told_of_what_a_crash_could_take_back(fixture: BrokerFixture) -> None:
    peer, other = Peer(fixture), Peer(fixture)
    peer.feed(m.CreateStream("a", DataClass.PII, m.Everywhere()))
    other.feed(m.CreateStream("a", DataClass.PCI, m.Everywhere()), m.CreateStream("a", DataClass.PII, m.Everywhere()))
    assert peer.responses() == other.responses() == []
    fixture.commit()
    (made,) = [response.payload for response in peer.responses()]
    refused, found = [response.payload for response in other.responses()]
    assert isinstance(refused, m.ErrorResponse) and refused.code == ErrorCode.STREAM_ALREADY_EXISTS
    assert found == made


def test_an_answer_that_no_message_can_hold_is_a_mistake_of_ours(
    fixture: BrokerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    queries(fixture, Rows(["a"], [[1 << 70]]))
    peer = Peer(fixture)
    with caplog.at_level(logging.ERROR):
        assert peer.refused(m.Query("SELECT", [])).code == ErrorCode.INTERNAL_ERROR
    assert peer.closed and caplog.records


def test_a_mistake_of_ours_is_logged_told_and_the_end_of_the_connection_only(
    fixture: BrokerFixture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, other = Peer(fixture), Peer(fixture)
    monkeypatch.setattr(fixture.broker.tenants, "list", lambda *_: 1 / 0)
    with caplog.at_level(logging.ERROR):
        assert peer.refused(m.GetServerInfo()) == m.ErrorResponse(ErrorCode.INTERNAL_ERROR, "internal error")
    assert "ZeroDivisionError" in caplog.text and peer.closed
    assert other.create() > 0


def test_requests_wait_while_the_client_does_not_take_its_replies(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    number = peer.create()
    peer.append(number, b"x" * 100_000)
    peer.limit = 0
    peer.feed(*[m.ReadEvents(number, 0, 200_000)] * 20)
    assert peer.responses() == []
    assert peer.session.held_bytes > 0
    peer.limit = None
    peer.session.receive(b"")
    assert len(peer.responses()) == 20 and peer.session.held_bytes == 0


def test_at_shutdown_what_was_accepted_is_answered(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    number = peer.create()
    peer.feed(m.AppendEvents(number, [b"x"], 0))
    peer.session.stop()
    peer.session.receive(peer.frame(m.Sync()))
    assert not peer.closed
    fixture.commit()
    assert [response.payload for response in peer.responses()] == [m.AppendEventsResponse(0, 1)]
    assert peer.closed


def test_after_a_lost_connection_nothing_is_sent(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    number = peer.create()
    peer.feed(m.AppendEvents(number, [b"x"], 0), m.ReadEvents(number, 0, 100))
    peer.session.lost()
    fixture.commit()
    assert peer.responses() == [] and peer.session.held_bytes == 0
    assert Peer(fixture).read(number) == m.ReadEventsResponse([b"x"], None)


# -- what a request says about itself


def test_who_acts_and_why_is_in_the_audit_log_with_what_was_done() -> None:
    fixture = secured()
    peer = Peer(fixture, token=key(fixture))
    told = m.AuditMetadata("dr@x", "chart", "c-17", "once")
    made = peer.ask(m.CreateStream("charts", DataClass.PHI, m.Everywhere()), audit=told)
    assert isinstance(made, m.CreateStreamResponse)
    peer.ask(m.AppendEvents(made.stream_id, [b"x"], 0), audit=told)
    peer.ask(m.ReadEvents(made.stream_id, 0, 10), audit=told)
    peer.ask(m.ReadEvents(made.stream_id, 0, 10))  # says nothing about itself
    found = peer.ask(m.AuditQuery())
    assert isinstance(found, m.AuditQueryResponse)
    noted = [(event.action, event.subject_id) for event in found.events if event.actor == "dr@x"]
    assert noted == [
        ("stream.read", "charts"),
        ("stream.append", "charts"),
        ("topic.create", "charts"),
        ("tenant.create", "42"),
    ]
    event = next(event for event in found.events if event.actor == "dr@x")
    assert (event.reason, event.correlation_id, event.tenant_id) == ("chart", "c-17", TENANT)


def test_nobody_gets_what_an_audited_read_found_before_its_event_is_committed() -> None:
    fixture = secured()
    peer = Peer(fixture, token=key(fixture))
    number = peer.create()
    peer.ask(m.AppendEvents(number, [b"x"], 0))
    peer.feed(peer.frame(m.ReadEvents(number, 0, 10), audit=m.AuditMetadata("dr@x", "chart", None, None)))
    assert peer.responses() == []
    fixture.commit()
    (response,) = peer.responses()
    assert response.payload == m.ReadEventsResponse([b"x"], None)


def test_nobody_hears_of_a_refusal_before_its_event_is_committed() -> None:
    fixture = secured()
    clerk = Peer(fixture, token=key(fixture, TENANT, "User"))
    fixture.commit()
    clerk.feed(m.CreateStream("charts", DataClass.PHI, m.Everywhere()))
    assert clerk.responses() == []
    fixture.commit()
    (response,) = clerk.responses()
    assert isinstance(response.payload, m.ErrorResponse)


def test_an_audit_query_right_behind_a_read_finds_it_and_a_refusal_too() -> None:
    """Without a wait for the replies in between."""
    fixture = secured()
    peer = Peer(fixture, token=key(fixture))
    number = peer.create()
    told = m.AuditMetadata("dr@x", "chart", None, None)
    peer.feed(
        peer.frame(m.ReadEvents(number, 0, 10), audit=told),
        peer.frame(m.CreateStream("a//b", DataClass.PUBLIC, m.Everywhere()), audit=told),
        m.AuditQuery(),
    )
    fixture.commit()
    found = peer.responses()[-1].payload
    assert isinstance(found, m.AuditQueryResponse)
    noted = [event.action for event in found.events if event.actor == "dr@x"]
    assert noted == ["topic.create", "stream.read"]


def test_phi_streams_take_a_permission_of_their_own() -> None:
    fixture = secured()
    doctor, clerk = (
        Peer(fixture, token=key(fixture, TENANT, "User", "phi")),
        Peer(fixture, token=key(fixture, TENANT, "User")),
    )
    refused = clerk.refused(m.CreateStream("charts", DataClass.PHI, m.Everywhere()))
    assert refused.code == ErrorCode.AUTHENTICATION_FAILED
    number = doctor.create("charts", DataClass.PHI)
    doctor.append(number, b"x")
    for request in (m.AppendEvents(number, [b"y"], 1), m.ReadEvents(number, 0, 10), m.Subscribe(number, 0, 1)):
        assert clerk.refused(request).code == ErrorCode.AUTHENTICATION_FAILED
    assert doctor.read(number) == m.ReadEventsResponse([b"x"], None)
    plain = clerk.create("bills", DataClass.FINANCIAL)
    assert clerk.append(plain, b"z").count == 1


def test_settings_know_tenants_by_number_and_by_name() -> None:
    settings = KimberliteSettings(tenants={1: "acme", 2: "globex"})
    assert [settings.name(number) for number in (0, 1, 2, 3, 2**64 - 1)] == ["0", "acme", "globex", "3", str(2**64 - 1)]
    names = ["acme", "globex", "0", "3", "1", "default", "03", "٣", str(2**64)]
    assert [settings.number(name) for name in names] == [1, 2, 0, 3, None, None, None, None, None]


def test_a_writer_may_ask_how_long_a_stream_is() -> None:
    fixture = secured()
    number = Peer(fixture, token=key(fixture)).create()
    for permission in (Permission.WRITE, Permission.READ, Permission.DESCRIBE):
        new, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("w", str(TENANT), (permission,)))
        peer = Peer(fixture, token=new.secret)
        assert peer.ask(m.StreamInfo(number)) == m.StreamInfoResponse(0)
    new, _ = fixture.broker.keys.add(ADMINISTRATOR, KeyTerms("c", str(TENANT), (Permission.CREATE,)))
    assert Peer(fixture, token=new.secret).refused(m.StreamInfo(number)).code == ErrorCode.STREAM_NOT_FOUND


def test_the_documents_table_has_the_numbers_of_every_version_and_what_is_served() -> None:
    text = (Path(__file__).parents[3] / "docs/protocols/kimberlite.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    table = {row[0]: row[1:] for row in rows if len(row) == 7 and row[0] != "Request"}
    columns = [("v0.1",), ("seed", "v0.4"), ("v2", "v3"), ("v4", "5a"), ("5b",)]
    for at, names in enumerate(columns):
        for name in names:
            variants = GENERATIONS[name].requests().variants
            numbers = {variant.make.__name__: str(number) for number, variant in enumerate(variants)}
            assert {kind: row[at] for kind, row in table.items() if row[at] != "–"} == numbers, name
    served = {shape.make.__name__ for shape in REQUESTS if not issubclass(shape.make, m.Unserved)}
    assert {kind for kind, row in table.items() if row[5].startswith("served")} == served
