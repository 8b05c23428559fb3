"""Requests that mean harm: what they ask for is bounded, what they say is told as an error, and nobody else notices.

What takes a real server (memory, many connections) is in `tests/fuzz/test_flymq.py`.
"""

from __future__ import annotations

import gc
import gzip
import http.server
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from random import Random
from typing import Any, get_type_hints

import msgspec
import pytest
from tests.broker.broker_fixture import BrokerFixture, later
from tests.doors.flymq.peer import Peer
from tests.doors.flymq.seeded_broker import SCHEMA, SeededBroker
from tests.doors.flymq.test_security import TABLE
from tests.effort import scaled

from penstock.broker.broker import CONCURRENT_SCANS
from penstock.broker.fetch.filters import MAX_WORK, Filter, compile_filter
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.state.state import decode_snapshot, encode_snapshot
from penstock.doors.flymq import session
from penstock.doors.flymq.handlers import cluster
from penstock.doors.flymq.handlers.fetch import MAX_BYTES, MAX_MESSAGES, STEP_RECORDS
from penstock.doors.flymq.handlers.table import HANDLERS
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import requests
from penstock.wire.flymq.errors import MAX_TEXT
from penstock.wire.flymq.frames import Frame, frame
from penstock.wire.flymq.opcodes import MAX_PAYLOAD, Op

PATIENCE = 60.0  # seconds of processor time: what is meant to take for ever takes longer

every_opcode = pytest.mark.parametrize("op", TABLE, ids=lambda op: op.name)


def text_of(frame: Frame) -> str:
    """The text of an error; empty for any other reply."""
    return frame.payload[3:].decode() if frame.opcode == Op.ERROR else ""


def survives(fixture: BrokerFixture, peer: Peer, data: bytes) -> str:
    """One reply to one request, which is no mistake of ours; this connection and others are served."""
    peer.feed(data)
    fixture.commit()
    (reply,) = peer.frames()
    text = text_of(reply)
    assert "internal error" not in text and len(reply.payload) <= (MAX_TEXT + 3 if text else MAX_PAYLOAD)
    assert not peer.closed
    return text.removeprefix("E: ")


def served(fixture: BrokerFixture) -> None:
    """Another client can do what it always could."""
    other = Peer(fixture, port=1)
    assert isinstance(other.ask(m.Produce("others", None, b"v")), m.RecordMetadata)
    assert isinstance(other.ask(m.Fetch("others", 0, 0, 10)), m.Fetched)


@contextmanager
def in_time() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < PATIENCE


# -- what kills the original


