"""`penstock.spark.catalog()`: a database whose views are the topics of a broker, for SQL.

Spark does not support catalogs in Python. A table keeps its options (`table_options`), but no credentials. But Spark
passes those in a query, `SELECT … FROM source WITH (…)`: so a topic is a table, which is the source, and a view with
the topic's options. There is one table per topic, because within a query Spark treats uses of a table as the same,
whatever their options. Delta's catalog does not support sources in Python, so sessions with it get the Delta tables of
topics instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.log_location import log_location
from penstock.spark.sessions import check_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA: Final = "DeltaCatalog"
SOURCE: Final = "_source"
TABLE: Final = "_table"
TYPED: Final = "_typed"

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")  # allowed in the names of views by all of Spark's catalogs


def catalog(spark: SparkSession, database: str = "penstock", **options: Any) -> dict[str, str]:
    """Create a database with a view for each readable topic, and return their names: topic → view. Calling it again
    adds new topics; a view shows the current content of its topic.

    With Delta's catalog in the session there are tables instead of views: `…_table` is the table of a topic and
    `…_typed` its typed table, for `SELECT … VERSION AS OF`.

    Options are the connection options of `table()`: the address and the credentials. Views contain them, including
    passwords, so do not share the catalog, or use a read-only user."""
    from penstock.flight.connect import connect

    check_workers(spark)
    connection, budget = log_location(options, "catalog()")
    log = connect(connection)
    names = view_names(budget.call(log.topics))
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
    with_delta = DELTA in (spark.conf.get("spark.sql.catalog.spark_catalog", None) or "")
    for topic, name in names.items():
        if with_delta:
            info = budget.call(partial(log.table, topic))
            for suffix, url in () if info is None else tables(info.url, info.options):
                table = f"{quoted(database)}.{quoted(name + suffix)}"
                spark.sql(f"CREATE TABLE IF NOT EXISTS {table} USING delta LOCATION {literal(url)}")
            continue
        place, source = f"{quoted(database)}.{quoted(name)}", f"{quoted(database)}.{quoted(name + SOURCE)}"
        spark.sql(f"CREATE TABLE IF NOT EXISTS {source} USING penstock")
        spark.sql(f"CREATE OR REPLACE VIEW {place} AS SELECT * FROM {source} WITH ({clause(connection, topic)})")
    return names


def tables(url: str, options: Mapping[str, str]) -> list[tuple[str, str]]:
    """The existing tables of a topic, by the suffix of their names."""
    from deltalake import DeltaTable

    from penstock.log.tables.location import TYPED as BESIDE
    from penstock.spark.table_location import for_spark

    found = [(TABLE, url), (TYPED, url + BESIDE)]
    return [(name, for_spark(it)) for name, it in found if DeltaTable.is_deltatable(it, dict(options) or None)]


def view_names(topics: Iterable[str]) -> dict[str, str]:
    """A unique name for each topic: catalogs allow letters, digits and `_`, and ignore case."""
    used: set[str] = set()
    found = {}
    for topic in sorted(topics):
        name = stem = _NOT_IN_NAMES.sub("_", topic).lower()
        count = 1
        while not used.isdisjoint(all_of := {name, name + SOURCE, name + TABLE, name + TYPED}):
            count += 1
            name = f"{stem}_{count}"
        used |= all_of
        found[topic] = name
    return found


def clause(connection: Mapping[str, str], topic: str) -> str:
    """The options of a query, as SQL."""
    chosen = {"subscribe": topic} if "," not in topic else {"subscribePattern": re.escape(topic)}
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in {**connection, **chosen}.items())


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
