"""One Spark session in each test process: to start it takes longer than most of the tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.spark.data_dir import DataDir
from tests.spark.java import REASON, java_is_there

from penstock.spark.pipelines.session import CONNECT_PLUGIN, CONNECT_SERVICE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.master": "local[2,2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.plugins": CONNECT_PLUGIN,
    "spark.connect.grpc.binding.address": "localhost",
    "spark.connect.grpc.binding.port": "0",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session, in a JVM that serves Spark Connect as well."""
    if not java_is_there():
        pytest.skip(REASON)
    from penstock.spark import session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    place = tmp_path_factory.mktemp("spark")
    settings = SETTINGS | {
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={place}",
    }
    made = session("penstock tests", **settings)
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def connect_server(spark: SparkSession) -> str:
    """The address of the Spark Connect server. Its clients are processes of their own: a process has either a classic
    session or one of this kind."""
    service = getattr(cast(Any, spark)._jvm, CONNECT_SERVICE)
    return f"sc://localhost:{getattr(service, 'MODULE$').localPort()}"


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[DataDir]:
    """A data directory that is being written to."""
    made = DataDir(tmp_path / "data")
    yield made
    made.close()
