"""One timer for all connections: who is called when, and what is kept for those who change their minds."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from penstock.transport.quic.connection import QuicConnection
from penstock.transport.quic.timers import MIN_ENTRIES, Timers


class FakeConnection:
    timer_at = 0.0


class FakeLoop:
    """A clock that does not run by itself: `ring` calls what was asked for last."""

    def __init__(self) -> None:
        self.called = 0
        self.ring: Any = None

    def call_later(self, _delay: float, callback: Any) -> Any:
        self.called += 1
        self.ring = callback
        return self

    def cancel(self) -> None:
        self.ring = None


def alarms() -> tuple[Timers, FakeLoop, list[Any]]:
    loop, due = FakeLoop(), list[Any]()
    return Timers(cast(asyncio.AbstractEventLoop, loop), lambda connection, _: due.append(connection)), loop, due


def connection() -> QuicConnection:
    return cast(QuicConnection, FakeConnection())


def test_the_earliest_time_of_a_connection_counts_and_it_is_called_once() -> None:
    under_test, loop, due = alarms()
    one, other, later = connection(), connection(), connection()
    past = time.monotonic() - 1
    under_test.set(one, past + 1000)
    under_test.set(one, past - 2)
    under_test.set(one, past)  # not before it is asked again
    under_test.set(other, past)
    under_test.set(later, past + 1000)
    loop.ring()
    assert due == [one, other]
    assert one.timer_at == 0
    assert later.timer_at == past + 1000
    assert loop.ring is not None, "there is more to come"


def test_one_that_is_over_is_not_called() -> None:
    under_test, loop, due = alarms()
    one, other = connection(), connection()
    past = time.monotonic() - 1
    under_test.set(one, past)
    under_test.set(other, past)
    under_test.discard(one)
    loop.ring()
    assert due == [other]


def test_times_that_mean_nothing_any_more_are_not_kept_for_ever() -> None:
    under_test, loop, due = alarms()
    connections = [connection() for _ in range(10)]
    past, far = time.monotonic() - 1, time.monotonic() + 1000
    for number in range(1000):
        for each in connections:
            under_test.set(each, far + number)  # it is idle,
            under_test.set(each, past)  # and is to be called soon after all
        loop.ring()
    assert len(due) == 10_000
    assert len(under_test._entries) <= MIN_ENTRIES
    for each in connections:
        under_test.set(each, far)
    assert sorted(entry[0] for entry in under_test._entries if entry[2].timer_at == entry[0]) == [far] * 10
