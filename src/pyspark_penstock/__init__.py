"""Where Spark finds `format("penstock")` by itself: it imports every installed package named `pyspark_…` and takes its
`DefaultSource`. If another such package is broken, Spark finds none; then call `register(spark)`.
"""

from __future__ import annotations

from penstock.spark.sessions import register
from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource", "register"]
