"""Clients of Kimberlite's door that take and do not give: lengths and counts, large frames, subscriptions by the
thousand, statements that eat time and memory. The broker's memory stays flat, and everybody else is served.

The bound on memory is that of `test_resources`; the process for SQL has its own, which the broker watches.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.fuzz.kimberlite_wire import DIALECTS, HUGE, MAX_PAYLOAD, TENANT, KimWire, asked, frame, greeting
from tests.fuzz.test_resources import MIB, Besieged, besieged, flood, pour, read_by_broker, until
from tests.fuzz.wire import DEADLINE, Pump
from tests.process_stats import children, open_files, processor_seconds, resident_bytes

from penstock.doors.kimberlite.subscriptions import MAX_SUBSCRIPTIONS
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.messages import ErrorCode
from penstock.workers.sql.worker import OVERHEAD_BYTES

NAMES = list(DIALECTS)
SQL_MEMORY = 64 * MIB
EVENT = bytes(range(256)) * 4  # 1 KiB
MOST = 0xFFFFFFFF
EVENTS = 5  # the number of the stream with events in it: others come before it at the other doors
SQL_PROCESSES = 4  # as many as there are by default


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    settings = {
        "sql__threads": str(SQL_PROCESSES),
        "sql__seconds": "1",
        "sql__memory_bytes": "64MiB",
        "log__tail_bytes": "1MiB",
        "log__cache_bytes": "1MiB",
    }
    with besieged(tmp_path_factory.mktemp("kimberlite"), **settings) as one:
        used(one)
        yield one


def used(one: Besieged) -> None:
    """The largest requests and replies of honest clients, and a process for SQL, belong to what is used before."""
    with connected(one) as wire, connected(one, "seed") as reader:
        stream = wire.create("events")
        assert stream == EVENTS
        for number in range(4):
            wire.append(stream, [EVENT] * 4000, number * 4000)
        for _ in range(3):
            assert isinstance(reader.ask_for(m.ReadEvents(stream, 0, HUGE)), m.ReadEventsResponse)
            assert isinstance(wire.ask_for(m.AppendEvents(stream, [bytes(15 * MIB)], 0)), m.ErrorResponse)
        wire.patiently()
        count = m.Query("SELECT COUNT(*) FROM events", [])
        until(lambda: isinstance(wire.ask_for(count), m.QueryResponse), "no statement is done in its second")
    one.memory, one.files = resident_bytes(one.broker.process.pid), open_files(one.broker.process.pid)


def connected(one: Besieged, of: str = "5b", *, greets: bool = True) -> KimWire:
    return KimWire(one.broker.endpoint("kimberlite"), of, greets=greets)


def code_of(reply: m.Message) -> ErrorCode | None:
    return reply.code if isinstance(reply, m.ErrorResponse) else None


# -- lengths and counts


@pytest.mark.parametrize("greets", [False, True])
def test_200_connections_that_announce_16_mib_and_send_nothing(broker: Besieged, greets: bool) -> None:
    with ExitStack() as stack:
        for number in range(200):
            name = NAMES[number % len(NAMES)]
            wire = stack.enter_context(connected(broker, name, greets=greets))
            wire.socket.sendall(frame(b"\0", DIALECTS[name].version, length=MAX_PAYLOAD))
        broker.holds()
    broker.files_back()
    broker.holds()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


POSTCARD_HEAD = b"\x00\x01" + bytes((TENANT,)) + b"\x00"  # a request with id 1, without who asks
FIXED_HEAD = struct.pack("<QQ", 1, TENANT)
COUNTS = {
    "events": ("5b", POSTCARD_HEAD + b"\x02\x01" + _varint(HUGE)),
    "2^20 events of nothing": ("5b", POSTCARD_HEAD + b"\x02\x01" + _varint(1 << 20) + bytes(1 << 20) + b"\0"),
    "bytes of an event": ("5b", POSTCARD_HEAD + b"\x02\x01\x01" + _varint(HUGE)),
    "characters of SQL": ("5b", POSTCARD_HEAD + b"\x03" + _varint(HUGE) + b"SELECT 1"),
    "parameters": ("5b", POSTCARD_HEAD + b"\x03\x01a" + _varint(1 << 40) + bytes(100)),
    "a varint without end": ("5b", POSTCARD_HEAD + b"\x02" + b"\x80" * 1000),
    "events, fixed": ("seed", FIXED_HEAD + struct.pack("<IQQ", 2, 1, HUGE) + bytes(64)),
    "bytes of an event, fixed": ("seed", FIXED_HEAD + struct.pack("<IQQQ", 2, 1, 1, HUGE) + bytes(64)),
    "the kind of request": ("v0.1", FIXED_HEAD + struct.pack("<I", MOST)),
}


@pytest.mark.parametrize("what", COUNTS)
def test_a_count_is_not_believed(broker: Besieged, what: str) -> None:
    name, payload = COUNTS[what]
    for _ in range(20):
        with connected(broker, name) as wire:
            wire.socket.sendall(frame(payload, DIALECTS[name].version))
            assert code_of(wire.answer()) is ErrorCode.INVALID_REQUEST
            assert wire.closed()
    broker.holds()


LARGE = "x" * (MAX_PAYLOAD - 100)
LARGEST: dict[str, tuple[m.Message, set[ErrorCode]]] = {
    "an event": (m.AppendEvents(EVENTS, [bytes(MAX_PAYLOAD - 100)], 0), {ErrorCode.INVALID_REQUEST}),
    "60,000 events": (m.AppendEvents(EVENTS, [bytes(270)] * 60_000, 0), {ErrorCode.INVALID_REQUEST}),
    "a stream's name": (m.CreateStream(LARGE, m.DataClass.PUBLIC, m.Everywhere()), {ErrorCode.INVALID_REQUEST}),
    "a region": (
        m.CreateStream("s", m.DataClass.PUBLIC, m.Regional(m.CustomRegion(LARGE))),
        {ErrorCode.INVALID_REQUEST},
    ),
    "a token": (m.Handshake(5, LARGE), set()),
    "a group": (m.Subscribe(EVENTS, 0, 1, LARGE), {ErrorCode.INVALID_REQUEST}),
    "a table": (m.DescribeTable(LARGE), {ErrorCode.TABLE_NOT_FOUND, ErrorCode.QUERY_PARSE_ERROR}),
    "a subject": (m.ApiKeyRegister(LARGE, TENANT, ["User"]), {ErrorCode.INVALID_REQUEST}),
    "roles": (m.ApiKeyRegister("s", TENANT, ["role"] * 65_536), {ErrorCode.INVALID_REQUEST}),
    "SQL": (m.Query(f"SELECT '{LARGE[:-100]}'", []), {ErrorCode.QUERY_PARSE_ERROR, ErrorCode.QUERY_EXECUTION_ERROR}),
    "a parameter": (
        m.Query("SELECT length($1)", [LARGE]),
        {ErrorCode.QUERY_PARSE_ERROR, ErrorCode.QUERY_EXECUTION_ERROR},
    ),
    "65,536 parameters": (
        m.Query("SELECT 1", [1] * 65_536),
        {ErrorCode.QUERY_PARSE_ERROR, ErrorCode.QUERY_EXECUTION_ERROR},
    ),
    "a reason": (m.Query("SELECT 1", [], LARGE), {ErrorCode.INVALID_REQUEST, ErrorCode.QUERY_EXECUTION_ERROR}),
    "an actor to look for": (m.AuditQuery(actor=LARGE), {ErrorCode.INVALID_REQUEST}),
}


@pytest.mark.parametrize("what", LARGEST)
def test_the_largest_requests_are_refused_or_answered_in_little_memory(broker: Besieged, what: str) -> None:
    """Not every one of them is an error; none is one that the protocol does not have."""
    request, errors = LARGEST[what]
    data = asked(request)
    for _ in range(3):
        with connected(broker) as wire:
            wire.patiently()
            wire.socket.sendall(data)
            code = code_of(wire.answer())
            assert code is None or code in errors, f"{what}: {code}"
            assert isinstance(wire.ask_for(m.Sync()), m.SyncResponse)
    broker.holds()


def test_halves_of_large_requests_are_held_to_the_limit_of_all_together(tmp_path: Path) -> None:
    """As for the other doors: 40 clients send all but the last byte of 16 MiB each."""
    half = frame(bytes(MAX_PAYLOAD))[:-1]
    with besieged(tmp_path, limits__total_bytes="32MiB") as one, ExitStack() as stack:
        wires = [stack.enter_context(connected(one)) for _ in range(40)]
        taken = [pour(wire, half) for wire in wires]
        assert min(taken) < len(half), "the broker does not stop reading"
        one.holds()


def test_200_slow_connections_are_answered_when_they_are_done(broker: Besieged) -> None:
    with ExitStack() as stack:
        slow = []
        for number in range(200):
            name = NAMES[number % len(NAMES)]
            slow.append((stack.enter_context(connected(broker, name, greets=False)), greeting(name)))
        for position in range(max(len(data) for _, data in slow)):
            for wire, data in slow:
                wire.socket.sendall(data[position : position + 1])
        broker.holds()
        for wire, _ in slow:
            assert isinstance(wire.answer(), m.HandshakeResponse)
    broker.files_back()


# -- subscriptions


def test_10_000_subscribes_on_one_connection(broker: Besieged) -> None:
    with connected(broker) as wire:
        empty = wire.create("empty")
        wire.socket.sendall(asked(m.Subscribe(empty, 0, MOST)) * 10_000)
        replies = [wire.answer() for _ in range(10_000)]
        assert [type(reply) for reply in replies[:MAX_SUBSCRIPTIONS]] == [m.SubscribeResponse] * MAX_SUBSCRIPTIONS
        assert {code_of(reply) for reply in replies[MAX_SUBSCRIPTIONS:]} == {ErrorCode.RATE_LIMITED}
        broker.holds()
    broker.files_back()
    broker.holds()


def test_credits_do_not_add_up_to_more_than_there_are_numbers(broker: Besieged) -> None:
    with connected(broker) as wire:
        empty = wire.create("empty")
        made = wire.ask_for(m.Subscribe(empty, 0, MOST, "group"))
        assert isinstance(made, m.SubscribeResponse)
        for _ in range(100):
            told = wire.ask_for(m.SubscribeCredit(made.subscription_id, MOST))
            assert told == m.SubscriptionAck(made.subscription_id, MOST)
        assert code_of(wire.ask_for(m.SubscribeCredit(HUGE, 1))) is ErrorCode.SUBSCRIPTION_NOT_FOUND
    broker.holds()


def test_subscribers_that_read_nothing_of_a_busy_stream(broker: Besieged) -> None:
    """Five connections with 100 subscriptions each, all with all credits, while 16 MiB are appended. One that begins to
    read at last gets everything, in order."""
    with ExitStack() as stack, connected(broker) as writer:
        busy = writer.create("busy")
        lazy = [stack.enter_context(connected(broker)) for _ in range(5)]
        for wire in lazy:
            wire.socket.sendall(asked(m.Subscribe(busy, 0, MOST)) * 100)
        reader = stack.enter_context(connected(broker))
        assert isinstance(reader.ask_for(m.Subscribe(busy, 0, MOST, "late")), m.SubscribeResponse)
        for number in range(16):
            writer.append(busy, [EVENT] * 1000, number * 1000)
            broker.within_bound()
        broker.holds()
        for offset in range(16_000):
            pushed = reader.message()
            assert isinstance(pushed, m.Push) and isinstance(pushed.payload, m.SubscriptionEvents)
            assert (pushed.payload.start_offset, pushed.payload.events) == (offset, [EVENT])
        broker.holds()
    broker.files_back()


def test_members_of_groups_that_come_and_go(broker: Besieged) -> None:
    """Each leaves events unsettled, and some vanish without a word."""
    with connected(broker) as wire:
        stream = wire.create("jobs")
        wire.append(stream, [b"job"] * 500, 0)
    for number in range(200):
        with connected(broker) as member:
            member.socket.sendall(asked(m.Subscribe(stream, 0, 50, f"group{number % 7}")))
            if number % 3:
                assert isinstance(member.answer(), m.SubscribeResponse)
    broker.holds()
    broker.files_back()


def test_clients_that_ask_for_much_and_read_nothing(broker: Besieged) -> None:
    with ExitStack() as stack:
        for name in ("seed", "5b"):
            wire = stack.enter_context(connected(broker, name))
            sent = flood(wire, asked(m.ReadEvents(EVENTS, 0, HUGE), name) * 1000)
            assert read_by_broker(wire, sent) < 64 * MIB, "the broker does not stop reading"
            broker.holds()
    broker.files_back()


@pytest.mark.parametrize("name", ["v0.1", "seed", "5b"])
def test_requests_by_the_hundred_thousand_hold_up_nobody(broker: Besieged, name: str) -> None:
    """Each is answered with a short error, and the client does not read them. As many as fit between it and the broker
    take the broker seconds, which nobody else may have to wait for."""
    with connected(broker, name) as wire:
        process, longest = broker.broker.process.pid, 0.0
        pump, began = Pump(wire.socket, asked(m.ReadEvents(HUGE, 0, 1), name) * 5000), time.monotonic()
        while time.monotonic() - began < 1.5:
            pump.send(100 * len(pump.data))
            before = processor_seconds(process)
            broker.others.served()
            longest = max(longest, processor_seconds(process) - before)
        assert longest < 1.0, f"the broker worked for {longest:.1f} s before others were served"
        broker.within_bound()
    broker.files_back()


# -- SQL


def ask_sql(one: Besieged, sql: str) -> m.Message:
    with connected(one) as wire:
        wire.patiently()
        return wire.ask_for(m.Query(sql, []))


DEEP = {
    "parentheses": "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
    "open parentheses": "SELECT " + "(" * 100_000,
    "subqueries": "SELECT * FROM (" * 1_000 + "SELECT 1" + ")" * 1_000,
    "unions": "SELECT 1" + " UNION ALL SELECT 1" * 5_000,
    "operators": "SELECT 1" + "+1" * 30_000,
    "negations": "SELECT " + "NOT " * 100_000 + "TRUE",
    "signs": "SELECT " + "- " * 100_000 + "1",
    "cases": "SELECT " + "CASE WHEN TRUE THEN " * 5_000 + "1" + " END" * 5_000,
    "lists": "SELECT " + "[" * 50_000 + "]" * 50_000,
    "casts": "SELECT 1" + "::INT" * 50_000,
    "with": "WITH " + ", ".join(f"a{n} AS (SELECT 1)" for n in range(5_000)) + " SELECT 1",
    "digits": "SELECT " + "9" * 100_000,
    "a list of values": "SELECT 1 WHERE 1 IN (" + "1," * 20_000 + "1)",
    "quotes": "SELECT '" + "''" * 500_000,
    "comments": "SELECT 1 " + "/*" * 50_000,
}


@pytest.mark.parametrize("what", DEEP)
def test_sql_that_is_hard_to_read(broker: Besieged, what: str) -> None:
    reply = ask_sql(broker, DEEP[what])
    assert code_of(reply) in (None, ErrorCode.QUERY_PARSE_ERROR, ErrorCode.QUERY_EXECUTION_ERROR), reply
    broker.holds()


GREEDY = {
    "time": "SELECT COUNT(*) FROM range(1000000000) a, range(1000000000) b WHERE (a.range + b.range) % 7 = 3",
    "a sort": "SELECT a.range FROM range(100000000) a ORDER BY hash(a.range) LIMIT 5 OFFSET 50000000",
    "a list": "SELECT list(range) FROM range(100000000)",
    "a string": "SELECT length(repeat('x', 2000000000))",
    "strings": "SELECT string_agg(repeat('x', 1000), '') FROM range(10000000)",
    "a join": "SELECT COUNT(*) FROM events a, events b, events c WHERE a.data || b.data < c.data",
    "groups": "SELECT COUNT(*) FROM (SELECT a.range, COUNT(*) FROM range(100000000) a GROUP BY 1)",
    "a recursion": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT COUNT(*) FROM r",
    "rows": "SELECT * FROM range(100000000)",
    "wide rows": "SELECT repeat('x', 1000000) FROM range(1000)",
    "expressions": "SELECT regexp_matches(repeat('a', 100000), '(a*)*b') FROM range(10000)",
}


def test_statements_that_eat_time_and_memory_in_a_row_while_others_are_served(broker: Besieged) -> None:
    """Each is ended within its second or at its memory, with an error that says so; the other doors do not notice, and
    another tenant's statement comes to its turn in between."""
    process = broker.broker.process.pid
    bound = 2 * SQL_MEMORY + OVERHEAD_BYTES
    with ExitStack() as stack:
        greedy = {what: stack.enter_context(connected(broker)) for what in GREEDY}
        for what, wire in greedy.items():
            wire.patiently(5)
            wire.socket.sendall(asked(m.Query(GREEDY[what], [])))
        modest = stack.enter_context(connected(broker))
        modest.patiently()
        modest.socket.sendall(asked(m.Query("SELECT 1 AS one", []), tenant=TENANT + 1))
        assert modest.answer() == m.QueryResponse(["one"], [[1]])
        answered, _, _ = select.select([wire.socket for wire in greedy.values()], [], [], 0)
        assert len(answered) < len(greedy) / 2, "one tenant's statements keep another's waiting"
        for what, wire in greedy.items():
            reply = wire.answer()
            assert code_of(reply) is ErrorCode.QUERY_EXECUTION_ERROR, f"{what}: {str(reply)[:300]}"
            broker.holds()
            assert all(resident_bytes(child) < bound for child in children(process))
    broker.within_bound()


