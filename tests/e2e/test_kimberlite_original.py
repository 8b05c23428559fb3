"""The original's own Python client, as it is on PyPI (0.9.1), against the real broker.

It tells few errors apart: what an exact code is, other tests say."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.process import BrokerProcess, penstock

from kimberlite import (
    AuthenticationError,
    Client,
    DataClass,
    InternalError,
    KimberliteError,
    Offset,
    Placement,
    QueryExecutionError,
    QuerySyntaxError,
    StreamId,
    StreamNotFoundError,
    TenantId,
    UniqueConstraintViolationError,
    Value,
)

ME = TenantId(42)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One broker for all; each test has streams of its own. Its clients are known to be of this generation, or they
    would not be told of the newest error code."""
    with BrokerProcess(tmp_path_factory.mktemp("original"), PENSTOCK_KIMBERLITE__ASSUME="5b") as broker:
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


def test_create_append_conflict_read(client: Client) -> None:
    stream = client.create_stream("first-events", DataClass.PHI)
    assert client.create_stream("first-events", DataClass.PHI) == stream
    assert client.append(stream, [b"event1", b"event2"]) == 0
    with pytest.raises(InternalError):  # how it tells code 16
        client.append(stream, [b"late"], Offset(0))
    assert client.append(stream, [b"event3", b"\x00\xff" * 100], Offset(2)) == 2
    assert data(client, stream) == [b"event1", b"event2", b"event3", b"\x00\xff" * 100]
    assert next((event.offset, event.data) for event in client.read(stream, Offset(2))) == (2, b"event3")
    assert data(client, stream, 4) == []


def test_a_read_of_more_than_its_buffer_holds_comes_in_parts(client: Client) -> None:
    stream = client.create_stream("large", DataClass.PUBLIC)
    events = [bytes([number]) * 10_000 for number in range(50)]
    client.append(stream, events)
    found: list[bytes] = []
    while part := data(client, stream, len(found)):
        found += part
    assert found == events


def test_streams_that_are_not_there(client: Client) -> None:
    for attempt in (lambda: client.read(StreamId(9999)), lambda: client.append(StreamId(9999), [b"x"])):
        with pytest.raises(StreamNotFoundError):
            attempt()
    regional = client.create_stream("eu", DataClass.PII, Placement.CUSTOM, "eu-central-1")
    with pytest.raises(KimberliteError):
        client.create_stream("eu", DataClass.PII)
    assert data(client, regional) == []


def test_query_execute_and_query_at(client: Client) -> None:
    stream = client.create_stream("visits", DataClass.PUBLIC)
    client.append(stream, [b'{"who": "Ada"}', b'{"who": "Bo"}'])
    counted = client.query("SELECT COUNT(*) as count FROM visits")
    assert (counted.columns, cells(counted.rows)) == (["count"], [[2]])
    client.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, name VARCHAR, seen TIMESTAMP)")
    insert = "INSERT INTO people (id, name, seen) VALUES ($1, $2, $3)"
    moment = 1_700_000_000_000_000_000
    first = client.execute(insert, [Value.bigint(1), Value.text("Ada"), Value.timestamp(moment)])
    assert first.rows_affected == 1
    time.sleep(0.01)
    between = datetime.datetime.now(datetime.UTC)
    time.sleep(0.01)
    second = client.execute(insert, [Value.bigint(2), Value.text("Bo"), Value.null()])
    assert second.log_offset > first.log_offset
    now = client.query("SELECT id, name, seen FROM people ORDER BY id")
    assert cells(now.rows) == [[1, "Ada", moment], [2, "Bo", None]]
    select = "SELECT name FROM people WHERE id >= $1"
    assert cells(client.query_at(select, [Value.bigint(0)], first.log_offset).rows) == [["Ada"]]
    assert cells(client.query_at(select, [Value.bigint(0)], second.log_offset).rows) == [["Ada"], ["Bo"]]
    assert cells(client.query_at(select, [Value.bigint(0)], between).rows) == [["Ada"]]
    with pytest.raises(UniqueConstraintViolationError):
        client.execute(insert, [Value.bigint(2), Value.text("Cy"), Value.null()])
    broken = client.query_break_glass("emergency", "SELECT name FROM people WHERE id = 1")
    assert cells(broken.rows) == [["Ada"]]


