"""Spark reads while the journal's owner is killed: the query goes on with the next owner, and has every record once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.kafka.brokers import TOPIC, Broker, Writer, new_url
from tests.kafka.kraft import Cluster
from tests.spark.conftest import spark  # noqa: F401 - a fixture
from tests.spark.query import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOORS = ("rustlog", "http", "flight")
PATIENT = 180.0  # s, on a busy machine


@pytest.fixture
def brokers(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    """An owner, and a standby that follows it."""
    url = new_url(cluster)
    owner, standby = (Broker(tmp_path, name, url, DOORS) for name in "ab")
    owner.start().ready()
    owner.write()  # makes the topic
    standby.start().says("standby")
    yield owner, standby
    for broker in (owner, standby):
        broker.kill()


def test_a_query_goes_on_when_the_owner_is_killed(
    brokers: tuple[Broker, Broker],
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
) -> None:
    owner, standby = brokers
    servers = ",".join(f"127.0.0.1:{broker.ports['flight']}" for broker in brokers)
    options = {"bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest"}
    query = Query(spark, options, tmp_path / "checkpoint", maxOffsetsPerTrigger="50")
    running = query.start({"processingTime": "0 seconds"})
    with Writer(*brokers, pause=0.02) as writer:
        query.await_rows(100, PATIENT)
        owner.kill()
        standby.ready()
        writer.more(100)
        query.await_rows(len(writer.acknowledged), PATIENT)  # without a restart of the query
        owner.start().says("standby")
        standby.kill()  # and back
        writer.more(100)
        query.await_rows(len(writer.acknowledged), PATIENT)
    found = owner.values()
    query.await_rows(len(found), PATIENT)
    assert running.exception() is None
    running.stop()
    assert [value.decode() for _, values in sorted(query.batches) for value in values] == found
    assert len({batch for batch, _ in query.batches}) == len(query.batches)  # no micro-batch twice
    writer.check(found)
