from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, later

from penstock.broker.errors import AccessDenied, BrokerError, InvalidName, LimitReached, TopicNotFound
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS, Access, Grant, Identity, Permission
from penstock.broker.subscriptions import cursor
from penstock.broker.subscriptions.subscriptions import MAX_SKIPPED_PER_STEP, RecordChunk, SubscriberSlot
from penstock.log.engine import FAILED, CommitGroup, partition_id
from penstock.log.errors import LogError, OffsetOutOfRange

HERE = (ANONYMOUS, DEFAULT_SCOPE)
ALICE = Identity("alice")


class Taker:
    """A reader that takes what it is offered, `most` at a time, as long as it `wants`."""

    def __init__(self, fixture: BrokerFixture, most: int = 100) -> None:
        self.fixture = fixture
        self.most = most
        self.room = 10_000  # records that it would still take
        self.got: list[int] = []
        self.portions: list[int] = []  # how many records there were in each
        self.flushes = 0
        self.deleted = False
        self.reading = False
        self.error: Exception | None = None
        self.slot: SubscriberSlot

    def wants_records(self) -> bool:
        return self.room > 0 and self.error is None and not self.reading

    def offer(self, most: int) -> bool:
        try:
            chunk = self.slot.plan_read(min(most, self.most, self.room), 1 << 20)
        except (BrokerError, LogError) as error:
            self.error = error
            return False
        if chunk is None:
            return False
        if chunk.ready:
            chunk.run()
            return self.finish(chunk)
        self.reading = True
        self.fixture.broker.executor(chunk.run, partial(self._came, chunk))
        return False

    def _came(self, chunk: RecordChunk) -> None:
        if self.finish(chunk):
            self.slot.resume()

    def finish(self, chunk: RecordChunk) -> bool:
        self.reading = False
        try:
            found = chunk.finish(self.room)
        except LogError as error:
            self.error = error
            return False
        offsets = [offset for part in found for offset in range(part.base_offset, part.end_offset)]
        self.got += offsets
        self.room -= len(offsets)
        self.portions.append(len(offsets))
        return chunk.further

    def flush(self) -> None:
        self.flushes += 1

    def topic_deleted(self) -> None:
        self.deleted = True
        self.slot.leave(done=False)


def a_broker(records: int = 0, **options: Any) -> BrokerFixture:
    fixture = BrokerFixture(**options)
    fixture.broker.topics.create(*HERE, "orders", 1)
    produce(fixture, records)
    return fixture


def produce(fixture: BrokerFixture, count: int, **options: Any) -> None:
    if count:
        fixture.broker.produce.append(*HERE, "orders", 0, [b"%d" % number for number in range(count)], **options)
    fixture.commit()


def follow(fixture: BrokerFixture, offset: int = 0, group: str | None = None, **options: Any) -> Taker:
    taker = Taker(fixture, **options)
    taker.slot, _ = fixture.broker.subscriptions.open(*HERE, "orders", 0, offset, taker, group, "somebody")
    fixture.commit()
    taker.slot.resume()
    return taker


def position(fixture: BrokerFixture, group: str = "g") -> int | None:
    return fixture.broker.groups.committed(*HERE, group, "orders", 0)


# -- one reader


def test_a_reader_gets_what_is_there_and_then_what_comes() -> None:
    fixture = a_broker(5)
    taker = follow(fixture, 2)
    assert taker.got == [2, 3, 4]
    produce(fixture, 3)
    assert taker.got == [2, 3, 4, 5, 6, 7]


def test_what_comes_with_one_commit_is_flushed_once() -> None:
    fixture = a_broker()
    taker = follow(fixture, most=10)
    for _ in range(25):
        fixture.broker.produce.append(*HERE, "orders", 0, [b"x"])
    fixture.commit()
    assert (taker.got, taker.portions, taker.flushes) == (list(range(25)), [10, 10, 5], 1)


def test_a_reader_that_begins_beyond_the_end_waits_for_it() -> None:
    fixture = a_broker(2)
    taker = follow(fixture, 4)
    produce(fixture, 2)
    assert taker.got == []
    produce(fixture, 2)
    assert taker.got == [4, 5]


def test_what_is_gone_cannot_be_begun_with_and_is_passed_over_later() -> None:
    fixture = a_broker(10)
    slow = follow(fixture)
    slow.room = 0
    produce(fixture, 1)
    assert len(slow.got) == 10
    place = partition_id(1, 0)
    fixture.engine.trim({place: 11})
    fixture.commit()
    with pytest.raises(OffsetOutOfRange) as refused:
        follow(fixture, 10)
    assert (refused.value.start, refused.value.end) == (11, 11)
    produce(fixture, 2)
    slow.room = 10
    slow.slot.resume()
    assert slow.got[10:] == [11, 12]


