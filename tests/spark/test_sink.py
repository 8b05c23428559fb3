"""The sink without Spark: what may be written, how it reaches the log, and that it does so once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, LongType, MapType, StringType, StructType

from penstock.flight.errors import LogUnavailable, RequestRefused
from penstock.flight.log import Published, Staged
from penstock.spark import sink
from penstock.spark.columns import HEADERS as HEADER_TYPE
from penstock.spark.options import OptionRefused
from penstock.spark.sink import PenstockStreamWriter, PenstockWriter, TaskCommit, pieces
from penstock.spark.sink_columns import ColumnsRefused, RowRefused, SinkConverter, check_columns
from penstock.spark.sink_options import batch_options, stream_options

SERVER = {"bootstrap.servers": "localhost:1"}
TOPIC = {**SERVER, "topic": "t"}


KINDS: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "map<string,binary>": MapType(StringType(), BinaryType()),
    "array<struct<key:string,value:binary>>": HEADER_TYPE,
    "array<struct<key:string,value:string>>": ArrayType(StructType().add("key", "string").add("value", "string")),
}


def columns(text: str) -> StructType:
    """As Spark has it: its own parser needs a session."""
    schema = StructType()
    for field in text.split(", "):
        name, kind = field.split(" ")
        schema.add(name, KINDS[kind])
    return schema


class FakeSink:
    """A log that is only written to, with a broker's memory of what was published."""

    def __init__(self) -> None:
        self.staged: dict[str, tuple[str, int, str, str | None, pa.Table]] = {}
        self.published: dict[str, int] = {}
        self.rows: list[dict[str, Any]] = []
        self.discarded: list[str] = []
        self.outages: list[str] = []  # the next calls that fail: before they did anything, or after

    def _fails(self, when: str) -> None:
        if self.outages and self.outages[0] == when:
            self.outages.pop(0)
            raise LogUnavailable("no broker answers")

    def stage(
        self, app: str, batch: int, task: str, topic: str | None, batches: Iterator[pa.RecordBatch], schema: pa.Schema
    ) -> Staged:
        taken = []
        for one in batches:
            taken.append(one)
            self._fails("midway")
        ref = f"ref{len(self.staged)}"
        self.staged[ref] = app, batch, task, topic, pa.Table.from_batches(taken, schema)
        self._fails("after")
        return Staged(ref, self.staged[ref][4].num_rows)

    def publish(self, app: str, batch: int, refs: Sequence[str]) -> Published:
        self._fails("before")
        if batch <= self.published.get(app, -1):
            return Published(0, True)
        self.published[app] = batch
        added = [row for ref in refs for row in self.staged[ref][4].to_pylist()]
        self.rows += added
        self._fails("after")
        return Published(len(added), False)

    def discard(self, app: str, batch: int, refs: Sequence[str]) -> None:  # noqa: ARG002 - as a log has it
        self._fails("before")
        self.discarded += refs


class Context:
    """The context that Spark gives a task."""

    def __init__(self, query: str | None, batch: int | None, partition: int = 0) -> None:
        self.told = {"sql.streaming.queryId": query, "streaming.sql.batchId": None if batch is None else str(batch)}
        self.partition = partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.told.get(name)

    def stageId(self) -> int:  # noqa: N802
        return 7

    def partitionId(self) -> int:  # noqa: N802
        return self.partition

    def attemptNumber(self) -> int:  # noqa: N802
        return 1


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> FakeSink:
    fake = FakeSink()
    monkeypatch.setattr(sink, "open_log", lambda _: fake)
    return fake


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Any:
    def be(query: str | None, batch: int | None, partition: int = 0) -> None:
        monkeypatch.setattr(TaskContext, "get", classmethod(lambda _: Context(query, batch, partition)))

    return be


def values(*texts: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"value": pa.array(texts, pa.string())})])


# -- options