def s16(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


COUNT = b"\xff\xff\xff\xff"

DEADLY = [
    ("FETCH of a negative partition", m.Fetch("t", -1, 0, 10), "partition -1 not found"),
    ("FETCH of the lowest partition", m.Fetch("t", -(2**31), 0, 10), "partition -2147483648 not found"),
    ("FETCH_BINARY of one", m.FetchBinary("t", -1, 0, 10), "partition -1 not found"),
    ("SUBSCRIBE to one", m.Subscribe("t", "g", -1, "earliest"), "partition -1 not found"),
    ("RESET_OFFSET in one", m.ResetOffset("t", "g", -1, "latest"), "partition -1 not found"),
    ("CREATE_TOPIC with negative partitions", m.CreateTopic("new", -5), "Invalid partition count: -5"),
    ("CREATE_TOPIC with two billion", m.CreateTopic("new", 2**31 - 1), "Invalid partition count: 2147483647"),
    ("CREATE_TOPIC outside", m.CreateTopic("../x", 1), "Topic name '../x' has"),
    ("DELETE_TOPIC outside", m.DeleteTopic("../x"), ""),  # there is none, so it is deleted already
    ("a list of 2^32-1 roles", frame(Op.USER_CREATE, s16("u") + s16("p") + s16("") + COUNT), "invalid binary format"),
    ("a list of 2^32-1 users", frame(Op.ACL_SET, s16("t") + b"\0" + COUNT + bytes(4)), "invalid binary format"),
    ("a list of 2^32-1 permissions", frame(Op.ROLE_SET, s16("r") + COUNT + s16("")), "invalid binary format"),
    ("a batch of 2^32-1 records", frame(Op.PRODUCE_BATCH, s16("t") + COUNT), "invalid binary format"),
    ("2^32-1 types of audit events", frame(Op.AUDIT_QUERY, bytes(16) + COUNT + bytes(16)), "invalid binary format"),
    ("a query of 2^32-1 bytes", frame(Op.AUDIT_EXPORT, COUNT + s16("json")), "invalid binary format"),
    ("a key of 2^32-1 bytes", frame(Op.PRODUCE, s16("t") + COUNT + bytes(8)), "invalid binary format"),
    ("a value of 2^32-1 bytes", frame(Op.PRODUCE, s16("t") + bytes(4) + COUNT), "invalid binary format"),
    ("a name of 2^16-1 bytes", frame(Op.CREATE_TOPIC, b"\xff\xff" + bytes(8)), "invalid binary format"),
    *[(f"{op.name} while nobody has an account", frame(op, b""), None) for op in Op if Op.AUTH <= op <= Op.ROLE_DELETE],
]


@pytest.mark.parametrize(("request_", "text"), [row[1:] for row in DEADLY], ids=[row[0] for row in DEADLY])
def test_what_kills_the_original(request_: Any, text: str | None) -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    peer.ask(m.CreateTopic("t", 1))
    said = survives(fixture, peer, request_ if isinstance(request_, bytes) else requests.encode(request_))
    assert text is None or (said.startswith(text) and bool(said) is bool(text))
    served(fixture)


def test_a_schema_whose_newest_version_is_gone() -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    for definition in (b'{"type": "object"}', SCHEMA):
        peer.ask(m.RegisterSchema("s", "json", definition))
        peer.ask(m.SetCompatibility("s", "none"))
    assert peer.ask(m.DeleteSchema("s", 2)) == m.Done()
    reply = peer.ask(m.GetSchema("s", 0))
    assert isinstance(reply, m.SchemaInfo) and reply.version == 1
    assert peer.ask(m.ValidateSchema("s", b"{}")) == m.SchemaVerdict(True, [])
    assert peer.ask(m.DeleteSchema("s", 1)) == m.Done()
    for request in (m.GetSchema("s", 0), m.ValidateSchema("s", b"{}"), m.ProduceWithSchema("t", "s", b"{}")):
        assert "no schema found" in survives(fixture, peer, requests.encode(request))
    served(fixture)


# -- every field of every request

NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)
NAMES = (
    "",
    ".",
    "..",
    "../x",
    "../../../../etc/passwd",
    "/etc/passwd",
    "a/../b",
    "a//b",
    "a\\b",
    "C:\\x",
    "a\0b",
    "\0",
    "a\nb",
    "\x1b[2J",
    "a\u202eb",
    "\ufeff",
    "𝔘" * 300,
    "x" * 257,
    "x" * 65_535,
    "é" * 32_767,
    "__audit",
    "__delayed",
    "%s%n{0}",
    "*",
    "[!a]*",
    "$(touch x)",
    "'; DROP TABLE users; --",
    "txn-" + "f" * 40,
    "9" * 60_000,
)


def variants(request: m.Request, kind: type, values: tuple[Any, ...]) -> Iterator[bytes]:
    """The request with each of its fields of this type, or lists of it, replaced by each value that it can carry."""
    for name, hint in get_type_hints(type(request)).items():
        if isinstance(getattr(request, name), m.AuditQuery):
            for inner in variants(getattr(request, name), kind, values):
                query = requests.decode(Op.AUDIT_QUERY, inner[8:])
                yield requests.encode(msgspec.structs.replace(request, **{name: query}))
        many, one = hint == list[kind], hint in (kind, kind | None)  # type: ignore[valid-type]
        for value in values if many or one else ():
            try:
                yield requests.encode(msgspec.structs.replace(request, **{name: [value] if many else value}))
            except ValueError:
                continue  # it does not fit its field


