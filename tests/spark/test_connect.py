"""Spark Connect: the client is one process, the server another; neither shares objects with the other. The server is in
the JVM of the session that tests share; clients are processes of their own, because a process has either a classic
session or one of this kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cli.test_up import FLIGHT
from tests.launcher import BrokerProcess
from tests.spark import shop
from tests.spark.data_dir import DataDir

from penstock.clients.rustlog import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from penstock.spark import decode, register, table

server, path, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(server).getOrCreate()
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


def test_the_source_through_spark_connect(connect_server: str, data_dir: DataDir, tmp_path: Path) -> None:
    data_dir.create("t", 2)
    data_dir.fill("t", 0, 20)
    data_dir.to_tables()
    data_dir.fill("t", 1, 10)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, connect_server, str(data_dir.root), str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=tmp_path,
        check=False,
    )
    said = [
        line
        for line in done.stdout.splitlines()
        if line.split(" ")[0] in ("found", "decoded", "table", "streamed", "refused")
    ]
    assert said == ["found 30 10 30", "decoded 20 10", "table 28", "streamed 30 2", "refused True"], (
        done.stdout + done.stderr[-4000:]
    )


def table_names(spark: SparkSession) -> set[str]:
    """Unlike `spark.catalog.listTables`, without loading the tables: one of another test's may be gone."""
    return {row.tableName for row in spark.sql("SHOW TABLES").collect()}


def test_a_declarative_pipeline_is_checked_on_a_server(
    spark: SparkSession, connect_server: str, tmp_path: Path
) -> None:
    """A dry run resolves all that the template defines, and writes nothing."""
    before = table_names(spark)
    with BrokerProcess(tmp_path / "data", *FLIGHT).ready() as broker:
        project = shop.project(tmp_path / "shop", "declarative", broker.address("flight"))
        with Client(*broker.endpoint("rustlog")) as client:
            for topic in ("orders", "page_views", "payments"):
                client.create_topic(topic, 2)
        said = shop.run("dry-run", project, "--master", connect_server)
        assert "checked after" in said
        assert not (project / "state" / "warehouse").exists()
        assert table_names(spark) == before
