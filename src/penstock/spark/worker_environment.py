"""The environment variables of the workers of the source, which Spark shares between all streams of a JVM.

For each data source in Python, Spark has one map of the variables, without a lock. The first streams add four to it
while they start (`PythonStreamingSourceRunner`). Two that start at the same time, such as two flows of a declarative
pipeline, can both add the same one: the map counts six where there are five, and from then on no task of this source
can be serialized, in any query, until the JVM ends (`Illegal size 5 of collection, expected 6`). With all of them in
the map before the first stream, Spark only replaces values, which any number of threads may do.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

SOURCE: Final = "penstock"
ADDED_BY_STREAMS: Final = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)
"""The variables that streams of Spark 4.2 and 4.3 add."""

_REMEDY: Final = (
    "Restart the Spark server, then run this again. No query on it can read topics any more, because two streams that "
    "started there at the same time have damaged Spark's settings of Python workers; nothing is lost. "
)
_DAMAGED: Final = re.compile(r"Illegal size \d+ of collection, expected \d+")


def complete(spark: SparkSession, source: str = SOURCE) -> None:
    """Add the variables that streams add, with the same values. Makes Spark look for data sources, which the first
    query would do otherwise. A session of Spark Connect has no access to the map."""
    try:
        found = variables(spark, source)
        for name, value in zip(ADDED_BY_STREAMS, _values(spark), strict=True):
            found.putIfAbsent(name, value)
    except Exception as error:  # noqa: BLE001 - not needed by most queries, and a machine may be too busy for it now
        logger.debug("the environment of the source's workers is not complete: %s", error)


def remedy(error: str) -> str:
    """The remedy if this is what Spark says of a damaged map; otherwise empty."""
    return _REMEDY if _DAMAGED.search(error) else ""


def variables(spark: SparkSession, source: str = SOURCE) -> Any:
    """The map, which is in the JVM. Sessions of one JVM share it, unless one has registered the source itself."""
    sources = cast(Any, spark)._jsparkSession.sessionState().dataSourceManager()
    return sources.lookupDataSource(source).dataSourceCls().envVars()


def _values(spark: SparkSession) -> tuple[str, str, str, str]:
    jvm, context = cast(Any, spark)._jvm, cast(Any, spark.sparkContext)._jsc
    blocks = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    python = jvm.org.apache.spark.api.python.PythonUtils
    return (
        ",".join(directory.getPath() for directory in blocks.localDirs()),
        str(python.getPythonAuthSocketTimeout(context)),
        str(python.getSparkBufferSize(context)),
        "PYTHON_WORKER",
    )
