"""The original's own Python client, as it is on PyPI (0.9.1), against the real broker as it comes.

The client tells few errors apart: what an exact code is, other tests say. It has traps of its own, which are named
where a test has to go around one; `test_kimberlite_original_admin.py` has the rest of what it offers.
"""

from __future__ import annotations

import asyncio
import datetime
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kimberlite.aio import AsyncClient
from kimberlite.query_builder import Query
from kimberlite.tenant_pool import TenantPool
from tests.launcher import BrokerProcess

from kimberlite import (
    Client,
    DataClass,
    InternalError,
    KimberliteError,
    Offset,
    Placement,
    Pool,
    QueryExecutionError,
    QuerySyntaxError,
    StreamId,
    StreamNotFoundError,
    Subscription,
    TenantId,
    UniqueConstraintViolationError,
    Value,
)
from kimberlite import ConnectionError as ConnectionLost

ME = TenantId(42)
MOMENT = 1_700_000_000_123_456_789
INSERT = "INSERT INTO people (id, name, ok, seen) VALUES ($1, $2, $3, $4)"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One broker for all; each test has streams of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("original")) as broker:
        yield broker.ready().address("kimberlite")


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    client = Client.connect([address], ME)
    yield client
    client.disconnect()


def data(client: Client, stream: StreamId, offset: int = 0) -> list[bytes]:
    return [event.data for event in client.read(stream, Offset(offset))]


def cells(rows: list[list[Value]]) -> list[list[object]]:
    return [[value.data for value in row] for row in rows]


# -- streams


@pytest.mark.parametrize("data_class", DataClass)
def test_streams_of_every_class(client: Client, data_class: DataClass) -> None:
    name = f"class-{data_class.name}"
    stream = client.create_stream(name, data_class)
    assert client.create_stream(name, data_class) == stream
    other = DataClass.PCI if data_class != DataClass.PCI else DataClass.PII
    with pytest.raises(KimberliteError):
        client.create_stream(name, other)


@pytest.mark.parametrize("placement", Placement)
def test_streams_in_every_place(client: Client, placement: Placement) -> None:
    name, region = f"place-{placement.name}", "eu-central-1" if placement == Placement.CUSTOM else None
    stream = client.create_stream(name, DataClass.PII, placement, region)
    assert client.create_stream(name, DataClass.PII, placement, region) == stream
    with pytest.raises(KimberliteError):
        client.create_stream(name, DataClass.PII, Placement.CUSTOM, "elsewhere")
    assert data(client, stream) == []


def test_append_conflict_read(client: Client) -> None:
    stream = client.create_stream("first-events", DataClass.PHI)
    assert client.append(stream, [b"event1", b"event2"]) == 0
    for wrong in (0, 1, 3):
        with pytest.raises(InternalError):  # how it tells code 16
            client.append(stream, [b"late"], Offset(wrong))
    assert client.append(stream, [b"", b"\x00\xff" * 100], Offset(2)) == 2
    assert data(client, stream) == [b"event1", b"event2", b"", b"\x00\xff" * 100]
    assert [(event.offset, event.data) for event in client.read(stream, Offset(1), 6)] == [(1, b"event2")]
    assert len(client.read(stream, max_bytes=11)) == 1 and len(client.read(stream, max_bytes=12)) > 1
    assert data(client, stream, 4) == []
    request = client.last_request_id
    assert client.tenant_id == ME and request is not None and request > 5


def test_a_read_of_more_than_its_buffer_holds_comes_in_parts(client: Client) -> None:
    stream = client.create_stream("large", DataClass.PUBLIC)
    events = [bytes([number]) * 10_000 for number in range(50)]
    client.append(stream, events)
    found: list[bytes] = []
    while part := data(client, stream, len(found)):
        found += part
    assert found == events
    client.append(stream, [b"x" * 100_000, b"y" * 125_000], Offset(50))
    assert [len(event) for event in data(client, stream, 50)] == [100_000]
    assert [len(event) for event in data(client, stream, 51)] == [125_000]


@pytest.mark.parametrize("sizes", [[13] * 10_000, [0] * 10_000, [128] * 960 + [0] * 9_000], ids=["13", "0", "mixed"])
def test_many_small_events_fit_its_buffer_too(client: Client, sizes: list[int]) -> None:
    """Their lengths take room as well."""
    stream = client.create_stream(f"small-{sizes[0]}", DataClass.PUBLIC)
    client.append(stream, [b"x" * size for size in sizes])
    found: list[int] = []
    while part := data(client, stream, len(found)):
        found += map(len, part)
    assert found == sizes