@every_opcode
def test_every_number_at_its_bounds(op: Op) -> None:
    seeded_broker = SeededBroker()
    peer = seeded_broker.peer("admin")
    for data in variants(TABLE[op].request(seeded_broker, "mine"), int, NUMBERS):
        survives(seeded_broker.fixture, peer, data)
    assert isinstance(seeded_broker.peer("clerk").ask(m.Fetch("mine", 0, 0, 10)), m.Fetched)


@every_opcode
def test_every_name_that_means_harm(op: Op) -> None:
    seeded_broker = SeededBroker()
    peer = seeded_broker.peer("admin")
    for data in variants(TABLE[op].request(seeded_broker, "mine"), str, NAMES):
        survives(seeded_broker.fixture, peer, data)
    known = {"IDENTITY", "journal", "snapshots"}
    assert {path.partition("/")[0] for path in seeded_broker.fixture.disk.paths()} <= known
    # What was taken is told as it is, and read again as it was written.
    before = decode_snapshot(encode_snapshot(seeded_broker.fixture.broker.state_log.state))
    seeded_broker.fixture.restart()
    assert encode_snapshot(seeded_broker.fixture.broker.state_log.state) == encode_snapshot(before)


UNPACKED = scaled(MAX_PAYLOAD)  # what a door unpacks at most; less takes as many kinds of steps, and less time


@cache
def bomb_payload(size: int, times: int) -> bytes:
    payload = bytes(size)
    for _ in range(times):
        payload = gzip.compress(payload, 9)
    return payload


@every_opcode
def test_a_bomb_under_every_opcode(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAX_PAYLOAD", UNPACKED)
    fixture = BrokerFixture()
    peer = Peer(fixture)
    bomb = frame(op, bomb_payload(UNPACKED + 1, 1), 0x03)
    assert len(bomb) < 40_000
    assert survives(fixture, peer, bomb) == f"decompressed payload too large (max: {UNPACKED} bytes)"
    twice = frame(op, bomb_payload(1 << 20, 2), 0x03)  # is unpacked once, and no more
    survives(fixture, peer, twice)
    served(fixture)


# -- filters

EXPRESSIONS = [
    "(a+)+$",
    "(a|a)*b",
    "(.*)*x",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "[ab]*a[ab]{900}c",
    "(x?a|b){1000}c",
    "(((a?){10}){10}){10}c",
    r"(\pL|\pN){1,40}!",
    r"(?i)" + r"\pL" * 160,
    "(" * 400 + "a" + ")" * 100,
    "a{1000}{1000}{1000}",
    ".{0,1000}" * 50 + "!",
]


def mixed(size: int) -> bytes:
    """Text of two letters without a pattern, the same each time."""
    return Random(1).randbytes(size).translate(b"ab" * 128)


@pytest.mark.parametrize("text", EXPRESSIONS, ids=lambda text: text[:20])
def test_expressions_that_are_made_to_take_long_do_not(text: str) -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    for value in (b"a" * 10_000, mixed(10_000), mixed(2_000_000)):
        peer.ask(m.Produce("t", None, value))
    cost = compile_filter(text).cost
    with in_time():
        reply = peer.ask(m.Fetch("t", 0, 0, 10, text, code_order=True))
    if cost * 2_000_000 > MAX_WORK:
        assert isinstance(reply, m.Failure) and "too complex for a record of 2000000 bytes" in reply.message
    else:
        assert isinstance(reply, m.Fetched)
    served(fixture)


def test_what_is_found_before_a_record_that_is_too_large_is_given() -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    peer.all(*[m.Produce("t", None, value) for value in (b"no", b"abc", b"abc", bytes(2_000_000), b"abc")])
    text = "(x?a|b){1000}c|abc"
    found = peer.ask(m.Fetch("t", 0, 0, 10, text, code_order=True))
    assert isinstance(found, m.Fetched) and [record.offset for record in found.records] == [1, 2]
    assert found.next_offset == 3
    assert "too complex" in peer.refused(m.Fetch("t", 0, 3, 10, text, code_order=True))
    found = peer.ask(m.Fetch("t", 0, 4, 10, text, code_order=True))
    assert isinstance(found, m.Fetched) and [record.offset for record in found.records] == [4]


def test_a_filter_is_not_understood_for_those_who_may_not_read() -> None:
    seeded_broker = SeededBroker()
    compile_filter.cache_clear()
    for name in ("anonymous", "guest", "producer"):
        assert "u" in seeded_broker.peer(name).refused(m.Fetch("mine", 0, 0, 10, "(a+)+$", code_order=True))
    assert compile_filter.cache_info().misses == 0


def test_a_filter_that_takes_long_holds_up_nobody_else() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = BrokerFixture()
    Peer(fixture).ask(m.Produce("t", None, b"v"))
    fixture.broker.scan_executor._executor = later(calls)
    slow = [Peer(fixture, port=number) for number in range(CONCURRENT_SCANS + 3)]
    for peer in slow:
        peer.feed(m.Fetch("t", 0, 0, 10, "(a+)+$", code_order=True))
    assert len(calls) == CONCURRENT_SCANS  # the others wait without a thread
    served(fixture)
    while calls:
        work, done = calls.pop(0)
        work()
        done()
    assert [peer.replies() for peer in slow] == [[m.Fetched([], 1)]] * len(slow)


def test_a_filter_of_one_who_is_gone_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = BrokerFixture()
    Peer(fixture).ask(m.Produce("t", None, b"v"))
    fixture.broker.scan_executor._executor = later(calls)
    peer = Peer(fixture)
    peer.feed(m.Fetch("t", 0, 0, 10, "(a+)+$", code_order=True))
    peer.session.lost()
    tried: list[tuple[Any, ...]] = []
    monkeypatch.setattr(Filter, "matches", lambda *given: tried.append(given))
    ((work, done),) = calls
    work()
    done()
    assert tried == [] and peer.sent == []


def test_a_filter_goes_through_many_steps_without_getting_deeper() -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    peer.ask(m.CreateTopic("t", 1))
    for _ in range(300):
        fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"a"] * STEP_RECORDS)
        fixture.commit()
    reply = peer.ask(m.Fetch("t", 0, 0, 10, "nothing", code_order=True))
    assert isinstance(reply, m.Fetched) and (reply.records, reply.next_offset) == ([], STEP_RECORDS * 300)


