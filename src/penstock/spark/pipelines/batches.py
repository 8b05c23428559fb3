"""Several outputs of one streaming query, in one function for `foreachBatch`. Each output tracks its own batches, so
all are exactly once, even if the query is killed between two."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.pipelines.delta import WriteBatch


def read_once(write: WriteBatch) -> WriteBatch:
    """Cache each batch while it is written: otherwise every output would read and compute it again."""

    @wraps(write)
    def kept(rows: DataFrame, batch: int) -> None:
        rows = rows.persist()
        try:
            write(rows, batch)
        finally:
            rows.unpersist()

    return kept
