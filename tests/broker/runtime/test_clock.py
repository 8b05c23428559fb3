from __future__ import annotations

from penstock.broker.runtime.clock import RetentionClock, monotonic_clock, wall_clock

DAY = 86_400_000_000


def test_it_goes_with_the_wall_clock() -> None:
    clock = RetentionClock(wall=100 * DAY, monotonic=5)
    assert clock.read(100 * DAY + 7, 12) == 100 * DAY + 7


def test_it_does_not_follow_a_jump_forward() -> None:
    clock = RetentionClock(wall=100 * DAY, monotonic=0)
    assert clock.read(130 * DAY, 10) == 100 * DAY + 10


def test_it_follows_backward_and_recovers_from_it() -> None:
    clock = RetentionClock(wall=100 * DAY, monotonic=0)
    assert clock.read(90 * DAY, 10) == 90 * DAY
    assert clock.read(100 * DAY + 20, 20) == 100 * DAY + 20


def test_the_clocks_of_the_system_count_microseconds() -> None:
    assert 1_600_000_000_000_000 < wall_clock() < 10_000_000_000_000_000
    assert monotonic_clock() <= monotonic_clock()
