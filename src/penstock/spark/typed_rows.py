"""`penstock.spark.typed()`: the typed table of a topic with a schema, read by Spark's own Parquet reader."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.pandas.types import from_arrow_type

from penstock.spark.catalog_views import quoted
from penstock.spark.log_location import log_location
from penstock.spark.sessions import check_workers
from penstock.spark.topic_table import Moment, for_spark, literal, version_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


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
    import pyarrow as pa
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
    moment = Moment(version, timestamp)
    known = None if moment == Moment(None, None) else version_at(url, info.options, moment)
    found = DeltaTable(url, version=known, storage_options=info.options or None)
    schema = cast("StructType", from_arrow_type(pa.struct(list(pa.schema(found.schema().to_arrow())))))
    files = [literal(for_spark(uri)) for uri in found.file_uris()]
    if not files:
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).option("basePath", for_spark(url)).parquet(*files)
    return rows.select(*map(quoted, schema.names))  # Spark appends partition columns at the end