@pytest.mark.parametrize(
    "value",
    [
        b'{"a":' + b"[" * 200_000,
        b'{"a":' + b'{"a":' * 100_000,
        b'{"b":' + b"[" * 500 + b"]" * 500 + b',"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b"9" * 1_000_000 + b"e99999999999}",
        b'{"a":"' + b"\\ud800" * 1000 + b'"}',
        b"{" + b'"a":1,' * 100_000 + b'"a":1}',
    ],
    ids=["arrays", "objects", "balanced", "digits", "surrogates", "repeats"],
)
def test_json_that_is_hard_to_read_behind_a_path(value: bytes) -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    peer.ask(m.Produce("t", None, value))
    with in_time():
        survives(fixture, peer, requests.encode(m.Fetch("t", 0, 0, 10, "$.a.b.c", code_order=True)))
    served(fixture)


# -- much of something


def test_transactions_of_one_connection_are_bounded_and_end_with_it() -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    limit = fixture.broker.limits.transactions_per_owner
    begin = requests.encode(m.BeginTransaction())
    for _ in range(100):
        peer.feed(begin * 1000)
        fixture.commit()
    found = peer.frames()
    assert len(found) == 100_000
    assert [frame.opcode for frame in found].count(Op.TXN_BEGIN) == limit == len(fixture.broker.transactions)
    assert text_of(found[-1]) == f"E: {limit} transactions of one client are open: the limit"
    other = Peer(fixture, port=1)
    assert isinstance(other.ask(m.BeginTransaction()), m.TransactionState)
    peer.session.lost()
    assert len(fixture.broker.transactions) == 1


