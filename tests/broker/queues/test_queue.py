from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.broker.queues.queue import FOREVER, Queue, QueuePolicy, apply_move
from penstock.broker.state.events import QueueMoved

POLICY = QueuePolicy(capacity=8, ttl=1000, attempts=3, backoff=100, idle=0)


def queue_of(*starts: int) -> Queue:
    return Queue(1, 1, True, starts, list(starts), 0)


def move(queue: Queue, at: int = 0, **changes: list[int]) -> None:
    apply_move(queue, QueueMoved(queue.id, at, list(queue.cursors), **changes))


# -- tags


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=5), st.data())
def test_a_tag_and_a_place_in_the_log_are_the_same_thing(starts: list[int], data: st.DataObject) -> None:
    queue = queue_of(*starts)
    partition = data.draw(st.integers(0, len(starts) - 1))
    offset = starts[partition] + data.draw(st.integers(0, 1 << 20))
    tag = queue.tag(partition, offset)
    assert tag >= 1
    assert queue.locate(tag) == (partition, offset)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=4))
def test_no_two_messages_share_a_tag(starts: list[int]) -> None:
    queue = queue_of(*starts)
    tags = [queue.tag(number, start + i) for number, start in enumerate(starts) for i in range(20)]
    assert sorted(tags) == list(range(1, 20 * len(starts) + 1))


def test_tags_of_one_partition_count_from_one() -> None:
    assert [queue_of(70).tag(0, offset) for offset in (70, 71, 72)] == [1, 2, 3]


# -- the policy


def test_backoff_doubles_with_each_attempt() -> None:
    assert [POLICY.due(attempt, 7) for attempt in (1, 2, 3, 4)] == [107, 207, 407, 807]
    assert POLICY.due(1000, 0) == 100 << 31  # and stops doubling before it runs away


def test_attempts_are_deliveries_in_all() -> None:
    assert [POLICY.exhausted(attempt) for attempt in (1, 2, 3, 4)] == [False, False, True, True]
    assert not POLICY._replace(attempts=0).exhausted(10**9)


def test_a_message_expires_with_the_queue_s_limit_or_its_own_whichever_is_first() -> None:
    table: dict[tuple[int, int, int, int], bool] = {  # ttl, now, stored, expires
        (1000, 1000, 1, 0): False,
        (1000, 1001, 1, 0): True,
        (1000, 10, 1, 10): True,
        (1000, 9, 1, 10): False,
        (0, 1 << 60, 1, 0): False,
        (0, 10, 1, 10): True,
    }
    for (ttl, now, stored, expires), expected in table.items():
        assert POLICY._replace(ttl=ttl).expired(now, stored, expires) is expected, (ttl, now, stored, expires)


# -- where to go on


def test_the_floor_respects_the_cursor_retention_and_capacity() -> None:
    queue = queue_of(10)
    assert queue.floor(POLICY, 0, 0, 12) == 10  # two waiting
    assert queue.floor(POLICY, 0, 11, 12) == 11  # retention took one
    assert queue.floor(POLICY, 0, 0, 30) == 22  # of twenty waiting, eight are left
    assert queue.floor(POLICY._replace(capacity=0), 0, 0, 30) == 10
    move(queue, sent=[1, 2, 3])
    assert queue.floor(POLICY, 0, 0, 30) == 25  # what is in flight counts


def test_messages_wait_while_the_whole_capacity_is_in_flight() -> None:
    queue = queue_of(0)
    move(queue, sent=list(range(1, 20)))
    assert queue.floor(POLICY, 0, 0, 100) == 100


def test_capacity_is_counted_by_partition() -> None:
    queue = queue_of(0, 0)
    move(queue, sent=[queue.tag(0, offset) for offset in range(8)])
    assert queue.floor(POLICY, 0, 0, 20) == 20
    assert queue.floor(POLICY, 1, 0, 8) == 0  # nothing of it is in flight, and eight may wait


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 10), st.integers(0, 10))
def test_the_floor_never_goes_back_nor_past_the_end(cursor: int, start: int, more: int, flight: int, cap: int) -> None:
    end = max(cursor, start) + more
    queue = Queue(1, 1, True, (0,), [cursor], 0)
    move(queue, sent=list(range(1, flight + 1)))
    floor = queue.floor(POLICY._replace(capacity=cap), 0, start, end)
    assert max(cursor, start) <= floor <= end
    if cap:
        assert end - floor <= max(cap - flight, 0)


