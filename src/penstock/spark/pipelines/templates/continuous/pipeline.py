"""The shop's analytics as a stream: raw records (bronze), clean events (silver), results by the minute (gold), which
are also written back to topics. The transformations are in events.py and gold.py; this file defines their outputs."""

import events
import gold
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark import into_topic
from penstock.spark.pipelines import Project, delta
from penstock.spark.pipelines.batches import read_once


def start(spark: SparkSession, pipeline: Project) -> list[StreamingQuery]:
    """Called once. Each query has its own checkpoint, by its name, and resumes there after any kind of end."""
    queries = [begin(events.bronze(spark, pipeline), pipeline, "bronze", raw_records(pipeline))]
    clean = {kind: events.silver(events.bronze(spark, pipeline, kind), pipeline, kind) for kind in events.SHAPES}
    for kind, rows in clean.items():
        # A column that is added to the schema is added to the table; no value is changed to fit.
        table = delta.append(pipeline.table(f"silver_{kind}"), app=kind, policy="add_columns")
        queries.append(begin(rows, pipeline, f"silver_{kind}", table))
    for name, rows in gold.results(clean, pipeline).items():
        queries.append(begin(rows, pipeline, f"gold_{name}", results(pipeline, name)))
    return queries


def raw_records(pipeline: Project) -> delta.WriteBatch:
    """Stores all records, partitioned by day; counts the rules for each batch, and sends rows that break them to a
    topic."""
    table = delta.append(pipeline.table("bronze"), app="bronze", partition_by=("date",))
    quality = delta.append(pipeline.table("bronze_quality"), app="quality")
    letters = into_topic(pipeline.topics["dead_letters"], app="dead_letters", **pipeline.broker)

    @read_once
    def write(rows: DataFrame, batch: int) -> None:
        table(rows, batch)
        counts = events.quality(rows, pipeline)
        quality(counts.select(fn.lit(batch).alias("batch"), fn.current_timestamp().alias("counted_at"), "*"), batch)
        letters(events.rejected(rows, pipeline), batch)

    return write


def results(pipeline: Project, name: str) -> delta.WriteBatch:
    """Write to a table, and back to a topic."""
    table = delta.append(pipeline.table(f"gold_{name}"), app=name)
    topic = into_topic(pipeline.topics[name], app=name, **pipeline.broker)

    @read_once
    def write(rows: DataFrame, batch: int) -> None:
        table(rows, batch)
        topic(gold.records(rows, name), batch)

    return write


def begin(rows: DataFrame, pipeline: Project, name: str, write: delta.WriteBatch) -> StreamingQuery:
    writer = rows.writeStream.queryName(name).option("checkpointLocation", pipeline.checkpoint(name))
    writer = writer.foreachBatch(write)
    if pipeline.settings["trigger"] == "once":  # process the available records, then end
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=pipeline.settings["trigger"]).start()
