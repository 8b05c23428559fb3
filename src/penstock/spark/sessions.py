"""A Spark session that can use Penstock."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("penstock")` known to a session. Spark finds it by itself, unless a package of somebody else whose
    name begins with `pyspark_` cannot be imported: then it finds none at all."""
    from penstock.spark.source import PenstockDataSource

    spark.dataSource.register(PenstockDataSource)


def session(name: str = "penstock", **settings: str) -> SparkSession:
    """The running Spark session, or a new one with these settings (`**{"spark.master": "local[2]"}`).

    Spark starts its workers with the `python3` that it finds first, which need not be this one and then has no
    Penstock; so that is said, unless it was said already."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
