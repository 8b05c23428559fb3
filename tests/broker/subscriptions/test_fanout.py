from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, later

from penstock.broker.errors import AccessDenied, BrokerError, PartitionNotFound, TopicNotFound
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.broker.subscriptions import fanout as module
from penstock.broker.subscriptions.fanout import MAX_CHUNKS_PER_READ, FanoutCursor
from penstock.broker.subscriptions.fanout_chunk import APPENDED_BYTES, ChunkLimits, EncodedChunk
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import partition_id
from penstock.log.errors import LogDamaged, LogError, OffsetOutOfRange
from penstock.log.file_engine import LogSettings

HERE = (ANONYMOUS, DEFAULT_SCOPE)
ALICE = Identity("alice")
CUT = ChunkLimits(4, 1000)
SMALL = LogSettings(file_bytes=64 << 10, cache_bytes=0)


class Listener:
    """Takes everything as soon as it is woken, while it has `room` chunks left."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.room = room
        self.chunks: list[EncodedChunk] = []
        self.got: dict[int, bytes] = {}
        self.wakes = 0
        self.deleted = False
        self.error: Exception | None = None
        self.cursor: FanoutCursor

    def wake(self) -> None:
        self.wakes += 1
        self.go_on()

    def go_on(self) -> None:
        while self.room > 0 and self.error is None:
            try:
                chunk = self.cursor.poll()
            except (BrokerError, LogError) as error:
                self.error = error
                return
            if chunk is None:
                return
            self.room -= 1
            self.chunks.append(chunk)
            for offset, values in chunk.runs:
                for index, value in enumerate(values):
                    assert offset + index not in self.got, "delivered twice"
                    self.got[offset + index] = value

    def topic_deleted(self) -> None:
        self.deleted = True
        self.cursor.leave()


def a_broker(records: int = 0, topic: TopicSettings | None = None, **options: Any) -> BrokerFixture:
    fixture = BrokerFixture(**options)
    fixture.broker.topics.create(*HERE, "orders", 1, topic or TopicSettings())
    fixture.commit()
    produce(fixture, records)
    return fixture


def produce(fixture: BrokerFixture, count: int, **options: Any) -> None:
    if count:
        start = fixture.engine.next_offset(ref(fixture))
        fixture.broker.produce.append(
            *HERE, "orders", 0, [b"%d" % (start + number) for number in range(count)], **options
        )
    fixture.commit()


def ref(fixture: BrokerFixture) -> Any:
    return partition_id(fixture.broker.topics.describe(*HERE, "orders").topic.id, 0)


def follow(
    fixture: BrokerFixture,
    offset: int | None = None,
    *,
    room: int = 1_000_000,
    cut: ChunkLimits = CUT,
    identity: Identity = ANONYMOUS,
) -> Listener:
    listener = Listener(room)
    listener.cursor = fixture.broker.fanout.open(identity, DEFAULT_SCOPE, "orders", 0, listener, cut, offset)
    listener.go_on()
    return listener


def expected(*offsets: int) -> dict[int, bytes]:
    return {offset: b"%d" % offset for offset in offsets}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The start offset of each read of the log."""
    starts: list[int] = []

    class Counted(VisibleRead):
        __slots__ = ()

        def __init__(self, engine: Any, partition: Any, offset: int, *rest: Any) -> None:
            starts.append(offset)
            super().__init__(engine, partition, offset, *rest)

    monkeypatch.setattr(module, "VisibleRead", Counted)
    return starts


# -- one subscriber


def test_a_follower_gets_what_is_there_and_then_what_comes() -> None:
    fixture = a_broker(6)
    listener = follow(fixture, 1)
    assert listener.got == expected(1, 2, 3, 4, 5)
    produce(fixture, 3)
    assert listener.got == expected(*range(1, 9))
    assert listener.cursor.lag == 0


def test_without_an_offset_it_gets_only_what_comes() -> None:
    fixture = a_broker(6)
    listener = follow(fixture)
    assert listener.got == {}
    produce(fixture, 2)
    assert listener.got == expected(6, 7)


