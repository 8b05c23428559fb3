from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.broker_fixture import START, BrokerFixture
from tests.effort import scaled

from penstock.broker.errors import LimitReached, QuotaReached
from penstock.broker.fetch import visible_read
from penstock.broker.fetch.removal import RemovedRecords, apply_removed, remove
from penstock.broker.fetch.visible_read import MAX_CHECKED_PER_STEP, MAX_SLICES_PER_STEP, MAX_STEPS, VisibleRead
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE as HERE
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.state.events import RecordsRemoved
from penstock.broker.state.state import decode_snapshot, encode_snapshot
from penstock.broker.topics.id_lookup import stream_id
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import partition_id
from penstock.log.errors import OffsetOutOfRange
from penstock.log.file_engine import LogSettings

BIG = 1 << 30
PLACE = partition_id(1, 0)
SECOND = 1_000_000
ON_DISK = LogSettings(file_bytes=64 << 10, tail_bytes=0, cache_bytes=0)  # every read goes to the disk
both = pytest.mark.parametrize("log", [None, ON_DISK], ids=["memory", "disk"])


def made(log: LogSettings | None = None, expiry: float | None = None, **options: Any) -> BrokerFixture:
    fixture = BrokerFixture(log, **options)
    fixture.broker.topics.create(ME, HERE, "t", 1, TopicSettings(expiry_seconds=expiry))
    fixture.commit()
    return fixture


def store(fixture: BrokerFixture, *values: bytes, lifetimes: list[float] | None = None) -> None:
    """`lifetimes`: seconds until each expires; 0: never."""
    expires = None if lifetimes is None else [fixture.now + int(s * SECOND) if s else 0 for s in lifetimes]
    fixture.broker.produce.append(ME, HERE, "t", 0, values, expires=expires)
    fixture.commit()


def take_out(fixture: BrokerFixture, *offsets: int) -> None:
    fixture.broker.state_log.commit((RecordsRemoved(1, 0, list(offsets)),))
    fixture.commit()


def plan(fixture: BrokerFixture, offset: int = 0, max_bytes: int = BIG, max_records: int = BIG) -> VisibleRead:
    return fixture.broker.fetch.plan(ME, HERE, "t", 0, offset, max_bytes, max_records)


def found(read: VisibleRead) -> list[tuple[int, bytes]]:
    records: list[tuple[int, bytes]] = []
    for part in read.run():
        assert len(part) > 0
        records += enumerate(part.values(), part.base_offset)
    return records


def fetched(
    fixture: BrokerFixture, offset: int = 0, max_bytes: int = BIG, max_records: int = BIG
) -> list[tuple[int, bytes]]:
    """As a session does it: one fetch, in as many steps as it takes."""
    read = plan(fixture, offset, max_bytes, max_records)
    records = found(read)
    while (continuation := read.continuation()) is not None:
        assert not records
        assert not continuation.ready  # not on the loop's thread
        read, records = continuation, found(continuation)
    return records


# -- expiry


@both
def test_records_are_delivered_until_they_expire_and_then_no_more(log: LogSettings | None) -> None:
    fixture = made(log)
    store(fixture, b"a", b"b", b"c", b"d", lifetimes=[0, 1, 2, 0])
    assert fetched(fixture) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    fixture.pass_time(0.999_999)
    assert len(fetched(fixture)) == 4
    fixture.pass_time(0.000_001)
    assert fetched(fixture) == [(0, b"a"), (2, b"c"), (3, b"d")]
    fixture.pass_time(1)
    assert fetched(fixture) == [(0, b"a"), (3, b"d")]
    assert plan(fixture, 1).run()[0].base_offset == 3
    fixture.restart()
    assert fetched(fixture) == [(0, b"a"), (3, b"d")]


def test_a_stream_that_is_named_by_its_number_shows_the_same_records() -> None:
    fixture = made(None)
    store(fixture, b"a", b"b", b"c", lifetimes=[0, 1, 0])
    number = stream_id(fixture.broker.topics.describe(ME, HERE, "t").topic.id)
    for shown in ([(0, b"a"), (1, b"b"), (2, b"c")], [(0, b"a"), (2, b"c")]):
        assert fetched(fixture) == shown
        assert found(fixture.broker.fetch.plan_stream(ME, HERE, number, 0, BIG, BIG)[1]) == shown
        fixture.pass_time(1)


