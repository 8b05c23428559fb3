"""The readers as Spark calls them, without Spark: against a log in memory."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType
from tests.spark.fake_log import FakeLog

from penstock.flight.errors import LogUnavailable, TopicMissing
from penstock.flight.log import TopicPartition
from penstock.spark import source
from penstock.spark.columns import MOST_BYTES, TYPES, SchemaRefused, evened, full_schema
from penstock.spark.offsets import decode
from penstock.spark.options import OptionRefused, batch_options
from penstock.spark.planning import DataLost
from penstock.spark.source import PenstockDataSource, PenstockReader, PenstockStreamReader, read_range

BROKER = {"bootstrap.servers": "h:1"}
FULL = full_schema()
ALL = ReadAllAvailable()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> FakeLog:
    made = FakeLog(a=2)
    made.add("a", 0, 100)
    made.add("a", 1, 100)
    monkeypatch.setattr(source, "open_log", lambda _: made)
    return made


def reader(schema: StructType = FULL, **options: str) -> PenstockReader:
    return PenstockReader(schema, {"subscribe": "a"} | BROKER | {name.lower(): text for name, text in options.items()})


def stream(schema: StructType = FULL, **options: str) -> PenstockStreamReader:
    given = {"subscribe": "a"} | BROKER | {name.lower(): text for name, text in options.items()}
    return PenstockStreamReader(schema, given)


def through_json(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def rows(reader: PenstockReader | PenstockStreamReader, tasks: list[InputPartition]) -> list[bytes]:
    """As workers read them: each with a copy of the reader that never saw the driver's."""
    found: list[bytes] = []
    for task in tasks:
        worker = pickle.loads(pickle.dumps(reader))
        for batch in worker.read(pickle.loads(pickle.dumps(task))):
            found += batch.column("value").to_pylist()
    return found


def drive(reader: PenstockStreamReader, start: dict[str, Any] | None, limit: ReadLimit = ALL) -> Iterator[list[bytes]]:
    """The micro-batches of a query, asked for in Spark's order and through its JSON, until nothing is new."""
    start = through_json(reader.initialOffset()) if start is None else start
    while (end := through_json(reader.latestOffset(start, limit))) != start:
        reader.initialOffset()
        yield rows(reader, reader.partitions(start, end))
        start = end


def test_a_batch(log: FakeLog) -> None:
    one = reader()
    tasks = one.partitions()
    assert len(tasks) == 2
    assert sorted(rows(one, tasks)) == sorted(log.records[TopicPartition("a", 0)] + log.records[TopicPartition("a", 1)])


def test_nothing_to_read_is_one_task_with_nothing_to_do(log: FakeLog) -> None:
    log.create("empty", 1)
    one = reader(subscribe="empty")
    assert one.partitions() == []
    assert rows(one, [InputPartition(None)]) == []


