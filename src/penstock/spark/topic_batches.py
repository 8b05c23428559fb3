"""Streaming queries into topics in any output mode: for `foreachBatch`, exactly once. For sinks in Python, Spark
supports only append and complete mode, and complete only for replacing everything, which a log cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spark.query_id import query_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def into_topic(topic: str, *, app: str, **options: Any) -> Callable[[DataFrame, int], None]:
    """Write the rows of each batch to a topic. In output mode `update` these are the changed results, in `complete` all
    of them: with a column `key`, the last record of each key is the current one. `app` distinguishes queries that write
    to the same topic; `options` are those of the sink, with `_` for `.` if you like."""
    given = {name if "." in name else name.replace("_", "."): str(value) for name, value in options.items()}

    def write(rows: DataFrame, batch: int) -> None:
        writer = rows.write.format("penstock").mode("append").options(**given).option("topic", topic)
        writer.option("txnAppId", f"{app}:{query_id(rows)}").option("txnVersion", batch).save()

    return write
