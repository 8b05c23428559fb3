"""Streaming queries in Spark over a real data directory that is being written to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.data_dir import DataDir
from tests.spark.query import Query, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_available_now_in_steps_and_again(spark: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    data_dir.create("t", 2)
    written = data_dir.fill("t", 0, 150) + data_dir.fill("t", 1, 50)
    query = Query(
        spark, data_dir.options, tmp_path / "c", subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="80"
    )
    done = query.run()
    assert query.sizes() == [80, 80, 40]
    progress = done.recentProgress[-1].sources[0]
    assert json.loads(progress.latestOffset) == {"t": {"0": 150, "1": 50}}
    assert json.loads(progress.endOffset) == {"/from": {"t": {"0": 0, "1": 0}}, "t": {"0": 150, "1": 50}}
    written += data_dir.fill("t", 1, 50)
    query.run()
    assert query.sizes() == [80, 80, 40, 50]
    query.run()
    assert query.values() == sorted(written)


def test_latest_and_the_first_micro_batch_again(spark: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    """Records come while the query starts; and the end of the first micro-batches is not noted."""
    data_dir.create("t")
    data_dir.fill("t", 0, 10)
    query = Query(spark, data_dir.options, tmp_path / "c", subscribe="t")
    running = query.start({"processingTime": "0 seconds"})
    try:
        until(lambda: len(query.batches) > 0)
        written = data_dir.fill("t", 0, 5)
        until(lambda: len(query.values()) == 5)
        written += data_dir.fill("t", 0, 5)
        until(lambda: len(query.values()) == 10)
    finally:
        running.stop()
    assert query.values() == sorted(written)
    first = dict(query.batches)
    last = max(first)
    query.forget_commits(*range(last + 1))
    data_dir.fill("t", 0, 3)
    query.batches.clear()
    query.run(startingOffsets="earliest")  # the checkpoint has the word
    again = dict(query.batches)
    # With no commit noted at all, Spark plans the last micro-batch anew, from where the one before it ended.
    assert min(again) <= last and all(again[batch] == first[batch] for batch in again if batch in first)
    assert query.sizes()[-1] == 3


def test_the_very_first_micro_batch_is_replayed_as_it_was(
    spark: SparkSession, data_dir: DataDir, tmp_path: Path
) -> None:
    data_dir.create("t")
    data_dir.fill("t", 0, 10)
    query = Query(spark, data_dir.options, tmp_path / "c", subscribe="t", startingOffsets='{"t":{"0":4}}')
    query.run()
    assert [batch for batch, _ in query.batches] == [0]
    query.forget_commits(0)
    data_dir.fill("t", 0, 3)
    query.run(startingOffsets="latest")
    assert query.batches[0] == query.batches[1]
    assert query.sizes() == [6, 6, 3]


def test_retention_was_quicker(spark: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    data_dir.create("t")
    data_dir.fill("t", 0, 10)
    query = Query(spark, data_dir.options, tmp_path / "c", subscribe="t", startingOffsets="earliest")
    query.run()
    kept = data_dir.fill("t", 0, 10)[5:]
    data_dir.trim("t", 0, 15)
    with pytest.raises(StreamingQueryException, match=r"retention removed 5 records.*failOnDataLoss"):
        query.run()
    query.batches.clear()
    query.run(failOnDataLoss="false")
    assert query.values() == sorted(kept)


def test_topics_come_and_go(spark: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    data_dir.create("a1")
    written = data_dir.fill("a1", 0, 3)
    query = Query(
        spark,
        data_dir.options,
        tmp_path / "c",
        subscribePattern="a.",
        startingOffsets="earliest",
        failOnDataLoss="false",
    )
    running = query.start({"processingTime": "50 milliseconds"})
    try:
        until(lambda: query.values() == sorted(written))
        data_dir.create("b1")
        data_dir.fill("b1", 0, 3)
        data_dir.create("a2", 2)
        written += data_dir.fill("a2", 1, 4)
        until(lambda: query.values() == sorted(written))
        data_dir.delete("a1")
        written += data_dir.fill("a2", 0, 2)
        until(lambda: query.values() == sorted(written))
        data_dir.create("a1")  # another of the same name: shorter than where the stream was
        written += data_dir.fill("a1", 0, 1)
        until(lambda: query.values() == sorted(written))
    finally:
        running.stop()
    running.awaitTermination()
    assert running.exception() is None


def test_a_query_that_cannot_run_says_why(spark: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    data_dir.create("t")
    for options, said in (
        ({"subscribe": "nowhere"}, "There is no topic 'nowhere'"),
        ({"subscribe": "t", "endingOffsets": "latest"}, "'endingOffsets' is for spark.read only"),
    ):
        with pytest.raises(StreamingQueryException) as failed:
            Query(spark, data_dir.options, tmp_path / said, **options).run()
        assert said in str(failed.value)
