"""`penstock.spark.catalog()`: a database whose views are the topics of a broker, for SQL.

Spark takes no catalog in Python, and gives a table in Python none of the options that it was made with. But it passes
on those that stand in a query, `SELECT … FROM source WITH (…)`: so a topic is a table, which is the source, and a view
that says which topic. Not one table for all: within a query Spark takes a table for the same one, whatever its options.
In sessions with Delta's own connector, whose catalog takes no source in Python, there are the tables of topics instead.
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

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")  # of views, in every catalog that Spark may have


def catalog(spark: SparkSession, database: str = "penstock", **options: Any) -> dict[str, str]:
    """Make a database with a view for each topic that may be read, and return their names: topic → view. Called again,
    it adds what is new; a view shows the topic as it is when it is used.

    With Delta's catalog in the session there are tables instead of views: `…_table` is the table of a topic and
    `…_typed` its typed table, for `SELECT … VERSION AS OF`.

    Options are those of `table()` that say where the log is and who asks. Views hold them, passwords too, so keep the
    catalog to yourself, or give a user who may only read."""
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
    """The tables of a topic that are there, by what their names end in."""
    from deltalake import DeltaTable

    from penstock.log.tables.location import TYPED as BESIDE
    from penstock.spark.topic_table import for_spark

    found = [(TABLE, url), (TYPED, url + BESIDE)]
    return [(name, for_spark(it)) for name, it in found if DeltaTable.is_deltatable(it, dict(options) or None)]


def view_names(topics: Iterable[str]) -> dict[str, str]:
    """A name for each topic: catalogs take letters, digits and `_`, and do not tell apart capitals."""
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
    """The options of a query."""
    chosen = {"subscribe": topic} if "," not in topic else {"subscribePattern": re.escape(topic)}
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in {**connection, **chosen}.items())


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