def vanish(wire: KimWire) -> None:
    """Reset the connection: one that is only closed might still want its answers."""
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.socket.close()


def test_statements_of_clients_that_vanish_are_not_carried_out(broker: Besieged) -> None:
    """100 clients ask for something that takes its whole second, and are gone."""
    for _ in range(100):
        wire = connected(broker)
        wire.socket.sendall(asked(m.Query(GREEDY["time"], [])))
        vanish(wire)
    began = time.monotonic()
    assert ask_sql(broker, "SELECT 1 AS one") == m.QueryResponse(["one"], [[1]])
    assert time.monotonic() - began < 2 * DEADLINE, "statements are carried out for nobody"
    broker.holds()


def test_more_statements_than_there_is_room_for(broker: Besieged) -> None:
    """Requests that find no room in the queue are told to try again later."""
    broker.files += SQL_PROCESSES  # each is another connection of the broker's, and some of them stay
    with ExitStack() as stack:
        wires = [stack.enter_context(connected(broker)) for _ in range(300)]
        for wire in wires:
            wire.socket.sendall(asked(m.Query(GREEDY["time"], [])))
        # The last ones: by the time they are asked on a busy machine, a place may have become free.
        assert any(code_of(wire.answer()) is ErrorCode.RATE_LIMITED for wire in reversed(wires[-50:]))
        broker.holds()
        for wire in wires:
            vanish(wire)
    broker.files_back()
    assert ask_sql(broker, "SELECT 1 AS one") == m.QueryResponse(["one"], [[1]])
