"""Streaming queries into Delta tables, exactly once: for `foreachBatch`, without a jar.

Each commit of a table carries the number of the batch that made it, under the query's id, so a batch that Spark runs
again after a crash finds itself there and does nothing. Spark, DuckDB, pandas and whatever else knows Delta can read
the tables while they are written. A batch passes through the driver's memory: bound it with `maxOffsetsPerTrigger`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

WriteBatch = Callable[["DataFrame", int], None]

TIDY_EVERY = 100  # batches
KEEP_HOURS = 1  # of files that a table has replaced: for readers who began before
CONFIGURATION = {"delta.logRetentionDuration": "interval 1 hours"}


def append(url: str, *, app: str, options: Mapping[str, str] | None = None) -> WriteBatch:
    """Add the rows of each batch to a table. `app` tells apart queries that write to the same one; `options` are
    deltalake's storage options."""

    def write(rows: DataFrame, batch: int) -> None:
        table, mark = _begin(rows, batch, url, app, options)
        if mark is None:
            return
        _add(url, rows.toArrow(), mark, options)
        _tidy(table, batch)

    return write


def upsert(url: str, *, keys: Sequence[str], app: str, options: Mapping[str, str] | None = None) -> WriteBatch:
    """Replace the rows with the same keys, and add the others: for aggregates in output mode `update`."""
    same = " AND ".join(f"(target.`{key}` IS NOT DISTINCT FROM source.`{key}`)" for key in keys)

    def write(rows: DataFrame, batch: int) -> None:
        table, mark = _begin(rows, batch, url, app, options)
        if mark is None:
            return
        data = rows.toArrow()
        if table is None:
            _add(url, data, mark, options)
        elif data.num_rows:
            merging = table.merge(
                source=data, predicate=same, source_alias="source", target_alias="target", commit_properties=mark
            )
            merging.when_matched_update_all().when_not_matched_insert_all().execute()
        _tidy(table, batch)

    return write


def _begin(
    rows: DataFrame, batch: int, url: str, app: str, options: Mapping[str, str] | None
) -> tuple[DeltaTable | None, CommitProperties | None]:
    """The table, if there is one; and what to commit this batch with, unless that has been done."""
    from deltalake import CommitProperties, DeltaTable, Transaction

    app_id = f"{app}:{_query_id(rows)}"
    table = None
    if DeltaTable.is_deltatable(url, storage_options=dict(options or {})):
        table = DeltaTable(url, storage_options=dict(options or {}))
        done = table.transaction_version(app_id)
        if done is not None and done >= batch:
            logger.info("batch %d is in %s already", batch, url)
            return table, None
    return table, CommitProperties(app_transactions=[Transaction(app_id, batch)])


def _query_id(rows: DataFrame) -> str:
    """Of the checkpoint: the same after every restart, another if somebody begins anew. Spark Connect does not tell
    it; there, the name alone has to do."""
    try:
        return str(rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or "")
    except Exception:  # noqa: BLE001 - what Connect raises for what it does not have is its own affair
        return ""


def _add(url: str, data: Any, mark: CommitProperties, options: Mapping[str, str] | None) -> None:
    from deltalake import write_deltalake

    write_deltalake(
        url,
        data,
        mode="append",
        configuration=CONFIGURATION,
        storage_options=dict(options or {}),
        commit_properties=mark,
    )


def _tidy(table: DeltaTable | None, batch: int) -> None:
    """Many small batches make many small files. Whatever goes wrong here can be done later."""
    if table is None or batch % TIDY_EVERY != TIDY_EVERY - 1:
        return
    try:
        table.update_incremental()
        table.optimize.compact()
        table.vacuum(retention_hours=KEEP_HOURS, enforce_retention_duration=False, dry_run=False)
        table.create_checkpoint()
        table.cleanup_metadata()
    except Exception:
        logger.exception("%s could not be tidied up; it is tried again after %d batches", table.table_uri, TIDY_EVERY)