def test_options_of_a_batch() -> None:
    found = batch_options({**TOPIC, "TXNAPPID": "me", "txnVersion": "5", "retryTimeout": "3s"}, overwrite=False)
    assert (found.topic, found.app, found.version, found.retries.timeout) == ("t", "me", 5, 3000)
    assert found.connection == SERVER
    assert batch_options(SERVER, overwrite=False).retries.timeout == 120_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "bootstrap.servers"),
        ({"path": "/data"}, "only a broker writes"),
        ({**TOPIC, "subscribe": "t"}, "for reading"),
        ({**TOPIC, "startingOffsets": "latest"}, "for reading"),
        ({**TOPIC, "txnAppId": "a"}, "'txnVersion' is not"),
        ({**TOPIC, "txnVersion": "1"}, "'txnAppId' is not"),
        ({**TOPIC, "txnAppId": "a", "txnVersion": "-1"}, "at least 0"),
        ({**TOPIC, "txnAppId": "a", "txnVersion": str(2**63)}, "at most"),
        ({**SERVER, "topic": ""}, "must not be empty"),
        ({**TOPIC, "txnAppld": "a"}, "did you mean 'txnAppId'"),
        ({**TOPIC, "retryTimeout": "soon"}, "a time is allowed"),
    ],
)
def test_options_of_a_batch_that_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said) as raised:
        batch_options(options, overwrite=False)
    assert type(raised.value).__name__ in ("OptionRefused", "OptionsUnusable")


def test_nothing_is_ever_overwritten() -> None:
    with pytest.raises(OptionRefused, match=r"mode\('append'\)"):
        batch_options(TOPIC, overwrite=True)
    with pytest.raises(OptionRefused, match=r"outputMode\('append'\)"):
        stream_options(TOPIC, overwrite=True)


def test_a_stream_numbers_its_batches_itself() -> None:
    assert stream_options({**TOPIC, "txnAppId": "me"}, overwrite=False).app == "me"
    with pytest.raises(OptionRefused, match="numbers its batches itself"):
        stream_options({**TOPIC, "txnAppId": "me", "txnVersion": "1"}, overwrite=False)


# -- columns

HEADERS = "headers array<struct<key:string,value:binary>>"


@pytest.mark.parametrize(
    "text",
    [
        "value string",
        "value binary, key string",
        f"topic string, value string, {HEADERS}, partition int",
        "VALUE string",
    ],
)
def test_columns_that_can_be_written(text: str) -> None:
    check_columns(columns(text), "t")


@pytest.mark.parametrize(
    ("text", "topic", "said"),
    [
        ("value string, id int", "t", r"Column 'id' cannot be written.*to_json\(struct\('\*'\)\)"),
        ("a int, b int", "t", "Columns 'a', 'b' cannot be written"),
        ("key string", "t", "no column 'value'"),
        ("value string", None, "No topic: give option"),
        ("value string, Value string", "t", "there twice"),
        ("value int", "t", r"'value' is int; binary or string is needed: .*cast\('string'\).*to_json"),
        ("value string, partition bigint", "t", r"'partition' is bigint; int is needed: .*cast\('int'\)"),
        ("value string, topic binary", None, "'topic' is binary; string is needed"),
        ("value string, headers map<string,binary>", "t", r"'headers' is map.*array\(struct\("),
        ("value string, headers array<struct<key:string,value:string>>", "t", "'headers' is array"),
    ],
)
def test_columns_that_cannot(text: str, topic: str | None, said: str) -> None:
    with pytest.raises(ColumnsRefused, match=said):
        check_columns(columns(text), topic)


def test_the_option_topic_wins_over_the_column() -> None:
    schema = columns("topic string, value string")
    batch = pa.RecordBatch.from_pydict({"topic": ["a", None], "value": ["x", "y"]})
    assert SinkConverter(schema, "t").shaped(batch).to_pylist() == [{"value": "x"}, {"value": "y"}]


def test_columns_are_found_in_any_order_case_and_width() -> None:
    schema = columns("Value string, KEY binary")
    batch = pa.RecordBatch.from_pydict({"Value": pa.array(["x"], pa.large_string()), "KEY": pa.array([b"k"])})
    shaped = SinkConverter(schema, "t").shaped(batch)
    assert shaped.schema == pa.schema([("value", pa.string()), ("key", pa.binary())])
    assert shaped.to_pylist() == [{"value": "x", "key": b"k"}]