@both
def test_the_topics_own_expiry_counts_from_when_a_record_was_stored(log: LogSettings | None) -> None:
    fixture = made(log, expiry=1.5)
    for number in range(4):
        store(fixture, b"%d" % number)
        fixture.pass_time(0.5)
    assert fetched(fixture) == [(2, b"2"), (3, b"3")]
    fixture.pass_time(0.5)
    assert fetched(fixture) == [(3, b"3")]
    fixture.broker.topics.change(ME, HERE, "t", TopicSettings())
    assert len(fetched(fixture)) == 4


def test_a_batch_that_is_half_expired_is_cut_where_it_is() -> None:
    fixture = made(expiry=1)
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"0", b"1"])
    fixture.pass_time(0.5)
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"2"])
    fixture.commit()  # one batch with two times
    fixture.pass_time(0.5)
    assert fetched(fixture) == [(2, b"2")]


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), 1e300])
def test_an_expiry_that_makes_no_sense_is_none(seconds: float) -> None:
    fixture = made(expiry=seconds)
    store(fixture, b"v")
    fixture.pass_time(10)
    assert fetched(fixture) == [(0, b"v")]


def test_the_moment_of_a_fetch_is_when_it_is_planned() -> None:
    fixture = made(ON_DISK)
    store(fixture, b"v", lifetimes=[1])
    read = plan(fixture)
    assert not read.ready
    fixture.pass_time(2)
    assert found(read) == [(0, b"v")]


def test_nothing_is_looked_at_where_nothing_expires() -> None:
    fixture = made()
    store(fixture, *[b"v"] * 100)
    read = plan(fixture)
    (part,) = read.run()
    assert part.batch.flags == 0 and len(part) == 100
    assert visible_read.view(
        fixture.broker.state_log.state, fixture.broker.state_log.state.topics_by_id[1], 0, fixture.now
    ).shows_all(part)
    assert (read.end, read.all_filtered, read.continuation()) == (100, False, None)


# -- going on


def test_a_fetch_goes_on_past_what_has_expired() -> None:
    fixture = made()
    store(fixture, *[b"old"] * 10, lifetimes=[1] * 10)
    store(fixture, b"new")
    fixture.pass_time(2)
    read = plan(fixture, max_records=3)
    assert (found(read), read.end, read.all_filtered) == ([], 3, True)
    continuation = read.continuation()
    assert continuation is not None
    assert (found(continuation), continuation.end, continuation.continuation()) == ([(10, b"new")], 11, None)


def test_at_the_end_of_what_has_expired_the_fetch_says_where_it_is() -> None:
    fixture = made()
    store(fixture, *[b"old"] * 10, lifetimes=[1] * 10)
    fixture.pass_time(2)
    read = plan(fixture)
    assert (found(read), read.end, read.continuation()) == ([], 10, None)
    store(fixture, b"new")
    assert fetched(fixture, read.end) == [(10, b"new")]


def test_limits_count_what_is_delivered_also_when_more_is_read_at_once() -> None:
    fixture = made()
    store(fixture, *[b"old"] * 10, lifetimes=[1] * 10)
    store(fixture, *[b"123"] * 10, lifetimes=[0] * 10)
    fixture.pass_time(2)
    assert [offset for offset, _ in fetched(fixture, max_records=4)] == [10, 11, 12, 13]
    assert [offset for offset, _ in fetched(fixture, max_bytes=7, max_records=5)] == [10, 11]
    assert [offset for offset, _ in fetched(fixture, max_bytes=0)] == [10]
    assert fetched(fixture, max_records=0) == []


def test_many_expired_records_are_passed_in_bounded_steps() -> None:
    fixture = made(LogSettings(file_bytes=1 << 20))
    for _ in range(10):
        store(fixture, *[b"old"] * MAX_CHECKED_PER_STEP, lifetimes=[1] * MAX_CHECKED_PER_STEP)
    store(fixture, b"new")
    fixture.pass_time(2)
    read = plan(fixture)
    records = found(read)
    ends = [0, read.end]
    while not records and (continuation := read.continuation()) is not None:
        read, records = continuation, found(continuation)
        ends.append(read.end)
    assert records == [(10 * MAX_CHECKED_PER_STEP, b"new")]
    assert len(ends) >= 10
    assert max(end - before for before, end in pairwise(ends)) <= MAX_CHECKED_PER_STEP