def test_what_a_transaction_holds_is_bounded() -> None:
    fixture = BrokerFixture(
        limits=Limits(transaction_bytes=1 << 20, transactions_bytes=3 << 19, transaction_records=1000, tenant_share=1)
    )
    peer = Peer(fixture)
    first, second = (peer.ask(m.BeginTransaction()) for _ in range(2))
    assert isinstance(first, m.TransactionState) and isinstance(second, m.TransactionState)
    replies = [peer.ask(m.ProduceInTransaction(first.transaction_id, "t", bytes(100_000))) for _ in range(20)]
    assert [type(reply) for reply in replies] == [m.RecordMetadata] * 10 + [m.Failure] * 10
    replies = [peer.ask(m.ProduceInTransaction(second.transaction_id, "t", bytes(100_000))) for _ in range(20)]
    assert [type(reply) for reply in replies].count(m.RecordMetadata) == 5
    peer.session.lost()
    assert fixture.broker.transactions._size == 0


def test_memberships_of_one_connection_are_bounded_and_end_with_it() -> None:
    fixture = BrokerFixture(limits=Limits(memberships_per_owner=100, memberships=150, tenant_share=1))
    peer, other = Peer(fixture), Peer(fixture, port=1)
    peer.ask(m.CreateTopic("t", 1))
    for one, expected in ((peer, 100), (other, 50)):
        replies = one.all(*[m.Subscribe("t", f"g{number}", 0, "earliest") for number in range(1000)])
        assert [type(reply) for reply in replies] == [m.Position] * expected + [m.Failure] * (1000 - expected)
    assert len(fixture.broker.group_membership) == 150
    peer.session.lost()
    other.session.end_of_input()
    assert len(fixture.broker.group_membership) == 0


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000])
def test_a_fetch_of_everything_is_held_to_a_reply(count: int) -> None:
    fixture = BrokerFixture()
    peer = Peer(fixture)
    peer.all(*[m.Produce("t", None, b"v") for _ in range(MAX_MESSAGES + 5)])
    for text in ("", "v"):
        reply = peer.ask(m.Fetch("t", 0, 0, count, text, code_order=True))
        assert isinstance(reply, m.Fetched) and len(reply.records) == reply.next_offset == MAX_MESSAGES
    peer.all(*[m.Produce("u", None, bytes(1 << 20)) for _ in range(20)])
    for text in ("", "\0"):
        reply = peer.ask(m.Fetch("u", 0, 0, count, text, code_order=True))
        assert isinstance(reply, m.Fetched) and len(reply.records) == MAX_BYTES >> 20


def test_partitions_are_told_of_in_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "MAX_PARTITIONS", 2500)
    fixture = BrokerFixture()
    peer = Peer(fixture)
    for number in range(3):
        assert isinstance(peer.ask(m.GetClusterMetadata()), m.ClusterMetadata)
        peer.ask(m.CreateTopic(f"t{number}", 1000))
    assert peer.refused(m.GetClusterMetadata()) == "the topics have 3000 partitions: ask for one topic at a time"
    assert isinstance(peer.ask(m.GetClusterMetadata("t1")), m.ClusterMetadata)


def test_requests_that_wait_are_counted_though_they_have_no_payload() -> None:
    """Else a client behind whose FETCH everything waits could send small requests without end."""
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = BrokerFixture()
    peer = Peer(fixture)
    peer.ask(m.Produce("t", None, b"v"))
    fixture.broker.scan_executor._executor = later(calls)
    peer.feed(m.Fetch("t", 0, 0, 10, "v", code_order=True))
    idle = peer.session.held_bytes
    for _ in range(2):
        peer.feed(requests.encode(m.WhoAmI()) * 5_000)  # more in one piece is not even cut into frames
    assert peer.session.held_bytes - idle >= 10_000 * 64  # about what one takes
    while calls:
        work, done = calls.pop()
        work()
        done()
    assert len(peer.frames()) == 10_001
    assert peer.session.held_bytes == 0