def test_statements_that_fail(client: Client) -> None:
    with pytest.raises(QuerySyntaxError):
        client.query("SELEC 1")
    with pytest.raises(QueryExecutionError):
        client.query("SELECT CAST('x' AS BIGINT)")
    with pytest.raises(KimberliteError):
        client.query("SELECT * FROM nowhere")
    with pytest.raises(KimberliteError):
        client.query_at("SELECT 1", [], 1 << 60)
    assert cells(client.query("SELECT 1").rows) == [[1]]  # and the connection goes on


def test_a_subscription_gets_every_event_in_order(address: str, client: Client) -> None:
    stream = client.create_stream("watched", DataClass.PUBLIC)
    client.append(stream, [b"%d" % number for number in range(20)])
    reader = Client.connect([address], ME)
    subscription = reader.subscribe(stream, Offset(5), initial_credits=4)
    found = [subscription.next_event() for _ in range(15)]
    client.append(stream, [b"20"], Offset(20))
    found.append(subscription.next_event())
    assert [(event.offset, event.data) for event in found if event is not None] == [
        (number, b"%d" % number) for number in range(5, 21)
    ]
    subscription.unsubscribe()
    reader.disconnect()


def test_the_server_tells_of_itself_and_its_tables(client: Client) -> None:
    client.create_stream("listed", DataClass.PUBLIC)
    client.execute("CREATE TABLE listed_too (id BIGINT PRIMARY KEY, name VARCHAR)")
    info = client.admin.server_info()
    assert info.protocol_version == 5 and info.cluster_mode.lower() == "standalone" and "query" in info.capabilities
    tables = {table.name: table.column_count for table in client.admin.list_tables()}
    assert tables["listed_too"] == 2 and "listed" in tables
    described = client.admin.describe_table("listed_too")
    assert [(column.name, column.primary_key) for column in described.columns] == [("id", True), ("name", False)]
    client.admin.list_indexes("listed_too")
    with pytest.raises(KimberliteError):
        client.admin.describe_table("nowhere")


def test_tenants_and_keys(client: Client) -> None:
    seven = TenantId(7)
    assert client.admin.create_tenant(seven, "seven").created
    assert not client.admin.create_tenant(seven, "seven").created
    assert client.admin.get_tenant(seven).name == "seven"
    assert seven in [tenant.tenant_id for tenant in client.admin.list_tenants()]
    assert client.admin.delete_tenant(seven).deleted
    issued = client.admin.issue_api_key("app", ME, ["User"])
    assert issued.info.subject == "app"
    rotated = client.admin.rotate_api_key(issued.key)
    assert [key.subject for key in client.admin.list_api_keys(ME)] == ["app"]
    assert client.admin.revoke_api_key(rotated.new_key)
    assert client.admin.list_api_keys(ME) == []


def test_tokens(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"0123456789abcdef0123456789abcdef")
    token = penstock("token", "issue", "alice", "--key", str(secret), "--role", "Admin", "--tenant", "42").stdout
    settings = {"PENSTOCK_SECURITY__MODE": "on", "PENSTOCK_SECURITY__TOKEN_KEYS": str(secret)}
    with BrokerProcess(tmp_path / "data", **settings) as broker:
        address = broker.ready().address("kimberlite")
        alice = Client.connect([address], ME, auth_token=token.strip())
        stream = alice.create_stream("hers", DataClass.PHI)
        alice.append(stream, [b"x"])
        key = alice.admin.issue_api_key("app", ME, ["User", "phi"]).key
        app = Client.connect([address], ME, auth_token=key)
        assert data(app, stream) == [b"x"]
        with pytest.raises(AuthenticationError):
            Client.connect([address], ME, auth_token="psk_1_wrong")
        with pytest.raises(KimberliteError):
            Client.connect([address], TenantId(43), auth_token=key)
        nobody = Client.connect([address], ME)  # it does not look whether it was let in
        with pytest.raises(AuthenticationError):
            nobody.read(stream)
        for each in (alice, app, nobody):
            each.disconnect()
