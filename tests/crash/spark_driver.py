"""The pipeline that `spark_campaign` kills: streams from one topic, a process of its own.

    copy        into a topic, from the earliest offset; stateless
    newest      into a topic, from the latest offset there was when it first ran; stateless
    count       into a topic, records by key, from the earliest offset; stateful
    appended    into a Delta table, from the earliest offset; stateless
    upserted    into a Delta table, by merging
    tallied     into a Delta table, records by key; stateful

Each writes to the topic or table of its name. Run as `python -m tests.crash.spark_driver SERVER DIRECTORY QUERY…`,
until killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

os.environ["PYSPARK_PYTHON"] = sys.executable

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import base64, col, concat_ws, element_at, split
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from penstock.spark import session, start
from penstock.spark.pipelines import delta

SOURCE = "in"
TOPICS = ("copy", "newest", "count")
TABLES = ("appended", "upserted", "tallied")


def main(server: str, directory: str, *names: str) -> None:
    spark = _session(directory)
    for name in names:
        rows = _rows(name, _source(spark, server, "latest" if name == "newest" else "earliest"))
        writer = rows.writeStream.queryName(name).option("checkpointLocation", f"{directory}/checkpoints/{name}")
        if name in TABLES:
            writer = writer.foreachBatch(_into_table(name, table(directory, name)))
        else:
            writer = writer.format("penstock").option("bootstrap.servers", server).option("topic", name)
        start(writer.trigger(processingTime="1 second"))  # without it, five queries use all processors all the time
    print("running", flush=True)
    spark.streams.awaitAnyTermination()
    raise SystemExit("a query ended by itself")


def table(directory: str, name: str) -> str:
    return f"{directory}/tables-of-spark/{name}"


def _into_table(name: str, url: str) -> delta.WriteBatch:
    if name == "upserted":
        return delta.upsert(url, keys=("partition", "offset"), app=name)
    return delta.append(url, app=name)


def _rows(name: str, df: DataFrame) -> DataFrame:
    if name in ("count", "tallied"):
        return _counts(df)
    if name in TABLES:
        return df.select("partition", "offset", "value")
    return df.select(concat_ws(" ", col("partition"), col("offset"), base64("value")).alias("value"))


def _session(directory: str) -> SparkSession:
    """As users make it: with Unix domain sockets to the workers, and tasks that run again when theirs is killed."""
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    spark = session("killed", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _source(spark: SparkSession, server: str, start: str) -> DataFrame:
    reader = spark.readStream.format("penstock").option("bootstrap.servers", server).option("subscribe", SOURCE)
    return reader.option("startingOffsets", start).option("maxOffsetsPerTrigger", "5000").load()


def _counts(df: DataFrame) -> DataFrame:
    keyed = df.select(element_at(split(col("value").cast("string"), ":"), -1).alias("name"))
    return keyed.groupBy("name").applyInPandasWithState(
        _count, "key string, value string", "seen long", "append", GroupStateTimeout.NoTimeout
    )


def _count(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """The count of a key so far, emitted once in every micro-batch that has the key."""
    seen = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((seen,))
    yield pd.DataFrame({"key": [key[0]], "value": [f"{key[0]} {seen}"]})


if __name__ == "__main__":
    main(*sys.argv[1:])
