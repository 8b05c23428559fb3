"""Both clients, in both dialects, against a server on real sockets that behaves, and then does not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest
from tests.clients.conftest import MakeDriver, Tls
from tests.clients.driver import Driver
from tests.clients.rustlog.scripted_server import TIMESTAMP, Fault, ScriptedServer

from penstock.broker.errors import ShuttingDown
from penstock.clients.rustlog import (
    AsyncClient,
    BadReply,
    Client,
    ClientError,
    ConnectionFailed,
    OutcomeUnknown,
    PipelineError,
    RetryPolicy,
    ServerError,
    Unsendable,
)
from penstock.log.errors import LogDamaged, LogFull
from penstock.wire.rustlog.messages import Fetch, FetchedRecord, Ping, Produce, ProduceResponse, TopicSummary

Connect = Callable[..., Driver]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture
def connect(make_driver: MakeDriver) -> Connect:
    return partial(make_driver, Client, AsyncClient, "127.0.0.1")


@pytest.fixture(params=["json", "binary"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def produce(*values: bytes, topic: str = "t") -> Produce:
    return Produce(topic, 0, list(values))


# -- every request


def test_every_request(server: ScriptedServer, connect: Connect, dialect: str) -> None:
    client = connect(server.port, dialect=dialect)
    whole = dialect == "json"  # the binary dialect leaves some fields out

    assert client.ping() is None
    created = client.create_topic("t", 2)
    assert created.success
    assert created.partitions_created == (2 if whole else None)
    assert client.produce("t", 1, [b"a", b"bb"]) == ProduceResponse(0, 2)
    assert client.produce("t", 1, (value for value in [b"ccc"])) == ProduceResponse(2, 1)
    fetched = client.fetch("t", 1, 1)
    stamp = TIMESTAMP if whole else None
    assert fetched.records == [FetchedRecord(1, stamp, b"bb"), FetchedRecord(2, stamp, b"ccc")]
    assert fetched.next_offset == 3
    assert client.fetch_offset("g", "t", 1) is None
    assert client.commit_offset("g", "t", 1, 3) is True
    assert client.fetch_offset("g", "t", 1) == 3
    assert client.list_topics() == [TopicSummary("t", 2)]
    assert [part.high_watermark for part in client.describe_topic("t").partitions] == [0, 3]
    assert client.describe_partition("t", 1).high_watermark == 3
    assert client.metrics() == "up 1\n"
    client.fetch("t", 0, 5, 77, "readers")
    assert server.requests[-1] == Fetch("t", 0, 5, 77, "readers")
    assert server.connections == 1


def test_decision_24_replies_may_come_byte_by_byte(server: ScriptedServer, connect: Connect, dialect: str) -> None:
    """The document's sample client reads header and body with one call each, and breaks on this."""
    server.split = True
    client = connect(server.port, dialect=dialect)
    client.create_topic("t")
    client.produce("t", 0, [b"x" * 50, b"y"])
    assert [record.payload for record in client.fetch("t", 0, 0).records] == [b"x" * 50, b"y"]


def test_a_reply_of_megabytes(server: ScriptedServer, connect: Connect, dialect: str) -> None:
    client = connect(server.port, dialect=dialect)
    client.create_topic("t")
    records = [bytes([i]) * 1_000_000 for i in range(5)]
    client.produce("t", 0, records)
    assert [record.payload for record in client.fetch("t", 0, 0, 10_000_000).records] == records


# -- errors of the server


def test_errors_are_typed_and_keep_the_connection(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    client.create_topic("logs")
    with pytest.raises(ClientError) as caught:
        client.produce("nowhere", 0, [b"x"])
    assert caught.value.code == 404
    assert caught.value.message == "Topic 'nowhere' not found"
    assert caught.value.details == {"available_topics": ["logs"]}
    server.errors.append(LogFull())
    with pytest.raises(ServerError) as failed:
        client.produce("logs", 0, [b"x"])
    assert failed.value.code == 507
    client.ping()
    assert server.connections == 1
    assert client.slept == []


def test_errors_of_the_binary_dialect_are_told_apart(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port, dialect="binary")
    with pytest.raises(ClientError) as caught:
        client.produce("nowhere", 0, [b"x"])
    assert caught.value.code == 10
    assert caught.value.details is None
    for error, code in ((LogDamaged("f", 1, "r"), 4), (ShuttingDown(), 500)):
        server.errors.append(error)
        with pytest.raises(ServerError) as failed:
            client.fetch("t", 0, 0)
        assert failed.value.code == code


# -- connections that do not hold


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.HALF])
def test_a_lost_reply_to_a_read_is_asked_for_again(
    server: ScriptedServer, connect: Connect, dialect: str, fault: Fault
) -> None:
    client = connect(server.port, dialect=dialect)
    client.create_topic("t")
    client.produce("t", 0, [b"x"])
    server.faults.extend([fault, fault])

    assert client.fetch("t", 0, 0).next_offset == 1

    assert server.requests[-3:] == [Fetch("t", 0, 0, 1_048_576)] * 3
    assert server.connections == 3
    assert client.slept == [0.5, 1.0]  # half of 1 and of 2 seconds, as the test's random number has it


