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
from tests.cli.test_up import FLIGHT
from tests.launcher import BrokerProcess
from tests.spark import shop
from tests.spark.data_dir import DataDir
from tests.spark.java import needs_java

from penstock.broker.names import DEFAULT_SCOPE
from penstock.clients.rustlog import Client
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


@needs_java
@needs_connector
@pytest.mark.spark
def test_the_declarative_template_with_tables_in_delta(tmp_path: Path) -> None:
    """The whole template, run twice: the second run adds to the streaming tables and computes the materialized views
    anew, and the first results are an older version of them."""
    with BrokerProcess(tmp_path / "data", *FLIGHT).ready() as broker:
        project = shop.project(tmp_path / "shop", "declarative", broker.address("flight"))
        file = project / "pipeline.toml"
        text = file.read_text().replace('format = "parquet"', 'format = "delta"')
        jars = ",".join(str(jar) for jar in JARS.glob("*.jar"))
        file.write_text(f'{text}\n"spark.jars" = "{jars}"\n"spark.databricks.delta.snapshotPartitions" = 1\n')
        first = [shop.order(number, number // 60) for number in range(150)]  # minutes 0 to 2
        second = [shop.order(number, number // 60) for number in range(150, 200)]
        with Client(*broker.endpoint("rustlog")) as client:
            for topic in ("orders", "page_views", "payments"):
                client.create_topic(topic, 1)
            client.produce("orders", 0, [b"not json", *first, first[0]])
            client.produce("page_views", 0, [shop.page_view(number) for number in range(30)])
            client.produce("payments", 0, [shop.payment(number, number // 60) for number in range(1, 150)])
        assert "bronze: 331 rows" in shop.run("run", project)
        with Client(*broker.endpoint("rustlog")) as client:
            client.produce("orders", 0, second)
        assert "bronze: 381 rows" in shop.run("run", project)
        assert shop.values(broker, "shop.dead_letters") == [b"not json"]
        over = [json.loads(value)["minute"][14:16] for value in shop.values(broker, "revenue")]
    assert sorted(over) == ["00", "00", "01", "01", "02", "02"]  # each minute once, for two products

    def rows(table: str, version: int | None = None) -> list[dict[str, Any]]:
        found = DeltaTable(project / "state" / "warehouse" / table, version=version)
        return list(found.to_pyarrow_table().to_pylist())

    def revenue(version: int | None = None) -> shop.Result:
        return {
            (row["minute"].strftime("%Y-%m-%dT%H:%M"), row["product"]): (row["orders"], row["revenue"])
            for row in rows("gold_revenue", version)
        }

    bronze = DeltaTable(project / "state" / "warehouse" / "bronze")
    assert bronze.metadata().partition_columns == ["date"]
    assert len(rows("bronze")) == 381
    assert sorted(row["order_id"] for row in rows("silver_orders")) == sorted(f"order-{n}" for n in range(200))
    assert revenue() == shop.revenue(iter([*first, *second]))
    versions = [entry["version"] for entry in DeltaTable(project / "state" / "warehouse" / "gold_revenue").history()]
    assert shop.revenue(iter(first)) in [revenue(version) for version in versions]
