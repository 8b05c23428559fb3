from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.effort import scaled

from penstock.broker.subscriptions.cursor import MAX_SPANS, Cursor, Holding, OffsetRange
from penstock.log.engine import Bounds


def reader(cursor: Cursor) -> Holding:
    cursor.holdings.append(Holding())
    return cursor.holdings[-1]


def take(cursor: Cursor, holding: Holding, count: int, end: int = 100, start: int = 0) -> OffsetRange | None:
    """Claim and be given all of it."""
    span = cursor.claim(holding, count, Bounds(start, end))
    if span is not None:
        cursor.give(holding, [span], span.end)
    return span


def test_readers_share_what_there_is_and_each_record_goes_to_one() -> None:
    cursor = Cursor(0, remembers=True)
    one, two = reader(cursor), reader(cursor)
    assert [take(cursor, each, 4, end=10) for each in (one, two, one, two)] == [(0, 4), (4, 8), (8, 10), None]


def test_the_position_is_the_first_record_that_nobody_is_done_with() -> None:
    cursor = Cursor(0, remembers=True)
    one, two = reader(cursor), reader(cursor)
    take(cursor, one, 4)
    take(cursor, two, 4)
    assert two.settle(4) and cursor.lowest == 0
    assert one.settle(3) and cursor.lowest == 3
    assert one.settle(1) and cursor.lowest == 8
    assert not one.settle(1)


def test_a_record_that_is_being_read_is_not_done_with() -> None:
    cursor = Cursor(0, remembers=True)
    cursor.claim(reader(cursor), 5, Bounds(0, 10))
    assert (cursor.lowest, cursor.next) == (0, 5)


def test_what_one_gives_up_goes_to_the_next_lowest_first() -> None:
    cursor = Cursor(0, remembers=True)
    one, two, three = reader(cursor), reader(cursor), reader(cursor)
    for each in (one, two, one, three):
        take(cursor, each, 2)
    cursor.release(one)
    assert cursor.returned == [(0, 2), (4, 6)]
    assert [take(cursor, two, 3), take(cursor, two, 1), take(cursor, three, 3)] == [(0, 2), (4, 5), (5, 6)]
    assert take(cursor, two, 1) == (8, 9)


def test_what_comes_back_is_one_with_its_neighbours() -> None:
    cursor = Cursor(0, remembers=True)
    one, two, three = reader(cursor), reader(cursor), reader(cursor)
    for each in (one, two, three, two):
        take(cursor, each, 2)
    cursor.release(one)
    cursor.release(three)
    assert cursor.returned == [(0, 2), (4, 6)]
    cursor.release(two)
    assert (cursor.returned, cursor.next) == ([], 0)


def test_a_reader_that_gets_less_than_it_claimed_leaves_the_rest() -> None:
    cursor = Cursor(0, remembers=True)
    one, two = reader(cursor), reader(cursor)
    cursor.claim(one, 10, Bounds(0, 100))
    cursor.claim(two, 10, Bounds(0, 100))
    cursor.give(one, [OffsetRange(0, 2), OffsetRange(3, 5)], 6)  # 2 and 5 are dead
    assert cursor.returned == [(6, 10)]
    assert one.settle(3) and list(one.given) == [(4, 5)]
    assert one.settle(9) and cursor.lowest == 6


def test_claims_begin_where_the_log_does_and_wait_beyond_its_end() -> None:
    cursor = Cursor(50, remembers=False)
    one = reader(cursor)
    assert cursor.available(Bounds(0, 50)) == 0
    assert take(cursor, one, 9, end=50) is None
    assert cursor.available(Bounds(60, 65)) == 5
    assert take(cursor, one, 9, end=65, start=60) == (60, 65)
    shared = Cursor(0, remembers=True)
    two, three = reader(shared), reader(shared)
    for each in (two, three, two):
        take(shared, each, 2)
    shared.release(two)
    assert shared.available(Bounds(0, 6)) == 2 + 2
    assert take(shared, three, 5, start=3, end=6) == (4, 6)