@pytest.mark.parametrize("op", sorted(HANDLERS), ids=lambda op: Op(op).name)
def test_a_refused_request_is_let_go_at_once(op: int) -> None:
    """An error that held on to its request until the next garbage collection would cost 32 MiB a frame till then."""
    fixture = BrokerFixture()
    peer = Peer(fixture)
    peer.feed(frame(op, b"\xff" * 100))
    peer.frames()
    gc.collect()
    gc.disable()
    try:
        for payload in (b"\xff" * 100, b"\0\4none" + b"\xff" * 30, b"\0\4none" + bytes(30)):
            peer.feed(frame(op, payload))
            fixture.commit()
            peer.frames()
        peer.session.lost()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_what_is_told_of_a_dead_letter_may_be_made_up() -> None:
    fixture = BrokerFixture()
    place = (ANONYMOUS, DEFAULT_SCOPE)
    fixture.broker.topics.create(*place, "t", 1)
    fixture.broker.topics.create(*place, "t.dlq", 1)
    headers = (("dead-letter-reason", b"x" * 100_000), ("dead-letter-attempts", b"9" * 19))
    fixture.broker.produce.append(*place, "t.dlq", 0, [b"v"], None, [headers])
    fixture.commit()
    reply = Peer(fixture).ask(m.FetchDlq("t", 10))
    assert isinstance(reply, m.DlqMessages)
    assert (len(reply.messages[0].error), reply.messages[0].retries) == (1000, 2**31 - 1)


# -- schemas


class Listener:
    """An HTTP server that notes who comes."""

    def __init__(self) -> None:
        self.hits: list[str] = []
        hits = self.hits

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hits.append(self.path)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"type": "object"}')

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=[0.01])

    def __enter__(self) -> Listener:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


def registered(kind: str, definition: bytes) -> tuple[BrokerFixture, Peer, str]:
    """A broker that was given this, and what it said; nothing if it took it."""
    fixture = BrokerFixture()
    peer = Peer(fixture)
    with in_time():
        said = survives(fixture, peer, requests.encode(m.RegisterSchema("s", kind, definition)))
    return fixture, peer, said


@pytest.mark.parametrize("draft", ["", "http://json-schema.org/draft-07/schema#", "{url}/meta"])
@pytest.mark.parametrize("reference", ["{url}/x", "{url}/x#/a", "//127.0.0.1:{port}/x", "x.json", "file:///etc/passwd"])
def test_nothing_is_fetched_for_a_schema(reference: str, draft: str) -> None:
    with Listener() as listener:
        names = {"url": listener.url, "port": listener.server.server_address[1]}
        document: dict[str, Any] = {
            "$id": listener.url + "/base",
            "type": "object",
            "properties": {"a": {"$ref": reference.format(**names)}},
        }
        if draft:
            document["$schema"] = draft.format(**names)
        fixture, peer, said = registered("json", msgspec.json.encode(document))
        if not said:
            peer.ask(m.ValidateSchema("s", b'{"a": {}}'))
        assert listener.hits == []
        assert said, "a reference that cannot be followed is refused"
        served(fixture)


@pytest.mark.process  # definitions of Protobuf are compiled by one
@pytest.mark.parametrize(
    "definition",
    [
        b'import "/etc/passwd"; message M {}',
        b'import "../../../../etc/passwd"; message M {}',
        b'import "other.proto"; message M {}',
        b'import "schema.proto"; message M {}',
        b'import public "/proc/self/environ"; message M {}',
    ],
)
def test_nothing_is_read_for_a_protobuf_schema(definition: bytes) -> None:
    fixture, _, said = registered("protobuf", b'syntax = "proto3"; ' + definition)
    assert said.startswith("failed to register schema") and "root:" not in said and "PATH=" not in said
    served(fixture)


def nested(inner: str, depth: int, before: str, behind: str) -> bytes:
    return (before * depth + inner + behind * depth).encode()


DOUBLING = {
    "$defs": {
        **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(40)},
        "d40": {"type": "object"},
    },
    "$ref": "#/$defs/d0",
}

PROTO3 = b'syntax = "proto3"; '
FIELDS = b"".join(b"int32 f%d = %d; " % (number, number) for number in range(1, 8000))