def test_what_is_not_committed_when_it_comes_is_what_comes() -> None:
    fixture = a_broker()
    fixture.broker.produce.append(*HERE, "orders", 0, [b"0"])
    listener = follow(fixture)
    assert listener.got == {}
    fixture.commit()
    assert listener.got == expected(0)


def test_portions_are_cut_by_count_and_by_bytes() -> None:
    fixture = a_broker(10)
    listener = follow(fixture, 0)
    assert [chunk.count for chunk in listener.chunks] == [4, 4, 2]
    fixture.broker.produce.append(*HERE, "orders", 0, [b"x" * 400, b"y" * 700, b"z" * 2000, b"end"])
    fixture.commit()
    assert [chunk.size for chunk in listener.chunks[3:]] == [400, 700, 2000, 3]


def test_a_follower_that_takes_nothing_is_not_woken() -> None:
    fixture = a_broker()
    listener = follow(fixture, room=0)
    listener.cursor.poll()
    produce(fixture, 1)
    produce(fixture, 1)
    assert listener.wakes == 1
    listener.room = 10
    listener.go_on()
    assert listener.got == expected(0, 1)


def test_one_that_has_left_hears_nothing_more() -> None:
    fixture = a_broker()
    listener, other = follow(fixture), follow(fixture)
    listener.cursor.leave()
    listener.cursor.leave()
    produce(fixture, 1)
    assert listener.wakes == 0
    assert other.got == expected(0)


def test_when_all_have_left_nothing_is_kept() -> None:
    fixture = a_broker(100)
    fanout = fixture.broker.fanout
    listeners = [follow(fixture, 0), follow(fixture, 50)]
    assert fanout.figures().subscribers == 2
    assert fanout.budget.used > 0
    for listener in listeners:
        listener.cursor.leave()
    assert fanout.budget.used == 0
    assert fanout.figures() == (0, 0)
    produce(fixture, 1)


def test_figures() -> None:
    fixture = a_broker(10)
    follow(fixture)
    follow(fixture, 0, room=1)
    assert fixture.broker.fanout.figures() == (2, 6)
    text = fixture.broker.metrics_text(ANONYMOUS)
    assert "\npenstock_broadcast_followers 2.0\n" in text
    assert "\npenstock_broadcast_lag 6.0\n" in text
    assert "\npenstock_broadcast_dropped_total 0.0\n" in text


def test_where_it_may_not_begin() -> None:
    fixture = a_broker(10)
    fixture.engine.trim({ref(fixture): 3})
    fixture.commit()
    for offset in (2, 11):
        with pytest.raises(OffsetOutOfRange):
            follow(fixture, offset)
    follow(fixture, 10)
    follow(fixture, 3)
    with pytest.raises(TopicNotFound):
        fixture.broker.fanout.open(*HERE, "missing", 0, Listener(), CUT)
    with pytest.raises(PartitionNotFound):
        fixture.broker.fanout.open(*HERE, "orders", 1, Listener(), CUT)


# -- sharing


@pytest.mark.parametrize("appended_chunks", [True, False])
def test_a_hundred_followers_cost_one_read_at_most_and_one_form(reads: list[int], appended_chunks: bool) -> None:
    fixture = a_broker()
    listeners = [follow(fixture) for _ in range(100)]
    if appended_chunks:
        produce(fixture, 3)
    else:
        fixture.broker.produce.append_partitioned(*HERE, "orders", [b"0", b"1", b"2"], None, [0, 0, 0])
        fixture.commit()
    assert reads == [] if appended_chunks else [0]
    assert {id(chunk) for listener in listeners for chunk in listener.chunks} == {id(listeners[0].chunks[0])}
    made: list[EncodedChunk] = []

    def make(chunk: EncodedChunk) -> bytes:
        made.append(chunk)
        return b"made"

    for listener in listeners:
        assert listener.chunks[0].encoded("key", make) == b"made"
    assert len(made) == 1
    assert all(listener.wakes == 1 for listener in listeners)


