"""`penstock.spark.table()`: the table by Spark's own reader and the tail by ours, as one topic."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.spark.data_dir import SECOND, DataDir

from penstock.broker.state.events import RecordsRemoved
from penstock.flight.errors import TopicMissing
from penstock.spark import table
from penstock.spark.columns import SchemaRefused
from penstock.spark.options import OptionRefused
from penstock.spark.table_location import for_spark, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def topic(spark: SparkSession, data_dir: DataDir, name: str = "t", **options: Any) -> DataFrame:
    return table(spark, name, **data_dir.options | options)


def source(spark: SparkSession, data_dir: DataDir, name: str = "t", **options: Any) -> DataFrame:
    return spark.read.format("penstock").options(**data_dir.options | options).option("subscribe", name).load()


def rows(found: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in found.orderBy("partition", "offset").collect()]


def plan(found: DataFrame) -> str:
    return str(found._jdf.queryExecution().executedPlan().toString())


def test_table_and_tail_are_exactly_the_topic(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("t", 3)
    data_dir.write("t", 0, [b"a", b"b"], [b"k", None], [(("h", b"1"),), ()], door="flymq")
    data_dir.fill("t", 1, 3000)
    data_dir.to_tables()
    data_dir.fill("t", 1, 5)
    data_dir.to_tables()
    data_dir.fill("t", 1, 7)  # in no table yet, and partition 2 has nothing in any
    data_dir.fill("t", 2, 2)
    data_dir.write("t", 2, [b"c"], door="rustlog")
    more: dict[str, Any] = {"includeHeaders": True, "includeDoor": True}
    found, expected = topic(spark, data_dir, **more), source(spark, data_dir, **more)
    assert found.schema == expected.schema
    assert rows(found) == rows(expected)
    assert [row[-1] for row in rows(found)] == ["flymq"] * 2 + [None] * 3014 + ["rustlog"]
    assert "BatchScan penstock" in plan(found) and "FileScan parquet" in plan(found)
    data_dir.fill("t", 1, 9)
    assert found.count() == 3017  # as it was when it was asked for


def test_only_a_tail_only_a_table_and_nothing(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("t", 2)
    assert topic(spark, data_dir).collect() == []
    data_dir.fill("t", 0, 5)
    tail = topic(spark, data_dir)
    assert tail.count() == 5 and "FileScan" not in plan(tail)
    data_dir.to_tables()
    past = topic(spark, data_dir)
    assert past.count() == 5 and "penstock" not in plan(past)
    assert rows(tail) == rows(past)
    assert past.schema == tail.schema


def test_columns_are_pruned_and_counting_reads_none(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("t")
    data_dir.fill("t", 0, 50)
    data_dir.to_tables()
    found = topic(spark, data_dir)
    assert "ReadSchema: struct<value:binary>" in plan(found.select("value", "topic"))
    assert "ReadSchema: struct<>" in plan(found.groupBy().count())
    data_dir.fill("t", 0, 5)
    both = topic(spark, data_dir, columns=["offset", "value"])
    assert both.columns == ["offset", "value"] and both.count() == 55
    assert "ReadSchema: struct<value:binary,offset:bigint>" in plan(both)


def test_what_is_not_live_any_more_is_not_there(spark: SparkSession, data_dir: DataDir) -> None:
    """Retention inside a file of the table, records with a time of their own, and removed ones."""
    data_dir.create("t", 2)
    data_dir.now -= 10_000 * SECOND
    data_dir.write("t", 0, [b"%d" % number for number in range(10)])
    at = data_dir.now + 9_000 * SECOND
    data_dir.write("t", 1, [b"never", b"past", b"future"], expires=[0, at, data_dir.now + 90_000 * SECOND])
    for _ in range(4):  # hours later: the first file is as old as the directory
        data_dir.to_tables()
    data_dir.trim("t", 0, 4)
    data_dir.broker.state_log.commit((RecordsRemoved(data_dir.id("t"), 0, [6, 7]),))
    data_dir.commit()
    found = topic(spark, data_dir)
    assert "penstock" not in plan(found)
    assert rows(found) == rows(source(spark, data_dir))
    values = {bytes(row.value) for row in found.collect()}
    assert values == {b"4", b"5", b"8", b"9", b"never", b"future"}


def test_only_files_with_rows_that_are_gone_are_filtered(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("t")
    for _ in range(2):
        data_dir.fill("t", 0, 50)
        data_dir.to_tables()
    assert " Filter " not in plan(topic(spark, data_dir))
    data_dir.trim("t", 0, 10)
    found = topic(spark, data_dir)
    counting = plan(found.groupBy().count())
    assert counting.count("FileScan parquet") == 2 and counting.count("ReadSchema: struct<>") == 1
    assert found.count() == 90 and rows(found) == rows(source(spark, data_dir))
    data_dir.broker.state_log.commit((RecordsRemoved(data_dir.id("t"), 0, [70]),))
    data_dir.commit()
    data_dir.fill("t", 0, 5)  # in no table yet
    assert rows(topic(spark, data_dir)) == rows(source(spark, data_dir))
    assert topic(spark, data_dir).count() == 94


def test_a_topic_whose_records_expire(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("t", expiry=1_000)
    data_dir.now -= 10_000 * SECOND
    data_dir.fill("t", 0, 3)
    data_dir.to_tables()  # an hour later
    data_dir.now += 6_000 * SECOND
    kept = data_dir.fill("t", 0, 2)
    data_dir.to_tables()
    data_dir.now -= 3_601 * SECOND
    assert [bytes(row.value) for row in topic(spark, data_dir).collect()] == kept


def test_the_log_can_be_anywhere(spark: SparkSession, tmp_path: Path) -> None:
    """Folders whose names Spark would take for patterns."""
    data_dir = DataDir(tmp_path / "a b[1]{x,y}*")
    data_dir.create("münzen/é")
    data_dir.fill("münzen/é", 0, 3)
    data_dir.to_tables()
    data_dir.fill("münzen/é", 0, 3)
    found = topic(spark, data_dir, "münzen/é")
    assert [(row.topic, row.offset) for row in found.orderBy("offset").collect()] == [
        ("münzen/é", offset) for offset in range(6)
    ]
    data_dir.close()


def test_what_is_refused(spark: SparkSession, data_dir: DataDir) -> None:
    data_dir.create("t")
    with pytest.raises(TopicMissing, match="'u'"):
        topic(spark, data_dir, "u")
    with pytest.raises(OptionRefused, match=r"'startingoffsets' has no meaning for table\(\)"):
        topic(spark, data_dir, startingOffsets="earliest")
    with pytest.raises(OptionRefused, match="exactly one"):
        table(spark, "t")
    with pytest.raises(OptionRefused, match="has no table yet, so there is no older version"):
        table(spark, "t", version=0, **data_dir.options)
    with pytest.raises(SchemaRefused, match="no column 'nothing'"):
        topic(spark, data_dir, columns=["nothing"])


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


def test_a_flipped_bit_of_a_table_is_never_a_row(spark: SparkSession, data_dir: DataDir) -> None:
    """By Spark's own reader, in every region of a file: page headers, pages, footer. The sidecar tells it."""
    data_dir.create("t", 1)
    random = Random(1)
    data_dir.write("t", 0, [random.randbytes(20) for _ in range(500)])
    data_dir.to_tables()
    expected = rows(topic(spark, data_dir))
    (file,) = data_dir.root.rglob("partition=0/*.parquet")
    whole, column = file.read_bytes(), pq.read_metadata(file).row_group(0).column(1)
    page = column.data_page_offset
    for at in (page + 5, page + 3000, len(whole) - 300, len(whole) - 6):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :])
        with pytest.raises(Exception, match=file.name):
            rows(topic(spark, data_dir))
    file.write_bytes(whole)
    assert rows(topic(spark, data_dir)) == expected
    file.with_name(f".{file.name}.crc").unlink()  # as in an object store, where pages have checksums
    file.write_bytes(whole[: page + 3000] + bytes([whole[page + 3000] ^ 2]) + whole[page + 3001 :])
    with pytest.raises(Exception, match=f"(?s){file.name}.*checksum"):
        rows(topic(spark, data_dir))