def test_an_event_that_does_not_fit_its_buffer_costs_the_connection_only(client: Client) -> None:
    """It takes no reply of more than 128 KiB, and an event is never cut."""
    stream = client.create_stream("larger", DataClass.PUBLIC)
    client.append(stream, [b"x" * 200_000, b"small"])
    with pytest.raises(ConnectionLost):
        client.read(stream)
    client.reconnect()
    assert client.reconnect_count == 1
    assert data(client, stream, 1) == [b"small"]


def test_what_is_refused_about_streams(client: Client) -> None:
    stream = client.create_stream("modest", DataClass.PUBLIC)
    nowhere = StreamId(9999)
    for attempt in (
        lambda: client.read(nowhere),
        lambda: client.append(nowhere, [b""]),
        lambda: client.subscribe(nowhere),
    ):
        with pytest.raises(StreamNotFoundError):
            attempt()
    for name in ("", "x" * 257):
        with pytest.raises(KimberliteError):
            client.create_stream(name, DataClass.PUBLIC)
    with pytest.raises(KimberliteError):
        client.append(stream, [b"x"] * 10_001)
    with pytest.raises(KimberliteError):
        client.append(stream, [b"x" * 1_000_000] * 5)
    assert client.append(stream, [b"x"] * 10_000) == 0  # nothing of that is there, and the connection goes on


# -- SQL


@pytest.fixture(scope="module")
def people(address: str) -> int:
    """A table with two rows; the position behind the first."""
    with Client.connect([address], ME) as client:
        made = client.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, name TEXT, ok BOOLEAN, seen TIMESTAMP)")
        assert made.rows_affected == 0
        all_types = [Value.bigint(-5), Value.text("Grüße ☃"), Value.boolean(True), Value.timestamp(MOMENT)]
        first = client.execute(INSERT, all_types)
        second = client.execute(INSERT, [Value.bigint(2**63 - 1), Value.null(), Value.null(), Value.null()])
        assert (first.rows_affected, second.rows_affected) == (1, 1)
        assert made.log_offset < first.log_offset < second.log_offset
        return first.log_offset


ROWS = [[-5, "Grüße ☃", True, MOMENT], [2**63 - 1, None, None, None]]


def test_every_stream_is_a_table(client: Client) -> None:
    stream = client.create_stream("visits", DataClass.PUBLIC)
    client.append(stream, [b'{"who": "Ada", "n": 1}', b'{"who": "Bo", "n": null}'])
    counted = client.query("SELECT COUNT(*) as count FROM visits")
    assert (counted.columns, cells(counted.rows)) == (["count"], [[2]])
    found = client.query('SELECT "offset", who, n, data FROM visits ORDER BY 1')
    assert found.columns == ["offset", "who", "n", "data"]
    assert cells(found.rows) == [[0, "Ada", 1, '{"who": "Ada", "n": 1}'], [1, "Bo", None, '{"who": "Bo", "n": null}']]


@pytest.mark.usefixtures("people")
def test_values_of_every_type_go_in_and_come_out(client: Client) -> None:
    found = client.query("SELECT * FROM people ORDER BY id")
    assert (found.columns, cells(found.rows)) == (["id", "name", "ok", "seen"], ROWS)
    assert found.rows[0] == [Value.bigint(-5), Value.text("Grüße ☃"), Value.boolean(True), Value.timestamp(MOMENT)]


@pytest.mark.parametrize(
    "value",
    [
        Value.null(),
        Value.bigint(0),
        Value.bigint(-(2**63)),
        Value.text('it\'s "quoted"; --'),
        Value.boolean(False),
        Value.timestamp(0),
        Value.timestamp(-1),
    ],
)
@pytest.mark.parametrize("mark", ["$1", "?"])
def test_a_parameter_of_every_type(client: Client, mark: str, value: Value) -> None:
    found = client.query(f"SELECT {mark}", [value])
    assert (found.columns, found.rows) == (["$1"], [[value]])


@pytest.mark.usefixtures("people")
def test_null_is_equal_to_nothing(client: Client) -> None:
    counted = client.query("SELECT count(*) FROM people WHERE name = $1 OR ok <> $1", [Value.null()])
    assert cells(counted.rows) == [[0]]
    assert cells(client.query("SELECT id FROM people WHERE name IS NULL").rows) == [[2**63 - 1]]