def test_one_slightly_behind_gets_the_portions_of_the_others(reads: list[int]) -> None:
    fixture = a_broker()
    fast, slow = follow(fixture), follow(fixture, room=1)
    for _ in range(5):
        produce(fixture, 2)
    reads.clear()
    slow.room = 100
    slow.go_on()
    assert reads == []
    assert slow.got == fast.got == expected(*range(10))
    assert slow.chunks == fast.chunks


def test_one_that_begins_in_the_midst_of_a_portion_goes_on_with_the_others(reads: list[int]) -> None:
    fixture = a_broker(12)
    first = follow(fixture, 0)
    reads.clear()
    second = follow(fixture, 2)
    assert reads == []
    assert second.got == expected(*range(2, 12))
    assert second.chunks[1:] == first.chunks[1:]
    third = follow(fixture, 2)
    assert third.chunks == second.chunks


def test_one_that_comes_from_further_behind_meets_the_others(reads: list[int]) -> None:
    fixture = a_broker(10)
    first = follow(fixture, 7)  # 7 to 10
    reads.clear()
    second = follow(fixture, 1)
    assert [(chunk.start, chunk.end) for chunk in second.chunks] == [(1, 5), (5, 7), (7, 10)]
    assert second.chunks[-1] is first.chunks[0]
    assert reads == [1]


def test_portions_of_other_sizes_are_not_shared() -> None:
    fixture = a_broker(10)
    follow(fixture, 0)
    assert [chunk.count for chunk in follow(fixture, 0, cut=ChunkLimits(3, 1000)).chunks] == [3, 3, 3, 1]


def test_what_was_pushed_out_of_the_window_is_read_again(reads: list[int]) -> None:
    fixture = a_broker(400)
    fixture.broker.fanout.budget.limit = 5_000  # some seven chunks
    first, second = follow(fixture, 0), follow(fixture, 0, room=3)
    second.room = 1000
    second.go_on()
    assert first.got == second.got == expected(*range(400))
    assert fixture.broker.fanout.budget.used <= 5_000
    assert len(reads) > 400 // (CUT.events * MAX_CHUNKS_PER_READ)


def test_what_nobody_uses_is_forgotten(reads: list[int]) -> None:
    fixture = a_broker(8)
    listener = follow(fixture, 0)
    broker = fixture.broker
    for seconds in (0, 3, 3):
        fixture.pass_time(seconds)
        broker.sweep(fixture.now)
    assert broker.fanout.budget.used == 0
    reads.clear()
    produce(fixture, 1)
    assert listener.got == expected(*range(9))
    behind = follow(fixture, 0)
    assert reads == [0]
    assert behind.got == expected(*range(9))


# -- what was appended just now


def test_what_somebody_waits_for_is_not_read(reads: list[int]) -> None:
    fixture = a_broker()
    listener = follow(fixture)
    for count in (1, 3 * CUT.events + 1, 2):
        produce(fixture, count)
    assert reads == []
    assert listener.got == expected(*range(3 * CUT.events + 4))
    assert all(chunk.count <= CUT.events for chunk in listener.chunks)


def test_one_that_is_alone_takes_it_with_it() -> None:
    fixture = a_broker()
    listener = follow(fixture)
    for count in (1, 3 * CUT.events + 1, 2):
        produce(fixture, count)
    assert listener.got == expected(*range(3 * CUT.events + 4))
    assert fixture.broker.fanout.budget.used == 0
    others = [follow(fixture) for _ in range(2)]
    produce(fixture, 1)
    assert fixture.broker.fanout.budget.used > 0, "which of them is the last one is not known"
    assert all(other.got == expected(3 * CUT.events + 4) for other in others)


def test_one_that_begins_in_the_midst_of_what_is_new_goes_on_with_the_others(reads: list[int]) -> None:
    fixture = a_broker()
    first, second = follow(fixture), follow(fixture)
    for _ in range(3):
        produce(fixture, 4)
    third = follow(fixture, 2)
    assert reads == []
    assert [(chunk.start, chunk.end) for chunk in third.chunks] == [(2, 4), (4, 8), (8, 12)]
    assert third.chunks[1:] == first.chunks[1:] == second.chunks[1:]


