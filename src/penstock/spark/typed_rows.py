"""`penstock.spark.typed()`: the typed table of a topic with a schema, read by Spark's own Parquet reader."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from penstock.flight.log import TableInfo
from penstock.spark.catalog_views import quoted
from penstock.spark.columns import SchemaRefused
from penstock.spark.log_location import log_location
from penstock.spark.sessions import check_workers
from penstock.spark.table_location import TableVersion, for_spark, literal, version_at

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession


class NotTyped(ValueError):
    """A topic without a typed table; the text has possible reasons."""


def typed(
    spark: SparkSession,
    topic: str,
    *,
    version: int | str | None = None,
    timestamp: datetime | str | None = None,
    **options: Any,
) -> DataFrame:
    """The records of a topic with a schema, with a column for each of its fields, as far as they are in the topic's
    typed table, which ends with the last closed segment. `_error` is null if a value matches. With a `version`, or as
    of a `timestamp`, the content at that time. Options are the connection options of `table()`."""
    from deltalake import DeltaTable

    from penstock.flight.connect import connect
    from penstock.log.tables.location import TYPED

    check_workers(spark)
    connection, budget = log_location(options, "typed()")
    info = budget.call(lambda: connect(connection).table(topic))
    url = "" if info is None else info.url + TYPED
    if info is None or not DeltaTable.is_deltatable(url, info.options or None):
        raise NotTyped(
            f"Topic {topic!r} has no typed table: its schema has to be set (penstock topic set … --schema), and a "
            "segment with records closed since"
        )
    return read_typed(spark, info._replace(url=url), TableVersion(version, timestamp))


def read_typed(
    spark: SparkSession, info: TableInfo, moment: TableVersion, columns: Sequence[str] | None = None
) -> DataFrame:
    """The visible rows of a typed table, or only these columns of them. `info` is that of the typed table."""
    import pyarrow as pa
    from deltalake import DeltaTable

    known = None if moment == TableVersion(None, None) else version_at(info.url, info.options, moment)
    found = DeltaTable(info.url, version=known, storage_options=info.options or None)
    schema = cast("StructType", from_arrow_type(pa.struct(list(pa.schema(found.schema().to_arrow())))))
    names = list(schema.names if columns is None else columns)
    for name in names:
        if name not in schema.names:
            raise SchemaRefused(f"There is no column {name!r}; there are: {', '.join(schema.names)}")
    files = [literal(for_spark(uri)) for uri in found.file_uris()]
    if not files:
        return spark.createDataFrame([], StructType([schema[name] for name in names]))
    rows = spark.read.schema(schema).option("basePath", for_spark(info.url)).parquet(*files)
    for condition in hidden_rows(info, _statistics(found)):
        rows = rows.where(~condition)
    return rows.select(*map(quoted, names))  # Spark appends partition columns at the end


class Statistics(NamedTuple):
    """The statistics of a file in the table's log; None: it has none."""

    partition: int
    first: int | None
    earliest: datetime | None  # at most this
    expires: bool = True  # whether any row may have an expiry time


def _statistics(found: DeltaTable) -> list[Statistics]:
    import pyarrow as pa

    actions = pa.table(found.get_add_actions(flatten=True))
    wanted = ["partition._partition", "min._offset", "min._timestamp", "null_count._expires", "num_records"]
    files = []
    for action in actions.select([name for name in wanted if name in actions.schema.names]).to_pylist():
        partition, first, earliest, nulls, rows = map(action.get, wanted)
        files.append(Statistics(partition, first, earliest, nulls is None or nulls != rows))
    return files


def hidden_rows(info: TableInfo, files: Sequence[Statistics]) -> list[Column]:
    """The conditions of rows whose records were removed or have expired: the table itself loses them later. Those that
    no file can have are left out, because Spark would read the columns of a condition for every query."""
    partition, offset, expires = F.col("_partition"), F.col("_offset"), F.col("_expires")
    horizon = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=info.horizon)
    found = [
        (partition == number) & (offset < start)
        for number, start in info.gone_below.items()
        if any(file.partition == number and (file.first is None or file.first < start) for file in files)
    ]
    found += [(partition == number) & offset.isin(list(gone)) for number, gone in info.gone.items()]
    if any(file.expires for file in files):
        found.append(expires.isNotNull() & (expires <= F.timestamp_micros(F.lit(info.now))))
    if info.horizon and any(file.earliest is None or file.earliest <= horizon for file in files):
        found.append(F.col("_timestamp") <= F.timestamp_micros(F.lit(info.horizon)))
    return found
