"""Batch queries in Spark over a real data directory: what users see, and Spark's traps."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from tests.spark.data_dir import SECOND, DataDir

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, data_dir: DataDir, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("penstock").options(**data_dir.options | options)
    return (reader if schema is None else reader.schema(schema)).load()


def values(rows: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in rows.select("value").collect())


def test_all_columns(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("orders", 2)
    data_dir.write("orders", 0, [b"a", b"b"], [b"k", None], [(("h", b"1"),), ()])
    data_dir.write("orders", 1, [b"c"])
    found = load(spark, data_dir, subscribe="orders", includeHeaders="true").orderBy("partition", "offset")
    at = datetime.fromtimestamp(data_dir.now / SECOND)
    assert [tuple(row) for row in found.collect()] == [
        (b"k", b"a", "orders", 0, 0, at, 1, [("h", b"1")]),
        (None, b"b", "orders", 0, 1, at, 1, None),
        (None, b"c", "orders", 1, 0, at, 1, None),
    ]
    assert found.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in found.schema)


def test_a_dataframe_that_is_used_twice(spark: SparkSession, data_dir: DataDir) -> None:
    """A filter on one use must not reach the others."""
    data_dir.create("t", 3)
    for partition in range(3):
        data_dir.fill("t", partition, 10 * (partition + 1))
    rows = load(spark, data_dir, subscribe="t")
    one, two = rows.where("partition = 1"), rows.where("partition = 2")
    assert one.count() == 20
    assert rows.count() == 60
    assert {tuple(row) for row in one.union(two).groupBy("partition").count().collect()} == {(1, 20), (2, 30)}


def test_an_empty_topic_and_the_past_of_a_dataframe(spark: SparkSession, data_dir: DataDir) -> None:
    """A DataFrame is a snapshot: its offsets are fixed by its first use."""
    data_dir.create("t", 2)
    empty = load(spark, data_dir, subscribe="t")
    assert empty.collect() == [] and empty.count() == 0
    data_dir.fill("t", 0, 10)
    rows = load(spark, data_dir, subscribe="t")
    assert rows.count() == 10
    data_dir.fill("t", 1, 10)
    assert rows.count() == 10 and empty.count() == 0
    assert load(spark, data_dir, subscribe="t").count() == 20


def test_fewer_columns(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("t")
    data_dir.write("t", 0, [b"a"], headers=[(("h", b"1"),)])
    narrow = load(spark, data_dir, "offset bigint, value binary", subscribe="t")
    assert [tuple(row) for row in narrow.collect()] == [(0, b"a")]
    assert [tuple(row) for row in load(spark, data_dir, "timestampType int", subscribe="t").collect()] == [(1,)]
    headers = load(spark, data_dir, "headers array<struct<key:string,value:binary>>", subscribe="t").collect()
    assert [tuple(row.headers[0]) for row in headers] == [("h", b"1")]


def test_text_instead_of_bytes(spark: SparkSession, data_dir: DataDir) -> None:
    """As `CAST(… AS string)` of the same bytes, also where they are no UTF-8."""
    data_dir.create("t")
    data_dir.write("t", 0, ["ä".encode(), b"", b"x\xffy"], [b"k", None, b""])
    text = load(spark, data_dir, "key string, value string", subscribe="t", emptyValues="null")
    assert text.selectExpr("key", "CAST(value AS binary)").collect() == [
        ("k", "ä".encode()),
        (None, None),
        ("", b"x\xffy"),
    ]


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("value int", {"subscribe": "t"}, "Column 'value' is binary, not int"),
        (None, {"subscribe": "t", "startingOffset": "earliest"}, "did you mean 'startingOffsets'?"),
        (None, {"subscribe": "u"}, "There is no topic 'u'"),
    ],
)
def test_refusals_reach_the_user(
    spark: SparkSession, data_dir: DataDir, schema: str | None, options: dict[str, str], said: str
) -> None:
    data_dir.create("t")
    with pytest.raises(PySparkException) as refused:
        load(spark, data_dir, schema, **options).collect()
    assert said in str(refused.value)


def test_ranges_by_offset_and_time(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("t", 2)
    data_dir.now = 1_700_000_000 * SECOND
    early = data_dir.fill("t", 0, 5)
    data_dir.now += 10 * SECOND
    late = data_dir.fill("t", 0, 5)
    assert values(load(spark, data_dir, assign='{"t":[0]}', startingTimestamp="1700000000001")) == late
    assert values(load(spark, data_dir, subscribe="t", endingTimestamp="1700000005000")) == early
    by_partition = {
        "startingOffsetsByTimestamp": '{"t":{"0":1700000000001}}',
        "endingOffsetsByTimestamp": '{"t":{"0":1800000000000}}',
    }
    assert values(load(spark, data_dir, assign='{"t":[0]}', **by_partition)) == late
    never = {"subscribe": "t", "startingTimestamp": "1800000000000"}
    assert values(load(spark, data_dir, **never, startingOffsetsByTimestampStrategy="latest")) == []
    with pytest.raises(PySparkException, match="has no record at or after 1800000000000 ms"):
        load(spark, data_dir, **never).collect()
    some = load(spark, data_dir, assign='{"t":[0]}', startingOffsets='{"t":{"0":3}}', endingOffsets='{"t":{"0":7}}')
    assert values(some) == early[3:] + late[:2]
    assert load(spark, data_dir, subscribe="t", minPartitions="4").rdd.getNumPartitions() == 4
    parts = load(spark, data_dir, subscribe="t", maxRecordsPerPartition="4")
    assert parts.rdd.getNumPartitions() == 3 and values(parts) == early + late


def test_data_loss(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("t")
    kept = data_dir.fill("t", 0, 10)[4:]
    data_dir.trim("t", 0, 4)
    beginning = {"subscribe": "t", "startingOffsets": '{"t":{"0":0}}'}
    with pytest.raises(PySparkException, match="offsets 0 to 10 were to be read, but the log holds only 4 to 10"):
        load(spark, data_dir, **beginning).collect()
    assert values(load(spark, data_dir, **beginning, failOnDataLoss="false")) == kept
    assert values(load(spark, data_dir, subscribe="t")) == kept


def test_sql(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("t")
    data_dir.fill("t", 0, 7)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING penstock OPTIONS (path '{data_dir.root}', subscribe 't')")
    assert spark.sql("SELECT count(*), max(offset) FROM v").first() == (7, 6)
    spark.catalog.dropTempView("v")


def test_past_and_tail_as_one(spark: SparkSession, data_dir: DataDir) -> None:
    """Records in a table and records in the journal are one topic for the source, too."""
    data_dir.create("t", 2)
    written = data_dir.fill("t", 0, 3000) + data_dir.fill("t", 1, 20)
    data_dir.to_tables()
    written += data_dir.fill("t", 0, 30)
    assert values(load(spark, data_dir, subscribe="t")) == sorted(written)
