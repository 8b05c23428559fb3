"""Reads through the Flight process of a standby: they may lag, say so, and never write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kafka.brokers import TOPIC, Broker, new_url
from tests.kafka.kraft import Cluster
from tests.launcher import BrokerProcess

from penstock.broker.names import DEFAULT_SCOPE
from penstock.flight import wire
from penstock.flight.client import FlightLog
from penstock.flight.errors import LogUnavailable
from penstock.flight.log import TopicPartition
from penstock.flight.options import BrokerOptions

pytestmark = pytest.mark.process

DOORS = ("rustlog", "http", "flight")
PLACE = TopicPartition(TOPIC, 0)
PATIENT = 120.0
COUNT = "SELECT count(*) AS n FROM orders"


@pytest.fixture
def pair(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    """An owner, and a standby that serves reads."""
    url = new_url(cluster)
    owner, standby = (Broker(tmp_path, name, url, DOORS, PENSTOCK_STORAGE__STALE_READS="true") for name in "ab")
    owner.start().ready()
    owner.write(*map(str, range(10)))
    standby.start().says("standby")
    yield owner, standby
    for broker in (owner, standby):
        broker.kill()


def test_a_standby_serves_reads(pair: tuple[Broker, Broker]) -> None:
    owner, standby = pair
    at_owner, at_standby = (flight_log(broker) for broker in pair)
    until(lambda: answered(at_standby) and end_of(at_standby) == 10)
    assert at_standby.stale
    assert values(at_standby, 10) == list(map(str, range(10)))
    assert end_of(at_owner) == 10
    assert not at_owner.stale

    rows = at_standby.sql('SELECT count(*) AS n, max("offset") AS last FROM orders WHERE key IS NULL')
    assert rows.to_pylist() == [{"n": 10, "last": 9}]
    assert rows.schema.metadata[wire.STALE.encode()] == b"true"
    ten = int(rows.schema.metadata[wire.POSITION.encode()])
    assert at_owner.sql(COUNT, position=ten).to_pylist() == [{"n": 10}]

    # A read of what the owner does not have yet waits for it.
    found: list[str] = []
    reading = threading.Thread(target=lambda: found.extend(values(at_standby, 15)))
    reading.start()
    owner.write(*map(str, range(10, 15)))
    reading.join(PATIENT)
    assert found == list(map(str, range(15)))
    with pytest.raises(LogUnavailable, match="has partition 0 of 'orders' up to offset 15, and not yet up to 99"):
        values(FlightLog(options(standby), retries=0), 99)
    with pytest.raises(LogUnavailable, match="standby and serves reads only"):
        FlightLog(options(standby), retries=0).commit_offsets("billing", {PLACE: 3})
    FlightLog(BrokerOptions((address(standby), address(owner)), DEFAULT_SCOPE)).commit_offsets("billing", {PLACE: 3})
    standby.write("through the standby")  # at other doors everything goes to the owner
    at_sixteen = at_owner.sql(COUNT).schema.metadata
    assert at_sixteen[wire.STALE.encode()] == b"false"
    sixteen = int(at_sixteen[wire.POSITION.encode()])
    assert at_standby.sql(COUNT, position=sixteen).to_pylist() == [{"n": 16}]  # waits until the standby has it
    assert at_standby.sql(COUNT, position=ten).to_pylist() == [{"n": 10}]
    alone = FlightLog(options(standby), retries=0)
    with pytest.raises(LogUnavailable, match=r"this broker is a standby\..*ask the owner"):
        alone.sql(COUNT, position=sixteen + 1000)
    with pytest.raises(LogUnavailable, match="standby and serves reads only"):
        alone.sql("INSERT INTO orders (id) VALUES (1)")
    until(lambda: end_of(at_standby) == 16)

    owner.kill()
    standby.ready()
    until(lambda: answered(at_standby) and not at_standby.stale)
    at_standby.commit_offsets("billing", {PLACE: 5})
    standby.write("as the owner")
    assert at_standby.sql(COUNT).to_pylist() == [{"n": 17}]
    assert values(at_standby, 17) == [*map(str, range(15)), "through the standby", "as the owner"]
    owner.start().says("standby")
    until(lambda: answered(at_owner) and at_owner.stale and end_of(at_owner) == 17)


def test_stale_reads_need_a_journal_on_kafka_and_the_flight_door(cluster: Cluster, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "a", "--stale-reads") as broker:
        assert "it needs storage.url" in broker.finish(60)[2]
    flags = ("--stale-reads", "--storage", new_url(cluster))
    with BrokerProcess(tmp_path / "b", *flags, PENSTOCK_TABLES__URL=str(tmp_path / "tables")) as broker:
        assert "served by the Flight door, which is closed" in broker.finish(60)[2]


def address(broker: Broker) -> tuple[str, int]:
    return "127.0.0.1", broker.ports["flight"]


def options(broker: Broker) -> BrokerOptions:
    return BrokerOptions((address(broker),), DEFAULT_SCOPE)


def flight_log(broker: Broker) -> FlightLog:
    return FlightLog(options(broker))


def end_of(log: FlightLog) -> int:
    return log.bounds([TOPIC])[PLACE].high_watermark


def answered(log: FlightLog) -> bool:
    try:
        return PLACE in log.bounds([TOPIC])
    except LogUnavailable:
        return False


def values(log: FlightLog, end: int) -> list[str]:
    return [value.decode() for batch in log.read(PLACE, 0, end, ["value"]) for value in batch["value"].to_pylist()]


def until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENT
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.1)
