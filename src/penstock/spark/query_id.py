"""The id of the streaming query of a batch in `foreachBatch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def query_id(rows: DataFrame) -> str:
    """The id in the checkpoint: the same after every restart, different after a reset. Empty with Spark Connect, which
    does not provide it."""
    try:
        return str(rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or "")
    except Exception:  # noqa: BLE001 - Connect raises various errors for missing features
        return ""