def test_a_reader_that_wants_no_more_falls_behind_and_misses_nothing() -> None:
    fixture = a_broker()
    taker = follow(fixture)
    taker.room = 3
    for _ in range(4):
        produce(fixture, 2)
    assert taker.got == [0, 1, 2]
    taker.room = 100
    taker.slot.resume()
    assert taker.got == list(range(8))


def test_expired_and_removed_records_are_passed_over_off_the_loop() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = a_broker(executor=later(calls))
    produce(fixture, 3)
    for _ in range(4):
        produce(fixture, MAX_SKIPPED_PER_STEP // 2, expires=[fixture.now + 1] * (MAX_SKIPPED_PER_STEP // 2))
    produce(fixture, 2)
    fixture.pass_time(1)
    taker = follow(fixture, most=50)
    assert taker.got == [0, 1, 2]
    steps = 0
    while calls:
        work, done = calls.pop()
        work()
        done()
        steps += 1
    assert taker.got[3:] == [3 + MAX_SKIPPED_PER_STEP * 2, 4 + MAX_SKIPPED_PER_STEP * 2]
    assert 2 <= steps <= 4


def test_a_reader_that_leaves_hears_no_more() -> None:
    fixture = a_broker(1)
    taker = follow(fixture)
    taker.slot.leave(done=True)
    taker.slot.leave(done=True)
    produce(fixture, 1)
    assert taker.got == [0]
    assert len(fixture.broker.subscriptions) == 0


def test_readers_of_a_deleted_topic_are_told_and_never_see_one_of_the_same_name() -> None:
    fixture = a_broker(1)
    alone, member = follow(fixture), follow(fixture, group="g")
    fixture.broker.topics.delete(*HERE, "orders")
    fixture.broker.topics.create(*HERE, "orders", 1)
    produce(fixture, 3)
    fixture.broker.sweep(fixture.now)
    assert (alone.deleted, member.deleted) == (True, True)
    assert (alone.got, member.got) == ([0], [0])
    assert len(fixture.broker.subscriptions) == 0
    assert position(fixture) is None


def test_a_reader_can_leave_a_topic_that_the_log_has_forgotten() -> None:
    fixture = a_broker()
    taker = follow(fixture)
    fixture.broker.topics.delete(*HERE, "orders")
    fixture.commit()
    fixture.engine._forget_dropped()
    fixture.broker.sweep(fixture.now)
    assert taker.deleted
    assert len(fixture.broker.subscriptions) == 0


def test_a_reader_that_asks_before_it_was_told_finds_the_topic_gone() -> None:
    fixture = a_broker(3)
    taker = follow(fixture, most=1)
    taker.room = 0
    produce(fixture, 1)
    fixture.broker.topics.delete(*HERE, "orders")
    fixture.broker.topics.create(*HERE, "orders", 1)
    taker.room = 5
    taker.slot.resume()
    assert isinstance(taker.error, TopicNotFound)


def test_access_is_looked_at_with_every_read() -> None:
    grants = [Grant("alice", frozenset({Permission.READ}), topic="orders")]
    may: list[Grant] = grants
    fixture = a_broker(1)
    access = Access(enforced=True, grants_of=lambda _: may)
    fixture.broker.subscriptions.access = access
    taker = Taker(fixture)
    with pytest.raises(AccessDenied):
        fixture.broker.subscriptions.open(ALICE, DEFAULT_SCOPE, "other", 0, 0, taker)
    with pytest.raises(AccessDenied):  # a group's position is something to be changed
        fixture.broker.subscriptions.open(ALICE, DEFAULT_SCOPE, "orders", 0, 0, taker, "g")
    taker.slot, _ = fixture.broker.subscriptions.open(ALICE, DEFAULT_SCOPE, "orders", 0, 0, taker)
    taker.slot.resume()
    may = []
    produce(fixture, 1)
    assert isinstance(taker.error, AccessDenied)
    assert taker.got == [0]


def test_a_read_that_fails_leaves_the_records_for_the_next_time() -> None:
    fixture = a_broker(4)
    taker = follow(fixture)
    taker.room = 0
    produce(fixture, 2)
    taker.room = 9
    chunk = taker.slot.plan_read(2, 1 << 20)
    assert chunk is not None
    chunk._error = LogError("the disk is at lunch")
    with pytest.raises(LogError):
        chunk.finish(9)
    taker.slot.resume()
    assert taker.got == list(range(6))


# -- groups


def test_members_of_a_group_share_the_records_in_turn() -> None:
    fixture = a_broker()
    one, two = follow(fixture, group="g"), follow(fixture, group="g")
    for _ in range(4):
        produce(fixture, 1)
    assert (one.got, two.got) == ([0, 2], [1, 3])
    produce(fixture, 6)
    assert sorted(one.got + two.got) == list(range(10))
    assert len(one.got) == len(two.got) == 5


def test_a_member_that_wants_nothing_leaves_all_to_the_others() -> None:
    fixture = a_broker()
    one, two = follow(fixture, group="g"), follow(fixture, group="g")
    one.room = 0
    produce(fixture, 7)
    assert (one.got, two.got) == ([], list(range(7)))


def test_two_groups_and_one_alone_each_get_everything() -> None:
    fixture = a_broker(3)
    takers = [follow(fixture, group="g"), follow(fixture, group="h"), follow(fixture)]
    assert [taker.got for taker in takers] == [[0, 1, 2]] * 3


def test_a_group_goes_on_where_it_is_whatever_offset_is_asked_for() -> None:
    fixture = a_broker(10)
    taker = follow(fixture, 4, group="g")
    assert position(fixture) == 4
    taker.slot.settle(3)
    taker.slot.leave(done=False)
    fixture.commit()
    again = follow(fixture, 0, group="g")
    assert again.slot.start == 7
    assert again.got == [7, 8, 9]
    again.slot.leave(done=True)
    fixture.commit()
    fixture.restart()
    assert position(fixture) == 10
    last = follow(fixture, 99, group="g")
    produce(fixture, 1)
    assert last.got == [10]


def test_what_a_lost_member_was_not_done_with_goes_to_the_others_at_once() -> None:
    fixture = a_broker()
    one, two = follow(fixture, group="g"), follow(fixture, group="g")
    for _ in range(6):
        produce(fixture, 1)
    one.slot.settle(1)
    one.slot.leave(done=False)
    assert two.got == [1, 3, 5, 2, 4]
    two.slot.settle(2)
    fixture.commit()
    assert position(fixture) == 2
    two.slot.settle(3)
    fixture.commit()
    assert position(fixture) == 6


def test_after_a_crash_nothing_is_missed_that_somebody_was_not_done_with() -> None:
    fixture = a_broker()
    one, two = follow(fixture, group="g"), follow(fixture, group="g")
    produce(fixture, 8)
    two.slot.settle(len(two.got))
    fixture.commit()
    assert one.got == [0, 1, 2, 3]
    fixture.restart()
    assert follow(fixture, 99, group="g").got == list(range(8))


def test_positions_are_kept_once_for_each_commit() -> None:
    fixture = a_broker(50)
    taker = follow(fixture, group="g")
    before = fixture.engine.position
    for _ in range(20):
        taker.slot.settle(1)
    fixture.commit()
    assert position(fixture) == 20
    assert fixture.engine.position - before == 2  # the first at once, the other nineteen together


def test_who_leaves_last_keeps_what_was_settled_while_another_position_was_on_its_way() -> None:
    fixture = a_broker(5)
    taker = follow(fixture, group="g")
    taker.slot.settle(1)
    taker.slot.settle(2)
    taker.slot.leave(done=False)
    assert position(fixture) == 3  # whoever comes next begins there
    fixture.commit()
    assert position(fixture) == 3


def test_members_are_seen_as_such() -> None:
    fixture = a_broker(1)
    one, two = follow(fixture, group="g"), follow(fixture, group="g")
    assert fixture.broker.groups.describe(*HERE, "g", "orders").members == ["somebody", "somebody"]
    one.slot.leave(done=False)
    two.slot.leave(done=False)
    assert fixture.broker.groups.describe(*HERE, "g", "orders").members == []
    assert fixture.broker.subscriptions._shared == {}


def test_a_group_that_another_door_moves_goes_there() -> None:
    fixture = a_broker(6)
    taker = follow(fixture, group="g")
    fixture.broker.groups.commit(*HERE, "g", "orders", 0, 4)
    produce(fixture, 1)
    assert taker.got == [0, 1, 2, 3, 4, 5, 4, 5, 6]
    taker.slot.settle(1)
    fixture.commit()
    assert position(fixture) == 5
    fixture.broker.groups.commit(*HERE, "g", "orders", 0, 0)
    taker.slot.leave(done=True)  # is of what came before
    fixture.commit()
    assert position(fixture) == 0


def test_members_notice_that_a_group_was_moved_though_another_one_joins_first() -> None:
    fixture = a_broker(6)
    one = follow(fixture, group="g")
    fixture.broker.groups.commit(*HERE, "g", "orders", 0, 4)
    two = follow(fixture, group="g")
    produce(fixture, 1)
    assert two.slot.start == 4
    assert sorted(one.got[6:] + two.got) == [4, 5, 6]


def test_a_member_that_holds_too_many_pieces_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "MAX_SPANS", 3)
    fixture = a_broker()
    one, two = follow(fixture, group="g"), follow(fixture, group="g")
    for number in range(10):
        two.slot.settle(number)
        produce(fixture, 1)
    assert one.got == [0, 2, 4]
    one.slot.settle(1)
    produce(fixture, 1)
    assert one.got == [0, 2, 4, 10]


