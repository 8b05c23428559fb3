"""Batches and Arrow: whatever way records take, they are the same records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import scaled

from penstock.log import columns as columns_module
from penstock.log.arrow import (
    RECORD,
    STORED,
    UnusableColumns,
    VisibleRows,
    columns_of,
    only_visible,
    record_batches,
    schema_of,
    stored_batch,
    visibility_columns,
)
from penstock.log.batch import Batch, BatchDamaged, Headers, RecordSlice, check
from penstock.log.engine import PartitionId, partition_id
from penstock.log.open_batch import OpenBatch

PARTITION = partition_id(7, 3)

records = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=6)),
        st.binary(max_size=20),
        st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4)), max_size=3).map(tuple),
        st.one_of(st.just(0), st.integers(1, 2**50)),
    ),
    min_size=1,
    max_size=12,
)
batches = st.lists(records, min_size=1, max_size=6)

Row = tuple[bytes | None, bytes, Headers, int]


def stored(rows: list[Row], base: int = 0, position: int = 100, stamp: int = 1_000) -> Batch:
    open_batch = OpenBatch(PARTITION, base)
    for index, (key, value, headers, expires) in enumerate(rows):
        open_batch.extend(
            [value],
            None if key is None else [key],
            [headers] if headers else None,
            [expires] if expires else None,
            stamp + index,
        )
    return Batch(open_batch.build(position))


def whole(batch: Batch) -> RecordSlice:
    """All of a batch, which is the last of its commit group."""
    return RecordSlice(batch, 0, batch.count, batch.position + batch.count)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    table = batch.to_pydict()
    headers = [tuple((pair["key"], pair["value"]) for pair in pairs or ()) for pairs in table["headers"]]
    expires = [0 if at is None else at for at in batch.column("expires").cast(pa.int64()).to_pylist()]
    return list(zip(table["key"], table["value"], headers, expires, strict=True))


def spread(groups: list[list[Row]]) -> tuple[list[RecordSlice], list[Row]]:
    slices: list[RecordSlice] = []
    everything: list[Row] = []
    for rows in groups:
        slices.append(whole(stored(rows, len(everything), 1000 + len(everything))))
        everything += rows
    return slices, everything


def numbers(batch: pa.RecordBatch, name: str) -> list[int]:
    found: list[int] = batch.column(name).cast(pa.int64()).to_pylist()
    return found


@given(batches, st.data())
@settings(max_examples=scaled(150), deadline=None)
def test_records_come_out_as_they_went_in(groups: list[list[Row]], data: st.DataObject) -> None:
    slices, everything = spread(groups)
    cut = data.draw(st.integers(0, len(groups[0]) - 1))  # a reader may begin within a batch
    slices[0] = slices[0].between(cut, len(groups[0]))
    (batch,) = record_batches(slices, "t", STORED.names)
    everything = everything[cut:]
    assert batch.schema == STORED
    batch.validate(full=True)
    assert rows_of(batch) == everything
    assert numbers(batch, "offset") == list(range(cut, cut + len(everything)))
    ends = [[sum(map(len, groups[: at + 1]))] * len(group) for at, group in enumerate(groups)]
    assert numbers(batch, "position") == [1000 + end - 1 for group in ends for end in group][cut:]
    assert set(batch.column("topic").to_pylist()) == {"t"} and set(numbers(batch, "partition")) == {3}


@given(records, st.data())
@settings(max_examples=scaled(100), deadline=None)
def test_part_of_a_batch(rows: list[Row], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(rows) - 1))
    end = data.draw(st.integers(first + 1, len(rows)))
    (batch,) = record_batches([RecordSlice(stored(rows, 50), first, end, 7000)], "t", STORED.names)
    batch.validate(full=True)
    assert rows_of(batch) == rows[first:end]
    assert numbers(batch, "offset") == list(range(50 + first, 50 + end))
    assert numbers(batch, "timestamp") == list(range(1000 + first, 1000 + end))
    assert numbers(batch, "position") == [6999] * (end - first)


@given(records, st.integers(0, 3))
@settings(max_examples=scaled(150), deadline=None)
def test_there_and_back(rows: list[Row], skip: int) -> None:
    original = stored(rows, 5, 77)
    (batch,) = record_batches([whole(original)], "t", STORED.names)
    assert check(stored_batch(batch, PARTITION).data).data == stored(rows, 5, 77 + len(rows) - 1).data
    part = batch.slice(min(skip, len(rows) - 1))
    again = whole(stored_batch(part, PARTITION))
    expected = rows[min(skip, len(rows) - 1) :]
    assert list(zip(again.keys(), again.values(), again.headers(), again.expires(), strict=True)) == expected
    assert again.base_offset == 5 + len(rows) - len(expected)


@given(records)
@settings(max_examples=scaled(50), deadline=None)
def test_columns_survive_a_file(rows: list[Row]) -> None:
    (batch,) = record_batches([whole(stored(rows))], "t", [*RECORD.names, "expires"])
    columns = columns_of(batch)
    data = columns.encode()
    assert len(data) % 8 == 0
    assert columns_module.encoded_length(data[: columns_module.PREFIX_SIZE]) == len(data)
    assert columns_module.decode(data) == columns
    for damaged in (
        data[:-1],
        data[:40],
        bytes([data[0] ^ 1]) + data[1:],
        data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    ):
        with pytest.raises(BatchDamaged):
            columns_module.decode(damaged)


def test_only_the_columns_that_were_asked_for_in_that_order() -> None:
    (batch,) = record_batches([whole(stored([(None, b"v", (), 0)] * 100))], "t", ["offset", "value"])
    assert batch.schema == schema_of(["offset", "value"])
    with pytest.raises(KeyError):
        list(record_batches([], "t", ["nonsense"]))


def test_a_large_batch_is_not_copied_and_small_ones_are_merged() -> None:
    large = stored([(None, b"value", (), 0)] * 5000)
    small = [whole(stored([(None, b"x", (), 0)], 5000 + index)) for index in range(100)]
    found = list(record_batches([whole(large), *small], "t", ["value", "offset"], rows=2000))
    assert [len(batch) for batch in found] == [2000, 2000, 1000, 100]
    start = pa.py_buffer(large.data).address
    assert start < found[0].column("value").buffers()[2].address < start + len(large.data)
    assert [at for batch in found for at in numbers(batch, "offset")] == list(range(5100))


@pytest.mark.parametrize(
    ("view", "kept"),
    [
        (VisibleRows(now=10), [0, 2, 3, 4]),
        (VisibleRows(now=9), [0, 1, 2, 3, 4]),
        (VisibleRows(now=50), [0, 3, 4]),
        (VisibleRows(now=9, horizon=1001), [2, 3, 4]),
        (VisibleRows(now=9, gone_below=2), [2, 3, 4]),
        (VisibleRows(now=10, horizon=1000, gone_below=1, gone=(3, 9)), [2, 4]),
    ],
)
def test_what_is_live(view: VisibleRows, kept: list[int]) -> None:
    rows: list[Row] = [(None, b"%d" % index, (), expires) for index, expires in enumerate([0, 10, 50, 0, 0])]
    (batch,) = record_batches([whole(stored(rows))], "t", visibility_columns(["value"]))
    found = only_visible(batch, ["value"], view)
    assert found.schema == schema_of(["value"])
    assert found.column("value").to_pylist() == [b"%d" % index for index in kept]


def test_strings_and_wide_columns_are_taken_too() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array(["a", None, ""], pa.large_string()),
            "value": pa.array(["x", "", "żółw"], pa.string()),
            "headers": pa.array([[("h", None)], [], None], RECORD.field("headers").type),
        }
    ).slice(0, 3)
    found = whole(Batch(columns_of(batch).build(PARTITION, 0, 0, bytes(24), 0, 0)))
    assert found.keys() == [b"a", None, b""]
    assert found.values() == [b"x", b"", "żółw".encode()]
    assert found.headers() == [(("h", b""),), (), ()]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": pa.array([b"a", None])}, "without a value"),
        ({"key": pa.array([b"a"])}, "without a value"),
        ({"value": pa.array([1])}, "column value is int64"),
        ({"value": pa.array([b"a"]), "key": pa.array([1.5])}, "column key is double"),
        ({"value": pa.array([b"a"]), "headers": pa.array(["h"])}, "column headers is string"),
        ({"value": pa.array([b"a"]), "headers": pa.array([[{"key": None, "value": b""}]])}, "without a name"),
    ],
)
def test_columns_that_are_no_records(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(UnusableColumns, match=said):
        columns_of(pa.RecordBatch.from_pydict(columns))


def test_rows_of_a_table_with_a_gap_are_refused() -> None:
    (batch,) = record_batches([whole(stored([(None, b"v", (), 0)] * 4))], "t", STORED.names)
    with pytest.raises(UnusableColumns, match="follow"):
        stored_batch(batch.take(pa.array([0, 2])), PartitionId(PARTITION))


def through(door: int, count: int, base: int) -> Batch:
    open_batch = OpenBatch(PARTITION, base, door)
    open_batch.extend([b"v"] * count, None, None, None, 1_000)
    return Batch(open_batch.build(base))


@pytest.mark.parametrize("sizes", [(1, 3, 2), (5_000, 3, 2_048), (1, 1, 1)])
def test_the_door_of_each_record(sizes: tuple[int, int, int]) -> None:
    slices, base = [], 0
    for door, count in zip((1, 0, 3), sizes, strict=True):
        slices.append(whole(through(door, count, base)))
        base += count
    found = pa.Table.from_batches(list(record_batches(slices, "t", STORED.names))).combine_chunks()
    names = [name for name, count in zip(("rustlog", None, "flymq"), sizes, strict=True) for _ in range(count)]
    assert found["door"].to_pylist() == names
    (batch,) = found.to_batches()
    again = whole(stored_batch(batch, PARTITION))
    numbers = bytes({"rustlog": 1, None: 0, "flymq": 3}[name] for name in names)
    assert again.doors() == numbers
    assert again.between(1, 3).doors() == numbers[1:3]
    (back,) = record_batches([again.between(1, len(names))], "t", ["door"])
    assert back.column("door").to_pylist() == names[1:]


def test_one_door_of_all_records_is_in_the_header_again() -> None:
    original = through(4, 3, 0)
    (batch,) = record_batches([whole(original)], "t", STORED.names)
    assert check(stored_batch(batch, PARTITION).data).door == 4
    unknown = batch.set_column(batch.schema.get_field_index("door"), "door", pa.array(["later"] * 3))
    assert stored_batch(unknown, PARTITION).door == 0
