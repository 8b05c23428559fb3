"""Spark Connect: the client is one process, the server another; neither shares objects with the other. In a process of
its own, because a process has either a classic session or one of this kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.data_dir import DataDir
from tests.spark.java import needs_java

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from penstock.spark import decode, register, table

path, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
assert type(spark).__module__.startswith("pyspark.sql.connect")
rows = spark.read.format("penstock").option("path", path).option("subscribe", "t").load()
print("found", rows.count(), rows.where("partition = 1").count(), rows.count())
texts = rows.selectExpr("offset", "IF(partition = 0, to_json(struct(offset AS id)), 'no') AS value")
typed = decode(texts, '{"type": "object", "properties": {"id": {"type": "integer"}}}', format="json")
print("decoded", typed.rows.where("id = offset").count(), typed.rejected.count())
print("table", table(spark, "t", path=path).where("offset >= 1").count())
register(spark)
stream = (
    spark.readStream.format("penstock").schema("offset bigint, value binary")
    .options(path=path, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=15).load()
)
query = (
    stream.writeStream.format("parquet").option("path", checkpoint + "/out")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
print("streamed", spark.read.parquet(checkpoint + "/out").count(), len(query.recentProgress))
try:
    spark.read.format("penstock").option("path", path).option("subscribe", "nowhere").load().count()
except Exception as error:
    print("refused", "There is no topic 'nowhere'" in str(error))
spark.stop()
"""


@needs_java
@pytest.mark.spark
def test_the_source_through_spark_connect(data_dir: DataDir, tmp_path: Path) -> None:
    data_dir.create("t", 2)
    data_dir.fill("t", 0, 20)
    data_dir.to_tables()
    data_dir.fill("t", 1, 10)
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_TESTING"] = "1"  # on a port that is free, instead of always the same
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(data_dir.root), str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=500,
        env=environment,
        cwd=tmp_path,
    )
    said = [
        line
        for line in done.stdout.splitlines()
        if line.split(" ")[0] in ("found", "decoded", "table", "streamed", "refused")
    ]
    assert said == ["found 30 10 30", "decoded 20 10", "table 28", "streamed 30 2", "refused True"], (
        done.stdout + done.stderr[-4000:]
    )
