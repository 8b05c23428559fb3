"""The typed table of a topic with a schema, in SQL, Flight, the administration API and `penstock table`."""

from __future__ import annotations

import json
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import flight
from tests.console.demo import Api, encoded
from tests.launcher import BrokerProcess, penstock
from tests.moved import SECONDS, SETTINGS, move_to_tables

pytestmark = pytest.mark.process

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "count": {"type": "integer"}, "place": {"type": "object"}},
    "required": ["id"],
}


class Broker:
    def __init__(self, process: BrokerProcess, data: Path) -> None:
        self.api = Api(f"http://{process.address('http')}")
        self.process, self.data = process, data
        self.position = 0

    def sql(self, text: str, position: int | None = None) -> Any:
        return self.api("POST", "/sql", {"sql": text, "position": position})["rows"]

    def refused(self, text: str) -> str:
        with pytest.raises(urllib.error.HTTPError) as refused:
            self.sql(text)
        return refused.value.read().decode()

    def flight(self) -> Any:
        return flight.FlightClient(f"grpc://{self.process.address('flight')}")

    def got(self, ticket: dict[str, Any]) -> list[dict[str, Any]]:
        return self.flight().do_get(flight.Ticket(json.dumps(ticket))).read_all().to_pylist()  # type: ignore[no-any-return]

    def fill(self) -> None:
        self.api("POST", "/schemas/order", {"kind": "json", "definition": encoded(SCHEMA)})
        self.api("POST", "/topics", {"name": "orders", "partitions": 2, "settings": {"schema": "order"}})
        self.api("POST", "/topics", {"name": "plain"})
        self.append('{"id": "a", "count": 1}', '{"id": "b", "count": 2}')
        self.position = self.api("GET", "/broker")["position"]
        self.append('{"id": "c", "count": 30}', partition=1)
        move_to_tables(self.process, self.data)
        self.wait_for_typed(3)
        self.append('{"id": "later", "count": 400}')  # only in the journal, so not in the typed table yet

    def append(self, *values: str, partition: int = 0) -> None:
        records = [{"value_text": value, "key_text": "k", "partition": partition} for value in values]
        self.api("POST", "/topics/orders/records", {"records": records})

    def wait_for_typed(self, rows: int) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            found = list((self.data / "tables/default/default").glob("orders-*.typed"))
            if found and DeltaTable.is_deltatable(str(found[0])) and DeltaTable(found[0]).count() >= rows:
                return
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data = tmp_path_factory.mktemp("typed") / "data"
    with BrokerProcess(data, "--listen", "flight=127.0.0.1:0", **SETTINGS).ready() as process:
        made = Broker(process, data)
        made.fill()
        yield made


def test_its_columns_are_those_of_the_schema(broker: Broker) -> None:
    found = broker.sql("SELECT id, count, _partition, _offset, _key, _error, _door FROM orders_typed ORDER BY id")
    assert found == [
        ["a", 1, 0, 0, "k", None, "http"],
        ["b", 2, 0, 1, "k", None, "http"],
        ["c", 30, 1, 0, "k", None, "http"],
    ]
    described = {row[0]: row[1] for row in broker.sql("DESCRIBE orders_typed")}
    assert (described["count"], described["_timestamp"], described["_key"]) == ("BIGINT", "TIMESTAMP", "VARCHAR")
    assert broker.sql("SELECT COUNT(*), SUM(count) FROM Orders_Typed WHERE _timestamp <= now()") == [[3, 33]]
    assert broker.sql("SELECT t.id FROM orders_typed t JOIN orders o ON o.id = t.id WHERE o.count > 2") == [["c"]]


def test_it_is_listed_and_cannot_be_changed(broker: Broker) -> None:
    listed = [row[0] for row in broker.sql("SHOW TABLES")]
    assert "orders_typed" in listed and "plain_typed" not in listed
    assert "insert into the topic" in broker.refused("INSERT INTO orders_typed (id) VALUES ('x')")
    assert "exists" in broker.refused("CREATE TABLE orders_typed (id VARCHAR)")
    assert "dropped with the topic" in broker.refused("DROP TABLE orders_typed")
    assert "plain_typed" in broker.refused("SELECT * FROM plain_typed")


