"""A streaming query for tests, and how they wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NOW = {"availableNow": True}
WITH_STATE = {
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",  # then windows that are over end
    "spark.sql.shuffle.partitions": "1",  # each keeps files of its own for every state, in every batch
}


class Query:
    """A query with a checkpoint, run as often as a test likes, and what its micro-batches held."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], checkpoint: Path, **more: str) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.options = dict(options) | more
        self.batches: list[tuple[int, list[bytes]]] = []

    def start(self, trigger: dict[str, Any], **more: str) -> StreamingQuery:
        stream = self.spark.readStream.format("penstock").options(**self.options | more).load()
        writer = stream.select("value").writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()

    def run(self, **more: str) -> StreamingQuery:
        """To the end of what is there."""
        query = self.start(NOW, **more)
        query.awaitTermination()
        return query

    def _take(self, rows: DataFrame, batch: int) -> None:
        self.batches.append((batch, [bytes(row.value) for row in rows.collect()]))

    def sizes(self) -> list[int]:
        """Of the micro-batches that held something."""
        return [len(values) for _, values in self.batches if values]

    def values(self) -> list[bytes]:
        return sorted(value for _, values in self.batches for value in values)

    def await_rows(self, count: int, seconds: float = 60) -> None:
        until(lambda: len(self.values()) >= count, seconds)

    def forget_commits(self, *batches: int) -> None:
        """As if the process had been killed before it could note that they are done."""
        for batch in batches:
            for name in (f"{batch}", f".{batch}.crc"):
                (self.checkpoint / "commits" / name).unlink(missing_ok=True)


@contextmanager
def with_state(spark: SparkSession) -> Iterator[None]:
    """The shared session, set for queries with windows and joins."""
    before = {name: spark.conf.get(name) or "" for name in WITH_STATE}
    for name, value in WITH_STATE.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    end = monotonic() + seconds
    while not true():
        assert monotonic() < end, "it did not come"
        sleep(0.05)