def test_one_that_has_to_read_reads_as_far_as_to_what_is_new(reads: list[int]) -> None:
    fixture = a_broker()
    listener = follow(fixture, room=1)
    produce(fixture, 1)
    for count in (2, 4, 4):
        produce(fixture, count)
    budget = fixture.broker.fanout.budget
    budget.limit = budget.used + 200
    produce(fixture, 4)  # and the oldest goes
    listener.room = 100
    listener.go_on()
    assert reads == [1]
    assert [(chunk.start, chunk.end) for chunk in listener.chunks] == [(0, 1), (1, 3), (3, 7), (7, 11), (11, 15)]
    assert listener.got == expected(*range(15))


def test_what_could_not_be_kept_reaches_nobody() -> None:
    fixture = a_broker()
    listener = follow(fixture)
    fault = fixture.fill_disk()
    fixture.broker.produce.append(*HERE, "orders", 0, [b"lost"])
    fixture.commit()
    assert listener.got == {}
    fixture.free_disk(fault)
    fixture.broker.produce.append(*HERE, "orders", 0, [b"kept"])  # at the same offset
    assert listener.got == {}
    fixture.commit()
    assert listener.got == {0: b"kept"}


def test_what_could_not_be_kept_does_not_stand_for_what_has_its_offset_later() -> None:
    fixture = a_broker()
    listener = follow(fixture)
    fault = fixture.fill_disk()
    fixture.broker.produce.append(*HERE, "orders", 0, [b"lost"])
    fixture.commit()
    fixture.free_disk(fault)
    fixture.broker.produce.append(
        *HERE, "orders", 0, [b"kept"], expires=[fixture.now + 1_000_000]
    )  # such are read from the log
    fixture.commit()
    assert listener.got == {0: b"kept"}


def test_what_was_appended_before_a_change_and_committed_after_it_is_read() -> None:
    fixture = a_broker(1)
    idle, late = follow(fixture), follow(fixture, 0, room=0)
    fixture.broker.produce.append(*HERE, "orders", 0, [b"1"])
    fixture.broker.topics.change(*HERE, "orders", TopicSettings(expiry_seconds=10))
    late.room = 1
    late.go_on()  # this one sees the change first
    fixture.commit()
    assert idle.got == expected(1)
    fixture.pass_time(11)
    late.room = 10
    late.go_on()
    assert late.got == expected(0)


def test_one_that_lags_reads_the_log_and_little_is_kept_for_it() -> None:
    fixture = a_broker()
    listener = follow(fixture, room=1)
    produce(fixture, 2)
    used = fixture.broker.fanout.budget.used
    for _ in range(50):
        produce(fixture, 20)
    assert fixture.broker.fanout.budget.used <= used + APPENDED_BYTES
    listener.room = 10_000
    listener.go_on()
    assert listener.got == expected(*range(1002))


def test_records_that_expire_are_read_when_they_are_taken(reads: list[int]) -> None:
    fixture = a_broker()
    listener = follow(fixture)
    produce(fixture, 2, expires=[fixture.now + 1_000_000, 0])
    assert reads == [0]
    assert listener.got == expected(0, 1)
    short = a_broker(topic=TopicSettings(expiry_seconds=60))
    other = follow(short)
    produce(short, 1)
    produce(short, 1)
    assert other.got == expected(0, 1)
    assert len(reads) == 3


def test_one_that_fails_is_nobody_elses_business(caplog: pytest.LogCaptureFixture) -> None:
    fixture = a_broker()
    before, broken, after = follow(fixture), follow(fixture), follow(fixture)
    broken.go_on = lambda: 1 // 0  # type: ignore[method-assign,assignment]
    produce(fixture, 1)
    assert before.got == after.got == expected(0)
    assert "a subscriber of a partition failed" in caplog.text


# -- reads that take their time


