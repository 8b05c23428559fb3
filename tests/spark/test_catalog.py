"""Topics in SQL: a database with a view for each, options that stand in a query, versions of tables, typed tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from tests.spark.data_dir import DataDir

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.schemas.schema import Schema, SchemaKind
from penstock.broker.security.access import ADMINISTRATOR
from penstock.broker.state.events import RecordsRemoved
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.tables.location import table_ref
from penstock.spark import catalog, table, typed
from penstock.spark.catalog_views import clause, view_names
from penstock.spark.columns import SchemaRefused
from penstock.spark.options import OptionRefused
from penstock.spark.typed_rows import NotTyped
from penstock.workers.tables.typed_table import keep_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = b'{"type": "object", "properties": {"id": {"type": "string"}}}'
SECOND = b'{"type": "object", "properties": {"id": {"type": "string"}, "count": {"type": "integer"}}}'


def test_names_of_views() -> None:
    assert view_names(["a.b", "a-b", "Orders", "orders", "orders_source"]) == {
        "Orders": "orders",
        "a-b": "a_b",
        "a.b": "a_b_2",
        "orders": "orders_2",
        "orders_source": "orders_source_2",
    }
    assert clause({"path": "/it's"}, "t") == "'path' = '/it\\'s', 'subscribe' = 't'"
    assert clause({}, "a,b.c") == "'subscribePattern' = 'a,b\\\\.c'"


def test_a_database_of_topics(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("orders", 2)
    data_dir.create("page.views")
    data_dir.fill("orders", 0, 3)
    data_dir.fill("page.views", 0, 2)
    assert catalog(spark, "topics", path=str(data_dir.root)) == {"orders": "orders", "page.views": "page_views"}
    assert {row.viewName for row in spark.sql("SHOW VIEWS IN topics").collect()} >= {"orders", "page_views"}
    both = "SELECT (SELECT count(*) FROM topics.orders), (SELECT max(offset) FROM topics.page_views)"
    assert spark.sql(both).first() == (3, 1)
    data_dir.fill("orders", 1, 4)
    assert spark.sql(both).first() == (7, 1)  # as it is now
    query = f"SELECT count(*) FROM topics.orders_source WITH ('path' = '{data_dir.root}', 'subscribe' = 'orders')"
    assert spark.sql(query).first() == (7,)
    with pytest.raises(PySparkException, match=r"penstock\.spark\.catalog\(\) makes a view"):
        spark.sql("SELECT count(*) FROM topics.orders_source").collect()
    with pytest.raises(OptionRefused, match=r"no meaning for catalog\(\)"):
        catalog(spark, path=str(data_dir.root), subscribe="orders")
    spark.sql("DROP DATABASE topics CASCADE")


def test_versions_and_typed_tables(spark: SparkSession, data_dir: DataDir) -> None:
    ref = table_ref(str(data_dir.root / "tables"), {}, *DEFAULT_SCOPE, "orders", data_dir.create("orders"))
    options = data_dir.options
    schemas = [Schema("o", 1, SchemaKind.JSON, FIRST, 0, id=1)]
    with pytest.raises(NotTyped, match="has no typed table"):
        typed(spark, "orders", **options)
    data_dir.write("orders", 0, [b'{"id": "a"}', b"broken"])
    data_dir.to_tables()
    keep_up(ref, schemas, {})
    between = datetime.now(UTC)
    schemas.append(Schema("o", 2, SchemaKind.JSON, SECOND, data_dir.now, id=2))
    data_dir.write("orders", 0, [b'{"id": "b", "count": 7}'])
    data_dir.to_tables()
    keep_up(ref, schemas, {})
    data_dir.fill("orders", 0, 1)  # not in a table yet
    assert table(spark, "orders", **options).count() == 4
    both = "SELECT (SELECT count(*) FROM {now}), (SELECT count(*) FROM {then})"
    then = table(spark, "orders", version=0, **options)
    assert spark.sql(both, now=table(spark, "orders", **options), then=then).first() == (4, 2)
    assert table(spark, "orders", version=1, columns=["value"], **options).count() == 3
    assert table(spark, "orders", timestamp=between, **options).count() == 2
    found = typed(spark, "orders", **options)
    assert [tuple(row) for row in found.select("_offset", "id", "count").orderBy("_offset").collect()] == [
        (0, "a", None),
        (1, None, None),
        (2, "b", 7),
    ]
    [bad] = found.where("_error IS NOT NULL").collect()
    assert bytes(bad["_value"]) == b"broken" and bad["_partition"] == 0
    assert typed(spark, "orders", timestamp=between, **options).columns[-1] == "id"
    assert typed(spark, "orders", version=0, **options).count() == 2
    data_dir.broker.topics.change(ADMINISTRATOR, DEFAULT_SCOPE, "orders", TopicSettings(schema="o"))
    data_dir.commit()
    named = table(spark, "orders_typed", columns=["count", "_offset"], **options)
    assert " Filter " not in str(named._jdf.queryExecution().executedPlan().toString())  # nothing can be gone
    assert [tuple(row) for row in named.where("count > 0").collect()] == [(7, 2)]
    assert table(spark, "orders_typed", version=0, **options).columns[-1] == "id"
    with pytest.raises(SchemaRefused, match="no column 'price'"):
        table(spark, "orders_typed", columns=["price"], **options)


def test_typed_rows_that_are_gone(spark: SparkSession, data_dir: DataDir) -> None:
    ref = table_ref(str(data_dir.root / "tables"), {}, *DEFAULT_SCOPE, "orders", data_dir.create("orders"))
    data_dir.now -= 10_000_000_000  # µs
    values = [b'{"id": "%d"}' % number for number in range(6)]
    expired = data_dir.now + 9_000_000_000
    data_dir.write("orders", 0, values, expires=[0, 0, 0, expired, 0, 0])
    for _ in range(4):  # hours later: the first file is as old as the directory
        data_dir.to_tables()
    keep_up(ref, [Schema("o", 1, SchemaKind.JSON, FIRST, 0, id=1)], {})

    def seen() -> str:
        return "".join(sorted(row.id for row in typed(spark, "orders", **data_dir.options).select("id").collect()))

    assert seen() == "01245"
    data_dir.trim("orders", 0, 2)
    assert seen() == "245"
    data_dir.broker.state_log.commit((RecordsRemoved(data_dir.id("orders"), 0, [4]),))
    data_dir.commit()
    assert seen() == "25"
