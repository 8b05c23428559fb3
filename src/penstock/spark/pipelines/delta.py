"""Streaming queries into Delta tables, exactly once and lossless: for `foreachBatch`, without a jar.

Each commit of a table has the number of its batch, under the query's id, so a batch that Spark repeats after a crash is
recognized and skipped. No value is changed to fit: values that a table cannot represent exactly are refused, or go to
the table's quarantine, according to its policy. Spark, DuckDB, pandas and other Delta readers can read the tables while
they are written. A batch passes through the driver's memory: limit it with `maxOffsetsPerTrigger`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.spark.pipelines.latest_rows import latest_rows, update_condition
from penstock.spark.pipelines.quarantine import beside, quarantined
from penstock.spark.pipelines.table_policy import (
    Conformed,
    Policy,
    TableMismatch,
    check_policy,
    conform,
    evolved_schema,
    first_schema,
    mismatch,
    new_columns,
    refused_columns,
)
from penstock.spark.query_id import query_id

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame

__all__ = ["Policy", "TableMismatch", "WriteBatch", "append", "upsert"]

logger = logging.getLogger(__name__)

WriteBatch = Callable[["DataFrame", int], None]

TIDY_EVERY = 50  # batches
KEEP_DAYS = 7  # of versions, for time travel
FILE_BYTES = 8 << 20  # smaller files are merged; the replaced ones are kept for KEEP_DAYS


def append(
    url: str,
    *,
    app: str,
    policy: Policy = "fail",
    quarantine: str | None = None,
    partition_by: Sequence[str] = (),
    keep_days: int = KEEP_DAYS,
    options: Mapping[str, str] | None = None,
) -> WriteBatch:
    """Append the rows of each batch to a table. `app` distinguishes queries that write to the same one; `policy`
    defines the handling of rows that do not match the table (`fail`, `add_columns`, `quarantine`), `quarantine` the
    table for bad rows (default: next to this one, `…_quarantine`); `options` are deltalake's storage options.

    `partition_by` names columns by which files are partitioned (a date, for large tables), and `keep_days` limits time
    travel; both apply when the table is created."""
    return _Writer(url, app, policy, quarantine, tuple(partition_by), keep_days, dict(options or {})).append


def upsert(
    url: str,
    *,
    keys: Sequence[str],
    app: str,
    order: Sequence[str] = (),
    policy: Policy = "fail",
    quarantine: str | None = None,
    partition_by: Sequence[str] = (),
    keep_days: int = KEEP_DAYS,
    options: Mapping[str, str] | None = None,
) -> WriteBatch:
    """Replace the rows with the same keys, and insert the others. Of rows with the same keys, the one with the greatest
    `order` wins, in a batch and against the table: `order=("offset",)` for records of a keyed topic. Without an order a
    key may occur only once in a batch, as in aggregates in output mode `update`, and the later batch wins."""
    partitions = tuple(partition_by)
    return _Writer(
        url, app, policy, quarantine, partitions, keep_days, dict(options or {}), tuple(keys), tuple(order)
    ).upsert


@dataclass(frozen=True)
class _Writer:
    """Writes the batches of one query into one table."""

    url: str
    app: str
    policy: Policy
    quarantine: str | None
    partition_by: tuple[str, ...]
    keep_days: int
    options: dict[str, str]
    keys: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_policy(self.policy)
        if self.policy == "fail" and self.quarantine is not None:
            raise ValueError("quarantine= goes with policy='quarantine' or policy='add_columns', not with 'fail'")
        if self.keep_days < 1:
            raise ValueError(f"keep_days is {self.keep_days}; at least 1 is allowed, for readers that have begun")

    def append(self, rows: DataFrame, batch: int) -> None:
        self._write(rows, batch, self._add)

    def upsert(self, rows: DataFrame, batch: int) -> None:
        self._write(rows, batch, self._merge)

    def _write(
        self, rows: DataFrame, batch: int, commit: Callable[[DeltaTable | None, pa.Table, CommitProperties], None]
    ) -> None:
        app_id = f"{self.app}:{query_id(rows)}"
        table = _open(self.url, self.options)
        if _is_done(table, app_id, batch):
            logger.info("batch %d is in %s already", batch, self.url)
            return
        good = self._checked(table, rows.toArrow(), app_id, batch)
        commit(table, good, _mark(app_id, batch))
        _tidy(table, batch)

    def _checked(self, table: DeltaTable | None, data: pa.Table, app_id: str, batch: int) -> pa.Table:
        """The rows that the table accepts, in its schema. Others have been written to the quarantine."""
        schema = self._schema(table, data, batch)
        found = self._latest_of_each_key(conform(data, schema))
        if not found.failures:
            return found.rows
        if not self._has_quarantine():
            raise mismatch(self.url, batch, data, found.failures)
        self._put_aside(data, found, app_id, batch)
        return found.rows

    def _schema(self, table: DeltaTable | None, data: pa.Table, batch: int) -> pa.Schema:
        import pyarrow as pa

        if table is None:
            return first_schema(data.schema)
        schema = pa.schema(table.schema().to_arrow())
        if self.policy == "add_columns":
            evolved = evolved_schema(schema, data.schema)
            if evolved != schema:
                self._evolve(table, evolved)
            return evolved
        if self.policy == "fail" and (names := new_columns(schema, data.schema)):
            raise refused_columns(self.url, batch, data, names)
        return schema

    def _evolve(self, table: DeltaTable, schema: pa.Schema) -> None:
        """Add the new columns in a separate commit: before the rows, and harmless without them."""
        from deltalake import write_deltalake

        write_deltalake(table, schema.empty_table(), mode="append", schema_mode="merge")
        table.update_incremental()
        logger.info("%s has columns %s now", self.url, ", ".join(schema.names))

    def _latest_of_each_key(self, found: Conformed) -> Conformed:
        if not self.keys:
            return found
        self._check_columns(found.rows)
        latest = latest_rows(found.rows, self.keys, self.order)
        undecided = {found.numbers[place]: failure for place, failure in latest.undecided.items()}
        rows = found.rows if len(latest.numbers) == found.rows.num_rows else found.rows.take(latest.numbers)
        return Conformed(rows, [found.numbers[place] for place in latest.numbers], found.failures | undecided)

    def _check_columns(self, rows: pa.Table) -> None:
        absent = [name for name in (*self.keys, *self.order) if name not in rows.schema.names]
        if absent:
            raise TableMismatch(
                f"{self.url}: keys and order need columns that are in the table, and {', '.join(absent)} "
                f"{'is' if len(absent) == 1 else 'are'} not; it has {', '.join(rows.schema.names)}"
            )

    def _has_quarantine(self) -> bool:
        return self.policy == "quarantine" or self.quarantine is not None

    def _put_aside(self, data: pa.Table, found: Conformed, app_id: str, batch: int) -> None:
        """Write bad rows to the quarantine, before the good rows and with the same batch number, so that a repeated
        batch writes nothing twice."""
        url = self.quarantine or beside(self.url)
        if _is_done(_open(url, self.options), app_id, batch):
            return
        bad = quarantined(data, found.failures, self.app, batch, datetime.now(UTC))
        _append(url, bad, _mark(app_id, batch), self.options, (), self.keep_days)
        logger.warning("batch %d: %d rows that %s cannot hold are in %s", batch, len(found.failures), self.url, url)

    def _add(self, _table: DeltaTable | None, data: pa.Table, mark: CommitProperties) -> None:
        _append(self.url, data, mark, self.options, self.partition_by, self.keep_days)

    def _merge(self, table: DeltaTable | None, data: pa.Table, mark: CommitProperties) -> None:
        if table is None:
            _append(self.url, data, mark, self.options, self.partition_by, self.keep_days)
            return
        if not data.num_rows:
            return
        same = " AND ".join(f"(target.`{key}` IS NOT DISTINCT FROM source.`{key}`)" for key in self.keys)
        merging = table.merge(
            source=data, predicate=same, source_alias="source", target_alias="target", commit_properties=mark
        )
        merging.when_matched_update_all(update_condition(self.order)).when_not_matched_insert_all().execute()


def _open(url: str, options: dict[str, str]) -> DeltaTable | None:
    from deltalake import DeltaTable

    return DeltaTable(url, storage_options=options) if DeltaTable.is_deltatable(url, storage_options=options) else None


def _is_done(table: DeltaTable | None, app_id: str, batch: int) -> bool:
    done = None if table is None else table.transaction_version(app_id)
    return done is not None and done >= batch


def _mark(app_id: str, batch: int) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(app_id, batch)])


def _append(
    url: str,
    data: pa.Table,
    mark: CommitProperties,
    options: dict[str, str],
    partition_by: Sequence[str],
    keep_days: int,
) -> None:
    """Append to the table, which is created if it does not exist."""
    from deltalake import DeltaTable, write_deltalake

    made: dict[str, Any] = {}
    if not DeltaTable.is_deltatable(url, storage_options=options):
        kept = f"interval {keep_days} days"
        made["configuration"] = {"delta.logRetentionDuration": kept, "delta.deletedFileRetentionDuration": kept}
        made["partition_by"] = list(partition_by) or None
    write_deltalake(url, data, mode="append", storage_options=options, commit_properties=mark, **made)


def _tidy(table: DeltaTable | None, batch: int) -> None:
    """Merge the small files of many small batches. Failures are only logged: a later run repeats it."""
    if table is None or batch % TIDY_EVERY != TIDY_EVERY - 1:
        return
    try:
        table.update_incremental()
        table.optimize.compact(target_size=FILE_BYTES)
        table.vacuum(dry_run=False)  # as its retention properties allow
        table.create_checkpoint()
        table.cleanup_metadata()
    except Exception:
        logger.exception("%s could not be tidied up; it is tried again after %d batches", table.table_uri, TIDY_EVERY)
