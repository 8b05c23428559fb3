"""`penstock.spark.table()`: a topic as one DataFrame. Records in the topic's Delta table are read by Spark's own
Parquet reader, which prunes columns and counts without reading; later ones by our source. The seam is at the end
offsets in one version of the table, so no record is missing or duplicated.

Like every DataFrame of the source it is a snapshot: it ends at the end of the topic when it was created.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from penstock.flight.errors import TopicMissing
from penstock.flight.log import Log, TableInfo, TopicPartition
from penstock.log.engine import Bounds
from penstock.log.tables.location import TYPED_SUFFIX
from penstock.spark.columns import LOG_APPEND_TIME, OPTIONAL, SchemaRefused, check_schema, full_schema
from penstock.spark.options import BATCH_OUTAGE_MS, INCLUDING, OptionRefused, OptionValues, included, nested
from penstock.spark.outage_budget import OutageBudget
from penstock.spark.sessions import check_workers
from penstock.spark.table_location import TableVersion, for_spark, literal, version_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.log.tables.part_reader import TableFile
    from penstock.log.tables.table import Table

TAKEN: Final = ("minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "retryTimeout")
"""Options that are passed on to the source, besides connection options."""


class TablePart(NamedTuple):
    """The part of a topic that is read from its table."""

    root: str
    whole: list[str]  # files whose rows are all visible
    cut: list[str]  # files with rows that are not: only these are filtered, so that others need no more columns
    ends: dict[int, int]
    hidden: list[Column]  # conditions of the invisible rows


def table(
    spark: SparkSession,
    topic: str,
    *,
    columns: Sequence[str] | None = None,
    version: int | str | None = None,
    timestamp: datetime | str | None = None,
    **options: Any,
) -> DataFrame:
    """The topic as it is now: the columns of the source, or only these. With a `version`, or as of a `timestamp`, the
    content of its Delta table then, if still retained. `orders_typed` is the typed table of topic `orders`, as in SQL:
    see `typed()`.

    Options are the source's connection options (`path`, or `bootstrap.servers`, `user`, `password`, …; with `_` for `.`
    if you like), `includeHeaders`, `includeDoor`, and a few more: `minPartitions`, `maxRecordsPerPartition`,
    `failOnDataLoss`, `retryTimeout`."""
    from penstock.flight.connect import connect

    check_workers(spark)
    given = OptionValues({name if "." in name else name.replace("_", "."): value for name, value in options.items()})
    connection = _checked(given)
    retries = given.retries(BATCH_OUTAGE_MS)
    budget = OutageBudget(retries.timeout, retries.at_least, retries.interval)
    if topic.endswith(TYPED_SUFFIX):
        from penstock.spark.typed_rows import read_typed

        info = budget.call(lambda: connect(connection).table(topic))
        if info is not None and info.typed:
            return read_typed(spark, info, TableVersion(version, timestamp), columns)
    schema = _schema(given, columns)
    if version is not None or timestamp is not None:
        past, _ = budget.call(lambda: look(connect(connection), topic, TableVersion(version, timestamp)))
        return _united(_past(spark, topic, past, schema) or [spark.createDataFrame([], schema)])
    past, bounds = budget.call(lambda: look(connect(connection), topic))
    starts = {place: max(found.start, past.ends.get(place.partition, 0)) for place, found in bounds.items()}
    tail = {place: start for place, start in starts.items() if start < bounds[place].high_watermark}
    parts = _past(spark, topic, past, schema)
    if tail or not parts:
        passed_on = connection | {name: text for name in TAKEN if (text := given.text(name)) is not None}
        parts.append(_tail(spark, passed_on, tail or starts, bounds, schema))
    return _united(parts)


def _united(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda some, more: some.unionByName(more), parts)


def _checked(given: OptionValues) -> dict[str, str]:
    given.check_names()
    connection = given.connection()
    allowed = {name.lower() for name in (*connection, *TAKEN, *INCLUDING)}
    for name in given.names():
        if name not in allowed:
            raise OptionRefused(
                f"Option {name!r} has no meaning for table(), which reads the whole topic; filter the DataFrame, or "
                'use spark.read.format("penstock")'
            )
    return connection


def _schema(given: OptionValues, columns: Sequence[str] | None) -> StructType:
    full = full_schema(*included(given), *(columns or ()))
    if columns is None:
        return full
    for name in columns:
        if name not in full.names:
            raise SchemaRefused(f"There is no column {name!r}; there are: {', '.join(full.names)}")
    schema = StructType([full[name] for name in columns])
    check_schema(schema)
    return schema


def look(log: Log, topic: str, moment: TableVersion | None = None) -> tuple[TablePart, dict[TopicPartition, Bounds]]:
    """The newest version of the table, and then the bounds of the topic: in this order, or the table could be ahead of
    the topic."""
    info = log.table(topic)
    found = None if info is None else _open(info, topic, moment)
    bounds = {place: found for place, found in log.bounds([topic]).items() if place.topic == topic}
    if not bounds:
        raise TopicMissing(f"There is no topic {topic!r} (or this user may not read it). Create it first")
    if moment is not None and found is None:
        raise OptionRefused(
            f"Topic {topic!r} has no table yet, so there is no older version: a segment with its records has to be "
            "closed first"
        )
    if info is None or found is None:
        return TablePart("", [], [], {}, []), bounds
    return _visible(info, found, {place.partition: inner for place, inner in bounds.items()}), bounds


def _open(info: TableInfo, topic: str, moment: TableVersion | None) -> Table | None:
    from penstock.log.tables.location import TableRef
    from penstock.log.tables.table import Table

    version = None if moment is None else version_at(info.url, info.options, moment)
    return Table.open(TableRef(info.topic, topic, info.url, info.options), version)


def _visible(info: TableInfo, found: Table, bounds: Mapping[int, Bounds]) -> TablePart:
    """The visible rows of the table: without those removed by retention, expiry or deletion."""
    files: list[TableFile] = []
    hidden: list[Column] = []
    cut: set[str] = set()
    for partition, inner in bounds.items():
        start = max(inner.start, info.gone_below.get(partition, 0))
        some = [file for file in found.extents(partition) if file.end > start and file.max_timestamp > info.horizon]
        if any(file.first < start for file in some):
            hidden.append((F.col("partition") == partition) & (F.col("offset") < start))
        gone = [offset for offset in info.gone.get(partition, ()) if any(f.first <= offset < f.end for f in some)]
        if gone:
            hidden.append((F.col("partition") == partition) & F.col("offset").isin(gone))
        cut.update(f.path for f in some if f.first < start or any(f.first <= offset < f.end for offset in gone))
        files += some
    cut.update(file.path for file in files if file.may_expire or file.min_timestamp <= info.horizon)
    if any(file.min_timestamp <= info.horizon for file in files):
        hidden.append(F.col("timestamp") <= F.timestamp_micros(F.lit(info.horizon)))
    if any(file.may_expire for file in files):
        hidden.append(F.col("expires").isNotNull() & (F.col("expires") <= F.timestamp_micros(F.lit(info.now))))

    def uris(concerned: bool) -> list[str]:
        paths = (file.path for file in files if (file.path in cut) is concerned)
        return [literal(for_spark(uri)) for uri in found.store.uris(paths)]

    return TablePart(for_spark(found.store.uri), uris(False), uris(True), found.ends(), hidden)


def _past(spark: SparkSession, topic: str, past: TablePart, schema: StructType) -> list[DataFrame]:
    stored = StructType([field for field in full_schema(*OPTIONAL) if field.name not in ("topic", "timestampType")])
    stored = stored.add(StructField("expires", TimestampType())).add(StructField("position", LongType()))
    # Local files have sidecars, which Hadoop verifies by default; object stores rely on page checksums.
    reader = spark.read.schema(stored).option("basePath", past.root)
    reader = reader.option("parquet.page.verify-checksum.enabled", "true")
    parts = [reader.parquet(*files) for files in (past.whole, past.cut) if files]
    if past.cut:
        for condition in past.hidden:
            parts[-1] = parts[-1].where(~condition)
    # All columns of the source are nullable, and those of a table should be too; a plain literal is not.
    constant = {
        "topic": F.nullif(F.lit(topic), F.lit("")),
        "timestampType": F.nullif(F.lit(LOG_APPEND_TIME), F.lit(0)),
    }
    columns = [constant.get(name, F.col(name)).alias(name) for name in schema.names]
    return [rows.select(*columns) for rows in parts]


def _tail(
    spark: SparkSession,
    options: Mapping[str, str],
    starts: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    schema: StructType,
) -> DataFrame:
    ends = {place: bounds[place].high_watermark for place in starts}
    topic = next(iter(starts)).topic
    return (
        spark.read.format("penstock")
        .schema(schema)
        .options(**options)
        .option("assign", json.dumps({topic: sorted(place.partition for place in starts)}))
        .option("startingOffsets", json.dumps(nested(starts)))
        .option("endingOffsets", json.dumps(nested(ends)))
        .load()
    )
