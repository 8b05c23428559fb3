from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.runtime.timer_wheel import FINE, NOWHERE, TimerWheel

LATEST = 1 << 60
DEADLINES = st.one_of(st.integers(0, 100_000_000), st.integers(0, LATEST))
MAX_STEPS = st.one_of(st.integers(0, 1_000_000), st.integers(0, LATEST // 8))


class Item:
    def __init__(self, deadline: int) -> None:
        self.deadline = deadline
        self.slot = NOWHERE


def take_all(wheel: TimerWheel[Item], now: int, most: int = 1_000_000) -> list[Item]:
    """The items that are due, as sweeps take them until nothing moves any more."""
    found: list[Item] = []
    for _ in range(100):  # a coarse slot becomes a finer one, and so on
        due = wheel.due(now, most)
        for item in due:
            wheel.take(item)
        found += due
    return found


@given(st.lists(DEADLINES, max_size=30), st.lists(MAX_STEPS, max_size=12))
def test_each_is_found_once_never_early_and_not_much_later_than_its_deadline(
    deadlines: list[int], steps: list[int]
) -> None:
    wheel: TimerWheel[Item] = TimerWheel()
    items = [Item(deadline) for deadline in deadlines]
    for item in items:
        wheel.put(item, 0)
    waiting, now = set(items), 0
    for step in steps:
        now += step
        for item in take_all(wheel, now):
            assert item.deadline <= now
            waiting.remove(item)
        assert all(item.deadline > now - FINE for item in waiting)
    assert len(take_all(wheel, 2 * LATEST)) == len(waiting)
    assert wheel.slots == 0


@given(st.lists(st.tuples(MAX_STEPS, DEADLINES), max_size=200))
def test_there_are_few_slots_whatever_the_deadlines_are(puts: list[tuple[int, int]]) -> None:
    wheel: TimerWheel[Item] = TimerWheel()
    now = 0
    for step, distance in puts:
        now += step % 1_000
        wheel.put(Item(now + distance), now)
    assert wheel.slots <= min(len(puts), 1_000)


def test_ten_thousand_deadlines_all_over_a_day_share_some_slots() -> None:
    wheel: TimerWheel[Item] = TimerWheel()
    for number in range(10_000):
        wheel.put(Item(number * 8_640_000), 0)
        wheel.put(Item(number * 400), 0)
    assert wheel.slots < 200


def test_a_look_is_a_step_of_a_bounded_size_and_the_next_one_goes_on() -> None:
    wheel: TimerWheel[Item] = TimerWheel()
    items = [Item(5_000_000) for _ in range(10)]
    for item in items:
        wheel.put(item, 0)
    found = []
    for most in (4, 4, 4):
        due = wheel.due(10_000_000, most)
        assert len(due) <= most
        for item in due:
            wheel.take(item)
        found.append(len(due))
    assert found == [4, 4, 2]
    assert not wheel.due(10_000_000, 4)


def test_what_is_due_and_not_taken_is_found_again() -> None:
    wheel: TimerWheel[Item] = TimerWheel()
    item = Item(FINE)
    wheel.put(item, 0)
    assert wheel.due(FINE - 1, 10) == []
    assert wheel.due(FINE, 10) == wheel.due(FINE, 10) == [item]


def test_what_was_taken_is_not_found_and_its_slot_is_gone() -> None:
    wheel: TimerWheel[Item] = TimerWheel()
    item = Item(1_000)
    wheel.put(item, 0)
    wheel.take(item)
    wheel.take(item)  # is nowhere already
    assert item.slot == NOWHERE
    assert wheel.slots == 0
    assert not wheel.due(LATEST, 10)