def test_what_is_not_remembered_is_done_with_when_it_is_given() -> None:
    cursor = Cursor(0, remembers=False)
    one = reader(cursor)
    take(cursor, one, 5)
    assert (list(one.given), cursor.lowest) == ([], 5)


def test_a_cursor_that_is_moved_forgets_who_holds_what() -> None:
    cursor = Cursor(0, remembers=True)
    one, two = reader(cursor), reader(cursor)
    take(cursor, one, 5)
    span = cursor.claim(two, 5, Bounds(0, 100))
    cursor.move(3)
    assert (cursor.lowest, cursor.next) == (3, 3)
    assert span is not None
    cursor.give(two, [span], span.end)  # it was read before, and is sent
    assert (cursor.lowest, cursor.next, list(two.given)) == (3, 3, [])


def test_a_reader_holds_only_so_many_pieces() -> None:
    cursor = Cursor(0, remembers=True)
    one, two = reader(cursor), reader(cursor)
    for _ in range(MAX_SPANS):
        assert not one.full
        take(cursor, one, 1, end=10_000)
        take(cursor, two, 1, end=10_000)
    assert one.full
    one.settle(1)
    assert not one.full
    alone = Cursor(0, remembers=True)
    three = reader(alone)
    for _ in range(MAX_SPANS * 2):
        take(alone, three, 1, end=10_000)
    assert not three.full


class Sharing(RuleBasedStateMachine):
    """Readers come, take, give back and go. Of every record it is known who has it, if anyone."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = Cursor(5, remembers=True)
        self.end = 5
        self.done = set(range(5))

    @rule()
    def join(self) -> None:
        reader(self.cursor)

    @rule(count=st.integers(1, 5))
    def grow(self, count: int) -> None:
        self.end += count

    @precondition(lambda self: self.cursor.holdings)
    @rule(data=st.data(), count=st.integers(1, 6))
    def take(self, data: st.DataObject, count: int) -> None:
        holding = data.draw(st.sampled_from(self.cursor.holdings))
        free = self._free()
        span = self.cursor.claim(holding, count, Bounds(0, self.end))
        assert (span and span.start) == (free[0] if free else None)
        if span is None:
            return
        end = data.draw(st.integers(span.start, span.end))
        live = [offset for offset in range(span.start, end) if offset % 4 != 3]
        self.done |= {offset for offset in range(span.start, end) if offset % 4 == 3}
        self.cursor.give(holding, [OffsetRange(offset, offset + 1) for offset in live], end)

    @precondition(lambda self: self.cursor.holdings)
    @rule(data=st.data(), count=st.integers(0, 6))
    def settle(self, data: st.DataObject, count: int) -> None:
        holding = data.draw(st.sampled_from(self.cursor.holdings))
        held = [offset for span in holding.given for offset in range(*span)]
        self.done |= set(held[:count])
        assert holding.settle(count) == bool(held[:count])

    @precondition(lambda self: self.cursor.holdings)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        holding = data.draw(st.sampled_from(self.cursor.holdings))
        self.cursor.release(holding)
        self.cursor.holdings.remove(holding)

    def _held(self) -> list[int]:
        return [offset for each in self.cursor.holdings for span in each.spans() for offset in range(*span)]

    def _free(self) -> list[int]:
        held = set(self._held())
        return [offset for offset in range(self.end) if offset not in self.done and offset not in held]

    @invariant()
    def every_record_is_in_one_place(self) -> None:
        held = self._held()
        back = [offset for span in self.cursor.returned for offset in range(*span)]
        below = [offset for offset in range(self.cursor.next) if offset in self.done]
        assert sorted(held + back + below) == list(range(self.cursor.next))

    @invariant()
    def the_position_is_the_first_that_is_not_done(self) -> None:
        assert self.cursor.lowest == next(offset for offset in range(self.end + 1) if offset not in self.done)

    @invariant()
    def it_is_known_how_many_are_there(self) -> None:
        assert self.cursor.available(Bounds(0, self.end)) == len(self._free())


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=scaled(60), stateful_step_count=30, deadline=None)
