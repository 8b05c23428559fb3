"""Tables as Delta's own connector for Spark reads them: topics and what pipelines write, older versions too. Its jars
come from Maven (`make build/delta-connector/.ready`); where they are not, this is skipped. In a process of its own,
because its catalog and its rules of SQL are chosen when a session is made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.spark import shop
from tests.spark.data_dir import DataDir
from tests.spark.java import needs_java

from penstock.broker.names import DEFAULT_SCOPE
from penstock.log.tables.location import table_ref

JARS = Path(__file__).parents[2] / "build" / "delta-connector"
needs_connector = pytest.mark.skipif(
    not (JARS / ".ready").exists(), reason="delta-spark's jars are not in build/ (make build/delta-connector/.ready)"
)

PROGRAM = """
import json
import sys
from pathlib import Path

from penstock.spark import catalog, session
from penstock.spark.pipelines import delta

topic, place, jars, root = sys.argv[1:]
spark = session(
    "delta",
    **{
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.jars": ",".join(str(jar) for jar in Path(jars).glob("*.jar")),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": place + "/warehouse",
    },
)


def rows(text):
    return [tuple(row) for row in spark.sql(text).collect()]


written = delta.upsert(place + "/totals", keys=("id",), order=("offset",), app="totals", policy="add_columns")
written(spark.sql("SELECT * FROM VALUES ('a', 1L, 2L), ('b', 2L, 5L) AS t(id, offset, count)"), 0)
written(spark.sql("SELECT 'a' AS id, 3L AS offset, 7L AS count, 'late' AS note"), 1)
spark.sql(f"CREATE TABLE orders USING delta LOCATION '{topic}'")
stream = spark.readStream.format("delta").load(topic).writeStream.format("parquet").trigger(availableNow=True)
stream.option("path", place + "/copy").option("checkpointLocation", place + "/checkpoint").start().awaitTermination()
catalog(spark, "shop", path=root)
found = {
    "catalog": rows("SELECT count(*) FROM shop.orders_table VERSION AS OF 0"),
    "topic": rows(f"SELECT partition, count(*), max(offset) FROM delta.`{topic}` GROUP BY ALL ORDER BY 1"),
    "values": rows("SELECT CAST(value AS string) FROM orders WHERE partition = 1 ORDER BY offset"),
    "headers": rows("SELECT headers[0].key, CAST(headers[0].value AS string) FROM orders WHERE headers IS NOT NULL"),
    "first version": rows("SELECT count(*) FROM orders VERSION AS OF 0"),
    "by option": spark.read.format("delta").option("versionAsOf", 1).load(topic).count(),
    "history": sorted(row[0] for row in rows("DESCRIBE HISTORY orders")),
    "streamed": spark.read.parquet(place + "/copy").count(),
    "totals": rows(f"SELECT id, count, note FROM delta.`{place}/totals` ORDER BY id"),
    "totals before": rows(f"SELECT id, count FROM delta.`{place}/totals` VERSION AS OF 1 ORDER BY id"),
}
print("found", json.dumps(found))
spark.stop()
"""


@needs_java
@needs_connector
@pytest.mark.spark
def test_deltas_own_connector_reads_topics_and_pipeline_tables(data_dir: DataDir, tmp_path: Path) -> None:
    topic = data_dir.create("orders", 2)
    data_dir.fill("orders", 0, 20)
    data_dir.write("orders", 1, [b"a"], headers=[(("h", b"1"),)])
    data_dir.to_tables()
    data_dir.write("orders", 1, [b"b"])
    data_dir.to_tables()
    url = table_ref(str(data_dir.root / "tables"), {}, *DEFAULT_SCOPE, "orders", topic).url
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, str(tmp_path), str(JARS), str(data_dir.root)],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
    )
    said = [line.removeprefix("found ") for line in done.stdout.splitlines() if line.startswith("found ")]
    assert said, done.stdout + done.stderr[-4000:]
    assert json.loads(said[0]) == {
        "catalog": [[21]],
        "topic": [[0, 20, 19], [1, 2, 1]],
        "values": [["a"], ["b"]],
        "headers": [["h", "1"]],
        "first version": [[21]],
        "by option": 22,
        "history": [0, 1],
        "streamed": 22,
        "totals": [["a", 7, "late"], ["b", 5, None]],
        "totals before": [["a", 2], ["b", 5]],
    }


DATASETS = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.pipelines import current

spark = SparkSession.active()


@dp.table(partition_cols=["partition"])
def raw() -> DataFrame:
    reader = spark.readStream.format("penstock").options(**current().broker).option("subscribe", "orders")
    return reader.option("startingOffsets", "earliest").load()


@dp.materialized_view
def counts() -> DataFrame:
    return spark.read.table("raw").groupBy("partition").count()
"""


@needs_java
@needs_connector
@pytest.mark.spark
def test_a_declarative_pipeline_with_tables_in_delta(data_dir: DataDir, tmp_path: Path) -> None:
    """Run twice: the second run adds to the streaming table and computes the materialized view anew."""
    data_dir.create("orders", 2)
    data_dir.fill("orders", 0, 20)
    project = shop.project(tmp_path / "shop", "declarative", "")
    for file in (project / "transformations").iterdir():
        file.unlink()
    (project / "transformations" / "datasets.py").write_text(DATASETS)
    (project / "report.py").unlink()
    file = project / "pipeline.toml"
    text = file.read_text().replace('format = "parquet"', 'format = "delta"')
    text = text.replace('"bootstrap.servers" = ""', f'path = "{data_dir.root}"')
    jars = ",".join(str(jar) for jar in JARS.glob("*.jar"))
    file.write_text(f'{text}\n"spark.jars" = "{jars}"\n"spark.databricks.delta.snapshotPartitions" = 1\n')
    shop.run("run", project)
    data_dir.fill("orders", 1, 3)
    shop.run("run", project)

    def rows(table: str, version: int | None = None) -> list[dict[str, Any]]:
        url = project / "state" / "warehouse" / table
        return list(DeltaTable(url, version=version).to_pyarrow_table().sort_by("partition").to_pylist())

    raw = DeltaTable(project / "state" / "warehouse" / "raw")
    assert raw.metadata().partition_columns == ["partition"]
    assert sorted((row["partition"], row["offset"]) for row in rows("raw")) == [
        *((0, offset) for offset in range(20)),
        *((1, offset) for offset in range(3)),
    ]
    assert [row["count"] for row in rows("counts")] == [20, 3]
    assert 20 in [len(rows("raw", entry["version"])) for entry in raw.history()]
