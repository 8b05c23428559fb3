from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import scaled

from penstock.broker.errors import LimitReached, PartitionNotFound, RecordTooLarge
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.produce.partitioning import LONG_KEY, Partitioner, fnv1a
from penstock.broker.publications.partition_split import (
    HELD_BYTES,
    PartitionSplitter,
    SplitLimits,
    TargetTopic,
    choose,
    hashes,
)
from penstock.broker.publications.staging import CHECKED_RECORDS, CHUNK_BYTES
from penstock.broker.state.state import Topic
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.arrow import HEADER_LIST, UnusableColumns
from penstock.log.batch import Batch, Headers
from penstock.log.columns import Columns

LIMITS = SplitLimits(record_bytes=16 << 20, topics=3)
TOPICS = {
    "one": TargetTopic(1, "one", 1, False),
    "four": TargetTopic(4, "four", 4, False),
    "many": TargetTopic(7, "many", 300, False),
    "typed": TargetTopic(9, "typed", 2, True),
}

Row = tuple[bytes | None, bytes, Headers]


class Sink:
    """The chunks, by topic and partition."""

    def __init__(self) -> None:
        self.chunks: list[tuple[str, int, Columns]] = []
        self.asked: list[list[str]] = []

    def lookup(self, names: Sequence[str]) -> list[TargetTopic]:
        self.asked.append(list(names))
        return [TOPICS[name] for name in names]

    def emit(self, target: TargetTopic, partition: int, columns: Columns) -> None:
        self.chunks.append((target.name, partition, columns))

    def rows(self) -> dict[tuple[str, int], list[Row]]:
        found: dict[tuple[str, int], list[Row]] = {}
        for topic, partition, columns in self.chunks:
            batch = Batch(columns.build(0, 0, 0, bytes(8 * columns.count), 0, 0))
            n = columns.count
            rows = zip(batch.keys(0, n), batch.values(0, n), batch.headers(0, n), strict=True)
            found.setdefault((topic, partition), []).extend(rows)
        return found


def split(batches: Sequence[pa.RecordBatch], topic: str | None = None, limits: SplitLimits = LIMITS) -> Sink:
    sink = Sink()
    taker = PartitionSplitter(batches[0].schema, topic, limits, sink.lookup, sink.emit)
    for batch in batches:
        taker.add(batch)
    taker.finish()
    return sink


# -- the same partition as by any other door


@given(st.lists(st.one_of(st.none(), st.binary(max_size=80)), min_size=1, max_size=60), st.integers(0, 5))
@settings(max_examples=scaled(150), deadline=None)
def test_hashes_are_those_of_the_partitioner(keys: list[bytes | None], skip: int) -> None:
    array = pa.array([b"skipped"] * skip + keys, pa.binary()).slice(skip)
    assert hashes(array).tolist() == [fnv1a(key or b"") for key in keys]


