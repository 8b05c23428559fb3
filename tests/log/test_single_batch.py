"""A batch of one record says, in its bytes and before they are read, what any other batch with that record would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.batch import check
from penstock.log.engine import partition_id
from penstock.log.open_batch import OpenBatch
from penstock.log.single_batch import SingleBatch

P = partition_id(3, 5)
HELD = ("partition", "base_offset", "position", "count", "flags", "door", "value_bytes", "header_count", "doors")
values = st.binary(max_size=40) | st.integers(8_180, 8_210).map(bytes)
stamps = st.integers(-(2**63), 2**63 - 1)


def opened(value: bytes, base: int, stamp: int, door: int) -> OpenBatch:
    batch = OpenBatch(P, base, door)
    batch.append(value, stamp)
    return batch


@given(values, st.integers(0, 2**63), st.integers(0, 2**63), stamps, st.integers(0, 255))
def test_it_is_what_the_long_way_makes_of_it(value: bytes, base: int, position: int, stamp: int, door: int) -> None:
    batch = SingleBatch(P, base, value, stamp, door)
    batch.finish(position)
    assert batch.data == opened(value, base, stamp, door).build(position)
    read = check(batch.data)
    assert [getattr(batch, name) for name in HELD] == [getattr(read, name) for name in HELD]
    for each in (batch, read):
        assert (each.min_timestamp, each.max_timestamp, each.byte_size) == (stamp, stamp, len(value))
        assert (each.values(0, 1), each.keys(0, 1), each.headers(0, 1)) == ([value], [None], [()])
        assert (each.expires(), each.timestamps().tolist(), each.end_offset) == (None, [stamp], base + 1)


@given(values, values, st.integers(0, 255))
def test_another_record_makes_it_a_batch_of_two(first: bytes, second: bytes, door: int) -> None:
    batch = SingleBatch(P, 7, first, 1000, door).reopened()
    batch.append(second, 2000)
    batch.finish(77)
    assert (batch.values(0, 2), batch.timestamps().tolist()) == ([first, second], [1000, 2000])
    assert (batch.base_offset, batch.count, batch.door) == (7, 2, door)
