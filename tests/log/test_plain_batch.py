"""A batch of plain records says, in its bytes and before they are read, what any other batch with them would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.batch import RECORD_BYTES, check
from penstock.log.engine import partition_id
from penstock.log.open_batch import OpenBatch
from penstock.log.plain_batch import PlainBatch

P = partition_id(3, 5)
HELD = ("partition", "base_offset", "position", "count", "flags", "door", "value_bytes", "header_count", "doors")
TIMES = ("min_timestamp", "max_timestamp", "byte_size")
stamps = st.integers(-(2**63), 2**63 - 1)
values = st.binary(max_size=40)


def plain(records: list[tuple[bytes, int]], base: int = 7, door: int = 1) -> PlainBatch:
    (value, stamp), *others = records
    batch = PlainBatch(P, base, value, stamp, door)
    for value, stamp in others:
        batch.append(value, stamp)
    return batch


def opened(records: list[tuple[bytes, int]], base: int = 7, door: int = 1) -> OpenBatch:
    batch = OpenBatch(P, base, door)
    for value, stamp in records:
        batch.append(value, stamp)
    return batch


def compare(batch: PlainBatch, records: list[tuple[bytes, int]], base: int, position: int, door: int) -> None:
    assert batch.appended_bytes == sum(len(value) + RECORD_BYTES for value, _ in records)
    batch.finish(position)
    assert batch.data == opened(records, base, door).build(position)
    read = check(batch.data)
    assert [getattr(batch, name) for name in HELD + TIMES] == [getattr(read, name) for name in HELD + TIMES]
    for each in (batch, read):
        assert each.values(0, each.count) == [value for value, _ in records]
        assert each.timestamps().tolist() == [stamp for _, stamp in records]
        assert each.end_offset == base + len(records)


@given(
    st.lists(st.tuples(values, stamps), min_size=1, max_size=20)
    | st.integers(0, 40).flatmap(
        lambda size: st.lists(st.tuples(st.binary(min_size=size, max_size=size), stamps), min_size=1, max_size=20)
    ),
    st.integers(0, 2**63),
    st.integers(0, 2**63),
    st.integers(0, 255),
)
def test_it_is_what_the_long_way_makes_of_it(
    records: list[tuple[bytes, int]], base: int, position: int, door: int
) -> None:
    compare(plain(records, base, door), records, base, position, door)


@pytest.mark.parametrize(("size", "count"), [(1024, 64), (1024, 65), (1023, 70), (65_536, 1), (65_535, 2), (1, 5000)])
@pytest.mark.parametrize("last", [0, 1], ids=["alike", "mixed"])
def test_so_are_large_ones(size: int, count: int, last: int) -> None:
    records = [(bytes([number & 0xFF]) * size, 1000 - number) for number in range(count)] + [(b"x" * (size + last), 5)]
    compare(plain(records), records, 7, 99, 1)


@given(st.lists(st.tuples(values, stamps), min_size=1, max_size=5))
def test_a_record_with_a_key_makes_it_an_open_batch(records: list[tuple[bytes, int]]) -> None:
    reopened, other = plain(records).reopened(), opened(records)
    for batch in (reopened, other):
        batch.extend([b"value"], [b"key"], None, None, 7)
    assert reopened.build(3) == other.build(3)