def test_the_past(client: Client, people: int) -> None:
    select = "SELECT id FROM people WHERE id < $1"
    anything = [Value.bigint(2**63 - 1)]
    assert cells(client.query_at("SELECT id FROM people", None, people).rows) == [[-5]]
    assert cells(client.query_at(select, anything, Offset(people)).rows) == [[-5]]
    with pytest.raises(KimberliteError):
        client.query_at("SELECT id FROM people", [], 0)  # there was no such table
    with pytest.raises(KimberliteError):
        client.query_at("SELECT 1", [], 1 << 60)
    with pytest.raises(QueryExecutionError):
        client.query_at("INSERT INTO people (id) VALUES (7)", [], people)


def test_the_past_by_the_clock(client: Client) -> None:
    client.execute("CREATE TABLE clocked (id BIGINT PRIMARY KEY)")
    client.execute("INSERT INTO clocked VALUES (1)")
    time.sleep(0.01)
    between = datetime.datetime.now(datetime.UTC)
    time.sleep(0.01)
    client.execute("INSERT INTO clocked VALUES (2)")
    elsewhere = between.astimezone(datetime.timezone(datetime.timedelta(hours=9)))
    for moment in (between, elsewhere, between.replace(tzinfo=None), between.isoformat()):
        assert cells(client.query_at("SELECT id FROM clocked WHERE id > $1;", [Value.bigint(0)], moment).rows) == [[1]]
    assert cells(client.query_at("SELECT count(*) FROM clocked", [], "2020-01-15T00:00:00Z").rows) == [[0]]
    later = datetime.datetime.now(datetime.UTC)
    assert cells(client.query_at("SELECT count(*) FROM clocked", [], later).rows) == [[2]]


@pytest.mark.usefixtures("people")
def test_what_it_makes_of_queries(client: Client) -> None:
    @dataclass
    class Person:
        id: int
        name: str | None
        extra: int = 0

    select = "SELECT id, name FROM people ORDER BY id"
    assert client.query_model(select, [], Person) == [Person(-5, "Grüße ☃"), Person(2**63 - 1, None)]
    assert client.query_rows(select, [], lambda row, columns: (columns[0], row[0].data))[0] == ("id", -5)
    built = Query.from_table("people").select(["id"]).where_gt("id", Value.bigint(-9)).order_by_desc("id").limit(1)
    assert cells(client.query(*built.build()).rows) == [[2**63 - 1]]
    broken = client.query_break_glass("code blue", "SELECT count(*) FROM people WHERE id = $1", [Value.bigint(-5)])
    assert cells(broken.rows) == [[1]]


