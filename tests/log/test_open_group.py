"""A commit group keeps the order of each partition's appends, whatever they are made of and whoever they come from."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from penstock.equal_values import EqualValues
from penstock.log.batch import check
from penstock.log.engine import PartitionId, Records, partition_id
from penstock.log.open_group import ALONE_BYTES, BATCH_BYTES, PendingGroup

ONE, TWO = partition_id(1, 0), partition_id(2, 0)


class Append(NamedTuple):
    partition: PartitionId
    door: int
    sizes: list[int]  # of the values
    way: str


small = st.integers(0, 8)
appends = st.one_of(
    st.builds(Append, st.sampled_from([ONE, TWO]), st.integers(1, 2), st.lists(small, min_size=1, max_size=1),
              st.sampled_from(["record", "records", "keyed"])),
    st.builds(Append, st.sampled_from([ONE, TWO]), st.integers(1, 2), st.lists(small, min_size=2, max_size=4),
              st.sampled_from(["records", "keyed"])),
    st.builds(Append, st.just(ONE), st.just(1), st.just([ALONE_BYTES // 2] * 2), st.just("equal")),
    st.builds(Append, st.just(ONE), st.just(1), st.just([BATCH_BYTES]), st.just("record")),
)  # fmt: skip


@given(st.lists(appends, max_size=12), st.lists(st.just(b"event"), max_size=2))
def test_whatever_is_appended(made: list[Append], events: list[bytes]) -> None:
    group, ends = PendingGroup(), {ONE: 40, TWO: 0}
    group.events += events
    expected: dict[PartitionId, list[tuple[int, bytes, int, bytes | None]]] = {ONE: [], TWO: []}
    for number, append in enumerate(made):
        values = [bytes((number,)) * size for size in append.sizes]
        base, count = ends[append.partition], len(values)
        keys = [b"key"] * count if append.way == "keyed" else None
        if append.way == "record":
            group.add_record(append.partition, values[0], base, number, append.door)
        else:
            block = b"".join([len(value).to_bytes(4) + value for value in values])
            equal = EqualValues.of(block, 0, count, len(values[0])) if append.way == "equal" else None
            group.add(Records(append.partition, values if equal is None else equal, keys), base, number, append.door)
        for offset, value in enumerate(values, base):
            expected[append.partition].append((offset, value, append.door, None if keys is None else b"key"))
        ends[append.partition] += count
    group.seal(9, 700, 5, must_sync=True, roll=False)
    position = 700 + len(events)
    found: dict[PartitionId, list[tuple[int, bytes, int, bytes | None]]] = {ONE: [], TWO: []}
    for batch in group.batches:
        assert check(batch.data).position == batch.position == position
        position += batch.count
        found[PartitionId(batch.partition)] += [
            (batch.base_offset + i, value, batch.door, key)
            for i, (value, key) in enumerate(zip(batch.values(0, batch.count), batch.keys(0, batch.count), strict=True))
        ]
    assert found == expected
    assert group.advance == position - 700
