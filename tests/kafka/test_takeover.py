"""Everything that a broker keeps goes on when another takes the journal over: the client is connected to a standby all
the time, while the owner is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kafka.brokers import Broker, new_url
from tests.kafka.kraft import Cluster

import penstock
from penstock.broker.names import DEFAULT_SCOPE
from penstock.connection.queue import Queue
from penstock.flight.client import FlightLog
from penstock.flight.options import BrokerOptions

pytestmark = pytest.mark.process

DOORS = ("rustlog", "flymq", "blipmq", "http", "flight")
SETTINGS = {
    "PENSTOCK_CACHE__JOURNALLED": "*/*/sessions",
    "PENSTOCK_TABLES__ENABLED": "false",
    "PENSTOCK_QUEUES__BACKOFF_SECONDS": "0.05",
}
ROWS = pa.schema([("value", pa.binary()), ("partition", pa.int32())])


@pytest.fixture
def pair(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    """An owner, and a standby that follows it."""
    url = new_url(cluster)
    brokers = [Broker(tmp_path, name, url, DOORS, **SETTINGS) for name in "ab"]
    brokers[0].start().ready()
    brokers[1].start().says("standby")
    yield brokers[0], brokers[1]
    for broker in brokers:
        broker.kill()


def test_everything_goes_on(pair: tuple[Broker, Broker]) -> None:
    owner, standby = pair
    log = FlightLog(BrokerOptions((("127.0.0.1", standby.ports["flight"]),), DEFAULT_SCOPE))
    with penstock.connect(f"127.0.0.1:{standby.ports['flymq']}", timeout=120.0) as db:
        db.admin.topics.create("orders")
        queue = db.queue("jobs", "mailers", lease=1.0)
        db.produce_many("jobs", ["first job", "second job"])
        assert taken(queue) == "first job"
        db.admin.caches.put("sessions", "ann", b"logged in")
        db.produce("reminders", "call back", delay=2.0)
        with db.transaction() as transaction:
            transaction.produce("debits", "10")
            transaction.produce("credits", "10")
        consumer = db.consume("orders", "billing", auto_commit=False)
        producer = db.producer()
        before = [producer.send("orders", f"{n}") for n in range(50)]
        producer.flush()
        assert [record.text for record in consumer.poll(limit=20, timeout=60.0)] == [f"{n}" for n in range(20)]
        consumer.commit()
        staged = log.stage("etl", 1, "sums", "sums", iter([rows(b"a", b"b")]), ROWS).ref
        assert not log.publish("etl", 1, [staged]).repeated

        during = [producer.send("orders", f"{n}") for n in range(50, 100)]
        owner.kill()
        during += [producer.send("orders", f"{n}") for n in range(100, 150)]
        standby.ready()

        # An idempotent producer: once each and in order, whatever was on its way.
        producer.flush()
        assert [one.result().offset for one in (*before, *during)] == list(range(150))
        assert texts(db, "orders") == [f"{n}" for n in range(150)]
        producer.close()
        # A group goes on where it was.
        assert consumer.poll(limit=1, timeout=60.0)[0].text == "20"
        consumer.close()
        with db.consume("orders", "billing") as again:
            assert again.poll(limit=1, timeout=60.0)[0].text == "20"
        # A queue has what was not acknowledged, and only that.
        assert taken(queue) == "second job"
        assert db.admin.caches.get("sessions", "ann") == b"logged in"
        # A delayed record comes, once, though its time came without an owner.
        with db.consume("reminders") as reminders:
            assert [record.text for record in reminders.poll(timeout=60.0)] == ["call back"]
        assert texts(db, "debits") == texts(db, "credits") == ["10"]
        with db.transaction() as transaction:
            transaction.produce("debits", "20")
        assert texts(db, "debits") == ["10", "20"]
        # A publication that is asked for again was made before.
        staged = log.stage("etl", 1, "sums", "sums", iter([rows(b"a", b"b")]), ROWS).ref
        assert log.publish("etl", 1, [staged]).repeated
        staged = log.stage("etl", 2, "sums", "sums", iter([rows(b"c")]), ROWS).ref
        assert not log.publish("etl", 2, [staged]).repeated
        assert texts(db, "sums") == ["a", "b", "c"]
    log.close()


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.binary()), pa.array([0] * len(values), pa.int32())], schema=ROWS)


def taken(queue: Queue) -> str:
    message = queue.get(timeout=60.0)
    assert message is not None
    message.ack()
    return message.text


def texts(db: penstock.Connection, topic: str) -> list[str]:
    with db.consume(topic, follow=False) as consumer:
        return [record.text for record in consumer]
