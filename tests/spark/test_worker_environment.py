"""The environment of the source's workers, which all streams of a JVM share: complete before the first one, because two
that add to it at the same time would damage it for good."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.data_dir import DataDir
from tests.spark.java import needs_java

from penstock.spark import worker_environment
from penstock.spark.pipelines import declarative
from penstock.spark.pipelines.declarative import Refresh, RunFailed
from penstock.spark.pipelines.project import load
from penstock.spark.pipelines.scaffold import write_project
from penstock.spark.source import PenstockDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAMAGED = "Job aborted due to stage failure: java.lang.IllegalStateException: Illegal size 5 of collection, expected 6"


@needs_java
@pytest.mark.spark
def test_a_session_has_it_before_the_first_stream(spark: SparkSession) -> None:
    assert set(worker_environment.variables(spark)) >= set(worker_environment.ADDED_BY_STREAMS)


@needs_java
@pytest.mark.spark
def test_a_stream_adds_nothing_to_it(spark: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    """Of a source that is new in this JVM. If Spark gets a new variable, this fails."""

    class Fresh(PenstockDataSource):
        @classmethod
        def name(cls) -> str:
            return "fresh"

    data_dir.create("orders", 1)
    data_dir.fill("orders", 0, 20)
    spark.dataSource.register(Fresh)
    registered = set(worker_environment.variables(spark, "fresh"))
    assert not registered >= set(worker_environment.ADDED_BY_STREAMS)
    worker_environment.complete(spark, "fresh")
    before = set(worker_environment.variables(spark, "fresh"))
    assert before == registered | set(worker_environment.ADDED_BY_STREAMS)

    reader = spark.readStream.format("fresh").option("path", str(data_dir.root)).option("subscribe", "orders")
    stream = reader.option("startingOffsets", "earliest").load().writeStream.format("noop").trigger(availableNow=True)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    assert query.lastProgress is not None and query.lastProgress["numInputRows"] == 20
    assert set(worker_environment.variables(spark, "fresh")) == before


@pytest.mark.parametrize("said_by", ["event", "error"])
def test_a_server_where_it_is_damaged_has_to_be_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said_by: str
) -> None:
    """Retries on the same server cannot help, so the run says what does."""
    from pyspark.errors import PySparkException
    from pyspark.pipelines import cli, spark_connect_pipeline

    def events(*_: object, **__: object) -> Iterator[dict[str, Any]]:
        message = DAMAGED if said_by == "event" else "Flow 'bronze' has FAILED."
        yield {"pipeline_event_result": SimpleNamespace(event=SimpleNamespace(message=message))}
        raise PySparkException("Task not serializable" if said_by == "event" else DAMAGED)

    monkeypatch.setattr(cli, "register_definitions", lambda *_: None)
    monkeypatch.setattr(spark_connect_pipeline, "create_dataflow_graph", lambda *_, **__: "graph")
    monkeypatch.setattr(spark_connect_pipeline, "start_run", events)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # undoes what the run adds
    write_project(str(tmp_path / "shop"), "shop", "declarative", "127.0.0.1:1")
    heard: list[str] = []
    with pytest.raises(RunFailed, match=r"^Restart the Spark server, then run this again\. "):
        declarative.run(SimpleNamespace(client=None), load(str(tmp_path / "shop"), {}), Refresh(), heard.append)  # type: ignore[arg-type]
    assert len(heard) == 1
