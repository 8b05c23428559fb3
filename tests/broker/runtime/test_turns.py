"""Turns: who is served when, and for how long. Time is a number here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.broker.runtime.turns import (
    MAX_BYTES_PER_TURN,
    MAX_PER_TURN,
    MILLISECOND,
    SHARE,
    TURN,
    UNAUTHENTICATED_SHARE,
    Turn,
    TurnOwner,
    Turns,
)


class Loop:
    """An event loop whose next round the test begins; the clock stands still unless somebody works."""

    def __init__(self) -> None:
        self.now = 0
        self.calls: list[Callable[[], None]] = []
        self.turns = Turns(self, lambda: self.now)

    def call_soon(self, callback: Callable[[], None], /) -> None:
        self.calls.append(callback)

    def round(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Busy:
    """Somebody who works for so long, again and again."""

    def __init__(self, loop: Loop, nanoseconds: int, name: str = "") -> None:
        self.loop = loop
        self.nanoseconds = nanoseconds
        self.name = name

    def describe_work(self) -> dict[str, str]:
        return {"request": self.name}

    def work(self) -> None:
        self.loop.now += self.nanoseconds
        self.loop.turns.charge(self.nanoseconds, self)


def test_a_turn_is_used_up_by_all_together_and_the_next_round_begins_a_new_one() -> None:
    loop = Loop()
    few = Busy(loop, TURN // 4)
    for _ in range(3):
        few.work()
        assert not loop.turns.exhausted
    few.work()
    assert loop.turns.exhausted
    loop.round()
    assert not loop.turns.exhausted and loop.calls == []


def test_work_that_is_hardly_noticed_plans_nothing() -> None:
    loop = Loop()
    Busy(loop, 1000).work()
    assert loop.calls == []


def test_those_who_wait_are_spread_over_rounds_in_order() -> None:
    loop = Loop()
    served: list[int] = []

    def one(number: int) -> Callable[[], None]:
        def work() -> None:
            served.append(number)
            Busy(loop, TURN // 2).work()

        return work

    for number in range(5):
        loop.turns.later(one(number))
    for expected in ([0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]):
        loop.round()
        assert served == expected
    loop.round()
    assert loop.calls == []


def test_those_with_little_to_do_come_first_and_the_others_are_not_forgotten() -> None:
    loop = Loop()
    served: list[str] = []

    def again(name: str, *, little: bool) -> None:
        def work() -> None:
            served.append(name)
            Busy(loop, TURN).work()
            again(name, little=little)

        loop.turns.later(work, little=little)

    again("much", little=False)
    again("little", little=True)
    for _ in range(3):
        loop.round()
    assert served == ["little", "much"] * 3


def share(loop: Loop, resumed: list[bool]) -> Turn:
    """One whose first request has begun."""
    turn = Turn(loop.turns, lambda: resumed.append(True))
    assert not turn.over()
    return turn


def test_a_share_ends_with_its_requests_its_bytes_or_its_time() -> None:
    loop = Loop()
    turn = share(loop, [])
    turn.requests -= MAX_PER_TURN
    assert turn.over()
    turn.begun = False
    assert not turn.over()
    turn.bytes -= MAX_BYTES_PER_TURN
    assert turn.over()
    turn.begun = False
    assert not turn.over() and not turn.over()
    loop.now += SHARE - 1
    assert not turn.over()
    loop.now += 1
    assert turn.over()


def test_a_stranger_has_less_time() -> None:
    loop = Loop()
    turn = share(loop, [])
    turn.unauthenticated = True
    assert not turn.over() and not turn.over()
    loop.now += UNAUTHENTICATED_SHARE
    assert turn.over()


def test_nobody_begins_anything_when_the_turn_is_used_up() -> None:
    loop = Loop()
    Busy(loop, TURN).work()
    assert Turn(loop.turns, lambda: None).over()


def test_nobody_goes_on_when_others_have_used_the_turn_up() -> None:
    loop = Loop()
    turn = Turn(loop.turns, lambda: None)
    assert not turn.over()
    Busy(loop, TURN).work()
    assert turn.over()


def test_who_gave_way_goes_on_after_the_others() -> None:
    loop = Loop()
    resumed: list[bool] = []
    turn = share(loop, resumed)
    turn.give_way()
    assert turn.yielding and not resumed
    loop.round()
    assert not turn.yielding and resumed


def test_work_that_takes_too_long_at_once_is_reported() -> None:
    loop = Loop()
    told: list[tuple[int, str]] = []

    def on_slow(nanoseconds: int, owner: TurnOwner) -> None:
        told.append((nanoseconds, owner.describe_work()["request"]))

    loop.turns.report_slow(50 * MILLISECOND, on_slow)
    Busy(loop, 49 * MILLISECOND, "quick").work()
    Busy(loop, 50 * MILLISECOND, "slow").work()
    assert told == [(50 * MILLISECOND, "slow")]


def test_one_who_fails_leaves_nobody_waiting() -> None:
    loop = Loop()
    served: list[int] = []

    def fail() -> None:
        raise RuntimeError

    loop.turns.later(fail)
    loop.turns.later(lambda: served.append(1))
    loop.turns.later(lambda: served.append(2))
    with pytest.raises(RuntimeError):
        loop.round()
    loop.round()
    assert served == [1, 2]