def test_hashes_of_keys_at_the_limit_and_beyond() -> None:
    keys = [b"", b"a", b"k" * LONG_KEY, b"k" * (LONG_KEY + 1), b"x" * 5000, b"ab"]
    assert hashes(pa.array(keys)).tolist() == [fnv1a(key) for key in keys]
    assert hashes(pa.array([], pa.binary())).tolist() == []
    assert hashes(pa.array([b"foobar"] * 3)).tolist() == [0xBF9CF968] * 3


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.just(b""), st.binary(max_size=6)), st.integers(-2, 6)),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 7),
    st.sampled_from(["keys", "partitions", "both", "neither"]),
)
@settings(max_examples=scaled(300), deadline=None)
def test_choices_are_those_of_the_partitioner(
    rows: list[tuple[bytes | None, int]], partitions: int, given_columns: str
) -> None:
    keys = [key for key, _ in rows] if given_columns in ("keys", "both") else None
    wanted = [number for _, number in rows] if given_columns in ("partitions", "both") else [-1] * len(rows)
    partitioner = Partitioner()
    topic = Topic(1, DEFAULT_SCOPE, "t", partitions, TopicSettings(), 0)
    turn = 0
    for part in (slice(0, len(rows) // 2), slice(len(rows) // 2, None)):  # turns go on from one batch to the next
        own_keys = None if keys is None else pa.array(keys[part], pa.binary())
        own_wanted = np.array(wanted[part], np.int32) if given_columns in ("partitions", "both") else None
        count = len(wanted[part])
        try:
            expected = partitioner.choose(topic, None if keys is None else keys[part], wanted[part])
        except PartitionNotFound as error:
            with pytest.raises(PartitionNotFound, match=str(error)):
                choose("t", partitions, own_keys, own_wanted, turn, count)
            return
        chosen, turn = choose("t", partitions, own_keys, own_wanted, turn, count)
        assert chosen.tolist() == expected


# -- rows


def test_rows_keep_their_fields_and_their_order_within_a_partition() -> None:
    rows = [(b"k%d" % (i % 5) if i % 7 else None, b"value %d" % i, i % 3) for i in range(1000)]
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADER_LIST), ("topic", pa.string())])
    names = ["one", "four", "typed"]
    headers = [[(f"n{i}", b"%d" % i)] * (i % 3) if i % 4 else None for i in range(1000)]
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.array([row[0] for row in rows[at : at + 100]], pa.binary()),
                pa.array([row[1] for row in rows[at : at + 100]], pa.binary()),
                pa.array(headers[at : at + 100], HEADER_LIST),
                pa.array([names[row[2]] for row in rows[at : at + 100]]),
            ],
            schema=schema,
        )
        for at in range(0, 1000, 100)
    ]
    found = split(batches).rows()
    partitioner = Partitioner()
    expected: dict[tuple[str, int], list[Row]] = {}
    for i, (key, value, which) in enumerate(rows):
        target = TOPICS[names[which]]
        topic = Topic(target.id, DEFAULT_SCOPE, target.name, target.partitions, TopicSettings(), 0)
        (partition,) = partitioner.choose(topic, [key], [-1])
        expected.setdefault((target.name, partition), []).append((key, value, tuple(headers[i] or ())))
    assert found == expected


def test_a_topic_named_for_all_rows_overrides_their_own() -> None:
    batch = pa.record_batch({"value": [b"1", b"2"], "topic": pa.array(["four", None])})
    sink = split([batch], "one")
    assert sink.rows() == {("one", 0): [(None, b"1", ()), (None, b"2", ())]}
    assert sink.asked == [["one"]]


def test_a_topic_is_looked_up_once() -> None:
    batch = pa.record_batch({"value": [b"1", b"2", b"3"], "topic": ["one", "four", "one"]})
    assert split([batch] * 5).asked == [["one", "four"]]


def test_texts_and_other_layouts_are_taken_too() -> None:
    plain = {("four", 3): [(b"user-3", b"w\xc3\xb6rd", (("h", b"1"),))], ("four", 0): [(None, b"x", ())]}
    headers = pa.array(
        [[{"key": b"h", "value": "1"}], []], pa.list_(pa.struct({"key": pa.binary(), "value": pa.string()}))
    )
    wanted = [3, 0]
    for kind in (pa.string(), pa.large_string(), pa.large_binary(), pa.binary(), pa.dictionary(pa.int8(), pa.string())):
        batch = pa.record_batch(
            {
                "value": pa.array(["wörd", "x"]).cast(kind),
                "key": pa.array(["user-3", None]).cast(kind),
                "headers": headers,
                "topic": pa.array(["four", "four"]).dictionary_encode(),
                "partition": pa.array(wanted, pa.int64()),
            }
        )
        assert split([batch]).rows() == plain, kind


def test_more_than_256_partitions() -> None:
    wanted = [299, 0, 257, 1, 299]
    batch = pa.record_batch({"value": [b"%d" % n for n in range(5)], "partition": pa.array(wanted, pa.int32())})
    found = split([batch], "many").rows()
    assert {place[1]: [value for _, value, _ in rows] for place, rows in found.items()} == {
        299: [b"0", b"4"],
        0: [b"1"],
        257: [b"2"],
        1: [b"3"],
    }


# -- chunks


def test_chunks_are_as_large_as_they_may_be_and_no_larger() -> None:
    batch = pa.record_batch({"value": [bytes(1000)] * 10_000})
    sink = split([batch, batch, batch], "four")
    sizes = [columns.byte_size for _, _, columns in sink.chunks]
    assert sum(columns.count for _, _, columns in sink.chunks) == 30_000
    assert max(sizes) <= CHUNK_BYTES + 1024
    assert len(sizes) <= 30_000 * 1016 / CHUNK_BYTES + 4 + 1


