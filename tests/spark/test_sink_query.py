"""`format("penstock")` as a sink: a running Spark, a real broker, and its other doors to see what came of it."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so
from tests.launcher import BrokerProcess

from penstock.clients.flymq import Client as FlyMqClient
from penstock.clients.rustlog import Client as RustLogClient
from penstock.flight.connect import connect, disconnect
from penstock.flight.log import TopicPartition
from penstock.spark import LagListener, into_topic, source_lags
from penstock.spark.lag import SourceLag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHT = ("--listen", "flight=127.0.0.1:0")


class Place:
    """A broker process, and what is in it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.broker = BrokerProcess(data, *FLIGHT).ready()
        self.server = self.broker.address("flight")

    @property
    def options(self) -> dict[str, str]:
        return {"bootstrap.servers": self.server}

    def create(self, topic: str, partitions: int = 1) -> None:
        with RustLogClient(*self.broker.endpoint("rustlog")) as client:
            client.create_topic(topic, partitions)

    def records(self, topic: str, *columns: str) -> list[dict[str, Any]]:
        """By partition and offset."""
        log = connect(self.options)
        rows: list[dict[str, Any]] = []
        for place, bounds in sorted(log.bounds([topic]).items()):
            for batch in log.read(TopicPartition(*place), bounds.start, bounds.high_watermark, columns):
                rows += batch.to_pylist()
        return rows

    def values(self, topic: str) -> list[str]:
        return [row["value"].decode() for row in self.records(topic, "value")]

    def staged(self) -> list[str]:
        """The staged files. The broker removes them a little later than it replies."""
        data_dir = self.data / "staging"
        return [path.name for path in data_dir.iterdir()] if data_dir.exists() else []

    def kill_and_start(self) -> None:
        self.broker.signal(signal.SIGKILL)
        self.broker.finish()
        self.broker = BrokerProcess(self.data, "--listen", f"flight={self.server}").ready()

    def close(self) -> None:
        disconnect()
        self.broker.__exit__(None, None, None)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("data"))
    yield made
    made.close()


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def write(df: DataFrame, place: Place, **options: str) -> None:
    df.write.format("penstock").options(**place.options, **options).mode("append").save()


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).select(F.col("id").cast("string").alias("value"))


# -- batches


def test_a_batch_reaches_the_other_doors(spark: SparkSession, place: Place) -> None:
    place.create("plain", 3)
    headers = F.array(F.struct(F.lit("n").alias("key"), F.col("value").cast("binary").alias("value")))
    df = numbers(spark, 100).withColumn("key", F.concat(F.lit("k"), F.col("value"))).withColumn("headers", headers)
    write(df, place, topic="plain")
    rows = place.records("plain", "key", "value", "headers", "partition", "offset")
    assert sorted(int(row["value"]) for row in rows) == list(range(100))
    for row in rows:
        assert row["key"] == b"k" + row["value"]
        assert row["headers"] == [{"key": "n", "value": row["value"]}]
    with FlyMqClient(*place.broker.endpoint("flymq")) as client:
        where = {row["key"]: row["partition"] for row in rows}
        for number in range(20):  # keys go where any other producer's go
            key = b"k%d" % number
            assert client.produce("plain", b"more", key).partition == where[key]
    with RustLogClient(*place.broker.endpoint("rustlog")) as client:
        seen = client.fetch("plain", 0, 0)
        mine = [row["value"] for row in rows if row["partition"] == 0]
        assert [record.payload for record in seen.records][: len(mine)] == mine
    assert {row["partition"] for row in rows} == {0, 1, 2}


def test_topic_and_partition_by_row(spark: SparkSession, place: Place) -> None:
    for topic in ("even", "odd"):
        place.create(topic, 2)
    parity = F.when(F.col("value").cast("int") % 2 == 0, "even").otherwise("odd")
    where = F.when(F.col("value") == "7", F.lit(None)).otherwise((F.col("value").cast("int") % 4 >= 2).cast("int"))
    write(numbers(spark, 20).withColumn("topic", parity).withColumn("partition", where), place)
    for topic, rest in (("even", 0), ("odd", 1)):
        rows = {int(row["value"]): row["partition"] for row in place.records(topic, "value", "partition")}
        assert sorted(rows) == list(range(rest, 20, 2))
        assert all(rows[n] == int(n % 4 >= 2) for n in rows if n != 7)


def test_the_option_topic_wins(spark: SparkSession, place: Place) -> None:
    write(numbers(spark, 3).withColumn("topic", F.lit("nowhere")), place, topic="somewhere")
    assert sorted(place.values("somewhere")) == ["0", "1", "2"]
    assert "nowhere" not in connect(place.options).topics()


def test_a_batch_that_is_numbered_is_there_once(spark: SparkSession, place: Place) -> None:
    for version in ("1", "1", "0", "2"):
        write(numbers(spark, 5), place, topic="numbered", txnAppId="me", txnVersion=version)
    assert sorted(place.values("numbered")) == sorted("01234" * 2)
    write(numbers(spark, 0), place, topic="numbered")
    assert len(place.values("numbered")) == 10


