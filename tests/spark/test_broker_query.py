"""Spark and a real broker process, over its Flight port: with its users, through its end and return, and beside the
tables that it builds."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyarrow import flight
from pyspark.errors import PySparkException
from tests.launcher import BrokerProcess, penstock
from tests.ports import steady_port
from tests.spark.query import Query, until

from penstock.clients.blipmq import Client as BlipMq
from penstock.clients.rustlog import Client
from penstock.spark import decode, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK_TABLES = {
    "PENSTOCK_LOG__FILE_BYTES": "64KiB",
    "PENSTOCK_LOG__DURABILITY": "written",
    "PENSTOCK_TABLES__ENABLED": "true",
    "PENSTOCK_TABLES__CARE_SECONDS": "0.3",
}


@pytest.fixture
def port() -> int:
    return steady_port()


@pytest.fixture
def broker(tmp_path: Path, port: int) -> Iterator[BrokerProcess]:
    with started(tmp_path, port) as made:
        yield made


def started(place: Path, port: int, **environment: str) -> BrokerProcess:
    flags = ("--listen", f"flight=127.0.0.1:{port}")
    return BrokerProcess(place / "data", *flags, **QUICK_TABLES | environment).ready()


def served_by(port: int, **more: str) -> dict[str, str]:
    return {"bootstrap.servers": f"127.0.0.1:{port}"} | more


def load(spark: SparkSession, options: dict[str, str], **more: str) -> DataFrame:
    return spark.read.format("penstock").options(**options | more).load()


def test_what_a_door_took_spark_reads(spark: SparkSession, broker: BrokerProcess, port: int, tmp_path: Path) -> None:
    with Client(*broker.endpoint("rustlog")) as client:
        client.create_topic("t", 2)
        client.produce("t", 0, [b"a", b"b"])
        client.produce("t", 1, [b"c"])
        rows = load(spark, served_by(port), subscribe="t").orderBy("partition", "offset")
        assert [(row.value, row.topic, row.partition, row.offset) for row in rows.collect()] == [
            (b"a", "t", 0, 0),
            (b"b", "t", 0, 1),
            (b"c", "t", 1, 0),
        ]
        options = served_by(port, subscribe="t", startingOffsets="earliest", **{"group.id": "spark"})
        query = Query(spark, options, tmp_path / "c")
        query.run()
        assert query.values() == [b"a", b"b", b"c"]
        assert [client.fetch_offset("spark", "t", partition) for partition in (0, 1)] == [2, 1]


def test_values_of_confluents_serializer(spark: SparkSession, broker: BrokerProcess, port: int) -> None:
    """Written with two versions of a schema, which the serializer registers, and with none."""
    first = [{"name": "id", "type": "string"}, {"name": "city", "type": "string"}]
    second = [*reversed(first), {"name": "count", "type": "int", "default": 1}]
    where = SerializationContext("orders", MessageField.VALUE)
    with SchemaRegistryClient({"url": f"http://{broker.address('http')}"}) as registry:
        values = []
        for fields, more in ((first, {}), (second, {"count": 7})):
            definition = json.dumps({"type": "record", "name": "Order", "fields": fields})
            values.append(AvroSerializer(registry, definition)({"id": "a", "city": "Ulm"} | more, where))
    with Client(*broker.endpoint("rustlog")) as client:
        client.create_topic("orders", 1)
        client.produce("orders", 0, [*values, b"none"])
    rows = load(spark, served_by(port), subscribe="orders").select("offset", "value")
    found = decode(rows, "orders-value", framing="confluent", bootstrap_servers=f"127.0.0.1:{port}")
    assert found.rows.select("offset", "id", "city", "count").orderBy("offset").collect() == [
        (0, "a", "Ulm", 1),
        (1, "a", "Ulm", 7),
    ]
    [bad] = found.rejected.collect()
    assert (bad["offset"], bytes(bad["value"])) == (2, b"none") and "Confluent" in bad["reason"]
    with flight.connect(f"grpc://127.0.0.1:{port}") as connection:
        for asked, ids in (({}, 0), ({"with_id": True}, 1)):  # clients that know no ids get none
            request = json.dumps({"subject": "orders-value", "version": 1, **asked}).encode()
            (answer,) = connection.do_action(flight.Action("schema", request))
            told = json.loads(answer.body.to_pybytes()).keys()
            assert told == {"format", "definition", "version", *["id"][:ids]}


def test_a_stream_outlives_its_broker(spark: SparkSession, port: int, tmp_path: Path) -> None:
    """Killed and started again, twice, while a query runs: it waits, and misses nothing."""
    options = served_by(port, subscribe="t", startingOffsets="earliest", retryTimeout="60s", maxOffsetsPerTrigger="50")
    query = Query(spark, options, tmp_path / "c")
    running = None
    written: list[bytes] = []
    try:
        for life in range(3):
            with started(tmp_path, port) as broker, Client(*broker.endpoint("rustlog")) as client:
                if life == 0:
                    client.create_topic("t", 2)
                for number in range(4):
                    values = [b"%d-%d-%d" % (life, number, each) for each in range(50)]
                    client.produce("t", number % 2, values)
                    written += values
                if running is None:
                    running = query.start({"processingTime": "0 seconds"})
                query.await_rows(len(written) if life == 2 else len(written) // 3)
                broker.signal(signal.SIGKILL)
        assert running is not None and running.exception() is None
        assert query.values() == sorted(written)
    finally:
        if running is not None:
            running.stop()


def test_the_topic_as_a_table(spark: SparkSession, broker: BrokerProcess, port: int, tmp_path: Path) -> None:
    """Asked for again and again while the broker moves records from its journal to the table: always all of it."""
    options = served_by(port)
    with Client(*broker.endpoint("rustlog")) as client:
        client.create_topic("t", 1)
        for number in range(3000):
            client.produce("t", 0, [b"%06d" % (number * 2), b"%06d" % (number * 2 + 1) + b"." * 100])
        counts = []
        until(lambda: list((tmp_path / "data" / "tables").rglob("_delta_log/*.json")) != [], 60)
        for step in range(3):
            found = table(spark, "t", **options)
            end = 6000 + step
            assert found.selectExpr("count(*)", "count(distinct offset)", "min(offset)", "max(offset)").first() == (
                end,
                end,
                0,
                end - 1,
            )
            counts.append(str(found._jdf.queryExecution().executedPlan().toString()).count("FileScan parquet"))
            client.produce("t", 0, [b"more"])
        assert counts[-1] == 1  # there is a table by now, and the others saw it come


def test_users_and_their_rights(spark: SparkSession, port: int, tmp_path: Path) -> None:
    data, security = str(tmp_path / "data"), {"PENSTOCK_SECURITY__MODE": "on"}

    def key(allow: str, *topics: str) -> str:
        patterns = [part for topic in topics for part in ("--topic", topic)]
        done = penstock("keys", "add", "k", "--allow", allow, *patterns, "--data-dir", data, **security)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def said(**options: str) -> str:
        with pytest.raises(PySparkException) as refused:
            load(spark, served_by(port, subscribe="orders"), **options).collect()
        return str(refused.value)

    with started(tmp_path, port, **security) as broker:
        writer, reader = key("write,create,describe", "orders"), key("read,describe", "orders")
        stranger = key("read,describe", "others")
        with BlipMq(*broker.endpoint("blipmq"), key=writer) as client:
            client.publish("orders", b"a")
            client.flush()
        options = served_by(port, subscribe="orders") | {"api.key": reader}
        assert [row.value for row in load(spark, options).collect()] == [b"a"]
        assert "`api.key`" in said()
        assert "`api.key`" in said(**{"api.key": "wrong"})
        assert "orders" in said(**{"api.key": stranger})