def test_a_fetch_gives_up_after_so_many_steps_and_says_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible_read, "MAX_CHECKED_PER_STEP", 4)
    fixture = made()
    for _ in range(MAX_STEPS + 10):
        store(fixture, *[b""] * 4, lifetimes=[1] * 4)
    store(fixture, b"new")
    fixture.pass_time(2)
    assert fetched(fixture, max_records=4) == []
    read = plan(fixture, max_records=4)
    steps = 0
    while (found(read) == []) and (continuation := read.continuation()) is not None:
        read, steps = continuation, steps + 1
    assert steps == MAX_STEPS
    assert fetched(fixture, read.end) == [(4 * (MAX_STEPS + 10), b"new")]


def test_records_that_expire_in_turn_come_in_portions() -> None:
    fixture = made(LogSettings(file_bytes=1 << 20))
    count = 3 * MAX_SLICES_PER_STEP
    store(fixture, *[b"%d" % n for n in range(count)], lifetimes=[n % 2 for n in range(count)])
    fixture.pass_time(2)
    offset, portions, records = 0, [], []
    while offset < count:
        read = plan(fixture, offset)
        portion = found(read)
        portions.append(len(portion))
        records += portion
        offset = read.end
    assert records == [(n, b"%d" % n) for n in range(0, count, 2)]
    assert max(portions) == MAX_SLICES_PER_STEP


def test_retention_may_come_by_between_two_steps() -> None:
    fixture = made()
    store(fixture, *[b"old"] * 10, lifetimes=[1] * 10)
    store(fixture, b"a", b"b")
    fixture.pass_time(2)
    read = plan(fixture, max_records=2)
    assert found(read) == []
    fixture.engine.trim({PLACE: 11})
    fixture.commit()
    continuation = read.continuation()
    assert continuation is not None
    assert found(continuation) == [(11, b"b")]
    with pytest.raises(OffsetOutOfRange):
        plan(fixture, 0)


# -- removal


@both
def test_removed_records_are_not_delivered(log: LogSettings | None) -> None:
    fixture = made(log)
    store(fixture, *[b"%d" % n for n in range(6)])
    take_out(fixture, 1, 4, 5)
    assert fetched(fixture) == [(0, b"0"), (2, b"2"), (3, b"3")]
    assert fetched(fixture, 4) == []
    assert plan(fixture, 4).continuation() is None
    fixture.restart()
    assert fetched(fixture) == [(0, b"0"), (2, b"2"), (3, b"3")]


def test_all_below_an_offset_may_be_removed_before_the_start_has_moved() -> None:
    fixture = made()
    store(fixture, *[b"%d" % n for n in range(6)])
    fixture.broker.state_log.commit((RecordsRemoved(1, 0, [5], 3),))
    assert fetched(fixture) == [(3, b"3"), (4, b"4")]
    store(fixture, b"6")
    assert fetched(fixture, 5) == [(6, b"6")]


def test_a_read_under_way_keeps_what_it_began_with() -> None:
    fixture = made(ON_DISK)
    store(fixture, b"a", b"b")
    read = plan(fixture)
    take_out(fixture, 0)
    assert found(read) == [(0, b"a"), (1, b"b")]


def test_what_was_removed_is_there_again_if_the_removal_was_not_kept() -> None:
    fixture = made()
    store(fixture, b"a", b"b")
    fault = fixture.fill_disk()
    fixture.broker.state_log.commit((RecordsRemoved(1, 0, [0]),))
    assert fetched(fixture) == [(1, b"b")]
    fixture.commit()
    assert fetched(fixture) == [(0, b"a"), (1, b"b")]
    fixture.free_disk(fault)


def test_what_is_removed_at_the_front_moves_the_start_and_is_forgotten() -> None:
    limits = Limits()
    removed = {PLACE: RemovedRecords(1, frozenset({3, 5}))}
    event = remove(removed, limits, PLACE, [2], 2, "t", lambda _: True)
    assert event == RecordsRemoved(1, 0, [2], 4)
    apply_removed(removed, event)
    assert removed == {PLACE: RemovedRecords(4, frozenset({5}))}
    apply_removed(removed, remove(removed, limits, PLACE, [4], 2, "t", lambda _: True))
    assert removed == {PLACE: RemovedRecords(6)}