@pytest.mark.parametrize(
    ("change", "options", "mode", "said"),
    [
        ({"id": "1"}, {"topic": "t"}, "append", "to_json(struct('*'))"),
        ({}, {}, "append", "give option('topic', NAME)"),
        ({}, {"topic": "t"}, "overwrite", "mode('append')"),
        ({"value": "CAST(NULL AS STRING)"}, {"topic": "unborn"}, "append", "topic 'unborn' has no value"),
        ({"partition": "99"}, {"topic": "narrow"}, "append", "99"),
        ({}, {"topic": "__audit"}, "append", "__audit"),
        ({}, {"topic": "t", "txnVersion": "1"}, "append", "'txnAppId' is not"),
    ],
)
def test_refusals_reach_the_user(
    spark: SparkSession, place: Place, change: dict[str, str], options: dict[str, str], mode: str, said: str
) -> None:
    df = numbers(spark, 1, 1).withColumns({name: F.expr(text) for name, text in change.items()})
    with pytest.raises(Exception) as raised:
        df.write.format("penstock").options(**place.options, **options).mode(mode).save()
    assert said in str(raised.value)
    assert "unborn" not in connect(place.options).topics()


# -- tasks that fail


def failing(attempts: int, task: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task fails after its rows, so many times."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == task and context.attemptNumber() < attempts:
            raise RuntimeError("planted")

    return rows


def test_a_task_that_is_tried_again_writes_once(spark: SparkSession, place: Place) -> None:
    write(numbers(spark, 100).mapInArrow(failing(1, task=1), "value string"), place, topic="again")
    assert Counter(place.values("again")) == Counter(map(str, range(100)))


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, place: Place) -> None:
    place.create("nothing")
    # One task: another one could be killed in the midst of staging, and what it left goes with the hourly cleaning.
    with pytest.raises(Exception, match="planted"):
        write(numbers(spark, 100, 1).mapInArrow(failing(9, task=0), "value string"), place, topic="nothing")
    assert place.values("nothing") == []
    eventually(lambda: place.staged() == [])


# -- streams


def lines(data_dir: Path, name: str, numbers: Iterable[int]) -> None:
    """A file for a stream of files, which begins each micro-batch with one."""
    (data_dir / f".{name}").write_text("".join(f"{number}\n" for number in numbers))
    (data_dir / f".{name}").rename(data_dir / name)


def stream(spark: SparkSession, data_dir: Path, place: Place, checkpoint: Path, **options: str) -> Any:
    source = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(data_dir))
    writer = source.writeStream.format("penstock").options(**place.options, **options)
    return writer.option("checkpointLocation", str(checkpoint))