def test_rows_without_a_value_or_a_topic_are_refused() -> None:
    by_column = SinkConverter(columns("topic string, value string"), None)
    rows = {"topic": ["a", "b"], "value": ["x", None]}
    with pytest.raises(RowRefused, match=r"topic 'b' has no value.*IS NOT NULL"):
        by_column.shaped(pa.RecordBatch.from_pydict(rows))
    with pytest.raises(RowRefused, match="topic 't' has no value"):
        SinkConverter(columns("topic string, value string"), "t").shaped(pa.RecordBatch.from_pydict(rows))
    with pytest.raises(RowRefused, match="has no topic"):
        by_column.shaped(pa.RecordBatch.from_pydict({"topic": [None, "b"], "value": ["x", "y"]}))


# -- pieces


def test_pieces_keep_all_batches_in_their_order() -> None:
    batches = [pa.RecordBatch.from_pydict({"n": list(range(start, start + 10))}) for start in range(0, 100, 10)]
    empty = batches[0].slice(0, 0)
    found = list(pieces(iter([empty, *batches[:5], empty, *batches[5:], empty]), 200))
    assert [len(piece) for piece in found] == [3, 3, 3, 1]
    assert [row for piece in found for batch in piece for row in batch.column("n").to_pylist()] == list(range(100))
    assert list(pieces(iter([empty]), 200)) == []


# -- a batch


def test_a_batch_is_visible_when_all_of_it_is(log: FakeSink) -> None:
    writer = PenstockWriter(columns("value string"), TOPIC, False)
    sent = [pickle.loads(pickle.dumps(writer)).write(values(text)) for text in ("a", "b")]  # as Spark does
    assert log.rows == []
    pickle.loads(pickle.dumps(writer)).commit([*sent, None])
    assert [row["value"] for row in log.rows] == ["a", "b"]
    assert {(app, batch, topic) for app, batch, _, topic, _ in log.staged.values()} == {(sent[0].app, 0, "t")}


def test_each_batch_is_one_of_its_own_unless_the_user_says_otherwise(log: FakeSink) -> None:
    for _ in range(2):
        writer = PenstockWriter(columns("value string"), TOPIC, False)
        writer.commit([writer.write(values("a"))])
    assert len(log.rows) == 2
    for _ in range(2):
        writer = PenstockWriter(columns("value string"), {**TOPIC, "txnAppId": "me", "txnVersion": "3"}, False)
        writer.commit([writer.write(values("b"))])
    assert [row["value"] for row in log.rows] == ["a", "a", "b"]
    assert log.published["me"] == 3


def test_nothing_to_write_is_nothing(log: FakeSink) -> None:
    writer = PenstockWriter(columns("value string"), TOPIC, False)
    empty = writer.write(values())
    assert empty == TaskCommit(empty.app, 0, (), 0)
    writer.commit([empty])
    writer.abort([empty])
    assert not log.staged and not log.published


def test_a_large_task_sends_pieces_in_order(log: FakeSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "PIECE_BYTES", 20)
    writer = PenstockWriter(columns("value string"), TOPIC, False)
    sent = writer.write(batch for text in "abcdef" for batch in values(text * 10))
    assert len(sent.refs) == 3 and sent.rows == 6
    writer.commit([sent])
    assert "".join(row["value"][0] for row in log.rows) == "abcdef"


@pytest.mark.parametrize("outages", [["midway"], ["after"], ["midway", "midway", "after"]])
def test_a_broker_that_starts_again_does_not_fail_a_task(log: FakeSink, outages: list[str]) -> None:
    log.outages = [*outages]
    writer = PenstockWriter(columns("value string"), TOPIC, False)
    sent = writer.write(iter([*values("a"), *values("b")]))
    assert log.outages == [] and len(sent.refs) == 1
    writer.commit([sent])
    assert [row["value"] for row in log.rows] == ["a", "b"]