@pytest.mark.usefixtures("people")
def test_a_key_that_is_taken(client: Client) -> None:
    """Whether a client knows this code is not told by its version: until it has shown that, it gets an older one."""
    row = [Value.bigint(-5), Value.null(), Value.null(), Value.null()]
    with pytest.raises(QueryExecutionError):
        client.execute(INSERT, row)
    client.admin.server_info()
    with pytest.raises(UniqueConstraintViolationError):
        client.execute(INSERT, row)
    client.execute("CREATE TABLE upserted (id BIGINT PRIMARY KEY)")
    assert client.upsert_row("upserted", ["id"], [Value.bigint(77)]) == 1  # no columns to update: an INSERT


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELEC 1", QuerySyntaxError),
        ("", QuerySyntaxError),
        ("SELECT CAST('x' AS BIGINT)", QueryExecutionError),
        ("SELECT $1", QueryExecutionError),
        ("SELECT * FROM nowhere", InternalError),  # how it tells code 6
        ("INSERT INTO nowhere (id) VALUES (1)", InternalError),
        ("INSERT INTO people (id) VALUES (NULL)", QueryExecutionError),
        ("CREATE TABLE people (id BIGINT PRIMARY KEY)", InternalError),  # how it tells code 10
        ("UPDATE people SET name = 'x'", QueryExecutionError),
        ("DELETE FROM people", QueryExecutionError),
        ("EXPLAIN SELECT 1", QueryExecutionError),
        ("SELECT * FROM read_csv('/etc/passwd')", QueryExecutionError),
    ],
)
@pytest.mark.usefixtures("people")
def test_statements_that_fail(client: Client, sql: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        client.query(sql)
    with pytest.raises(error):
        client.execute(sql)
    assert cells(client.query("SELECT count(*) FROM people WHERE id < 0").rows) == [[1]]  # and the connection goes on


def test_a_result_that_does_not_fit_its_buffer_costs_the_connection_only(client: Client) -> None:
    large = "SELECT repeat('x', 1000) FROM range(500)"
    with pytest.raises(ConnectionLost):
        client.query(large)
    client.reconnect()
    assert len(client.query(f"{large} LIMIT 100").rows) == 100


# -- subscriptions. It has no more than one on a connection: events of others than the one it waits for are dropped.


def taken(subscription: Subscription, count: int) -> list[tuple[int, bytes]]:
    events = [subscription.next_event() for _ in range(count)]
    return [(event.offset, event.data) for event in events if event is not None]


def test_subscriptions_get_every_event_while_others_write(address: str, client: Client) -> None:
    streams = [client.create_stream(f"watched-{number}", DataClass.PUBLIC) for number in range(2)]
    found: dict[StreamId, list[tuple[int, bytes]]] = {}

    def watch(stream: StreamId, credit: int) -> None:
        with Client.connect([address], ME) as reader, reader.subscribe(stream, initial_credits=credit) as subscription:
            found[stream] = taken(subscription, 600)

    readers = [threading.Thread(target=watch, args=given) for given in zip(streams, (3, 128), strict=True)]
    for reader in readers:
        reader.start()
    for start in range(0, 600, 20):
        for stream in streams:
            client.append(
                stream, [b"%d of %d" % (number, stream) for number in range(start, start + 20)], Offset(start)
            )
    for reader in readers:
        reader.join()
    for stream in streams:
        assert found[stream] == [(number, b"%d of %d" % (number, stream)) for number in range(600)]


def test_a_subscription_from_the_middle_of_the_past(client: Client) -> None:
    stream = client.create_stream("history", DataClass.PUBLIC)
    client.append(stream, [b"%d" % number for number in range(20)])
    subscription = client.subscribe(stream, Offset(5), initial_credits=4)
    assert taken(subscription, 15) == [(number, b"%d" % number) for number in range(5, 20)]
    client.append(stream, [b"20", b""], Offset(20))  # on the same connection, while it listens
    assert taken(subscription, 2) == [(20, b"20"), (21, b"")]
    assert subscription.grant_credits(10) >= 10
    subscription.unsubscribe()
    assert subscription.closed and subscription.next_event() is None
    client.append(stream, [b"22"], Offset(22))
    assert data(client, stream, 22) == [b"22"]
    again = client.subscribe(stream, Offset(21))
    assert taken(again, 2) == [(21, b""), (22, b"22")]


def test_no_more_events_than_credits(client: Client) -> None:
    """Events that are pushed during another request are kept by the client, and come first afterwards."""
    stream = client.create_stream("measured", DataClass.PUBLIC)
    client.append(stream, [b"%d" % number for number in range(10)])
    subscription = client.subscribe(stream, initial_credits=4, low_water=0, refill=1)
    assert len(data(client, stream)) == 10
    assert taken(subscription, 4) == [(number, b"%d" % number) for number in range(4)]
    assert subscription.credits == 0
    assert subscription.grant_credits(2) in (0, 1, 2)  # by whether they were pushed before it was answered
    assert taken(subscription, 2) == [(4, b"4"), (5, b"5")]


# -- other ways to the same


def test_pools(address: str) -> None:
    with Pool(address, ME, max_size=3) as pool:
        stream = pool.with_client(lambda client: client.create_stream("pooled", DataClass.PUBLIC))
        with pool.acquire() as first, pool.acquire() as second:
            first.append(stream, [b"x"])
            assert [event.data for event in second.read(stream)] == [b"x"]
            assert pool.stats().in_use == 2
    tenants = TenantPool(factory=lambda tenant: Client.connect([address], TenantId(tenant)), max_size=4)
    for tenant in (101, 102, 101):
        assert tenants.acquire(tenant).tenant_id == tenant
        tenants.acquire(tenant).create_stream("each", DataClass.PUBLIC)
    assert tenants.stats().size == 2
    tenants.close()


def test_asyncio(address: str) -> None:
    async def main() -> list[bytes]:
        async with await AsyncClient.connect([address], ME) as client:
            stream = await client.create_stream("asynchronous", DataClass.PUBLIC)
            await client.append(stream, [b"one", b"two"])
            assert cells((await client.query("SELECT count(*) FROM asynchronous")).rows) == [[2]]
            return [event.data for event in await client.read(stream)]

    assert asyncio.run(main()) == [b"one", b"two"]