def test_a_micro_batch_that_is_replayed_is_there_once(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    files, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    files.mkdir()
    for number in range(3):
        lines(files, f"{number}", range(number * 10, number * 10 + 10))
    query = stream(spark, files, place, checkpoint, topic="replayed").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert Counter(place.values("replayed")) == Counter(map(str, range(30)))
    for kept in (checkpoint / "commits" / "2", checkpoint / "commits" / ".2.crc"):
        kept.unlink(missing_ok=True)  # as if Spark had died right before it wrote that down
    lines(files, "3", range(30, 35))
    query = stream(spark, files, place, checkpoint, topic="replayed").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert Counter(place.values("replayed")) == Counter(map(str, range(35)))
    eventually(lambda: place.staged() == [])


def test_a_stream_outlives_its_broker(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    files = tmp_path / "in"
    files.mkdir()
    query = stream(spark, files, place, tmp_path / "checkpoint", topic="outlived").start()
    try:
        lines(files, "0", range(100))
        eventually(lambda: len(place.values("outlived")) == 100)
        killer = threading.Thread(target=place.kill_and_start)
        killer.start()
        for number in range(1, 4):
            lines(files, f"{number}", range(number * 100, number * 100 + 100))
        killer.join()
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
    assert Counter(place.values("outlived")) == Counter(map(str, range(400)))


def test_a_stream_cannot_write_its_whole_result_anew(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines(tmp_path / "in", "0", range(3))
    counts = spark.readStream.text(str(tmp_path / "in")).groupBy().agg(F.count("*").cast("string").alias("value"))
    writer = counts.writeStream.format("penstock").options(**place.options, topic="whole").outputMode("complete")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match=r"outputMode\('append'\)"):
        query.awaitTermination(120)


def test_each_batch_by_hand(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    """`foreachBatch` with the options that make a batch known, as for Delta."""
    (tmp_path / "in").mkdir()
    lines(tmp_path / "in", "0", range(3))
    options = place.options

    def twice(df: DataFrame, batch: int) -> None:
        for _ in range(2):
            whole = df.select(F.to_json(F.struct("*")).alias("value"))
            numbered = {"txnAppId": "by-hand", "txnVersion": str(batch), "topic": "by-hand"}
            whole.write.format("penstock").options(**options, **numbered).mode("append").save()

    source = spark.readStream.text(str(tmp_path / "in"))
    query = source.writeStream.foreachBatch(twice).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert sorted(json.loads(value)["value"] for value in place.values("by-hand")) == ["0", "1", "2"]


# -- any output mode, and values that are null


def test_update_and_complete_mode_into_a_keyed_topic_once(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    place.create("clicks")
    write(numbers(spark, 6, 1), place, topic="clicks")
    counts = (
        spark.readStream.format("penstock")
        .options(**place.options, subscribe="clicks", startingOffsets="earliest", maxOffsetsPerTrigger="4")
        .load()
        .groupBy((F.col("value").cast("string").cast("int") % 2).alias("odd"))
        .count()
        .select(F.col("odd").cast("string").alias("key"), F.col("count").cast("string").alias("value"))
    )
    written = {"update": 4, "complete": 4}
    for mode, number in written.items():
        place.create(mode)
        into = into_topic(mode, app="counts", **place.options)
        for again in (False, True):
            writer = counts.writeStream.outputMode(mode).foreachBatch(into)
            writer = writer.option("checkpointLocation", str(tmp_path / mode)).trigger(availableNow=True)
            writer.start().awaitTermination()
            if not again:  # as if the process had been killed before it could note that the last batch is done
                last = max(int(path.name) for path in (tmp_path / mode / "commits").iterdir() if path.name.isdigit())
                for name in (f"{last}", f".{last}.crc"):
                    (tmp_path / mode / "commits" / name).unlink(missing_ok=True)
        rows = place.records(mode, "key", "value")
        assert len(rows) == number
        assert {row["key"]: row["value"] for row in rows} == {b"0": b"3", b"1": b"3"}  # the last of each key holds


def test_a_null_value_is_an_empty_one_if_both_sides_say_so(spark: SparkSession, place: Place) -> None:
    place.create("deletes")
    df = spark.createDataFrame([("a", None), ("b", "x")], "key string, value string").coalesce(1)
    write(df, place, topic="deletes", nullValues="empty")
    assert [row["value"] for row in place.records("deletes", "value")] == [b"", b"x"]
    reader = spark.read.format("penstock").options(**place.options, subscribe="deletes")
    assert [row.value and bytes(row.value) for row in reader.load().orderBy("offset").collect()] == [bytearray(), b"x"]
    nulls = reader.option("emptyValues", "null").load().where("value IS NULL").collect()
    assert [bytes(row.key) for row in nulls] == [b"a"]


def test_sql_reads_a_topic_by_a_view_or_a_table_and_writes_by_one_with_columns(
    spark: SparkSession, place: Place
) -> None:
    place.create("seen")
    options = f"'bootstrap.servers' = '{place.server}'"
    spark.sql("CREATE TABLE into_topics (value STRING, key BINARY) USING penstock")
    insert = f"INSERT INTO into_topics WITH ({options}, topic = 'seen')"
    spark.sql(f"{insert} SELECT CAST(id AS STRING), NULL FROM range(4)")
    spark.sql(f"{insert} (value) VALUES ('more')")
    spark.sql(f"CREATE TEMPORARY VIEW seen USING penstock OPTIONS ({options}, subscribe = 'seen')")
    spark.sql(f"CREATE TABLE seen_table USING penstock OPTIONS ({options}, subscribe = 'seen')")
    for name in ("seen", "seen_table"):
        rows = spark.sql(f"SELECT CAST(value AS STRING) FROM {name}").collect()
        assert sorted(row.value for row in rows) == ["0", "1", "2", "3", "more"]
    with pytest.raises(PySparkException, match=r"INSERT INTO name WITH \('bootstrap\.servers'"):
        spark.sql("INSERT INTO seen_table (value) VALUES (X'41')")
    with pytest.raises(PySparkException, match="A log is only ever added to"):
        spark.sql(f"INSERT OVERWRITE into_topics WITH ({options}, topic = 'seen') VALUES ('x', NULL)")
    assert len(place.values("seen")) == 5
    for name in ("into_topics", "seen_table"):
        spark.sql(f"DROP TABLE {name}")
    spark.catalog.dropTempView("seen")


def test_lag_and_topics_are_told_of_every_batch(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    place.create("behind", 2)
    write(
        numbers(spark, 10).withColumn("partition", (F.col("value").cast("int") % 2).cast("int")), place, topic="behind"
    )
    told: list[tuple[str, list[SourceLag]]] = []
    listener = LagListener(lambda name, lags: told.append((name, lags)))
    spark.streams.addListener(listener)
    try:
        reader = spark.readStream.format("penstock").options(**place.options, subscribe="behind")
        stream = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="4").load()
        writer = stream.writeStream.queryName("late").foreachBatch(lambda _rows, _batch: None)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination()
        eventually(lambda: len(told) >= 3)
    finally:
        spark.streams.removeListener(listener)
    assert {name for name, _ in told} == {"late"}
    assert [sum(lag.offsets_behind.values()) for _, [lag] in told[:3]] == [6, 2, 0]
    assert told[0][1][0].description == "penstock[behind]"
    assert told[0][1][0].metrics() == {
        "minOffsetsBehindLatest": "3",
        "maxOffsetsBehindLatest": "3",
        "avgOffsetsBehindLatest": "3.0",
    }
    assert source_lags(query.lastProgress)[0].metrics()["maxOffsetsBehindLatest"] == "0"