@pytest.mark.parametrize("outages", [["before"], ["after"], ["before", "after"]])
def test_nor_a_commit_which_happens_once(log: FakeSink, outages: list[str]) -> None:
    writer = PenstockWriter(columns("value string"), TOPIC, False)
    sent = writer.write(values("a"))
    log.outages = [*outages]
    writer.commit([sent])
    assert log.outages == [] and [row["value"] for row in log.rows] == ["a"]


def test_but_not_for_ever(log: FakeSink) -> None:
    writer = PenstockWriter(columns("value string"), {**TOPIC, "retryTimeout": "1ms"}, False)
    log.outages = ["midway"] * 100
    with pytest.raises(LogUnavailable):
        writer.write(values("a"))


def test_what_is_refused_is_not_tried_again(log: FakeSink, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def refuse(*_: object) -> Staged:
        tried.append(1)
        raise RequestRefused("no")

    monkeypatch.setattr(log, "stage", refuse)
    with pytest.raises(RequestRefused):
        PenstockWriter(columns("value string"), TOPIC, False).write(values("a"))
    assert len(tried) == 1


def test_an_abort_discards_what_was_sent_and_waits_for_nobody(log: FakeSink) -> None:
    writer = PenstockWriter(columns("value string"), TOPIC, False)
    sent = writer.write(values("a"))
    writer.abort([sent, None])
    assert log.discarded == list(sent.refs)
    log.outages = ["before"]
    writer.abort([sent])
    assert log.outages == [] and log.rows == []


# -- a stream


def test_a_batch_of_a_stream_is_known_by_query_and_number(
    log: FakeSink, task: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def run(batch: int) -> list[TaskCommit]:
        sent = []
        for partition in range(2):
            task("query", batch, partition)
            writer = PenstockStreamWriter(columns("value string"), TOPIC, False)
            sent.append(writer.write(values(f"{batch}-{partition}")))
        PenstockStreamWriter(columns("value string"), TOPIC, False).commit([*sent], batch)  # another object
        return sent

    first = run(0)
    assert [(it.app, it.batch) for it in first] == [("query", 0)] * 2
    assert log.staged[first[1].refs[0]][2] == "7.1.1.0"
    run(1)
    assert not caplog.records
    run(1)  # Spark does not know that it had succeeded
    assert "another txnAppId" in caplog.text
    assert [row["value"] for row in log.rows] == ["0-0", "0-1", "1-0", "1-1"]


def test_a_stream_can_be_given_a_name(log: FakeSink, task: Any) -> None:
    task("query", 3)
    writer = PenstockStreamWriter(columns("value string"), {**TOPIC, "txnAppId": "mine"}, False)
    writer.commit([writer.write(values("a"))], 3)
    assert log.published == {"mine": 3}


@pytest.mark.parametrize(("query", "batch"), [(None, 1), ("q", None)])
def test_a_spark_that_tells_nothing_is_an_error(log: FakeSink, task: Any, query: str | None, batch: int | None) -> None:
    task(query, batch)
    with pytest.raises(sink.SinkFailed, match="foreachBatch"):
        PenstockStreamWriter(columns("value string"), TOPIC, False).write(values("a"))
    assert not log.staged


def test_messages_of_another_batch_are_not_published(log: FakeSink, task: Any) -> None:
    task("query", 3)
    writer = PenstockStreamWriter(columns("value string"), TOPIC, False)
    with pytest.raises(sink.SinkFailed, match="batch 4"):
        writer.commit([writer.write(values("a"))], 4)
    assert not log.published


def test_an_abort_after_publishing_undoes_nothing(log: FakeSink, task: Any) -> None:
    task("query", 3)
    writer = PenstockStreamWriter(columns("value string"), TOPIC, False)
    sent = writer.write(values("a"))
    writer.commit([sent], 3)
    writer.abort([sent, None], 3)
    assert [row["value"] for row in log.rows] == ["a"]


def test_the_fake_is_a_log() -> None:
    """So far as the sink uses one: the same parameters in the same order."""
    import inspect

    from penstock.flight.log import Log

    for name in ("stage", "publish", "discard"):
        mine, theirs = (inspect.signature(getattr(kind, name)).parameters for kind in (FakeSink, cast(Any, Log)))
        assert list(mine) == list(theirs)