class DiskFixture:
    """A broker whose records are on disk only, and reads are carried out when the test says so."""

    def __init__(self, records: int) -> None:
        self.calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.fixture = a_broker(0, settings=SMALL, executor=later(self.calls))
        for _ in range(records // 8):
            self.fixture.broker.produce.append(*HERE, "orders", 0, [bytes(100)] * 8)
            self.fixture.commit()
        produce(self.fixture, records % 8)
        self.fixture.restart()  # nothing is in memory after that

    def run(self) -> int:
        calls, self.calls[:] = list(self.calls), []
        for work, done in calls:
            work()
            done()
        return len(calls)


def test_a_read_from_disk_is_made_off_the_loop_and_shared() -> None:
    slowly = DiskFixture(100)
    first, second = follow(slowly.fixture, 0), follow(slowly.fixture, 0)
    assert (first.got, second.got) == ({}, {})
    assert len(slowly.calls) == 1
    while slowly.run():
        pass
    assert list(first.got) == list(second.got) == list(range(100))
    assert (first.error, second.error) == (None, None)
    assert first.chunks == second.chunks


def test_a_read_brings_several_portions_at_once() -> None:
    slowly = DiskFixture(CUT.events * MAX_CHUNKS_PER_READ * 3)
    listener = follow(slowly.fixture, 0)
    rounds = 0
    while slowly.run():
        rounds += 1
    assert len(listener.got) == CUT.events * MAX_CHUNKS_PER_READ * 3
    assert rounds == 3


def test_a_follower_that_asks_again_while_a_read_is_under_way_is_woken_once() -> None:
    slowly = DiskFixture(8)
    listener = follow(slowly.fixture, 0)
    listener.go_on()
    assert len(slowly.calls) == 1
    slowly.run()
    assert listener.wakes == 1
    assert list(listener.got) == list(range(8))


def test_a_follower_that_left_meanwhile_is_left_alone() -> None:
    slowly = DiskFixture(8)
    first, second = follow(slowly.fixture, 0), follow(slowly.fixture, 0)
    first.cursor.leave()
    slowly.run()
    assert first.wakes == 0
    assert list(second.got) == list(range(8))
    second.cursor.leave()
    third = follow(slowly.fixture, 0)
    third.cursor.leave()
    slowly.run()
    assert third.wakes == 0


def test_even_if_nothing_can_be_kept_a_slow_read_gets_further() -> None:
    slowly = DiskFixture(40)
    slowly.fixture.broker.fanout.budget.limit = 0
    listener = follow(slowly.fixture, 0)
    rounds = 0
    while slowly.run():
        rounds += 1
        assert rounds <= 40
    assert list(listener.got) == list(range(40))


@pytest.mark.parametrize("error", [LogDamaged("a file", 7, "broken"), OSError("the disk does not answer")])
def test_a_read_that_fails_is_told(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    slowly = DiskFixture(8)
    first, second = follow(slowly.fixture, 0), follow(slowly.fixture, 0)

    def fail(_: VisibleRead) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(VisibleRead, "run", fail)
        assert slowly.run() == 1
    for listener in (first, second):
        assert isinstance(listener.error, LogError)
        assert str(error) in str(listener.error)
    assert not slowly.calls, "it is not tried for ever"
    third = follow(slowly.fixture, 0)
    slowly.run()
    assert list(third.got) == list(range(8))


def test_a_read_that_fails_because_the_topic_was_deleted_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    slowly = DiskFixture(8)
    listener = follow(slowly.fixture, 0)
    slowly.fixture.broker.topics.delete(*HERE, "orders")
    slowly.fixture.commit()
    with monkeypatch.context() as patched:
        patched.setattr(VisibleRead, "run", _fail)
        slowly.run()
    assert isinstance(listener.error, TopicNotFound)


def test_a_read_that_fails_is_no_business_of_one_that_has_gone_on_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    slowly = DiskFixture(16)
    listener = follow(slowly.fixture, 0)
    listener.cursor.skip(8)
    with monkeypatch.context() as patched:
        patched.setattr(VisibleRead, "run", _fail)
        slowly.run()
    slowly.run()
    assert listener.error is None
    assert list(listener.got) == list(range(8, 16))


def _fail(_: VisibleRead) -> None:
    raise LogDamaged("a file", 7, "broken")


def test_with_reads_that_are_made_at_once_nothing_hangs() -> None:
    fixture = a_broker(0, settings=SMALL)
    for _ in range(20):
        fixture.broker.produce.append(*HERE, "orders", 0, [bytes(100)] * 8)
        fixture.commit()
    fixture.restart()
    listener = follow(fixture, 0)
    assert list(listener.got) == list(range(160))


# -- what is live


def test_records_that_expired_since_a_portion_was_read_are_not_delivered() -> None:
    fixture = a_broker()
    follow(fixture)
    fixture.broker.produce.append(*HERE, "orders", 0, [b"0", b"1", b"2"], expires=[0, fixture.now + 5_000_000, 0])
    fixture.commit()
    assert follow(fixture, 0).got == expected(0, 1, 2)
    fixture.pass_time(5)
    assert follow(fixture, 0).got == expected(0, 2)
    assert follow(fixture, 1).got == expected(2)


def test_records_that_outlived_their_topics_time_are_not_delivered() -> None:
    fixture = a_broker(3, TopicSettings(expiry_seconds=10))
    follow(fixture, 0)
    fixture.pass_time(11)
    listener = follow(fixture, 0)
    assert listener.got == {}
    produce(fixture, 1)
    assert listener.got == expected(3)


def test_a_shorter_life_holds_for_what_was_read_before() -> None:
    fixture = a_broker(3)
    follow(fixture, 0)
    fixture.pass_time(11)
    fixture.broker.topics.change(*HERE, "orders", TopicSettings(expiry_seconds=10))
    fixture.commit()
    assert follow(fixture, 0).got == {}


def remove(fixture: BrokerFixture, *offsets: int) -> None:
    """As `DeadLetters` does it."""
    from penstock.broker.fetch import removal

    state_log = fixture.broker.state_log
    bounds = fixture.engine.bounds(ref(fixture))
    event = removal.remove(
        state_log.state.removed, fixture.broker.limits, ref(fixture), offsets, bounds.start, "default", lambda _: True
    )
    state_log.commit((event,))


def test_records_that_were_removed_since_are_not_delivered_and_leave_a_gap() -> None:
    fixture = a_broker(4)
    follow(fixture, 0)
    remove(fixture, 2)
    listener = follow(fixture, 0)
    assert listener.got == expected(0, 1, 3)
    assert [offset for offset, _ in listener.chunks[0].runs] == [0, 3]
    assert listener.cursor.group is fixture.broker.pending_commit, "true once the removal is committed"


def test_a_removal_that_fails_brings_the_record_back() -> None:
    fixture = a_broker(4)
    fault = fixture.fill_disk()
    remove(fixture, 2)
    assert follow(fixture, 0).got == expected(0, 1, 3)
    fixture.commit()
    fixture.free_disk(fault)
    assert follow(fixture, 0).got == expected(0, 1, 2, 3)


def test_a_read_under_way_while_its_state_became_void_is_made_again() -> None:
    slowly = DiskFixture(8)
    fixture = slowly.fixture
    fault = fixture.fill_disk()
    remove(fixture, 2)
    listener = follow(fixture, 0)
    fixture.commit()
    fixture.free_disk(fault)
    while slowly.run():
        pass
    assert list(listener.got) == list(range(8))


def test_a_read_under_way_while_something_was_removed_is_not_kept() -> None:
    slowly = DiskFixture(8)
    first = follow(slowly.fixture, 0)
    remove(slowly.fixture, 2)
    second = follow(slowly.fixture, 4)  # looks at the state
    while slowly.run():
        pass
    assert list(first.got) == list(range(8)), "what was live when it asked"
    assert list(second.got) == [4, 5, 6, 7]
    third = follow(slowly.fixture, 0)
    while slowly.run():
        pass
    assert list(third.got) == [0, 1, 3, 4, 5, 6, 7]


def test_what_was_read_for_one_that_did_not_take_it_is_looked_at_again() -> None:
    slowly = DiskFixture(8)
    listener = follow(slowly.fixture, 0)
    listener.room = 0
    slowly.run()
    remove(slowly.fixture, 2)
    listener.room = 100
    listener.go_on()
    while slowly.run():
        pass
    assert list(listener.got) == [0, 1, 3, 4, 5, 6, 7]


def test_records_that_expire_during_a_read_are_not_delivered() -> None:
    slowly = DiskFixture(0)
    fixture = slowly.fixture
    fixture.broker.produce.append(*HERE, "orders", 0, [b"0", b"1"], expires=[0, fixture.now + 5_000_000])
    fixture.commit()
    fixture.restart()
    listener = follow(fixture, 0)
    fixture.pass_time(5)
    while slowly.run():
        pass
    assert listener.got == expected(0)


def test_many_expired_records_are_passed_by_in_steps_off_the_loop(reads: list[int]) -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = a_broker(0, TopicSettings(expiry_seconds=10), executor=later(calls))
    produce(fixture, 1000)
    fixture.pass_time(11)
    produce(fixture, 1)
    listener = follow(fixture, 0)
    assert listener.got == {}
    while calls:
        work, done = calls.pop(0)
        work()
        done()
    assert listener.got == expected(1000)
    assert len(reads) < 10


# -- when it ends


def test_retention_that_overtakes_a_follower_is_told_with_what_was_lost() -> None:
    fixture = a_broker(8)
    listener = follow(fixture, 0, room=1)
    fixture.engine.trim({ref(fixture): 7})
    fixture.commit()
    listener.room = 10
    listener.go_on()
    assert isinstance(listener.error, OffsetOutOfRange)
    assert (listener.error.offset, listener.error.start) == (4, 7)
    assert fixture.broker.metrics.broadcast_dropped == 3
    assert list(listener.got) == [0, 1, 2, 3]


def test_a_follower_is_told_that_the_topic_is_gone() -> None:
    fixture = a_broker(2)
    listener, idle, late = follow(fixture, 0), follow(fixture), follow(fixture, 0, room=0)
    fixture.broker.topics.delete(*HERE, "orders")
    fixture.broker.topics.create(*HERE, "orders", 1)  # another one
    fixture.broker.produce.append(*HERE, "orders", 0, [b"other"])
    with pytest.raises(TopicNotFound):
        late.cursor.poll()
    fixture.broker.sweep(fixture.now)
    fixture.commit()
    assert listener.deleted
    assert idle.deleted
    assert late.deleted
    assert list(listener.got) == [0, 1]
    assert fixture.broker.fanout.figures() == (0, 0)


def test_access_is_looked_at_when_it_begins_and_with_every_portion() -> None:
    grants = {"alice": [Grant("alice", frozenset({Permission.READ}))]}
    admin = Grant("anonymous", frozenset({Permission.ADMIN}))
    fixture = a_broker(4, access=AccessPolicy(enforced=True, grants=[admin]))
    fixture.broker.access.grants_of = lambda identity: grants.get(identity.name)
    with pytest.raises(AccessDenied):
        follow(fixture, identity=Identity("bob"))
    listener = follow(fixture, 0, identity=ALICE)
    assert listener.got == expected(0, 1, 2, 3)
    grants["alice"] = []
    produce(fixture, 1)
    assert isinstance(listener.error, AccessDenied)
    assert listener.got == expected(0, 1, 2, 3)


def test_what_is_skipped_is_counted() -> None:
    fixture = a_broker(10)
    listener = follow(fixture, 0, room=1)
    listener.cursor.skip(9)
    listener.room = 10
    listener.go_on()
    assert list(listener.got) == [0, 1, 2, 3, 9]
    assert fixture.broker.metrics.broadcast_dropped == 5


def test_a_portion_can_be_cut_short() -> None:
    fixture = a_broker(10)
    listener = follow(fixture, 0, room=0)
    chunk = listener.cursor.poll(3)
    assert chunk is not None
    assert (chunk.start, chunk.end, chunk.runs) == (0, 3, [(0, [b"0", b"1", b"2"])])
    listener.room = 100
    listener.go_on()
    assert list(listener.got) == list(range(3, 10))