def test_reading_is_given_up_after_the_last_attempt(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    server.faults.extend([Fault.DROP] * 3)
    with pytest.raises(ConnectionFailed, match="lost 3 times"):
        client.list_topics()
    assert len(server.requests) == 3
    assert client.list_topics() == []


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.HALF])
def test_a_produce_is_never_sent_twice(server: ScriptedServer, connect: Connect, dialect: str, fault: Fault) -> None:
    client = connect(server.port, dialect=dialect)
    client.create_topic("t")
    server.faults.append(fault)
    with pytest.raises(OutcomeUnknown):
        client.produce("t", 0, [b"x"])
    assert server.store.topics["t"] == [[b"x"]]  # it was stored, and only once
    assert client.slept == []
    assert client.produce("t", 0, [b"y"]).base_offset == 1


def test_a_topic_creation_is_never_sent_twice(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    server.faults.append(Fault.DROP)
    with pytest.raises(OutcomeUnknown):
        client.create_topic("t")
    assert len(server.requests) == 1


def test_a_connection_that_was_closed_while_idle_is_replaced(server: ScriptedServer, connect: Connect) -> None:
    """Nothing was sent on it, so that even a Produce goes through."""
    client = connect(server.port)
    client.create_topic("t")
    server.drop_connections()
    client.notice()
    assert client.produce("t", 0, [b"x"]) == ProduceResponse(0, 1)
    assert server.connections == 2


def test_the_next_request_follows_an_error_that_closed_the_connection(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    server.faults.append(Fault.CLOSE_AFTER)
    with pytest.raises(ClientError):
        client.produce("t", 0, [b"x"])
    server.drop_connections()  # which waits until it is closed
    client.notice()
    client.create_topic("t")
    assert server.connections == 2


def test_no_server(connect: Connect, closed_port: int) -> None:
    client = connect(closed_port)
    with pytest.raises(ConnectionFailed, match="No connection to 127"):
        client.produce("t", 0, [b"x"])
    assert client.slept == [0.5, 1.0]


def test_a_server_that_comes_up_late(connect: Connect) -> None:
    """A Produce may wait for the connection: it has not been sent."""
    server = ScriptedServer()
    server.store.topics["t"] = [[]]
    client = connect(server.port)
    client.on_sleep = server.__enter__
    try:
        assert client.produce("t", 0, [b"x"]) == ProduceResponse(0, 1)
    finally:
        server.__exit__(None, None, None)
    assert client.slept == [0.5]


def test_silence_is_a_lost_connection(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port, timeout=0.5)
    server.store.topics["t"] = [[]]
    server.faults.append(Fault.SILENCE)
    with pytest.raises(OutcomeUnknown):
        client.produce("t", 0, [b"x"])
    server.faults.append(Fault.SILENCE)
    client.ping()
    assert server.connections == 3


@pytest.mark.parametrize("fault", [Fault.JUNK, Fault.WRONG, Fault.BAD_LENGTH])
def test_a_reply_that_is_none_ends_the_connection(
    server: ScriptedServer, connect: Connect, dialect: str, fault: Fault
) -> None:
    client = connect(server.port, dialect=dialect)
    server.faults.append(fault)
    with pytest.raises(BadReply):
        client.list_topics()
    assert client.list_topics() == []
    assert server.connections == 2


def test_a_reply_too_many_is_not_taken_for_that_of_the_next_request(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    server.faults.append(Fault.TWICE)
    assert client.list_topics() == []
    client.notice()
    server.store.topics["t"] = [[]]
    assert client.list_topics() == [TopicSummary("t", 1)]


def test_what_cannot_be_sent_is_refused_here(server: ScriptedServer, connect: Connect, dialect: str) -> None:
    client = connect(server.port, dialect=dialect)
    with pytest.raises(Unsendable):
        client.produce("t", 0, [bytes(10_485_760)])
    with pytest.raises(Unsendable):
        client.describe_topic("\ud800")
    assert server.connections == 0


# -- pipelines


def test_a_pipeline_does_not_wait_for_each_reply(server: ScriptedServer, connect: Connect, dialect: str) -> None:
    server.store.topics["t"] = [[]]
    server.hold = 4  # the first reply comes when four requests are there
    client = connect(server.port, dialect=dialect)
    results = client.produce_many((produce(b"%d" % i) for i in range(12)), window=4)
    assert results == [ProduceResponse(i, 1) for i in range(12)]
    assert server.store.topics["t"] == [[b"%d" % i for i in range(12)]]
    assert client.produce_many([]) == []


def test_a_pipeline_stops_at_the_first_error(server: ScriptedServer, connect: Connect) -> None:
    server.store.topics["t"] = [[]]
    client = connect(server.port)
    sent = [produce(b"0"), produce(b"1", topic="nowhere"), *(produce(b"x") for _ in range(20))]
    with pytest.raises(PipelineError) as caught:
        client.produce_many(sent, window=2)
    results = caught.value.results
    assert results[0] == ProduceResponse(0, 1)
    assert isinstance(results[1], ClientError)
    assert len(results) == len(server.requests) < 6  # what was in flight, and no more
    client.ping()
    assert server.connections == 1


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.HALF, Fault.JUNK])
def test_a_pipeline_tells_what_is_unknown(server: ScriptedServer, connect: Connect, fault: Fault) -> None:
    server.store.topics["t"] = [[]]
    server.hold = 4
    server.faults.extend([Fault.NONE, fault])
    client = connect(server.port)
    with pytest.raises(PipelineError) as caught:
        client.produce_many([produce(b"%d" % i) for i in range(4)], window=4)
    first, *others = caught.value.results
    assert first == ProduceResponse(0, 1)
    assert [type(other) for other in others] == [OutcomeUnknown] * 3
    server.hold = 1
    assert client.produce("t", 0, [b"later"]).base_offset == 4


@pytest.mark.parametrize("window", [0, 1025])
def test_a_window_has_bounds(server: ScriptedServer, connect: Connect, window: int) -> None:
    with pytest.raises(ValueError, match="window"):
        connect(server.port).produce_many([], window=window)


def test_a_pipeline_that_is_broken_off_leaves_no_replies_behind(server: ScriptedServer, connect: Connect) -> None:
    server.store.topics["t"] = [[]]
    client = connect(server.port)

    def requests() -> Iterator[Produce]:
        yield produce(b"0")
        yield produce(b"1")
        raise KeyError("the caller's own")

    with pytest.raises(KeyError):
        client.produce_many(requests())
    assert client.list_topics() == [TopicSummary("t", 1)]


# -- asyncio only


def in_loop(job: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await job()

    asyncio.run(run())


def test_tasks_share_a_connection_in_the_order_of_their_calls(server: ScriptedServer) -> None:
    server.store.topics["t"] = [[]]
    server.hold = 50

    async def job() -> None:
        async with AsyncClient("127.0.0.1", server.port) as client:
            replies = await asyncio.gather(*(client.produce("t", 0, [b"%d" % i]) for i in range(50)))
        assert [reply.base_offset for reply in replies] == list(range(50))

    in_loop(job)
    assert server.store.topics["t"] == [[b"%d" % i for i in range(50)]]
    assert server.connections == 1


def test_a_cancelled_request_does_not_shift_the_replies(server: ScriptedServer) -> None:
    server.store.topics["t"] = [[b"a"]]
    server.hold = 2

    async def job() -> None:
        async with AsyncClient("127.0.0.1", server.port) as client:
            first = asyncio.create_task(client.fetch("t", 0, 0))
            await asyncio.to_thread(server.wait_for_requests, 1)
            first.cancel()
            assert await client.list_topics() == [TopicSummary("t", 1)]

    in_loop(job)
    assert server.connections == 1


def test_all_who_wait_share_one_failure_to_connect(closed_port: int) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    async def job() -> None:
        client = AsyncClient("127.0.0.1", closed_port, retry=RetryPolicy(attempts=3), sleep=sleep)
        outcomes = await asyncio.gather(*(client.ping() for _ in range(10)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionFailed] * 10

    in_loop(job)
    assert len(slept) == 2


def test_closing_the_client_fails_what_waits(server: ScriptedServer) -> None:
    server.store.topics["t"] = [[]]
    server.hold = 99

    async def job() -> None:
        client = AsyncClient("127.0.0.1", server.port)
        task = asyncio.create_task(client.produce("t", 0, [b"x"]))
        await asyncio.to_thread(server.wait_for_requests, 1)
        await client.close()
        with pytest.raises(OutcomeUnknown):
            await task

    in_loop(job)


# -- TLS


@pytest.fixture
def tls_server(tls: Tls) -> Iterator[ScriptedServer]:
    with ScriptedServer(tls.server) as running:
        yield running


def test_tls(tls_server: ScriptedServer, connect: Connect, dialect: str, tls: Tls) -> None:
    client = connect(tls_server.port, tls=tls.client, dialect=dialect)
    client.create_topic("t")
    client.produce("t", 0, [b"x" * 100_000])
    assert client.fetch("t", 0, 0).next_offset == 1
    assert tls_server.connections == 1
    tls_server.drop_connections()
    client.notice()
    assert client.produce("t", 0, [b"y"]) == ProduceResponse(1, 1)


def test_a_certificate_that_is_not_trusted_is_not_tried_again(tls_server: ScriptedServer, connect: Connect) -> None:
    client = connect(tls_server.port, tls=ssl.create_default_context())
    with pytest.raises(ConnectionFailed, match="certificate"):
        client.ping()
    assert client.slept == []
    assert Ping() not in tls_server.requests
