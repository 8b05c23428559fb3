"""An archive of Spark's classes, which Java maps instead of loading them one by one: a JVM that uses it takes half as
long to start and to run its first query. Tests start more than a dozen.

`python -m tests.spark.class_archive FILE` writes it (`make test` does that once), by running a Spark that does a little
of everything. Without the file, or with another Java, tests run as well, only slower.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.spark.environment import JAVA, home, make_home
from tests.spark.java import java_is_there

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def write(file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    make_home()  # first: an archive is for one path of classes
    environment = os.environ | home()
    environment |= {
        "JDK_JAVA_OPTIONS": " ".join((*JAVA, "-Xlog:cds=off", "-Xlog:class+path=off")),
        "SPARK_CONF_DIR": "/nonexistent",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory, "classes.jsa")
        command = [sys.executable, "-m", "tests.spark.class_archive", "--load", str(made), directory]
        subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL, timeout=600)
        file.write_bytes(made.read_bytes())


def load(archive: str, directory: str) -> None:
    """A JVM that writes the classes it has loaded to the archive when it ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive} -Dderby.system.home={directory}",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/catalog;create=true",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": "0",
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    gateway: Any = SparkContext._gateway
    query(spark, directory)
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends with whoever started it
    gateway.proc.wait()


def query(spark: Any, directory: str) -> None:
    """A table, a Python source, Arrow, JSON, a stream with state."""
    from tests.spark.data_dir import DataDir

    from penstock.spark import register

    register(spark)
    data_dir = DataDir(Path(directory, "data"))
    data_dir.create("t", 2)
    data_dir.fill("t", 0, 20)
    data_dir.close()
    rows = spark.read.format("penstock").option("path", str(data_dir.root)).option("subscribe", "t").load()
    rows.selectExpr("from_json(cast(value AS string), 'a int') AS event", "offset").write.saveAsTable("records")
    spark.sql("SELECT count(*), max(offset) FROM records GROUP BY event.a").collect()
    spark.range(10).mapInArrow(lambda batches: batches, "id long").toPandas()
    stream = spark.readStream.format("penstock").option("path", str(data_dir.root)).option("subscribe", "t")
    counts = stream.option("startingOffsets", "earliest").load().groupBy("partition").count()
    writer = counts.writeStream.outputMode("complete").format("memory").queryName("counts")
    started = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
    started.awaitTermination()


if __name__ == "__main__":
    if sys.argv[1] == "--load":
        load(*sys.argv[2:])
    elif java_is_there():
        write(Path(sys.argv[1]))