def columns(*names: str, nullable: bool = True) -> StructType:
    return StructType([StructField(name, TYPES[name], nullable) for name in names])


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    "schema",
    [
        FULL,
        columns("offset", "value"),
        columns("timestampType"),
        columns("headers", "key"),
        columns("door"),
        columns("value", "offset", nullable=False),
        StructType([StructField("value", StringType()), StructField("key", StringType())]),
    ],
    ids=lambda schema: ",".join(schema.names),
)
def test_batches_are_typed_exactly_as_spark_wants_them(schema: StructType) -> None:
    one = reader(schema)
    batches = list(one.read(one.partitions()[0]))
    assert sum(batch.num_rows for batch in batches) == 100
    for batch in batches:
        assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    if "timestampType" in schema.names:
        assert set(batches[0].column("timestampType").to_pylist()) == {1}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (StructType([StructField("value", IntegerType())]), "Column 'value' is binary, not int"),
        (StructType([StructField("topic", BinaryType())]), "Column 'topic' is string, not binary"),
        (StructType([StructField("id", IntegerType())]), "There is no column 'id'"),
        (StructType([StructField("Value", BinaryType())]), "There is no column 'Value'"),
        (columns("value", "value"), "'value' is there twice"),
        (StructType([StructField("offset", IntegerType())]), "Column 'offset' is bigint, not int"),
        (columns("key", nullable=False), "may be null"),
        (StructType([StructField("headers", StringType())]), "is array<struct<key:string,value:binary>>, not string"),
        (StructType([]), "no column"),
    ],
)
def test_other_schemas_are_refused(log: FakeLog, schema: StructType, said: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        reader(schema)
    assert said in str(refused.value)
    with pytest.raises(SchemaRefused):
        stream(schema).initialOffset()  # not before: Spark would hide it
    assert log.calls == []


def test_the_source_says_its_columns() -> None:
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert PenstockDataSource({}).schema().names == names
    assert PenstockDataSource({"includeheaders": "true"}).schema().names == [*names, "headers"]
    assert PenstockDataSource({"includedoor": "true"}).schema().names == [*names, "door"]
    assert PenstockDataSource.name() == "penstock"


@pytest.mark.usefixtures("log")
def test_a_value_that_may_be_null_is_not_asked_for_as_one_that_is_not() -> None:
    strict = StructType([StructField("value", BinaryType(), nullable=False)])
    assert len(rows(reader(strict), reader(strict).partitions())) == 200
    with pytest.raises(SchemaRefused, match="'value' may be null"):
        reader(strict, emptyValues="null")
    with pytest.raises(SchemaRefused, match="'value' may be null"):
        stream(strict, emptyValues="null").initialOffset()


def test_a_broker_that_is_away_for_a_moment(log: FakeLog) -> None:
    log.outages = 3
    one = reader()
    tasks = one.partitions()
    log.outages = 2
    assert len(rows(one, tasks)) == 200
    log.outages = 1000
    with pytest.raises(LogUnavailable):
        reader(retryTimeout="50ms").partitions()


def test_a_broker_that_goes_while_it_is_read_from(log: FakeLog) -> None:
    """The reading goes on behind the last record that came, whatever columns were asked for."""
    one = reader(columns("value"))
    (task, _) = one.partitions()
    batches = read_range(lambda: log, task.value, ["value", "offset"], batch_options({"subscribe": "a"} | BROKER))
    found: list[bytes] = []
    for batch in batches:
        found += batch.column("value").to_pylist()
        log.outages = 2 if len(found) % 4 == 0 else 0
    assert found == log.records[TopicPartition("a", 0)]
    assert log.calls.count("read") > 10
    assert [batch.schema.names for batch in one.read(task)] == [["value"]]


def test_a_topic_that_goes_between_plan_and_read(log: FakeLog) -> None:
    strict, lenient = reader(), reader(failOnDataLoss="false")
    tasks = strict.partitions()
    log.delete("a")
    with pytest.raises(DataLost, match="no topic a"):
        rows(strict, tasks)
    assert rows(lenient, tasks) == []


def test_a_record_that_goes_between_plan_and_read(log: FakeLog) -> None:
    strict, lenient = reader(), reader(failOnDataLoss="false")
    tasks = strict.partitions()
    log.trim("a", 0, 60)
    with pytest.raises(DataLost, match=r"begins at 60.*failOnDataLoss"):
        rows(strict, tasks)
    assert len(rows(lenient, tasks)) == 140


# Streams


def test_the_beginning_is_a_symbol_and_goes_with_the_first_end(log: FakeLog) -> None:
    one = stream()
    start = one.initialOffset()
    assert start == {"/start": "latest"}
    log.add("a", 0, 5)
    first = through_json(one.latestOffset(start, ALL))
    assert first == {"/from": {"a": {"0": 105, "1": 100}}, "a": {"0": 105, "1": 100}}
    assert one.partitions(start, first) == []
    log.add("a", 0, 5)
    assert one.initialOffset() == start
    second = one.latestOffset(first, ALL)
    assert second == {"/from": {"a": {"0": 105, "1": 100}}, "a": {"0": 110, "1": 100}}
    assert len(rows(one, one.partitions(first, second))) == 5
    assert one.latestOffset(second, ALL) is second  # unchanged, to the letter


def test_latest_loses_nothing_between_two_calls(log: FakeLog) -> None:
    """Spark asks for the beginning again after it has the end; records that came meanwhile must not be skipped."""
    one = stream()
    begun = one.latestOffset(one.initialOffset(), ALL)
    log.add("a", 0, 5)
    end = one.latestOffset(begun, ALL)
    log.add("a", 0, 5)
    assert len(rows(one, one.partitions(begun, end))) == 5


def test_the_first_micro_batch_replayed_by_another_process(log: FakeLog) -> None:
    one = stream(startingOffsets="earliest", maxOffsetsPerTrigger="30")
    start = one.initialOffset()
    end = through_json(one.latestOffset(start, ReadMaxRows(30)))
    once = rows(one, one.partitions(start, end))
    log.add("a", 0, 50)
    again = stream(startingOffsets="latest")  # even if somebody changed the option
    assert rows(again, again.partitions(again.initialOffset(), end)) == once
    assert len(once) == 30


def test_available_now_in_steps_to_where_the_log_ended(log: FakeLog) -> None:
    one = stream(startingOffsets="earliest", maxOffsetsPerTrigger="80", minOffsetsPerTrigger="70")
    one.prepareForTriggerAvailableNow()
    log.add("a", 0, 1000)
    log.create("a", 3)
    log.add("a", 2, 10)
    batches = list(drive(one, None, one.getDefaultReadLimit()))
    assert [len(batch) for batch in batches] == [80, 80, 40]  # the last is below the least, and is not waited for
    assert len(set().union(*batches)) == 200


@pytest.mark.usefixtures("log")
def test_limits_that_spark_is_told() -> None:
    assert stream().getDefaultReadLimit() == ReadAllAvailable()
    assert stream(maxOffsetsPerTrigger="5", maxBytesPerTrigger="9").getDefaultReadLimit() == ReadMaxRows(5)
    assert stream(maxBytesPerTrigger="9").getDefaultReadLimit() == ReadMaxBytes(9)
    assert stream(minOffsetsPerTrigger="9").getDefaultReadLimit() == ReadMinRows(9)
    everything = stream(startingOffsets="earliest", maxOffsetsPerTrigger="5")
    assert [len(batch) for batch in drive(everything, None, ALL)] == [200]  # Trigger.Once reads all


def test_too_little_to_go_on_but_the_beginning_is_kept(log: FakeLog) -> None:
    one = stream(minOffsetsPerTrigger="10")
    limit = one.getDefaultReadLimit()
    first = one.latestOffset(one.initialOffset(), limit)
    log.add("a", 0, 9)
    assert one.latestOffset(first, limit) is first
    log.add("a", 1, 1)
    assert decode(one.latestOffset(first, limit)) == {TopicPartition("a", 0): 109, TopicPartition("a", 1): 101}


def test_a_checkpoint_of_an_earlier_version_goes_on_without_its_origin(log: FakeLog) -> None:
    one = stream()
    log.add("a", 0, 5)
    assert one.latestOffset({"a": {"0": 100, "1": 100}}, ALL) == {"a": {"0": 105, "1": 100}}


def test_a_pattern_that_matches_nothing_yet(log: FakeLog) -> None:
    one = PenstockStreamReader(FULL, BROKER | {"subscribepattern": "new.*"})
    first = through_json(one.latestOffset(one.initialOffset(), ALL))
    assert first == {"/from": {}}
    assert one.latestOffset(first, ALL) is first
    log.create("newest", 1)
    log.add("newest", 0, 4)
    end = one.latestOffset(first, ALL)
    assert rows(one, one.partitions(first, end)) == log.records[TopicPartition("newest", 0)]


@pytest.mark.usefixtures("log")
def test_a_subscribed_topic_that_is_not_there() -> None:
    one = stream(subscribe="a,b")
    with pytest.raises(TopicMissing, match="no topic 'b'"):
        one.latestOffset(one.initialOffset(), ALL)


@pytest.mark.usefixtures("log")
def test_what_is_there_is_reported() -> None:
    one = stream(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert one.reportLatestOffset() is None
    one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())
    assert one.reportLatestOffset() == {"a": {"0": 100, "1": 100}}


def test_progress_of_a_group(log: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    one = stream(FULL, startingOffsets="earliest", maxOffsetsPerTrigger="50", **{"group.id": "g"})
    start = one.initialOffset()
    end = one.latestOffset(start, ReadMaxRows(50))
    assert log.groups == {}  # nothing is done yet
    log.outages = 1
    end = one.latestOffset(end, ReadMaxRows(50))
    assert "could not be kept" in caplog.text
    after = one.latestOffset(end, ReadMaxRows(50))
    assert log.groups == {"g": {TopicPartition("a", 0): 50, TopicPartition("a", 1): 50}}
    one.commit(end)
    assert log.calls.count("commit-offsets") == 2  # not twice for the same
    one.commit(after)
    assert log.groups["g"][TopicPartition("a", 0)] == 75


def test_data_loss_in_a_stream(log: FakeLog) -> None:
    strict, lenient = stream(), stream(failOnDataLoss="false")
    start = {"a": {"0": 10, "1": 90}}
    log.trim("a", 0, 40)
    with pytest.raises(DataLost, match="retention removed 30 records"):
        strict.latestOffset(start, ALL)
    assert [len(batch) for batch in drive(lenient, start)] == [70]


@pytest.mark.usefixtures("log")
def test_options_are_refused_where_spark_shows_it() -> None:
    with pytest.raises(OptionRefused):
        stream(maxOffsetsPerTrigger="many").initialOffset()


def test_small_batches_are_merged_and_large_ones_cut(log: FakeLog) -> None:
    log.add("a", 0, 40_000)
    log.batch_rows = 100
    one = reader()
    sizes = [batch.num_rows for batch in one.read(one.partitions()[0])]
    assert sum(sizes) == 40_100 and min(sizes[:-1]) >= 2_048 and max(sizes) <= 65_536
    log.add("a", 0, 100_000)
    log.batch_rows = 1 << 20
    sizes = [batch.num_rows for batch in one.read(one.partitions()[0])]
    assert sum(sizes) == 140_100 and max(sizes) <= 65_536


def test_large_values_do_not_make_large_batches() -> None:
    big = pa.record_batch({"value": [b"x" * (6 << 20)] * 12})
    pieces = list(evened([big] * 2))
    assert sum(piece.num_rows for piece in pieces) == 24
    assert max(piece.nbytes for piece in pieces) <= MOST_BYTES
