"""Tables in an object store, read by the executors of a cluster through Hadoop's S3 file system, while the driver looks
into the table's log; and a stream whose checkpoint and result are in the store. The jars come from Maven and the store
is moto's (`make test-s3`); where they are not, this is skipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.spark.cluster import Cluster
from tests.spark.data_dir import DataDir
from tests.spark.java import needs_java
from tests.spark.test_broker_query import free_port

BUILD = Path(__file__).parents[2] / "build"
JARS = BUILD / "hadoop-aws"
MOTO = BUILD / "s3-venv" / "bin" / "moto_server"
needs_s3 = pytest.mark.skipif(
    not ((JARS / ".ready").exists() and MOTO.exists()), reason="hadoop-aws and moto are not in build/ (make test-s3)"
)
CREDENTIALS = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "aws_region": "us-east-1"}
START_SECONDS = 120.0

PROGRAM = """
import json
import os
import sys

from penstock.spark import session, table

master, jars, root, endpoint, options = sys.argv[1:]
spark = session(
    "s3a",
    **{
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "512m",
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "test",
        "spark.hadoop.fs.s3a.secret.key": "test",
    },
)
given = {f"tables.option.{name}": value for name, value in json.loads(options).items()}
orders = table(spark, "orders", path=root, **{"tables.url": "s3://lake/penstock"}, **given)
found = {
    "files": sorted({name.partition("://")[0] for name in orders.inputFiles()}),
    "counts": [tuple(row) for row in orders.groupBy("partition").count().orderBy("partition").collect()],
    "hosts": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,
}
stream = spark.readStream.format("penstock").option("path", root).option("subscribe", "orders")
stream = stream.options(**{"tables.url": "s3://lake/penstock"}, **given).option("startingOffsets", "earliest").load()
query = stream.writeStream.format("parquet").trigger(availableNow=True).option("path", "s3a://lake/copy")
query.option("checkpointLocation", "s3a://lake/checkpoints/copy").start().awaitTermination()
found["streamed"] = spark.read.parquet("s3a://lake/copy").count()
print("found", json.dumps(found))
spark.stop()
"""


@contextmanager
def moto() -> Iterator[str]:
    """An object store with the bucket `lake`; its address."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with subprocess.Popen([str(MOTO), "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while True:
                try:
                    urlopen(Request(f"{endpoint}/lake", method="PUT"), timeout=10).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline and process.poll() is None, "moto does not come up"
                    time.sleep(0.2)
            yield endpoint
        finally:
            process.kill()


@needs_java
@needs_s3
@pytest.mark.spark
def test_executors_read_a_topics_table_from_an_object_store(data_dir: DataDir, tmp_path: Path) -> None:
    with moto() as endpoint:
        options = {**CREDENTIALS, "aws_endpoint": endpoint, "aws_allow_http": "true", "aws_conditional_put": "etag"}
        data_dir.create("orders", 2)
        data_dir.fill("orders", 0, 20)
        data_dir.fill("orders", 1, 30)
        data_dir.to_tables("s3://lake/penstock", options)
        data_dir.fill("orders", 1, 3)  # and what is in the log alone
        jars = os.pathsep.join(str(jar) for jar in JARS.glob("*.jar"))
        with Cluster(tmp_path) as cluster:
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, cluster.url, jars, str(data_dir.root), endpoint, json.dumps(options)],
                capture_output=True,
                text=True,
                timeout=500,
                env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
                cwd=tmp_path,
            )
    said = [line.removeprefix("found ") for line in done.stdout.splitlines() if line.startswith("found ")]
    assert said, done.stdout + done.stderr[-4000:]
    assert json.loads(said[0]) == {
        "files": ["s3a"],
        "counts": [[0, 20], [1, 33]],
        "hosts": 2,
        "streamed": 53,
    }
