"""Both clients against a scripted server: what they ask, what they make of the answers, and of their absence."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.clients.conftest import Tls
from tests.clients.driver import Driver
from tests.clients.kimberlite.scripted_server import AUDIT, CHAIN, INFO, KEY, PHI, TENANT, Fault, ScriptedServer
from tests.transport.certificates import Authority

from penstock.clients.kimberlite import (
    Appended,
    AsyncKimberliteClient,
    AuditMetadata,
    AuthenticationFailed,
    BadReply,
    ConnectionFailed,
    DataClass,
    ErrorCode,
    Executed,
    KimberliteClient,
    NotLeader,
    OffsetMismatch,
    OutcomeUnknown,
    Page,
    PipelineError,
    RateLimited,
    ReplyError,
    Rows,
    ServerFailed,
    StreamAlreadyExists,
    StreamNotFound,
    TimedOut,
    Timestamp,
    Unsendable,
    requests,
)
from penstock.clients.kimberlite.errors import reply_error
from penstock.clients.kimberlite.options import server_addresses
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.dialects import NAMED

Connect = Callable[..., Driver]


def error(code: ErrorCode, text: str = "no") -> m.ErrorResponse:
    return m.ErrorResponse(code, text)


# -- every request

CALLS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("create_stream", ("events", DataClass.PHI), 100),
    ("append", (100, [b"one", b"two"], 0), Appended(0, 2)),
    ("append", (100, [b"three"]), Appended(2, 1)),
    ("stream_info", (100,), 3),
    ("read_page", (100, 1), Page([b"two", b"three"], None)),
    ("read_page", (100, 0, 6), Page([b"one", b"two"], 2)),
    ("sync", (), None),
    ("query", ("SELECT 1", [1, "a", True, None, Timestamp(5)]), Rows(
        ["$1", "$2", "$3", "$4", "$5"], [[1, "a", True, None, Timestamp(5)]]
    )),
    ("query_at", ("SELECT 1", 7), Rows(["position"], [[7]])),
    ("execute", ("INSERT INTO t VALUES ($1)", [1]), Executed(1, 42)),
    ("list_tables", (), [m.TableSummary("events", 4)]),
    ("describe_table", ("events",), [PHI]),
    ("list_indexes", ("events",), [m.IndexInfo("by_name", ["name"])]),
    ("create_tenant", (7, "seven"), TENANT),
    ("list_tenants", (), [TENANT]),
    ("get_tenant", (7,), TENANT),
    ("delete_tenant", (7,), m.TenantDeleteResponse(True, 2)),
    ("register_api_key", ("somebody", 7, ["User"]), m.ApiKeyRegisterResponse("secret", KEY)),
    ("revoke_api_key", ("secret",), True),
    ("list_api_keys", (), [KEY]),
    ("rotate_api_key", ("secret",), m.ApiKeyRotateResponse("newer", KEY)),
    ("server_info", (), INFO),
    ("audit_query", (), [AUDIT]),
    ("verify_audit_chain", (), CHAIN),
]  # fmt: skip


def test_every_request(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    for name, arguments, result in CALLS:
        assert getattr(client, name)(*arguments) == result, name
    assert scripted.connections == 1
    served = {type(request.payload) for request in scripted.requests}
    of_subscriptions = {m.Subscribe, m.SubscribeCredit, m.Unsubscribe}
    stateful = {m.CreateStream, m.AppendEvents, m.ReadEvents, m.Query, m.QueryAt, m.DescribeTable, m.StreamInfo}
    fixed = {m.Sync, m.GetServerInfo, m.ListTables, m.ListIndexes, m.TenantCreate, m.TenantList, m.TenantGet}
    fixed |= {m.TenantDelete, m.ApiKeyRegister, m.ApiKeyRevoke, m.ApiKeyList, m.ApiKeyRotate, m.AuditQuery}
    assert served - of_subscriptions == stateful | fixed | {m.VerifyAuditChain}


def test_both_clients_have_the_same_methods() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(getattr(kind, name)).parameters)
            for name in dir(kind)
            if not name.startswith("_") and callable(getattr(kind, name))
        }

    assert public(KimberliteClient) == public(AsyncKimberliteClient)
    methods = public(KimberliteClient)
    for name in ("create_stream", "query", "server_info"):
        assert methods[name] == ["self", *inspect.signature(getattr(requests, name)).parameters]
    assert "Make a stream" in (KimberliteClient.create_stream.__doc__ or "")


@pytest.mark.parametrize(
    ("version", "castagnoli"), [*[(version, False) for version in NAMED], ("seed", True), ("5b", True)]
)
def test_every_version(scripted: ScriptedServer, connect: Connect, version: str, castagnoli: bool) -> None:
    client = connect(scripted.address, version=version, castagnoli=castagnoli, tenant=42)
    stream = client.create_stream("events")
    wants_offset = version not in ("v0.1", "seed", "seed/bincode", "seed/postcard")
    for at in range(3):
        expected = at if wants_offset else None
        assert client.append(stream, [b"%d" % at], expected) == Appended(at, 1)
    assert list(client.read(stream, 1)) == [b"1", b"2"]
    assert client.query("SELECT $1", [-1]).rows == [[-1]]
    assert client.query_at("SELECT 1", 5).rows == [[5]]
    client.sync()
    assert client.check()
    assert {request.tenant_id for request in scripted.requests} == {42}
    created = scripted.received(m.CreateStream)[0]
    assert created.data_class is (DataClass.PUBLIC if wants_offset else DataClass.NON_PHI)
    assert isinstance(created.placement, m.Everywhere)
    assert scripted.connections == 1


def test_a_version_that_nobody_speaks() -> None:
    with pytest.raises(ValueError, match="is no version"):
        KimberliteClient(version="6")


@pytest.mark.parametrize(
    ("version", "name", "arguments", "options", "text"),
    [
        ("seed", "append", (100, [b"x"], 0), {}, "has no expected_offset"),
        ("5a", "append", (100, [b"x"]), {}, "must say where the stream ends"),
        ("5a", "stream_info", (100,), {}, "has no StreamInfo"),
        ("seed", "server_info", (), {}, "has no GetServerInfo"),
        ("v2", "sync", (), {"audit": AuditMetadata("me")}, "from version 3 on"),
        ("v2", "query", ("SELECT 1",), {"break_glass_reason": "fire"}, "has no break_glass_reason"),
        ("5b", "query", ("SELECT $1", [1.5]), {}, "not <class 'float'>"),
        ("5b", "query", ("SELECT $1", [datetime(2026, 1, 1)]), {}, "time zone"),
        ("5b", "query", ("SELECT $1", [2**63]), {}, "Query cannot be sent"),
        ("5b", "create_stream", ("x", DataClass.PHI, m.Regional()), {}, "cannot be sent"),
        ("5b", "append", (100, ["text"], 0), {}, "cannot be sent"),
        ("5b", "append", (100, [bytes(1 << 20)] * 17, 0), {}, "the most is 16777216"),
        ("5b", "read_page", (-1,), {}, "cannot be sent"),
    ],
)
def test_what_cannot_be_sent(
    scripted: ScriptedServer, connect: Connect, version: str, name: str, arguments: Any, options: Any, text: str
) -> None:
    client = connect(scripted.address, version=version)
    client.sync()
    with pytest.raises(Unsendable, match=text):
        getattr(client, name)(*arguments, **options)
    client.sync()
    assert [type(request.payload) for request in scripted.requests] == [m.Sync, m.Sync]
    assert scripted.connections == 1


def test_moments_as_parameters(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    moment = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert client.query("SELECT $1", [moment]).rows == [[Timestamp(1_700_000_000_123_456_000)]]


def test_tenant_and_audit_of_one_call(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address, tenant=3)
    note = AuditMetadata("dr@x", "chart", None, None)
    client.sync()
    client.sync(tenant=9, audit=note)
    client.query("SELECT 1", break_glass_reason="fire")
    assert [(request.tenant_id, request.audit) for request in scripted.requests] == [(3, None), (9, note), (3, None)]
    assert scripted.received(m.Query)[0].break_glass_reason == "fire"


def test_reading_page_by_page(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    events = [b"%04d" % number for number in range(100)]
    stream = scripted.stream("events", *events)
    assert list(client.read(stream, 3, page_bytes=40)) == events[3:]
    assert len(scripted.received(m.ReadEvents)) == 10
    assert list(client.read(stream, 1000)) == []


def test_a_statement_that_changes_nothing_is_no_execute(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    with pytest.raises(BadReply, match="use query"):
        client.execute("SELECT 1")
    client.sync()
    assert scripted.connections == 1


# -- the handshake


def test_the_token_is_sent_with_every_connection(scripted: ScriptedServer, connect: Connect) -> None:
    scripted.token = "good"
    made: list[str] = []

    def token() -> str:
        made.append("good")
        return made[-1]

    client = connect(scripted.address, token=token)
    client.sync()
    client.close()
    client.close()
    client.sync()
    assert len(made) == 2
    assert [hello.auth_token for hello in scripted.handshakes] == ["good", "good"]
    assert "good" not in repr(client._driver.binding)


@pytest.mark.parametrize("token", ["bad", None])
def test_a_token_that_is_not_accepted(scripted: ScriptedServer, connect: Connect, token: str | None) -> None:
    scripted.token = "good"
    client = connect(scripted.address, token=token)
    with pytest.raises(AuthenticationFailed):
        client.connect()
    with pytest.raises(AuthenticationFailed):
        client.sync()
    assert client.slept == []
    assert scripted.requests == []


def test_a_handshake_that_is_refused_for_now(scripted: ScriptedServer, connect: Connect) -> None:
    scripted.handshake_replies.append(error(ErrorCode.RATE_LIMITED, "too many connections"))
    client = connect(scripted.address)
    client.sync()
    assert client.slept == [0.5]
    assert client.connections == 1


def test_a_server_of_another_version(scripted: ScriptedServer, connect: Connect) -> None:
    scripted.handshake_replies.append(m.HandshakeResponse(4, True, []))
    with pytest.raises(BadReply, match="version 4, not 5"):
        connect(scripted.address).sync()


# -- pipelining


def test_replies_in_another_order(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    client.connect()
    scripted.hold = 3
    specs = [requests.query(f"SELECT {number}", [number]) for number in range(3)]
    assert [outcome.rows for outcome in client.pipeline(specs)] == [[[0]], [[1]], [[2]]]


def test_a_pipeline_tells_errors_from_results(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    stream = scripted.stream("events")
    found = client.pipeline(
        [
            requests.append(stream, [b"a"], 0),
            requests.append(stream, [b"b"], 0),
            requests.append(stream, ["b"], 1),  # type: ignore[list-item]
            requests.append(stream, [b"c"], 1),
            requests.append(999, [b"d"], 0),
        ]
    )
    assert found[0] == Appended(0, 1)
    assert isinstance(found[1], OffsetMismatch) and found[1].actual == 1
    assert isinstance(found[2], Unsendable)
    assert found[3] == Appended(1, 1)
    assert isinstance(found[4], StreamNotFound)


def test_an_error_in_a_pipeline_is_not_repeated_behind_the_others(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address, version="seed")
    stream = scripted.stream("events")
    scripted.errors.append(error(ErrorCode.RATE_LIMITED))
    found = client.pipeline([requests.append(stream, [b"a"]), requests.append(stream, [b"b"])])
    assert isinstance(found[0], RateLimited)
    assert scripted.streams[stream].events == [b"b"]


@pytest.mark.parametrize("version", ["5b", "seed"])
def test_many_batches(scripted: ScriptedServer, connect: Connect, version: str) -> None:
    client = connect(scripted.address, version=version)
    stream = scripted.stream("events", b"first")
    batches = [[b"%d" % number] * 3 for number in range(50)]
    stored = client.append_many(stream, iter(batches), window=7)
    assert stored == [Appended(1 + 3 * number, 3) for number in range(50)]
    assert scripted.streams[stream].events == [b"first", *(event for batch in batches for event in batch)]


def test_as_many_in_flight_as_the_window_says(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address, timeout=5.0)
    stream = scripted.stream("events")
    client.connect()
    scripted.hold = 4
    stored = client.append_many(stream, [[b"x"]] * 8, 0, window=4)
    assert [place.first_offset for place in stored] == list(range(8))


@pytest.mark.parametrize("limit", [{"window": 4}, {"window_bytes": 40_000}])
def test_and_no_more(scripted: ScriptedServer, connect: Connect, limit: dict[str, int]) -> None:
    client = connect(scripted.address, timeout=0.6)
    stream = scripted.stream("events")
    client.connect()
    scripted.faults.extend([Fault.SILENCE] * 8)
    with pytest.raises(PipelineError) as failed:
        client.append_many(stream, [[bytes(10_000)]] * 8, 0, **limit)
    assert len(scripted.received(m.AppendEvents)) == 4
    assert len(failed.value.results) == 4
    assert all(isinstance(result, OutcomeUnknown) for result in failed.value.results)


def test_a_failure_stops_the_sending(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    stream = scripted.stream("events", *[b"somebody else's"] * 5000)
    taken = 0

    def batches() -> Iterator[list[bytes]]:
        nonlocal taken
        for taken in range(1, 1001):
            yield [b"%d" % taken]

    with pytest.raises(PipelineError, match="the first because: offset mismatch") as failed:
        client.append_many(stream, batches(), 0, window=5)
    assert all(isinstance(result, OffsetMismatch) for result in failed.value.results)
    assert len(failed.value.results) == taken == len(scripted.received(m.AppendEvents)) <= 10
    assert len(scripted.streams[stream].events) == 5000
    client.sync()
    assert client.connections == 1


def test_a_batch_that_cannot_be_sent_stops_the_sending_too(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    stream = scripted.stream("events")
    with pytest.raises(PipelineError, match="1 of 2") as failed:
        client.append_many(stream, [[b"a"], ["b"], [b"c"]], 0)
    assert failed.value.results[0] == Appended(0, 1)
    assert isinstance(failed.value.results[1], Unsendable)


def test_batches_that_the_caller_cannot_make(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    stream = scripted.stream("events")

    def batches() -> Iterator[list[bytes]]:
        yield [b"a"]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.append_many(stream, batches(), 0)
    client.sync()


def test_batches_on_a_connection_that_is_lost(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    stream = scripted.stream("events")
    scripted.faults.extend([Fault.NONE, Fault.NONE, Fault.NONE, Fault.DROP])
    with pytest.raises(PipelineError) as failed:
        client.append_many(stream, ([b"%d" % number] for number in range(1000)), window=2)
    results = failed.value.results
    assert results[:2] == [Appended(0, 1), Appended(1, 1)]
    assert isinstance(results[2], OutcomeUnknown)
    assert len(results) <= 4
    client.sync()


# -- retries


def test_what_only_reads_is_asked_again(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    scripted.faults.extend([Fault.DROP, Fault.HALF])
    assert client.query("SELECT $1", [1]).rows == [[1]]
    assert client.slept == [0.5, 1.0]
    assert client.connections == 3


def test_but_not_forever(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    scripted.faults.extend([Fault.DROP] * 3)
    with pytest.raises(ConnectionFailed, match="lost 3 times"):
        client.sync()
    client.sync()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("execute", ("INSERT INTO t VALUES (1)",)),
        ("query", ("INSERT INTO t VALUES (1)",)),
        ("query", ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x",)),
        ("register_api_key", ("somebody", 1, ["User"])),
        ("rotate_api_key", ("old",)),
    ],
)
def test_what_changes_something_is_not(
    scripted: ScriptedServer, connect: Connect, name: str, arguments: tuple[Any, ...]
) -> None:
    client = connect(scripted.address)
    scripted.faults.append(Fault.DROP)
    with pytest.raises(OutcomeUnknown):
        getattr(client, name)(*arguments)
    assert len(scripted.requests) == 1


def test_an_append_that_knows_where_is_asked_again(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    stream = scripted.stream("events")
    scripted.faults.append(Fault.REFUSE)
    assert client.append(stream, [b"once"], 0) == Appended(0, 1)
    assert scripted.streams[stream].events == [b"once"]


def test_and_is_doubtful_if_the_first_may_have_been_stored(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    stream = scripted.stream("events")
    scripted.faults.append(Fault.DROP)
    with pytest.raises(OutcomeUnknown, match="asked again the server says: offset mismatch") as unknown:
        client.append(stream, [b"once"], 0)
    assert isinstance(unknown.value.__cause__, OffsetMismatch)
    assert scripted.streams[stream].events == [b"once"]


@pytest.mark.parametrize("code", [ErrorCode.STORAGE_ERROR, ErrorCode.STREAM_NOT_FOUND, ErrorCode.RATE_LIMITED])
def test_whatever_it_is_refused_for_the_second_time(
    scripted: ScriptedServer, connect: Connect, code: ErrorCode
) -> None:
    """A refusal tells of the second attempt only."""
    client = connect(scripted.address)
    stream = scripted.stream("events")
    scripted.faults.append(Fault.DROP)
    client.on_sleep = lambda: scripted.errors.extend([m.ErrorResponse(code, "not now")])
    with pytest.raises(OutcomeUnknown, match="asked again the server says: not now"):
        client.append(stream, [b"once"], 0)
    assert scripted.streams[stream].events == [b"once"]


def test_an_append_that_does_not_is_not(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address, version="seed")
    stream = scripted.stream("events")
    scripted.faults.append(Fault.DROP)
    with pytest.raises(OutcomeUnknown):
        client.append(stream, [b"once"])
    assert scripted.streams[stream].events == [b"once"]


def test_a_stream_that_may_have_been_made_before(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address, version="seed")
    scripted.faults.append(Fault.DROP)
    with pytest.raises(OutcomeUnknown):
        client.create_stream("events")
    with pytest.raises(StreamAlreadyExists):
        client.create_stream("events")


def test_errors_that_pass(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    scripted.errors.extend([error(ErrorCode.RATE_LIMITED), error(ErrorCode.INTERNAL_ERROR)])
    client.sync()
    assert client.slept == [0.5, 1.0]
    scripted.errors.extend([error(ErrorCode.PROJECTION_LAG)] * 3)
    with pytest.raises(ReplyError) as refused:
        client.query_at("SELECT 1", 1)
    assert refused.value.retryable
    assert scripted.connections == 1


def test_errors_that_pass_and_changes(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    scripted.errors.append(error(ErrorCode.RATE_LIMITED))
    assert client.execute("INSERT") == Executed(1, 42)
    for refused in (error(ErrorCode.STORAGE_ERROR), error(ErrorCode.RATE_LIMITED, "no_quorum: timed out")):
        scripted.errors.append(refused)
        with pytest.raises(ReplyError) as raised:
            client.execute("INSERT")
        assert raised.value.retryable
    assert len(scripted.requests) == 4


def test_errors_that_do_not_pass(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    for code in ErrorCode:
        refused = reply_error(code, "no")
        if not refused.retryable and code <= ErrorCode.UNIQUE_CONSTRAINT_VIOLATION:
            scripted.errors.append(error(code))
            with pytest.raises(type(refused)) as raised:
                client.sync()
            assert raised.value.code == code
    assert client.slept == []


def test_what_may_be_asked_again_by_the_specification() -> None:
    assert [int(code) for code in ErrorCode if reply_error(code, "").retryable] == [1, 12, 13, 14, 15]
    assert isinstance(reply_error(ErrorCode.STORAGE_ERROR, ""), ServerFailed)
    assert str(reply_error(ErrorCode.STREAM_NOT_FOUND, "no such stream")) == "no such stream (code 5)"


# -- servers that are gone, silent or mad


def test_nobody_is_there(connect: Connect, closed_port: int) -> None:
    client = connect(f"127.0.0.1:{closed_port}")
    with pytest.raises(ConnectionFailed, match="No connection to 127"):
        client.sync()
    assert client.slept == [0.5, 1.0]


def test_another_address_is_there(scripted: ScriptedServer, connect: Connect, closed_port: int) -> None:
    client = connect([f"127.0.0.1:{closed_port}", scripted.address])
    client.sync()
    client.close()
    client.sync()
    assert client.slept == []


def test_a_connection_that_was_closed_meanwhile(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    client.sync()
    scripted.drop_connections()
    client.notice()
    assert client.execute("INSERT") == Executed(1, 42)
    assert client.connections == 2


@pytest.mark.parametrize("fault", [Fault.JUNK, Fault.BAD_PAYLOAD, Fault.WRONG, Fault.STRANGER])
def test_what_is_no_answer(scripted: ScriptedServer, connect: Connect, fault: Fault) -> None:
    client = connect(scripted.address)
    scripted.faults.append(fault)
    with pytest.raises(BadReply):
        client.sync()
    client.sync()
    assert client.connections == 2
    assert len(scripted.requests) == 2


def test_an_answer_byte_by_byte(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    scripted.faults.append(Fault.BYTEWISE)
    assert client.query("SELECT $1", ["x" * 300]).rows == [["x" * 300]]


def test_a_server_that_is_silent(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address, timeout=0.5)
    scripted.faults.append(Fault.SILENCE)
    with pytest.raises(TimedOut, match="No reply to Sync in 0"):
        client.sync()
    assert len(scripted.requests) == 1
    client.sync()
    assert client.connections == 2


def test_a_timeout_of_one_call(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    scripted.faults.append(Fault.SILENCE)
    with pytest.raises(TimedOut):
        client.query("SELECT 1", timeout=0.1)


def test_one_answer_is_missing_among_others(scripted: ScriptedServer, connect: Connect) -> None:
    """Replies have ids: those that come are right, and the connection can be used further."""
    client = connect(scripted.address)
    scripted.faults.append(Fault.SILENCE)
    late, other = client.pipeline([requests.query("SELECT 1", timeout=0.1), requests.query("SELECT 2", [2])])
    assert isinstance(late, TimedOut)
    assert other.rows == [[2]]
    client.sync()
    assert client.connections == 1


def test_a_handshake_without_an_answer(connect: Connect) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        client = connect(f"127.0.0.1:{sock.getsockname()[1]}", timeout=0.1)
        with pytest.raises(ConnectionFailed):
            client.sync()
        assert len(client.slept) == 2


def test_a_server_that_says_what_is_wrong_with_the_connection(connect: Connect, scripted: ScriptedServer) -> None:
    client = connect(scripted.address)
    client.sync()
    peer = next(iter(scripted.peers))
    scripted.faults.append(Fault.SILENCE)
    farewell = peer.codec.response(0, error(ErrorCode.INVALID_REQUEST, "a frame cannot be read"))
    scripted.loop.call_soon_threadsafe(scripted.loop.call_later, 0.05, peer.writer.write, farewell)
    with pytest.raises(ReplyError, match="a frame cannot be read"):
        client.sync()
    assert not client.slept


def test_health(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address, timeout=0.5)
    assert client.check()
    client.sync()
    assert client.check()
    scripted.faults.append(Fault.SILENCE)
    assert not client.check()
    assert client.check()
    client.sync()
    assert client.connections == 2


# -- clusters

HINTS = [
    ("not leader, try 192.168.1.10:5432", "192.168.1.10:5432"),
    ("not the leader (view: 3, leader hint: 10.0.0.2:7000)", "10.0.0.2:7000"),
    ("not leader, try [::1]:5432", "[::1]:5432"),
    ("not leader, try node-2.example.com:5432.", "node-2.example.com:5432"),
    ("not the leader (view: 3, leader hint: unknown)", None),
    ("not leader, try again", None),
    ("not leader, try host:99999", None),
]


@pytest.mark.parametrize(("text", "leader"), HINTS)
def test_hints(text: str, leader: str | None) -> None:
    refused = reply_error(ErrorCode.NOT_LEADER, text)
    assert isinstance(refused, NotLeader)
    assert refused.leader == leader


@pytest.mark.parametrize("phrase", ["not leader, try {}", "not the leader (view: 1, leader hint: {})"])
def test_the_leader_is_followed_and_remembered(scripted: ScriptedServer, connect: Connect, phrase: str) -> None:
    with ScriptedServer() as leader:
        client = connect(scripted.address)
        stream = leader.stream("events")
        scripted.errors.append(error(ErrorCode.NOT_LEADER, phrase.format(leader.address)))
        assert client.append(stream, [b"x"], 0) == Appended(0, 1)
        assert client.append(stream, [b"y"], 1) == Appended(1, 1)
        client.close()
        assert client.append(stream, [b"z"], 2) == Appended(2, 1)
        assert client.slept == []
        assert len(scripted.requests) == 1
        assert leader.connections == 2
    client.notice()
    client.sync()  # the leader is gone, and the other one is used again
    assert len(scripted.requests) == 2


def test_an_append_without_an_offset_follows_too(scripted: ScriptedServer, connect: Connect) -> None:
    with ScriptedServer() as leader:
        stream = leader.stream("events")
        client = connect(scripted.address, version="seed")
        scripted.errors.append(error(ErrorCode.NOT_LEADER, f"not leader, try {leader.address}"))
        assert client.append(stream, [b"x"]) == Appended(0, 1)


def test_a_leader_that_nobody_names(scripted: ScriptedServer, connect: Connect) -> None:
    with ScriptedServer() as other:
        client = connect([scripted.address, other.address])
        scripted.errors.append(error(ErrorCode.NOT_LEADER, "not the leader (view: 1, leader hint: unknown)"))
        client.sync()
        assert client.slept == [0.5]
        assert len(other.requests) == 1


def test_two_that_take_each_other_for_the_leader(scripted: ScriptedServer, connect: Connect) -> None:
    with ScriptedServer() as other:
        client = connect(scripted.address)
        scripted.errors.extend([error(ErrorCode.NOT_LEADER, f"not leader, try {other.address}")] * 9)
        other.errors.extend([error(ErrorCode.NOT_LEADER, f"not leader, try {scripted.address}")] * 9)
        with pytest.raises(NotLeader):
            client.sync()
        assert len(scripted.requests) + len(other.requests) == 3


def test_one_that_names_itself(scripted: ScriptedServer, connect: Connect) -> None:
    with ScriptedServer() as other:
        client = connect([scripted.address, other.address])
        scripted.errors.append(error(ErrorCode.NOT_LEADER, f"not leader, try {scripted.address}"))
        client.sync()
        assert len(other.requests) == 1


def test_the_default_port() -> None:
    assert server_addresses("host").ordered() == [("host", 5432)]
    shared = server_addresses(["a", "b:1"])
    assert server_addresses(shared) is shared


# -- one connection for many tasks


def test_tasks_share_a_connection(scripted: ScriptedServer) -> None:
    async def main() -> None:
        async with AsyncKimberliteClient(scripted.address) as client:
            await client.connect()
            scripted.hold = 10
            found = await asyncio.gather(*[client.query("SELECT $1", [number]) for number in range(50)])
            assert [rows.rows for rows in found] == [[[number]] for number in range(50)]
            assert client.connections == 1

    asyncio.run(main())


def test_a_task_that_is_cancelled_leaves_the_connection_to_the_others(scripted: ScriptedServer) -> None:
    async def main() -> None:
        async with AsyncKimberliteClient(scripted.address) as client:
            await client.connect()
            scripted.hold = 2
            first = asyncio.create_task(client.query("SELECT $1", [1]))
            await asyncio.sleep(0.05)
            first.cancel()
            assert (await client.query("SELECT $1", [2])).rows == [[2]]
            assert client.connections == 1
            assert client.waiting == 0

    asyncio.run(main())


def test_tasks_share_the_failure_to_connect(closed_port: int) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    async def main() -> None:
        client = AsyncKimberliteClient(f"127.0.0.1:{closed_port}", sleep=sleep)
        found = await asyncio.gather(*[client.sync() for _ in range(20)], return_exceptions=True)
        assert all(isinstance(each, ConnectionFailed) for each in found)

    asyncio.run(main())
    assert len(slept) == 4


# -- TLS


@pytest.fixture
def secure(tls: Tls) -> Iterator[ScriptedServer]:
    with ScriptedServer(tls.server) as server:
        yield server


@pytest.mark.parametrize("by", ["path", "context"])
def test_tls(secure: ScriptedServer, tls: Tls, connect: Connect, by: str) -> None:
    client = connect(secure.address, tls=tls.ca_file if by == "path" else tls.client)
    stream = client.create_stream("events")
    batches = [[bytes(1000)] * 100] * 20
    assert client.append_many(stream, batches)[-1] == Appended(1900, 100)
    assert sum(map(len, client.read(stream))) == 2_000_000
    assert client.connections == 1


def test_a_server_that_is_not_trusted(secure: ScriptedServer, tmp_path: Path, connect: Connect) -> None:
    client = connect(secure.address, tls=Authority(tmp_path, "another").path)
    with pytest.raises(ConnectionFailed, match="certificate"):
        client.sync()
    assert client.slept == []
