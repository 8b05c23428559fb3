"""Streaming queries in Spark over a real data directory that is being written to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from tests.spark.data_dir import DataDir
from tests.spark.query import Query, until

from penstock.spark.pipelines import delta

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


def test_waiting_for_enough_records(spark: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    data_dir.create("t", 2)
    written = data_dir.fill("t", 0, 3)
    waiting = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    query = Query(spark, data_dir.options, tmp_path / "c", subscribe="t", **waiting)
    running = query.start({"processingTime": "0 seconds"})
    try:
        running.processAllAvailable()
        assert query.sizes() == [3]  # the first micro-batch does not wait
        for count in (5, 4):
            written += data_dir.fill("t", 1, count)
            running.processAllAvailable()
            assert query.sizes() == [3]
        written += data_dir.fill("t", 0, 1)
        running.processAllAvailable()
        assert query.sizes() == [3, 10] and query.values() == sorted(written)
    finally:
        running.stop()


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


def test_strict_tables_of_a_stream(spark: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    """What does not fit is named by its offset, put aside or added, and the stream goes on where it was."""
    data_dir.create("t")
    data_dir.write("t", 0, [b'{"id": "a", "count": 1}', b'{"id": "b", "count": 2}'])
    fields = {"exact": "id string, count bigint", "loose": "id string, count double, note string"}

    def run(sink: delta.WriteBatch, kind: str) -> None:
        reader = spark.readStream.format("penstock").options(**data_dir.options, subscribe="t")
        rows = reader.option("startingOffsets", "earliest").load()
        parsed = rows.selectExpr("partition", "offset", f"from_json(CAST(value AS string), '{fields[kind]}') AS it")
        writer = parsed.select("partition", "offset", "it.*").writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()

    url = str(tmp_path / "table")
    run(delta.append(url, app="a"), "exact")
    data_dir.write("t", 0, [b'{"id": "c", "count": 2.7}', b'{"id": "d", "count": 4, "note": "new"}'])
    refusals: tuple[tuple[delta.Policy, str], ...] = (
        ("fail", r"'note' string, first in row 1 \(partition 0, offset 3\)"),
        ("add_columns", r"row 0 \(partition 0, offset 2\), column 'count': 2\.7 \(double\) is no bigint"),
    )
    for policy, said in refusals:
        with pytest.raises(StreamingQueryException, match=said):
            run(delta.append(url, app="a", policy=policy), "loose")
    aside = str(tmp_path / "aside")
    run(delta.append(url, app="a", policy="add_columns", quarantine=aside), "loose")
    found = DeltaTable(url).to_pyarrow_table().select(["id", "count", "note"]).to_pylist()
    assert sorted((row["id"], row["count"], row["note"]) for row in found) == [
        ("a", 1, None),
        ("b", 2, None),
        ("d", 4, "new"),
    ]
    [bad] = DeltaTable(aside).to_pyarrow_table().to_pylist()
    assert (bad["partition"], bad["offset"], bad["column"]) == (0, 2, "count")
    data_dir.write("t", 0, [b'{"id": "a", "count": 9}', b'{"id": "a", "count": 8}'])
    (tmp_path / "c").rename(tmp_path / "done")
    winners = delta.upsert(str(tmp_path / "latest"), keys=("id",), order=("offset",), app="b")
    run(winners, "loose")
    latest = DeltaTable(str(tmp_path / "latest")).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["count"] for row in latest} == {"a": 8.0, "b": 2.0, "c": 2.7, "d": 4.0}


def test_a_query_that_cannot_run_says_why(spark: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    data_dir.create("t")
    for options, said in (
        ({"subscribe": "nowhere"}, "There is no topic 'nowhere'"),
        ({"subscribe": "t", "endingOffsets": "latest"}, "'endingOffsets' is for spark.read only"),
    ):
        with pytest.raises(StreamingQueryException) as failed:
            Query(spark, data_dir.options, tmp_path / said, **options).run()
        assert said in str(failed.value)
