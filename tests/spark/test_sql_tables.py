"""`CREATE TABLE … USING penstock OPTIONS (…)` in Spark: reading such tables, and statements that Spark allows there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from tests.spark.data_dir import DataDir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def sql(spark: SparkSession, data_dir: DataDir) -> Iterator[SparkSession]:
    """A session with an empty database as the current one, and topics with 3 and 2 records."""
    for topic, count in (("orders", 3), ("views", 2)):
        data_dir.create(topic)
        data_dir.fill(topic, 0, count)
    spark.sql("CREATE DATABASE sql_tables")
    spark.catalog.setCurrentDatabase("sql_tables")
    yield spark
    spark.catalog.setCurrentDatabase("default")
    spark.sql("DROP DATABASE sql_tables CASCADE")


def create(spark: SparkSession, name: str, data_dir: DataDir, more: str = "", columns: str = "") -> None:
    spark.sql(f"CREATE TABLE {name} {columns} USING penstock OPTIONS (path = '{data_dir.root}'{more})")


def names(spark: SparkSession) -> list[str]:
    """The tables of the database; Spark also lists the session's temporary views, which other tests make."""
    shown = spark.sql("SHOW TABLES IN sql_tables").collect()
    return [row.tableName for row in shown if not row.isTemporary]


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


def test_tables_of_two_topics_in_one_query(sql: SparkSession, data_dir: DataDir) -> None:
    create(sql, "a", data_dir, ", subscribe = 'orders'")
    create(sql, "b", data_dir, ", subscribe = 'views', includeHeaders = 'true'")
    assert rows(sql, "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)") == [(3, 2)]
    both = "SELECT topic FROM a UNION ALL SELECT topic FROM b"
    assert rows(sql, f"SELECT topic, count(*) FROM ({both}) GROUP BY topic ORDER BY topic") == [
        ("orders", 3),
        ("views", 2),
    ]
    joined = "SELECT a.offset, a.topic, b.topic FROM a JOIN b ON a.offset = b.offset + 1 ORDER BY 1"
    assert rows(sql, joined) == [(1, "orders", "views"), (2, "orders", "views")]
    assert sql.table("b").columns[-1] == "headers"
    sql.sql("CACHE TABLE a")
    assert rows(sql, "SELECT count(*) FROM b") == [(2,)]
    sql.sql("UNCACHE TABLE a")


def test_options_of_the_query(sql: SparkSession, data_dir: DataDir) -> None:
    create(sql, "t", data_dir, ", subscribe = 'orders', startingTimestamp = '5'")
    assert rows(sql, """SELECT offset FROM t WITH (startingOffsets = '{"orders":{"0":2}}')""") == [(2,)]
    assert rows(sql, """SELECT DISTINCT topic FROM t WITH (assign = '{"views":[0]}')""") == [("views",)]
    assert sql.read.option("subscribe", "views").table("t").count() == 2
    two = "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM t WITH (subscribe = 'views'))"
    assert rows(sql, two) == [(3, 3)]  # a trap of Spark's, for every source: docs/spark.md warns of it
    with pytest.raises(PySparkException, match="No topic given"):
        sql.sql(f"SELECT * FROM t WITH (path = '{data_dir.root}')").collect()


def test_a_stream_of_a_table(sql: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    create(sql, "t", data_dir, ", subscribe = 'orders', startingOffsets = 'earliest'")
    found: list[tuple[str, int]] = []
    for number, stream in enumerate((sql.readStream, sql.readStream.option("subscribe", "views"))):
        writer = stream.table("t").writeStream.foreachBatch(
            lambda df, _: found.extend((row.topic, row.offset) for row in df.collect())
        )
        writer.option("checkpointLocation", str(tmp_path / f"{number}")).trigger(availableNow=True)
        writer.start().awaitTermination()
    assert found == [("orders", 0), ("orders", 1), ("orders", 2), ("views", 0), ("views", 1)]


def test_changes_of_a_table(sql: SparkSession, data_dir: DataDir) -> None:
    """Options change with the whole table. To drop it deletes no data, although `path` is its location for Spark."""
    create(sql, "t", data_dir, ", subscribe = 'orders'")
    sql.sql("ALTER TABLE t ALTER COLUMN timestampType COMMENT 'always 1'")
    sql.sql("ALTER TABLE t SET TBLPROPERTIES (subscribe = 'views')")
    sql.sql("ALTER TABLE t RENAME TO u")
    assert rows(sql, "SELECT count(*) FROM u") == [(3,)]
    assert ("timestampType", "int", "always 1") in rows(sql, "DESCRIBE TABLE u")
    sql.sql(f"CREATE OR REPLACE TABLE u USING penstock OPTIONS (path = '{data_dir.root}', subscribe = 'views')")
    assert rows(sql, "SELECT count(*) FROM u") == [(2,)]
    before = sorted(path.name for path in data_dir.root.rglob("*"))
    sql.sql("DROP TABLE u PURGE")
    assert sorted(path.name for path in data_dir.root.rglob("*")) == before


def test_columns_and_rows_in_the_statement(sql: SparkSession, data_dir: DataDir) -> None:
    """Spark then stores the options, and does not pass them on."""
    create(sql, "t", data_dir, ", subscribe = 'orders'", columns="(offset BIGINT, value STRING)")
    with pytest.raises(PySparkException, match="So leave the columns out; or give the options in the query"):
        sql.table("t").collect()
    query = f"SELECT * FROM t WITH (path = '{data_dir.root}', subscribe = 'views')"
    assert rows(sql, query) == [(0, "views-0-0"), (1, "views-0-1")]
    with pytest.raises(PySparkException, match="neither for INSERT INTO nor for CREATE TABLE … AS SELECT"):
        sql.sql("CREATE TABLE u USING penstock OPTIONS (topic = 'orders') AS SELECT 'x' AS value")
    assert names(sql) == ["t"]


def test_a_table_with_a_credential_is_not_created(sql: SparkSession) -> None:
    with pytest.raises(PySparkException, match="Option 'password' may be a credential"):
        sql.sql("CREATE TABLE t USING penstock OPTIONS ('bootstrap.servers' = 'b:1', user = 'u', password = 'p')")
    assert names(sql) == []
