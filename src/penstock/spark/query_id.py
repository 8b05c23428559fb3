"""The id of the streaming query that a batch in `foreachBatch` belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def query_id(rows: DataFrame) -> str:
    """Of the checkpoint: the same after every restart, another if somebody begins anew. Spark Connect does not tell
    it, and it is empty there."""
    try:
        return str(rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or "")
    except Exception:  # noqa: BLE001 - what Connect raises for what it does not have is its own affair
        return ""