def test_a_group_that_was_deleted_begins_anew_where_its_members_are() -> None:
    fixture = a_broker(6)
    taker = follow(fixture, group="g")
    taker.slot.settle(2)
    fixture.commit()
    fixture.broker.groups.delete(*HERE, "g", "orders")
    produce(fixture, 1)
    assert taker.got == list(range(7))
    other = follow(fixture, 0, group="g")
    assert other.slot.start == position(fixture) == 2
    assert other.got == []


def test_a_group_that_was_deleted_is_not_there_again_because_its_members_go() -> None:
    fixture = a_broker(6)
    taker = follow(fixture, group="g")
    fixture.broker.groups.delete(*HERE, "g", "orders")
    produce(fixture, 1)
    taker.slot.leave(done=False)
    fixture.commit()
    assert position(fixture) is None


def test_a_position_that_could_not_be_kept_is_kept_with_the_next() -> None:
    fixture = a_broker(6)
    taker = follow(fixture, group="g")
    fault = fixture.fill_disk()
    taker.slot.settle(2)
    fixture.commit()
    assert position(fixture) == 0
    taker.slot.settle(1)  # refused at once now
    fixture.free_disk(fault)
    assert taker.got == list(range(6))
    taker.slot.settle(1)
    fixture.commit()
    assert position(fixture) == 4
    produce(fixture, 1)
    assert taker.got == list(range(7))