HEAVY: list[tuple[str, str, bytes]] = [
    ("json nested deeply", "json", nested("{}", 50_000, '{"properties":{"a":', "}}")),
    ("json of brackets", "json", b"[" * 200_000),
    ("json that refers to itself", "json", b'{"$ref": "#"}'),
    ("json in a circle", "json", b'{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}'),
    ("json that doubles forty times", "json", msgspec.json.encode(DOUBLING)),
    ("json with a recursive tree", "json", b'{"type":"object","additionalProperties":{"$ref":"#"}}'),
    ("json with a huge enum", "json", msgspec.json.encode({"enum": list(range(40_000))})),
    ("json with a pattern for backtracking", "json", b'{"type":"string","pattern":"^(a+)+$"}'),
    ("json with a huge pattern", "json", b'{"type":"string","pattern":"((a{1,1000}){1,1000}){1,1000}"}'),
    ("json with a look-ahead", "json", b'{"type":"string","pattern":"^(?=(a+)+$)b"}'),
    ("json with a pattern that refers back", "json", rb'{"type":"string","pattern":"^(a+)\\1+$"}'),
    ("json with a huge bound", "json", b'{"type":"array","minItems":1e308,"maxItems":' + b"9" * 5000 + b"}"),
    ("json of a million keys", "json", b"{" + b",".join(b'"k%d":1' % n for n in range(30_000)) + b"}"),
    ("json with unique items", "json", b'{"type":"array","uniqueItems":true}'),
    (
        "avro nested deeply",
        "avro",
        nested('"int"', 20_000, '{"type":"array","items":', "}"),
    ),
    (
        "avro that is its own field",
        "avro",
        b'{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}',
    ),
    (
        "avro as a list",
        "avro",
        b'{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}',
    ),
    ("avro with nothing in its items", "avro", b'{"type":"array","items":"null"}'),
    (
        "avro with records without fields",
        "avro",
        b'{"type":"array","items":{"type":"record","name":"E","fields":[]}}',
    ),
    ("avro with a fixed of 2^40", "avro", b'{"type":"fixed","name":"F","size":1099511627776}'),
    ("avro with a negative fixed", "avro", b'{"type":"fixed","name":"F","size":-1}'),
    (
        "avro with a long enum",
        "avro",
        msgspec.json.encode({"type": "enum", "name": "E", "symbols": [f"s{n}" for n in range(20_000)]}),
    ),
    ("protobuf nested deeply", "protobuf", nested("", 5000, "message M { ", " }")),
    ("protobuf that is its own field", "protobuf", b'syntax = "proto3"; message M { M m = 1; }'),
    ("protobuf with many fields", "protobuf", PROTO3 + b"message M { " + FIELDS + b"}"),
    ("protobuf with an option", "protobuf", PROTO3 + b'option java_package = "' + b"x" * 200_000 + b'"; message M {}'),
    ("no text at all", "protobuf", bytes(range(256)) * 100),
]

MESSAGES = [
    b"",
    b"\0",
    b"\xff" * 10,
    b"\xff" * 1_000_000,
    b"\x02" * 200_000,
    b"\x0a" * 200_000,
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # 2^62 items
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x00" * 20,
    b'"' + b"a" * 500_000 + b'!"',
    b"[" * 200_000,
    b"[" + b"{}," * 200_000 + b"{}]",
    b"[" + b",".join(b"%d" % number for number in range(20_000)) + b"]",
    b'{"a":' * 90 + b"1" + b"}" * 90,
    b'{"a":' * 100_000,
    b"9" * 400_000,
    b"-0.0e-999999999",
]


@pytest.mark.process
@pytest.mark.parametrize(("kind", "definition"), [row[1:] for row in HEAVY], ids=[row[0] for row in HEAVY])
def test_definitions_that_explode_and_messages_that_do(kind: str, definition: bytes) -> None:
    fixture, peer, said = registered(kind, definition)
    if not said:
        with in_time():
            for message in MESSAGES:
                survives(fixture, peer, requests.encode(m.ValidateSchema("s", message)))
                survives(fixture, peer, requests.encode(m.ProduceWithSchema("t", "s", message)))
        # And the next version, which is compared with this one.
        with in_time():
            survives(fixture, peer, requests.encode(m.RegisterSchema("s", kind, definition + b" ")))
    served(fixture)
