"""Spark sessions for pipelines, with the settings that pipelines need.

- Workers run the Python of this process (`PYSPARK_PYTHON`): Spark itself would use the first `python3` on PATH.
- The catalog is persistent (Hive's, in Derby, in the project's directory): with Spark's default, which is in memory,
  the second run of a declarative pipeline finds its tables' files without its tables, and fails.
- State is in RocksDB, shuffles are small, the web UI is off, times are UTC.
- A local Spark Connect server, which declarative pipelines need, gets a free port, so that several can run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from penstock.spark import worker_environment
from penstock.spark.sessions import with_retries, worker_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.project import Project

CONNECT_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
CONNECT_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"
DELTA_CONNECTOR = "io.delta:delta-spark_4.2_2.13:4.4.0"  # on Maven; the one that tests/spark/delta_connector locks
DELTA = {
    "spark.sql.sources.default": "delta",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
JARS = ("spark.jars", "spark.jars.packages")  # settings that bring a project's own jars
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def configuration(project: Project, master: str) -> dict[str, str]:
    """Spark's settings for a driver in this process: our defaults, overridden by the project's."""
    settings = {
        "spark.app.name": project.name,
        "spark.master": with_retries(master),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2" if master.startswith("local") else "8",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.warehouse.dir": project.warehouse,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
        **worker_settings(master),
        # Starting many flows of a declarative pipeline at the same time fails on a busy machine.
        "spark.sql.pipelines.execution.maxConcurrentFlows": "2" if master.startswith("local") else "8",
        "spark.sql.pipelines.maxFlowRetryAttempts": "5",
        "spark.sql.pipelines.execution.watchdog.minRetryTime": "1s",
        "spark.sql.pipelines.execution.watchdog.maxRetryTime": "10s",
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={os.path.join(project.local, 'catalog')};create=true"
        ),
    }
    if master.startswith("local"):  # not reachable from outside, and independent of name resolution
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    own = {key: _text(value) for key, value in project.file.spark.conf.items()}
    if project.file.kind == "declarative" and project.file.spark.format == "delta":
        settings |= DELTA
        if not own.keys() & set(JARS):  # then the connector is among them, or in Spark's own directory of jars
            settings["spark.jars.packages"] = DELTA_CONNECTOR
    return settings | own


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def remote(environment: Mapping[str, str], master: str | None) -> str | None:
    """The Spark Connect server to use: the command line overrides the environment."""
    if master is not None:
        return master if master.startswith("sc://") else None
    return environment.get("SPARK_REMOTE") or None


class RunSession:
    """The session of one run, and how to end it. `jvm` is the process id of the local JVM, 0 if Spark is remote."""

    def __init__(self, spark: SparkSession, classic: SparkSession | None) -> None:
        self.spark = spark
        self._classic = classic

    @property
    def jvm(self) -> int:
        from pyspark import SparkContext

        process = getattr(getattr(SparkContext, "_gateway", None), "proc", None)
        return int(process.pid) if self._classic is not None and process is not None else 0

    def stop(self) -> None:
        """Stop the local JVM with everything in it, or the session on a remote server."""
        (self._classic or self.spark).stop()


def open_session(project: Project, master: str | None, *, connect: bool) -> RunSession:
    """A session for this project; `connect`: use Spark Connect, even with a local JVM."""
    os.environ["PYSPARK_PYTHON"] = project.file.spark.python or os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    server = remote(os.environ, master)
    os.environ.pop("SPARK_REMOTE", None)
    if server is not None:
        return RunSession(_connected(server), None)
    from pyspark.sql import SparkSession

    settings = configuration(project, master or project.file.spark.master)
    if connect:
        settings["spark.plugins"] = ",".join(filter(None, (settings.get("spark.plugins"), CONNECT_PLUGIN)))
        settings |= {
            "spark.connect.grpc.binding.address": "localhost",
            "spark.connect.grpc.binding.port": "0",
            "spark.sql.artifact.isolation.enabled": "true",
            "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
            "spark.sql.connect.serverStacktrace.enabled": "false",
        }
        os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = os.urandom(16).hex()  # the port is reachable for others too
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    classic = builder.getOrCreate()
    jvm = cast(Any, classic)._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", os.path.join(project.local, "derby.log"))
    worker_environment.complete(classic)  # flows of a declarative pipeline start at the same time
    if not connect:
        return RunSession(classic, classic)
    port = getattr(getattr(jvm, CONNECT_SERVICE), "MODULE$").localPort()
    return RunSession(_connected(f"sc://localhost:{port}"), classic)


def _connected(server: str) -> SparkSession:
    """Connect without `SparkSession.builder.remote`, which fails if there is a session in this process."""
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    return cast("SparkSession", ConnectSession.builder.remote(server).getOrCreate())