def test_how_many_may_be_removed_is_limited() -> None:
    limits = Limits(removed_per_partition=3, removed=5, tenant_share=1)
    removed = {PLACE: RemovedRecords(0, frozenset({1, 2, 3}))}
    with pytest.raises(LimitReached):
        remove(removed, limits, PLACE, [5], 0, "t", lambda _: True)
    assert remove(removed, limits, PLACE, [0], 0, "t", lambda _: True).below == 4  # that makes room
    other = partition_id(2, 0)
    removed[other] = RemovedRecords(0, frozenset({7}))
    assert remove(removed, limits, other, [8], 0, "t", lambda _: True).offsets == [8]
    removed[other] = RemovedRecords(0, frozenset({7, 8}))
    with pytest.raises(LimitReached):
        remove(removed, limits, other, [9], 0, "t", lambda _: True)


def test_a_tenant_leaves_others_the_room_to_remove_records() -> None:
    limits, other = Limits(removed=6), partition_id(2, 0)
    removed = {PLACE: RemovedRecords(0, frozenset({1, 2, 3}))}
    with pytest.raises(QuotaReached):
        remove(removed, limits, PLACE, [5], 0, "greedy", lambda place: place == PLACE)
    assert remove(removed, limits, other, [5], 0, "modest", lambda place: place == other).offsets == [5]


def test_a_snapshot_keeps_what_was_removed() -> None:
    fixture = made()
    store(fixture, *[b"v"] * 9)
    take_out(fixture, 3, 7)
    fixture.broker.state_log.commit((RecordsRemoved(1, 0, [], 2),))
    state = decode_snapshot(encode_snapshot(fixture.broker.state_log.state))
    assert state.removed == {PLACE: RemovedRecords(2, frozenset({3, 7}))}


# -- everything at once


@settings(max_examples=scaled(150), deadline=None)
@given(
    batches=st.lists(
        st.tuples(st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), min_size=1, max_size=6), st.booleans()), max_size=8
    ),
    removed=st.sets(st.integers(0, 40), max_size=10),
    expiry=st.sampled_from([None, None, 1, 2.5]),
    elapsed=st.integers(0, 4),
    max_bytes=st.sampled_from([0, 3, 10, BIG]),
    max_records=st.sampled_from([1, 2, 7, BIG]),
    log=st.sampled_from([None, ON_DISK]),
)
def test_fetches_in_a_row_deliver_exactly_what_is_live(
    batches: list[tuple[list[int], bool]],
    removed: set[int],
    expiry: float | None,
    elapsed: int,
    max_bytes: int,
    max_records: int,
    log: LogSettings | None,
) -> None:
    fixture = made(log, expiry)
    expected: list[tuple[int, bytes, int, int]] = []  # offset, value, stored, expires
    for lifetimes, wait in batches:
        values = [b"%d" % (len(expected) + n) for n in range(len(lifetimes))]
        for value, seconds in zip(values, lifetimes, strict=True):
            expires = fixture.now + seconds * SECOND if seconds else 0
            expected.append((len(expected), value, fixture.now, expires))
        store(fixture, *values, lifetimes=list(map(float, lifetimes)))
        if wait:
            fixture.pass_time(0.7)
    take_out(fixture, *removed)
    fixture.pass_time(elapsed)
    alive = [
        (offset, value)
        for offset, value, stored, expires in expected
        if offset not in removed
        and not 0 < expires <= fixture.now
        and not (expiry and stored + int(expiry * SECOND) <= fixture.now)
    ]
    records: list[tuple[int, bytes]] = []
    offset = 0
    while offset < len(expected):
        read = plan(fixture, offset, max_bytes, max_records)
        portion = found(read)
        while not portion and (continuation := read.continuation()) is not None:
            read, portion = continuation, found(continuation)
        assert len(portion) <= max_records
        assert len(portion) <= 1 or sum(len(value) for _, value in portion) <= max_bytes
        records += portion
        assert read.end > offset
        offset = read.end
    assert records == alive
    assert fixture.now >= START