def test_as_of_a_position_and_a_time(broker: Broker) -> None:
    assert broker.sql("SELECT id FROM orders_typed ORDER BY id", broker.position) == [["a"], ["b"]]
    assert broker.sql("SELECT id FROM orders_typed AS OF TIMESTAMP '2020-01-01 00:00:00'") == []


def test_it_is_shown(broker: Broker) -> None:
    topics = broker.api("GET", "/topics")["items"]
    assert {topic["name"]: topic["typed"] for topic in topics if topic["name"] in ("orders", "plain")} == {
        "orders": "orders_typed",
        "plain": None,
    }
    assert broker.api("GET", "/tables/orders")["typed"] == "orders_typed"
    said = penstock("table", "show", "orders", "--data-dir", str(broker.data)).stdout
    assert "orders_typed" in said and "_schema_version" in said
    listed = penstock("table", "list", "--data-dir", str(broker.data)).stdout
    [row] = [line.split("\t") for line in listed.splitlines() if line.startswith("orders_typed\t")]
    assert row[1] == "3" and row[-1] == "0:0-2 1:0-1"
    server = ("--server", broker.process.address("http"))
    listed = penstock("table", "list", *server).stdout
    [row] = [line.split("\t") for line in listed.splitlines() if line.startswith("orders_typed\t")]
    assert row[-1].endswith(".typed") and Path(row[-1]).is_dir()


def test_it_is_verified(broker: Broker) -> None:
    """By the broker, and by the data directory."""
    for where in (("--server", broker.process.address("http")), ("--data-dir", str(broker.data))):
        done = penstock("table", "verify", "orders", *where)
        assert done.returncode == 0, done.stderr
        assert ", 3 of them compared with the topic's table: sound" in done.stdout, done.stdout


def test_it_is_a_flight(broker: Broker) -> None:
    found = broker.flight()
    listed = {info.descriptor.path[0].decode(): info.schema for info in found.list_flights()}
    assert listed["orders_typed"] is None and "plain_typed" not in listed and listed["orders"] is not None
    path = flight.FlightDescriptor.for_path("orders_typed")
    info = found.get_flight_info(path)
    assert (len(info.endpoints), info.total_records) == (2, 3)
    tables = [found.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    assert all(table.schema == info.schema == found.get_schema(path).schema for table in tables)
    rows = pa.concat_tables(tables).select(["_partition", "_offset", "id", "count"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(0, 0, "a", 1), (0, 1, "b", 2), (1, 0, "c", 30)]
    one = {"topic": "orders_typed", "start": 1, "end": 2, "columns": ["id", "_key"]}
    assert broker.got(one) == [{"id": "b", "_key": b"k"}]
    assert broker.got({"topic": "orders_typed", "start": 2}) == []
    command = flight.FlightDescriptor.for_command(b'{"topic": "orders_typed", "columns": ["count"]}')
    narrow = found.get_flight_info(command)
    assert found.do_get(narrow.endpoints[1].ticket).read_all().to_pylist() == [{"count": 30}]
    (reply,) = found.do_action(flight.Action("table", b'{"topic": "orders_typed"}'))
    table = json.loads(reply.body.to_pybytes())["table"]
    assert DeltaTable(table["url"]).count() == 3 and table["typed"] is True
    assert [(part["partition"], part["start"], part["end"]) for part in table["partitions"]] == [(0, 0, 2), (1, 0, 1)]


def test_what_flight_refuses(broker: Broker) -> None:
    for request, reason in (
        ({"topic": "plain_typed"}, "Topic 'plain' has no schema"),
        ({"topic": "no_typed"}, "Topic 'no_typed' not found"),
        ({"topic": "orders_typed", "columns": ["id", "price"]}, "no column 'price'"),
        ({"topic": "orders_typed", "columns": ["id", "id"]}, "twice"),
        ({"topic": "orders_typed", "end": 3}, "ends at offset 2"),
        ({"topic": "orders_typed", "partition": 2}, "Partition 2 not found"),
    ):
        with pytest.raises(pa.ArrowException, match=reason):
            broker.got(request)


def test_a_topic_of_that_name_comes_first(broker: Broker) -> None:
    broker.api("POST", "/topics", {"name": "plain_typed"})
    assert broker.sql("SELECT COUNT(*) FROM plain_typed") == [[0]]
    assert broker.got({"topic": "plain_typed"}) == []
    broker.api("DELETE", "/topics/plain_typed")
