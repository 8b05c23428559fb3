"""Nexmark's queries as streams of topics: the same results as another engine finds in the same events at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.nexmark import expected
from benchmarks.nexmark.events import BEGIN, FLUSH, GAP, TOPICS, Event, encoded, events, flush
from tests.launcher import BrokerProcess
from tests.spark.data_dir import DataDir
from tests.spark.java import needs_java
from tests.spark.query import with_state

from penstock.clients.rustlog import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [needs_java, pytest.mark.spark]

COUNT = 3_000  # a minute of events
PARTITIONS = 2
Results = dict[str, Counter[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DataDir, Results]]:
    """Topics with the events, taken by a broker whose clock is that of the events; and what must come of them."""
    made = DataDir(tmp_path_factory.mktemp("nexmark") / "data")
    for topic in TOPICS:
        made.create(topic, PARTITIONS)
    sent = list(events(COUNT))
    taken = [at(number // 50 * 50) for number in range(COUNT)]
    for first in range(0, COUNT, 50):
        made.now = int(taken[first].timestamp() * 1e6)
        write(made, sent[first : first + 50], first // 50 % PARTITIONS)
    made.now = int((at(COUNT) + FLUSH).timestamp() * 1e6)
    write(made, flush(COUNT), 0)
    yield made, expected.results(sent, taken)
    made.close()


def at(number: int) -> datetime:
    return BEGIN + number * GAP


def write(log: DataDir, batch: list[Event], partition: int) -> None:
    values = defaultdict(list)
    for event in batch:
        values[event.topic].append(encoded(event))
    for topic, found in values.items():
        log.write(topic, partition, found)


@pytest.fixture(autouse=True)
def windows_end(spark: SparkSession) -> Iterator[None]:
    with with_state(spark):
        yield


@pytest.mark.parametrize("name", expected.SQL)
def test_results_are_those_of_a_batch(
    spark: SparkSession, log: tuple[DataDir, Results], name: str, tmp_path: Path
) -> None:
    from benchmarks.nexmark.queries import QUERIES, streams

    from penstock.spark import start

    query = QUERIES[name]
    options = log[0].options | {"maxOffsetsPerTrigger": str(COUNT // 2)}
    rows = query.build(streams(spark, options, query.topics))
    writer = rows.writeStream.option("path", str(tmp_path / "rows")).trigger(availableNow=True)
    start(writer.option("checkpointLocation", str(tmp_path / "checkpoint"))).awaitTermination()
    limit = (at(COUNT) + FLUSH / 2).astimezone(UTC).timestamp()
    written = spark.read.schema(rows.schema).parquet(str(tmp_path / "rows"))
    found = expected.counted(query.finish(written).collect())
    mine = Counter({row: count for row, count in found.items() if not is_flush(row, limit)})
    assert mine == log[1][name] and mine.total() > 3


def test_the_benchmark_s_events_are_in_the_broker(tmp_path: Path) -> None:
    from benchmarks import spark_nexmark

    count = 2_500  # more bids than fit into a request
    with BrokerProcess(tmp_path / "data").ready() as broker:
        written = spark_nexmark.load(broker.endpoint("rustlog")[1], count)
        assert sum(written.values()) == count + len(list(flush(count))) and written["bid"] > 2 * spark_nexmark.BATCH
        with Client(*broker.endpoint("rustlog")) as client:
            for topic, number in written.items():
                ends = [
                    client.describe_partition(topic, part).high_watermark for part in range(spark_nexmark.PARTITIONS)
                ]
                assert sum(ends) == number


def is_flush(row: tuple[Any, ...], limit: float) -> bool:
    return any(value in (-1, -3) for value in row) or any(isinstance(value, float) and value > limit for value in row)
