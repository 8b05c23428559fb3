"""A partition's newest batches in memory: what readers get of them, and which stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.batch import Batch, RecordSlice
from penstock.log.engine import partition_id
from penstock.log.open_batch import OpenBatch
from penstock.log.partition import BATCH_OVERHEAD, PartitionLog, Tail

P = partition_id(1, 0)
PLENTY = 1 << 30


def batch_of(values: list[bytes], base: int, keys: list[bytes | None] | None = None) -> Batch:
    open_batch = OpenBatch(P, base)
    open_batch.extend(values, keys, None, None, 1000)
    return Batch(open_batch.build(base))


def log_of(batches: list[list[bytes]], base: int = 0) -> PartitionLog:
    log = PartitionLog(0, base)
    for values in batches:
        batch = batch_of(values, log.high_watermark)
        log.tail.append(batch)
        log.high_watermark = log.next_offset = batch.end_offset
    return log


def values(slices: list[RecordSlice] | None) -> list[bytes] | None:
    return None if slices is None else [value for part in slices for value in part.values()]


# -- reading


def test_an_empty_tail_has_nothing_to_say() -> None:
    assert PartitionLog().slices(0, PLENTY, PLENTY) is None


def test_what_has_left_memory_is_not_answered_from_it() -> None:
    log = log_of([[b"a"], [b"b"]], base=10)
    assert log.slices(9, PLENTY, PLENTY) is None
    assert values(log.slices(10, PLENTY, PLENTY)) == [b"a", b"b"]


@given(
    st.lists(st.lists(st.binary(max_size=8), min_size=1, max_size=5), min_size=1, max_size=6),
    st.data(),
)
def test_readers_get_the_longest_run_that_fits(batches: list[list[bytes]], data: st.DataObject) -> None:
    log = log_of(batches, base=100)
    everything = [value for batch in batches for value in batch]
    first = data.draw(st.integers(0, len(everything) - 1))
    max_bytes, max_records = data.draw(st.integers(0, 60)), data.draw(st.integers(1, 30))
    count, size = 1, len(everything[first])
    while (
        first + count < len(everything) and count < max_records and size + len(everything[first + count]) <= max_bytes
    ):
        size += len(everything[first + count])
        count += 1
    found = log.slices(100 + first, max_bytes, max_records)
    assert found is not None
    got = values(found)
    assert got is not None and got == everything[first : first + len(got)]
    # A read may end early at the edge of a batch when its bytes are used up exactly; it never goes beyond a limit.
    assert 1 <= len(got) <= count
    if size < max_bytes:
        assert len(got) == count
    offset = 100 + first
    for part in found:
        assert part.base_offset == offset
        offset = part.end_offset


@given(
    st.lists(st.lists(st.binary(max_size=8), min_size=1, max_size=5), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=20),
)
def test_one_record_at_a_time_wherever_the_last_read_was(
    batches: list[list[bytes]], reads: list[tuple[int, bool]]
) -> None:
    log = log_of(batches, base=100)
    everything = [value for batch in batches for value in batch]
    start = 0
    for at, forget in reads:
        if forget and len(log.tail) > 1:
            start += log.tail.popleft().count
        if start <= at < len(everything):
            assert values(log.slices(100 + at, 0, 1)) == [everything[at]]
            assert values(log.slices(100 + at, PLENTY, PLENTY)) == everything[at:]


def test_the_newest_batch_alone_is_read_by_both_limits() -> None:
    log = log_of([[b"old"], [b"aa", b"bb", b"cc"]])
    assert values(log.slices(1, 4, PLENTY)) == [b"aa", b"bb"]
    assert values(log.slices(1, PLENTY, 2)) == [b"aa", b"bb"]
    assert values(log.slices(3, PLENTY, PLENTY)) == [b"cc"]
    assert values(log.slices(1, 0, PLENTY)) == [b"aa"]


def test_a_large_record_in_a_later_batch_waits_for_the_next_read() -> None:
    log = log_of([[b"a"], [b"x" * 100]])
    assert values(log.slices(0, 50, PLENTY)) == [b"a"]
    assert values(log.slices(1, 50, PLENTY)) == [b"x" * 100]


# -- what stays in memory


def cost(batch: Batch) -> int:
    return len(batch.data) + BATCH_OVERHEAD


def bases(log: PartitionLog) -> list[int]:
    return [batch.base_offset for batch in log.tail]


def test_the_oldest_batches_of_all_partitions_go_first() -> None:
    one, two = PartitionLog(), PartitionLog()
    batch = batch_of([b"x"], 0)
    tail = Tail(3 * cost(batch))
    for log, base in ((one, 0), (two, 0), (one, 1), (two, 1)):
        tail.publish({P: log}, [batch_of([b"x"], base)])
        tail.written(1)
    assert (bases(one), bases(two)) == ([1], [0, 1])
    tail.publish({P: one}, [batch_of([b"x"], 2)])
    tail.written(1)
    assert (bases(one), bases(two)) == ([1, 2], [1])


def test_what_is_not_on_disk_yet_stays_whatever_the_limit() -> None:
    """At level `memory` records are readable before they are written: they are nowhere else."""
    log = PartitionLog()
    tail = Tail(0)
    assert tail.publish({P: log}, [batch_of([b"x"], base) for base in range(5)]) == []
    assert bases(log) == [0, 1, 2, 3, 4]
    tail.written(2)
    assert bases(log) == [2, 3, 4]
    tail.written(3)
    assert bases(log) == []


def test_what_is_published_is_readable_and_its_watchers_are_known() -> None:
    watched, other = PartitionLog(), PartitionLog()
    watched.watchers = [lambda: None]
    group = [batch_of([b"x"], 0), batch_of([b"y", b"z"], 1)]
    assert Tail(1 << 20).publish({P: watched}, group) == [watched, watched]
    assert watched.high_watermark == 3 and bases(watched) == [0, 1]
    assert Tail(1 << 20).publish({P: other}, group) == [] and other.high_watermark == 3


def test_a_batch_larger_than_the_limit_leaves_at_once() -> None:
    log = PartitionLog()
    tail = Tail(1000)
    tail.publish({P: log}, [batch_of([b"x" * 2000], 0)])
    tail.written(1)
    assert bases(log) == []


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300)), max_size=40), st.integers(0, 5000))
def test_memory_stays_below_the_limit(added: list[tuple[int, int]], limit: int) -> None:
    logs = [PartitionLog() for _ in range(3)]
    tail = Tail(limit)
    newest: list[tuple[int, int]] = []  # (partition, cost) of all batches
    for number, size in added:
        log = logs[number]
        batch = batch_of([b"x" * size], log.next_offset)
        log.next_offset += 1
        tail.publish({P: log}, [batch])
        tail.written(1)
        newest.append((number, cost(batch)))
        kept = sum(cost(batch) for log in logs for batch in log.tail)
        assert kept <= limit
        # As many of the newest as fit, and no hole among them.
        fitting, total = 0, 0
        while fitting < len(newest) and total + newest[-1 - fitting][1] <= limit:
            total += newest[-1 - fitting][1]
            fitting += 1
        assert sum(len(log.tail) for log in logs) == fitting
