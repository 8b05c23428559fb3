"""`penstock.spark.table()`: the table by Spark's own reader and the tail by ours, as one topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.data_dir import SECOND, Folder

from penstock.broker.state.events import RecordsRemoved
from penstock.flight.errors import TopicMissing
from penstock.spark import table
from penstock.spark.columns import SchemaRefused
from penstock.spark.options import OptionRefused
from penstock.spark.topic_table import for_spark, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def topic(spark: SparkSession, folder: Folder, name: str = "t", **options: Any) -> DataFrame:
    return table(spark, name, **folder.options | options)


def source(spark: SparkSession, folder: Folder, name: str = "t", **options: Any) -> DataFrame:
    return spark.read.format("penstock").options(**folder.options | options).option("subscribe", name).load()


def rows(found: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in found.orderBy("partition", "offset").collect()]


def plan(found: DataFrame) -> str:
    return str(found._jdf.queryExecution().executedPlan().toString())


def test_table_and_tail_are_exactly_the_topic(spark: SparkSession, folder: Folder) -> None:
    folder.create("t", 3)
    folder.write("t", 0, [b"a", b"b"], [b"k", None], [(("h", b"1"),), ()])
    folder.fill("t", 1, 3000)
    folder.to_tables()
    folder.fill("t", 1, 5)
    folder.to_tables()
    folder.fill("t", 1, 7)  # in no table yet, and partition 2 has nothing in any
    folder.fill("t", 2, 2)
    found, expected = topic(spark, folder, includeHeaders=True), source(spark, folder, includeHeaders=True)
    assert found.schema == expected.schema
    assert rows(found) == rows(expected)
    assert "BatchScan penstock" in plan(found) and "FileScan parquet" in plan(found)
    folder.fill("t", 1, 9)
    assert found.count() == 3016  # as it was when it was asked for


def test_only_a_tail_only_a_table_and_nothing(spark: SparkSession, folder: Folder) -> None:
    folder.create("t", 2)
    assert topic(spark, folder).collect() == []
    folder.fill("t", 0, 5)
    tail = topic(spark, folder)
    assert tail.count() == 5 and "FileScan" not in plan(tail)
    folder.to_tables()
    past = topic(spark, folder)
    assert past.count() == 5 and "penstock" not in plan(past)
    assert rows(tail) == rows(past)
    assert past.schema == tail.schema


def test_columns_are_pruned_and_counting_reads_none(spark: SparkSession, folder: Folder) -> None:
    folder.create("t")
    folder.fill("t", 0, 50)
    folder.to_tables()
    found = topic(spark, folder)
    assert "ReadSchema: struct<value:binary>" in plan(found.select("value", "topic"))
    assert "ReadSchema: struct<>" in plan(found.groupBy().count())
    folder.fill("t", 0, 5)
    both = topic(spark, folder, columns=["offset", "value"])
    assert both.columns == ["offset", "value"] and both.count() == 55
    assert "ReadSchema: struct<value:binary,offset:bigint>" in plan(both)


def test_what_is_not_live_any_more_is_not_there(spark: SparkSession, folder: Folder) -> None:
    """Retention inside a file of the table, records with a time of their own, and removed ones."""
    folder.create("t", 2)
    folder.now -= 10_000 * SECOND
    folder.write("t", 0, [b"%d" % number for number in range(10)])
    at = folder.now + 9_000 * SECOND
    folder.write("t", 1, [b"never", b"past", b"future"], expires=[0, at, folder.now + 90_000 * SECOND])
    folder.to_tables()
    folder.trim("t", 0, 4)
    folder.broker.state_log.commit((RecordsRemoved(folder.id("t"), 0, [6, 7]),))
    folder._commit()
    found = topic(spark, folder)
    assert rows(found) == rows(source(spark, folder))
    values = {bytes(row.value) for row in found.collect()}
    assert values == {b"4", b"5", b"8", b"9", b"never", b"future"}


def test_a_topic_whose_records_expire(spark: SparkSession, folder: Folder) -> None:
    folder.create("t", expiry=1_000)
    folder.now -= 10_000 * SECOND
    folder.fill("t", 0, 3)
    folder.to_tables()  # an hour later
    folder.now += 6_000 * SECOND
    kept = folder.fill("t", 0, 2)
    folder.to_tables()
    folder.now -= 3_601 * SECOND
    assert [bytes(row.value) for row in topic(spark, folder).collect()] == kept


def test_the_log_can_be_anywhere(spark: SparkSession, tmp_path: Path) -> None:
    """Folders whose names Spark would take for patterns."""
    folder = Folder(tmp_path / "a b[1]{x,y}*")
    folder.create("münzen/é")
    folder.fill("münzen/é", 0, 3)
    folder.to_tables()
    folder.fill("münzen/é", 0, 3)
    found = topic(spark, folder, "münzen/é")
    assert [(row.topic, row.offset) for row in found.orderBy("offset").collect()] == [
        ("münzen/é", offset) for offset in range(6)
    ]
    folder.close()


def test_what_is_refused(spark: SparkSession, folder: Folder) -> None:
    folder.create("t")
    with pytest.raises(TopicMissing, match="'u'"):
        topic(spark, folder, "u")
    with pytest.raises(OptionRefused, match=r"'startingoffsets' has no meaning for table\(\)"):
        topic(spark, folder, startingOffsets="earliest")
    with pytest.raises(OptionRefused, match="exactly one"):
        table(spark, "t")
    with pytest.raises(SchemaRefused, match="no column 'nothing'"):
        topic(spark, folder, columns=["nothing"])


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/data/t", "file:///data/t"),
        ("file:///data/t", "file:///data/t"),
        ("s3://bucket/t", "s3a://bucket/t"),
        ("gs://bucket/t", "gs://bucket/t"),
    ],
)
def test_places_as_spark_wants_them(uri: str, expected: str) -> None:
    assert for_spark(uri) == expected
    assert literal("/a[1]{b}c") == r"/a\[1\]\{b\}c"
