"""By which door a record came: kept by the log with its batch, and by tables in a column; shown by the administration
API, SQL and Flight."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.console.demo import Api
from tests.launcher import BrokerProcess
from tests.matrix.payloads import Entry
from tests.matrix.writers import WRITERS, Place
from tests.moved import SETTINGS, move_to_tables

from penstock.clients.flymq import Client as FlyMq
from penstock.clients.rustlog import Client as RustLog
from penstock.flight.connect import connect
from penstock.flight.log import TopicPartition

pytestmark = pytest.mark.process

ENTRY = Entry(b'{"text": "x"}')


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    open_too = ("--listen", "felix=127.0.0.1:0", "--listen", "flight=127.0.0.1:0")
    data = tmp_path_factory.mktemp("doors") / "data"
    with BrokerProcess(data, *open_too, PENSTOCK_KIMBERLITE__TENANTS="1=default").ready() as process:
        yield process


def doors(broker: BrokerProcess, topic: str) -> list[str | None]:
    found = Api(f"http://{broker.address('http')}")("GET", f"/topics/{topic}/records?start=earliest&limit=100")
    return [record["door"] for record in found["records"]]


@pytest.mark.parametrize("way", WRITERS)
def test_every_way_in_is_told_from_the_others(broker: BrokerProcess, way: str) -> None:
    writer, place = WRITERS[way](broker), Place(f"by_{way}")
    if not writer.create(place, [ENTRY]):
        writer.write(place, [ENTRY])
    assert doors(broker, place.topic) == [way.partition("_")[0]]


def test_records_of_two_doors_in_one_partition(broker: BrokerProcess) -> None:
    api = Api(f"http://{broker.address('http')}")
    api("POST", "/topics", {"name": "mixed"})
    with RustLog(*broker.endpoint("rustlog")) as first, FlyMq(*broker.endpoint("flymq")) as second:
        for _ in range(2):
            first.produce("mixed", 0, [b"one", b"two"])
            second.produce("mixed", b"three", None, 0)
    api("POST", "/topics/mixed/records", {"records": [{"value_text": "four"}]})
    assert doors(broker, "mixed") == ["rustlog", "rustlog", "flymq"] * 2 + ["http"]


def test_a_transaction_has_the_door_of_its_commit(broker: BrokerProcess) -> None:
    with FlyMq(*broker.endpoint("flymq")) as client:
        client.create_topic("at_once", 1)
        with client.transaction() as transaction:
            transaction.produce("at_once", b"one")
    assert doors(broker, "at_once") == ["flymq"]


def test_it_is_kept_over_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("doors") / "data"
    with BrokerProcess(data).ready() as process:
        with RustLog(*process.endpoint("rustlog")) as client:
            client.create_topic("kept", 1)
            client.produce("kept", 0, [b"one"])
        process.process.kill()
        process.process.wait()
    with BrokerProcess(data).ready() as process:
        assert doors(process, "kept") == ["rustlog"]


def test_it_is_kept_when_records_move_to_a_table(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("doors") / "data"
    with BrokerProcess(data, "--listen", "flight=127.0.0.1:0", **SETTINGS).ready() as process:
        api = Api(f"http://{process.address('http')}")
        with RustLog(*process.endpoint("rustlog")) as first, FlyMq(*process.endpoint("flymq")) as second:
            first.create_topic("mixed", 1)
            for _ in range(2):
                first.produce("mixed", 0, [b"one", b"two"])
                second.produce("mixed", b"three", None, 0)
            move_to_tables(process, data)
            second.produce("mixed", b"four", None, 0)
        api("POST", "/topics/mixed/records", {"records": [{"value_text": "five"}]})
        expected = ["rustlog", "rustlog", "flymq", "rustlog", "rustlog", "flymq", "flymq", "http"]
        assert doors(process, "mixed") == expected
        where = api("GET", "/topics/mixed/records?start=earliest&where=_door%20%3D%20%27rustlog%27")
        assert [record["offset"] for record in where["records"]] == [0, 1, 3, 4]
        found = api("POST", "/sql", {"sql": 'SELECT _door, * FROM mixed ORDER BY "offset"'})
        assert found["columns"] == ["_door", "offset", "timestamp", "key", "data"]
        assert [row[0] for row in found["rows"]] == expected
        log = connect({"bootstrap.servers": process.address("flight")})
        read = log.read(TopicPartition("mixed", 0), 0, 8, ("door",))
        assert [door for batch in read for door in batch.column("door").to_pylist()] == expected