# -- moves


class Naive:
    """A delivery in flight is a row; every question is answered by looking at all rows."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, int]] = {}  # tag → attempt, when

    def due(self, now: int, wanted: Callable[[int], bool] = lambda _: True) -> list[tuple[int, int, int]]:
        return [
            (tag, attempt, at)
            for tag, (attempt, at) in self.rows.items()
            if at + 100 * 2 ** (attempt - 1) <= now and wanted(attempt)
        ]


class Moves(RuleBasedStateMachine):
    """Any moves, in the order of time: the queue says the same as the naive model."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = queue_of(0)
        self.naive = Naive()
        self.now = 0
        self.next_tag = 1

    @rule(step=st.integers(0, 150))
    def pass_time(self, step: int) -> None:
        self.now += step

    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        tags = list(range(self.next_tag, self.next_tag + count))
        self.next_tag += count
        apply_move(self.queue, QueueMoved(1, self.now, [self.next_tag - 1], sent=tags))
        self.naive.rows |= dict.fromkeys(tags, (1, self.now))

    @precondition(lambda self: self.naive.due(self.now))
    @rule(count=st.integers(1, 4))
    def send_again(self, count: int) -> None:
        tags = [tag for tag, _ in self.queue.overdue(POLICY, self.now)][:count]
        move(self.queue, self.now, again=tags)
        for tag in tags:
            self.naive.rows[tag] = (self.naive.rows[tag][0] + 1, self.now)

    @precondition(lambda self: self.naive.rows)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        tags = data.draw(st.lists(st.sampled_from(sorted(self.naive.rows)), unique=True, min_size=1))
        move(self.queue, self.now, settled=tags)
        for tag in tags:
            del self.naive.rows[tag]

    @rule()
    def store(self) -> None:
        """A snapshot has everything of a queue."""
        self.queue = msgspec.msgpack.decode(msgspec.msgpack.encode(self.queue), type=Queue)

    @invariant()
    def same_deliveries_in_flight(self) -> None:
        assert self.queue.in_flight == len(self.naive.rows)
        for tag in range(1, self.next_tag):
            assert self.queue.attempt(tag) == self.naive.rows.get(tag, (0, 0))[0]

    @invariant()
    def same_deliveries_due(self) -> None:
        found = list(self.queue.overdue(POLICY, self.now))
        assert sorted(found) == sorted((tag, attempt) for tag, attempt, _ in self.naive.due(self.now))
        # The most tried first, and among those tried equally often the one that has waited longest.
        order = [(-attempt, self.naive.rows[tag][1]) for tag, attempt in found]
        assert order == sorted(order)

    @invariant()
    def same_moment_of_the_next_one(self) -> None:
        dues = [(at + 100 * 2 ** (attempt - 1), attempt) for attempt, at in self.naive.rows.values()]
        assert self.queue.next_due(POLICY) == min((due for due, _ in dues), default=FOREVER)
        for least in (1, 3):
            later = [due for due, attempt in dues if due > self.now and attempt >= least]
            assert self.queue.due_after(POLICY, self.now, least) == min(later, default=FOREVER)

    @invariant()
    def same_cursor(self) -> None:
        assert self.queue.cursors == [self.next_tag - 1]


TestMoves = Moves.TestCase


def test_a_move_that_says_nothing_changes_nothing() -> None:
    queue = queue_of(5, 6)
    move(queue, 10, sent=[1, 2])
    before = msgspec.msgpack.encode(queue)
    for _ in range(3):
        move(queue, 10)
        assert msgspec.msgpack.encode(queue) == before


def test_settling_twice_or_something_unknown_changes_nothing() -> None:
    queue = queue_of(0)
    move(queue, 1, sent=[1, 2])
    move(queue, 2, settled=[1])
    before = msgspec.msgpack.encode(queue)
    move(queue, 2, settled=[1, 99])
    assert msgspec.msgpack.encode(queue) == before


def test_an_idle_queue_keeps_nothing_of_what_it_delivered() -> None:
    queue = queue_of(0)
    empty = len(msgspec.msgpack.encode(queue))
    for tag in range(1, 1000):
        move(queue, 0, sent=[tag])
        move(queue, 0, settled=[tag])
    assert queue.tries == {}
    assert len(msgspec.msgpack.encode(queue)) == empty