def test_a_large_record_is_a_chunk_of_its_own() -> None:
    values = [b"a", bytes(3 * CHUNK_BYTES), b"b", b"c"]
    sink = split([pa.record_batch({"value": values})], "one")
    assert [columns.count for _, _, columns in sink.chunks] == [1, 1, 2]
    assert [value for _, value, _ in sink.rows()["one", 0]] == values


def test_chunks_of_a_topic_with_a_schema_are_small() -> None:
    batch = pa.record_batch({"value": [b"x"] * 1700})
    sink = split([batch, batch], "typed")
    assert max(columns.count for _, _, columns in sink.chunks) <= CHECKED_RECORDS
    assert sum(columns.count for _, _, columns in sink.chunks) == 3400


def test_what_is_held_back_is_bounded_however_many_partitions_there_are() -> None:
    sink = Sink()
    batch = pa.record_batch({"value": [bytes(200_000)] * 300})  # a fifth of a chunk for every partition
    taker = PartitionSplitter(batch.schema, "many", LIMITS, sink.lookup, sink.emit)
    for _ in range(4):
        taker.add(batch)
    emitted = sum(columns.byte_size for _, _, columns in sink.chunks)
    assert 4 * batch.nbytes - emitted < HELD_BYTES + batch.nbytes
    taker.finish()
    assert sum(columns.count for _, _, columns in sink.chunks) == 1200


# -- what is refused


@pytest.mark.parametrize(
    ("columns", "topic", "said"),
    [
        ({"key": [b"k"]}, "one", "no column `value`"),
        ({"value": [b"v"]}, None, "no column `topic`"),
        ({"value": [b"v"], "price": [1]}, "one", "no place for column 'price'"),
        ({"value": [1]}, "one", "column value is int64"),
        ({"value": [b"v"], "key": [1.5]}, "one", "column key is double"),
        ({"value": [b"v"], "partition": ["x"]}, "one", "column partition is string"),
        ({"value": [b"v"], "partition": [1 << 40]}, "one", "column partition"),
        ({"value": [b"v"], "headers": ["x"]}, "one", "column headers is string"),
        ({"value": [b"v"], "headers": [[{"name": "x", "value": b""}]]}, "one", "column headers"),
        ({"value": [b"v"], "headers": [[{"key": None, "value": b""}]]}, "one", "without a name"),
        ({"value": [b"v"], "headers": [[{"key": b"\xff", "value": b""}]]}, "one", "column headers"),
        ({"value": [b"v", None]}, "one", "without a value"),
        ({"value": [b"v"], "topic": pa.array([None], pa.string())}, None, "without a topic"),
        ({"value": [b"v"], "topic": [b"\xff"]}, None, "column topic"),
    ],
)
def test_unusable_columns_are_named(columns: dict[str, object], topic: str | None, said: str) -> None:
    with pytest.raises(UnusableColumns, match=said):
        split([pa.record_batch(columns)], topic)


def test_text_that_is_none_is_refused_before_anybody_reads_it() -> None:
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe"))
    with pytest.raises(UnusableColumns, match="not a valid record batch"):
        split([pa.record_batch({"value": broken})], "one")


def test_offsets_that_lie_are_refused() -> None:
    broken = pa.BinaryArray.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(np.array([0, 1 << 30, 4], np.int32)), pa.py_buffer(b"abcd")]
    )
    with pytest.raises(UnusableColumns, match="not a valid record batch"):
        split([pa.record_batch({"value": broken})], "one")


def test_partitions_records_and_topics_beyond_the_limits() -> None:
    with pytest.raises(PartitionNotFound):
        split([pa.record_batch({"value": [b"v"], "partition": [4]})], "four")
    limits = SplitLimits(record_bytes=10, topics=1)
    split([pa.record_batch({"value": [b"12345"], "key": [b"12345"]})], "one", limits)
    with pytest.raises(RecordTooLarge):
        split([pa.record_batch({"value": [b"12345"], "key": [b"123456"]})], "one", limits)
    headers = pa.array([[{"key": "1", "value": b"2"}]], HEADER_LIST)
    with pytest.raises(RecordTooLarge):
        split([pa.record_batch({"value": [b"1"], "headers": headers})], "one", limits)
    with pytest.raises(LimitReached):
        split([pa.record_batch({"value": [b"1", b"2"], "topic": ["one", "four"]})], None, limits)


def test_empty_batches_and_streams() -> None:
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    assert split([empty, empty], "one").chunks == []
