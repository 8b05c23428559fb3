"""Chunks and the window that keeps them, without a log."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.subscriptions.fanout_chunk import (
    FOREVER,
    MAX_ENCODINGS,
    AppendedChunks,
    ChunkLimits,
    ChunkWindow,
    EncodedChunk,
    MemoryBudget,
    ValueRun,
    appended_chunks,
    chunks_of_read,
)
from penstock.equal_values import EqualValues
from penstock.log.batch import Batch, RecordSlice
from penstock.log.open_batch import OpenBatch

NOW = 1_000_000


def batch(base: int, values: list[bytes], expires: list[int] | None = None) -> RecordSlice:
    made = OpenBatch(7 << 32, base)
    made.extend(values, None, None, expires, NOW)
    return RecordSlice(Batch(made.build(base)), 0, len(values))


def numbers(base: int, count: int) -> RecordSlice:
    return batch(base, [b"%d" % number for number in range(base, base + count)])


def shape(cut: list[EncodedChunk]) -> list[tuple[int, int, int]]:
    return [(chunk.start, chunk.end, chunk.count) for chunk in cut]


def chunk(start: int, count: int = 1, size: int = 10, until: int = FOREVER) -> EncodedChunk:
    return EncodedChunk(start, start + count, [(start, [b"x" * size] * count)], size * count, until)


# -- cutting


def test_a_portion_ends_after_so_many_records() -> None:
    cut = chunks_of_read([numbers(0, 5), numbers(5, 5)], 0, 10, ChunkLimits(4, 1000))
    assert shape(cut) == [(0, 4, 4), (4, 8, 4), (8, 10, 2)]
    assert cut[1].runs == [(4, [b"4", b"5", b"6", b"7"])]


def test_a_portion_ends_before_it_has_too_many_bytes_and_a_larger_record_is_alone() -> None:
    found = batch(0, [b"a" * 40, b"b" * 40, b"c" * 40, b"d" * 500, b"e" * 10])
    assert shape(chunks_of_read([found], 0, 5, ChunkLimits(64, 100))) == [(0, 2, 2), (2, 3, 1), (3, 4, 1), (4, 5, 1)]


def test_gaps_are_between_runs_and_belong_to_a_portion() -> None:
    (cut,) = chunks_of_read([numbers(2, 2), numbers(4, 1), numbers(9, 1)], 0, 12, ChunkLimits(64, 1000))
    assert (cut.start, cut.end) == (0, 12)
    assert cut.runs == [(2, [b"2", b"3", b"4"]), (9, [b"9"])]
    assert (cut.count, cut.size) == (4, 4)


def test_what_was_passed_without_anything_live_is_an_empty_portion() -> None:
    (cut,) = chunks_of_read([], 5, 20, ChunkLimits(64, 1000))
    assert (cut.start, cut.end, cut.count, cut.runs) == (5, 20, 0, [])
    assert chunks_of_read([], 5, 5, ChunkLimits(64, 1000)) == []


def test_a_last_portion_that_more_would_fit_into_is_left_to_the_next_read() -> None:
    assert shape(chunks_of_read([numbers(0, 10)], 0, 10, ChunkLimits(4, 1000), more=True)) == [(0, 4, 4), (4, 8, 4)]
    assert shape(chunks_of_read([numbers(0, 3)], 0, 3, ChunkLimits(4, 1000), more=True)) == [(0, 3, 3)]


def test_a_portion_knows_when_its_first_record_expires() -> None:
    found = batch(0, [b"a", b"b", b"c"], expires=[0, NOW + 9, NOW + 5])
    assert [cut.until for cut in chunks_of_read([found], 0, 3, ChunkLimits(1, 100))] == [FOREVER, NOW + 9, NOW + 5]
    assert [cut.until for cut in chunks_of_read([found], 0, 3, ChunkLimits(64, 100))] == [NOW + 5]
    assert [cut.until for cut in chunks_of_read([found], 0, 3, ChunkLimits(64, 100), lifetime=3)] == [NOW + 3]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.binary(max_size=30), min_size=1, max_size=8)), max_size=8),
    st.integers(1, 10),
    st.integers(1, 60),
)
def test_no_record_is_lost_or_doubled_however_it_is_cut(
    pieces: list[tuple[int, list[bytes]]], events: int, size: int
) -> None:
    found: list[RecordSlice] = []
    expected: dict[int, bytes] = {}
    at = 0
    for gap, values in pieces:
        at += gap
        found.append(batch(at, values))
        expected.update(enumerate(values, at))
        at += len(values)
    cut = chunks_of_read(found, 0, at, ChunkLimits(events, size))
    assert [each.start for each in cut] == [0, *(each.end for each in cut)][: len(cut)]
    assert (cut[-1].end if cut else 0) == at
    assert contents(cut) == expected
    for each in cut:
        assert each.count <= events
        assert each.count == 1 or each.size <= size


def contents(cut: list[EncodedChunk]) -> dict[int, bytes]:
    runs: list[ValueRun] = [run for each in cut for run in each.runs]
    return {offset + index: value for offset, values in runs for index, value in enumerate(values)}


def test_part_of_a_portion() -> None:
    whole = EncodedChunk(0, 12, [(2, [b"2", b"3", b"4"]), (9, [b"9"])], 4)
    part = whole.between(3, 9)
    assert (part.start, part.end, part.runs, part.size) == (3, 9, [(3, [b"3", b"4"])], 2)
    assert whole.between(5, 9).runs == []


# -- encodings


def test_what_was_made_of_a_portion_is_made_once_for_each_key() -> None:
    made: list[EncodedChunk] = []
    whole = chunk(0)

    def make(each: EncodedChunk) -> bytes:
        made.append(each)
        return b"%d" % len(made)

    assert [whole.encoded(key, make) for key in ("a", "b", "a", "b")] == [b"1", b"2", b"1", b"2"]
    assert made == [whole, whole]


def test_a_portion_keeps_only_so_many_forms() -> None:
    whole = chunk(0)
    before = whole.cost
    for key in range(3 * MAX_ENCODINGS):
        whole.encoded(key, lambda _: bytes(100))
    assert len(whole.encodings) == MAX_ENCODINGS
    assert whole.cost == before + 100 * MAX_ENCODINGS


# -- the window


def test_a_window_gives_back_what_was_put() -> None:
    window = ChunkWindow(MemoryBudget())
    first, second = chunk(0, 4), chunk(4, 4)
    window.put(first)
    window.put(second)
    assert window.get(0, NOW) is first
    assert window.get(4, NOW) is second
    assert window.get(2, NOW) is None
    assert window.around(2, NOW) is first
    assert window.around(4, NOW) is None, "it starts there"
    assert window.around(8, NOW) is None
    assert (window.next_start(0), window.next_start(1), window.next_start(4)) == (4, 4, None)


def test_what_was_not_asked_for_longest_goes_first() -> None:
    window = ChunkWindow(MemoryBudget(), limit=chunk(0).cost * 2)
    window.put(chunk(0))
    window.put(chunk(1))
    assert window.get(0, NOW)
    window.put(chunk(2))
    assert window.get(1, NOW) is None
    assert window.get(0, NOW)
    assert window.get(2, NOW)
    assert window.next_start(0) == 2


def test_forms_count_and_the_last_portion_stays() -> None:
    window = ChunkWindow(MemoryBudget(), limit=5_000)
    for start in range(3):
        window.put(chunk(start))
    last = chunk(3)
    window.put(last)
    last.encoded("a", lambda _: bytes(10_000))
    assert len(window) == 1
    assert window.get(3, NOW) is last
    assert window.used == last.cost > 10_000


def test_all_windows_together_are_bounded() -> None:
    budget = MemoryBudget(chunk(0).cost * 4)
    windows = [ChunkWindow(budget) for _ in range(3)]
    for start in range(10):
        for window in windows:
            window.put(chunk(start))
    assert budget.used <= budget.limit
    assert budget.used == sum(window.used for window in windows)
    for window in windows:
        window.clear()
    assert budget.used == 0
    assert windows[0].next_start(-1) is None


def test_what_has_expired_is_not_given() -> None:
    window = ChunkWindow(MemoryBudget())
    window.put(chunk(0, 4, until=NOW))
    assert window.around(2, NOW - 1)
    assert window.around(2, NOW) is None
    assert window.get(0, NOW - 1)
    assert window.get(0, NOW) is None
    assert window.used == 0


def test_a_portion_that_was_dropped_costs_nothing_any_more() -> None:
    budget = MemoryBudget()
    window = ChunkWindow(budget)
    old = chunk(0)
    window.put(old)
    window.put(chunk(0))  # in its ref
    old.encoded("a", lambda _: bytes(1000))
    assert budget.used == window.used == chunk(0).cost


# -- what was appended just now


def test_of_what_was_appended_just_now_the_oldest_goes_first_whoever_asked_for_it() -> None:
    budget = MemoryBudget()
    new = AppendedChunks(budget, limit=chunk(0).cost * 2)
    new.put([chunk(0), chunk(1)])
    assert new.get(0) is not None
    new.put([chunk(2)])
    assert [new.get(start) is not None for start in range(3)] == [False, True, True]
    assert budget.used == new.used == chunk(0).cost * 2
    new.clear()
    assert (budget.used, new.used, new.get(2)) == (0, 0, None)


def test_what_is_around_an_offset_and_next_to_it() -> None:
    new = AppendedChunks(MemoryBudget())
    assert (new.around(3), new.next_start(3)) == (None, None)
    first, second = chunk(10, 4), chunk(20, 4)
    new.put([first, second])
    assert [new.around(offset) for offset in (9, 10, 11, 13, 14, 19, 20, 23, 24)] == [
        None, None, first, first, None, None, None, second, None,
    ]  # fmt: skip
    assert [new.next_start(offset) for offset in (3, 9, 10, 19, 20, 30)] == [10, 10, 20, 20, None, None]
    new.release(first)
    assert (new.get(10), new.around(11), new.next_start(3)) == (None, None, 20)
    assert new.used == second.cost


def test_what_was_made_of_it_counts_too_and_all_of_it_may_go() -> None:
    budget = MemoryBudget()
    new = AppendedChunks(budget, limit=5_000)
    first = chunk(0)
    new.put([first])
    first.encoded("a", lambda _: bytes(1_000))
    assert new.used == first.cost > 1_000
    first.encoded("b", lambda _: bytes(9_000))  # while somebody is about to send it
    assert (new.get(0), new.used, budget.used) == (None, 0, 0)
    first.encoded("c", lambda _: bytes(9_000))
    assert budget.used == 0


def test_what_was_appended_just_now_has_its_share_of_what_all_may_hold() -> None:
    budget = MemoryBudget(limit=chunk(0).cost * 2)
    window, new = ChunkWindow(budget), AppendedChunks(budget)
    window.put(chunk(0))
    new.put([chunk(number) for number in range(10)])
    assert budget.used <= budget.limit
    assert new.get(9) is not None


def test_it_is_wanted_as_long_as_nothing_goes_that_nobody_took() -> None:
    new = AppendedChunks(MemoryBudget(), limit=chunk(0).cost)
    assert not new.wanted
    new.put([chunk(0)])
    taken = new.get(0)
    assert taken is not None and new.wanted
    taken.encoded("a", lambda _: b"")
    new.put([chunk(1)])
    assert new.wanted
    new.put([chunk(2)])
    assert not new.wanted


@given(st.lists(st.integers(0, 60), min_size=1, max_size=50), st.integers(1, 8), st.integers(1, 100))
def test_what_was_appended_is_cut_and_nothing_is_lost(sizes: list[int], events: int, limit: int) -> None:
    values = [bytes([number]) * size for number, size in enumerate(sizes)]
    cut = appended_chunks(100, values, ChunkLimits(events, limit), 7)
    assert contents(cut) == {100 + number: value for number, value in enumerate(values)}
    assert all(one.end == other.start for one, other in pairwise(cut))
    assert (cut[0].start, cut[-1].end) == (100, 100 + len(values))
    assert all(each.count <= events and (each.size <= limit or each.count == 1) for each in cut)


@given(st.integers(1, 50), st.integers(1, 60), st.integers(1, 8), st.integers(1, 100))
def test_values_of_one_length_are_cut_like_any_others(count: int, size: int, events: int, limit: int) -> None:
    values = [bytes([number]) * size for number in range(count)]
    block = EqualValues.of(b"".join(size.to_bytes(4) + value for value in values), 0, count, size)
    limits = ChunkLimits(events, limit)
    found, expected = appended_chunks(100, block, limits, 7), appended_chunks(100, values, limits, 7)
    assert [(each.start, each.end, each.runs, each.size, each.count, each.times) for each in found] == [
        (each.start, each.end, each.runs, each.size, each.count, each.times) for each in expected
    ]
    assert all(each.size + 4 * each.count < each.cost for each in found)


def test_several_batches_make_one_portion() -> None:
    parts = [EqualValues.of((b"\0\0\0\1" + b"%d" % number) * 3, 0, 3, 1) for number in range(4)]
    cut = appended_chunks(100, EqualValues.merged(parts), ChunkLimits(5, 1000), 7)
    assert shape(cut) == [(100, 105, 5), (105, 110, 5), (110, 112, 2)]
    assert contents(cut) == dict(enumerate([b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3 + [b"3"] * 3, 100))


def test_what_is_left_of_a_large_frame_does_not_keep_all_of_it() -> None:
    limits, count, size = ChunkLimits(16, 1 << 20), 64, 64 << 10
    tracemalloc.start()
    try:
        block = EqualValues.of((size.to_bytes(4) + bytes(size)) * count, 0, count, size)
        *_, last = appended_chunks(100, block, limits, 7)
        del block, _
        assert len(last.runs[0][1]) == 16
        assert tracemalloc.get_traced_memory()[0] < 17 * size
    finally:
        tracemalloc.stop()