def test_a_group_that_could_not_begin_has_no_position() -> None:
    fixture = a_broker(1)
    fault = fixture.fill_disk()
    taker = Taker(fixture)
    taker.slot, kept = fixture.broker.subscriptions.open(*HERE, "orders", 0, 0, taker, "g")
    fixture.commit()
    assert isinstance(kept, CommitGroup) and kept.state is FAILED
    taker.slot.leave(done=False)
    with pytest.raises(LogError):
        fixture.broker.subscriptions.open(*HERE, "orders", 0, 0, taker, "g")
    assert len(fixture.broker.subscriptions) == 0
    fixture.free_disk(fault)
    assert position(fixture) is None


@pytest.mark.parametrize(
    ("limits", "group", "error"),
    [
        (Limits(memberships=0), "g", LimitReached),
        (Limits(groups_per_scope=0), "g", LimitReached),
        (Limits(), "", InvalidName),
    ],
)
def test_a_member_that_is_refused_leaves_nothing_behind(limits: Limits, group: str, error: type[Exception]) -> None:
    fixture = a_broker(1, limits=limits)
    with pytest.raises(error):
        follow(fixture, group=group)
    assert len(fixture.broker.subscriptions) == 0
    assert fixture.broker.subscriptions._shared == {}
    assert position(fixture, group) is None
    assert fixture.engine._partitions[partition_id(1, 0)].watchers is None


def test_a_member_that_reads_from_the_disk_does_not_hold_up_the_others() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = a_broker(executor=later(calls))
    one = follow(fixture, group="g")
    one.slot.skip_expired = True  # so that its next read is made off the loop
    two = follow(fixture, group="g")
    produce(fixture, 4)
    assert (one.got, len(calls)) == ([], 1)
    produce(fixture, 2)
    assert two.got == [4, 5]
    work, done = calls.pop()
    work()
    done()
    assert one.got == [0, 1, 2, 3]
    two.slot.settle(2)
    fixture.commit()
    assert position(fixture) == 0
