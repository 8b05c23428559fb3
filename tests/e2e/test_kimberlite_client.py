"""The Kimberlite clients and the real broker: every version, subscriptions, and a kill in between."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess

from penstock.clients.kimberlite import (
    Appended,
    AsyncKimberliteClient,
    DataClass,
    Event,
    InvalidRequest,
    KimberliteClient,
    OffsetMismatch,
    Pool,
    PositionAhead,
    QueryParseError,
    RetryPolicy,
    Rows,
    StreamAlreadyExists,
    StreamNotFound,
    TableNotFound,
)
from penstock.wire.kimberlite.codec.dialects import NAMED

PATIENT = RetryPolicy(attempts=100, base=0.05, cap=0.2)  # a start may take its time


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield place(broker)


def place(broker: BrokerProcess) -> str:
    host, port = broker.ready().endpoint("kimberlite")
    return f"{host}:{port}"


def events(start: int, end: int) -> list[Event]:
    return [Event(number, b"%d" % number) for number in range(start, end)]


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


@pytest.mark.parametrize("version", NAMED)
def test_every_version(address: str, version: str) -> None:
    name = "every_" + version.translate(str.maketrans("./", "__"))
    with KimberliteClient(address, version=version) as client, KimberliteClient(address) as newest:
        stream = client.create_stream(name, DataClass.PHI)
        if version in ("v0.1", "v0.4") or version.startswith("seed"):
            with pytest.raises(StreamAlreadyExists):
                client.create_stream(name, DataClass.PHI)
        assert newest.create_stream(name, DataClass.PHI) == stream
        expected = None if version == "v0.1" or version.startswith("seed") else 0
        assert client.append(stream, [b"one", b"two"], expected) == Appended(0, 2)
        assert newest.append(stream, [b"three"]) == Appended(2, 1)
        assert list(client.read(stream)) == list(newest.read(stream)) == [b"one", b"two", b"three"]
        client.sync()
        assert client.check()
        with pytest.raises(StreamNotFound):
            client.read_page(stream + 1000)
        with client.subscribe(stream, 1) as subscription:
            assert list(islice(subscription, 2)) == [Event(1, b"two"), Event(2, b"three")]
        assert client.connections == 1


def test_many_batches(address: str) -> None:
    with KimberliteClient(address) as client:
        stream = client.create_stream("batches")
        batches = [[b"%d.%d" % (batch, number) for number in range(100)] for batch in range(100)]
        places = client.append_many(stream, batches)
        assert [found.first_offset for found in places] == list(range(0, 10_000, 100))
        assert list(client.read(stream)) == [event for batch in batches for event in batch]
        with pytest.raises(OffsetMismatch) as conflict:
            client.append(stream, [b"x"], 5)
        assert conflict.value.actual == 10_000
        with pytest.raises(InvalidRequest):
            client.append(stream, [], 10_000)


def test_tenants_are_apart(address: str) -> None:
    with Pool(address, 2) as pool:
        stream = pool.create_stream("mine", tenant=11)
        with pytest.raises(StreamNotFound):
            pool.read_page(stream, tenant=12)
        with pytest.raises(StreamNotFound):
            pool.append(stream, [b"x"], 0, tenant=12)
        assert pool.append(stream, [b"x"], 0, tenant=11) == Appended(0, 1)
        assert pool.server_info().protocol_version == 5


def test_tasks_on_one_connection(address: str) -> None:
    async def follow(client: AsyncKimberliteClient, stream: int) -> list[Event]:
        found: list[Event] = []
        async with client.subscribe(stream, window=50) as subscription:
            async for event in subscription:
                found.append(event)
                if len(found) == 500:
                    break
        return found

    async def main() -> None:
        async with AsyncKimberliteClient(address) as client:
            streams = await asyncio.gather(*[client.create_stream(f"task_{number}") for number in range(4)])
            followers = [asyncio.create_task(follow(client, stream)) for stream in streams]
            batches = [numbers(start, start + 10) for start in range(0, 500, 10)]
            await asyncio.gather(*[client.append_many(stream, batches, 0) for stream in streams])
            assert await asyncio.gather(*followers) == [events(0, 500)] * 4
            assert [event async for event in client.read(streams[0])] == numbers(0, 500)
            assert client.connections == 1

    asyncio.run(main())


def test_members_of_a_group_share_the_events(address: str) -> None:
    with KimberliteClient(address) as client:
        stream = client.create_stream("shared")
        client.append_many(stream, [numbers(0, 100)], 0)
        found: list[int] = []
        with (
            client.subscribe(stream, group="workers", window=4) as first,
            client.subscribe(stream, group="workers", window=4) as second,
        ):
            while len(found) < 100:
                taken = [member.next(0.1) for member in (first, second)]
                found += [event.offset for event in taken if event is not None]
        assert sorted(found) == list(range(100))
        with client.subscribe(stream, group="workers") as third:
            assert third.next(0.2) is None
            client.append(stream, [b"100"])
            assert third.next(5) == Event(100, b"100")


def test_sql(address: str) -> None:
    with KimberliteClient(address, tenant=5) as client:
        stream = client.create_stream("orders")
        client.append(stream, [b'{"item": "lamp", "price": 30}', b'{"item": "chair", "price": 45}'])
        assert client.query("SELECT COUNT(*) as count FROM orders") == Rows(["count"], [[2]])
        assert client.query("SELECT item FROM orders WHERE price > $1", [40]).rows == [["chair"]]
        client.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, name TEXT)")
        first = client.execute("INSERT INTO people VALUES ($1, $2)", [1, "Ada"])
        second = client.execute("INSERT INTO people VALUES ($1, $2)", [2, None])
        assert (first.rows_affected, second.rows_affected) == (1, 1)
        everybody = "SELECT id, name FROM people ORDER BY id"
        assert client.query(everybody).rows == [[1, "Ada"], [2, None]]
        assert client.query_at(everybody, first.log_offset).rows == [[1, "Ada"]]
        assert {table.name for table in client.list_tables()} == {"orders", "people"}
        assert [column.name for column in client.describe_table("people")] == ["id", "name"]
        with pytest.raises(TableNotFound):
            client.query("SELECT * FROM nowhere")
        with pytest.raises(PositionAhead):
            client.query_at(everybody, second.log_offset + 1_000_000)
        with pytest.raises(QueryParseError):
            client.query("SELEKT 1")
        assert client.connections == 1


def test_subscriptions_go_on_after_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        here = place(broker)
        client = KimberliteClient(here, retry=PATIENT)
        stream = client.create_stream("events")
        client.append_many(stream, [numbers(0, 50)], 0)
        alone = client.subscribe(stream, window=10)
        member = client.subscribe(stream, group="workers", window=10)
        assert list(islice(alone, 20)) == events(0, 20)
        assert list(islice(member, 20)) == events(0, 20)
        broker.signal(signal.SIGKILL)
        broker.finish()
    with BrokerProcess(tmp_path, "--listen", f"kimberlite={here}") as again:
        again.ready()
        client.append(stream, numbers(50, 60), 50)
        assert list(islice(alone, 40)) == events(20, 60)
        seen: list[Event] = []
        while not seen or seen[-1].offset < 59:
            event = member.next(10)
            assert event is not None
            seen.append(event)
        assert {event.offset for event in seen} >= set(range(20, 60))
        assert seen[0].offset >= 10, "what was done with a window ago does not come again"
        alone.close()
        member.close()
        client.close()
