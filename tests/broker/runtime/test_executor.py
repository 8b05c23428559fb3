from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from penstock.broker.runtime.executor import BoundedExecutor, Deferred, ThreadExecutor, ThreadPool, run_inline


def test_inline_does_the_work_and_then_says_so() -> None:
    order: list[str] = []
    run_inline(lambda: order.append("work"), lambda: order.append("done"))
    assert order == ["work", "done"]


def test_a_thread_does_the_work_and_the_loop_hears_of_it() -> None:
    async def main() -> list[int]:
        loop, seen, finished = asyncio.get_running_loop(), list[int](), asyncio.Event()

        def done() -> None:
            seen.append(threading.get_ident())
            finished.set()

        with ThreadPool(1) as executor:
            ThreadExecutor(loop, executor)(lambda: seen.append(threading.get_ident()), done)
            await asyncio.wait_for(finished.wait(), 10)
        return seen

    worker, caller = asyncio.run(main())
    assert caller == threading.get_ident() != worker


def test_work_for_threads_that_were_shut_down_is_dropped() -> None:
    """The first step of a job that has two ends while the broker stops."""
    ran: list[str] = []

    async def main() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def second() -> None:
            execute(lambda: ran.append("second"), lambda: None)
            ended.set()

        with ThreadPool(1) as threads:
            execute = ThreadExecutor(loop, threads)
            execute(lambda: ran.append("first"), second)
        await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(main())
    assert ran == ["first"]


def test_work_that_fails_is_logged_and_still_done(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        finished = asyncio.Event()
        with ThreadPool(1) as executor:
            ThreadExecutor(asyncio.get_running_loop(), executor)(lambda: 1 // 0, finished.set)  # type: ignore[arg-type]
            await asyncio.wait_for(finished.wait(), 10)

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "ZeroDivisionError" in caplog.text


def test_work_takes_its_own_way_if_it_has_one_and_none_if_it_is_ready() -> None:
    ways: list[str] = []

    def way(name: str) -> Callable[[Callable[[], None], Callable[[], None]], None]:
        def take(work: Callable[[], None], done: Callable[[], None]) -> None:
            ways.append(name)
            run_inline(work, done)

        return take

    for work in (
        Deferred(lambda: 1, str),
        Deferred(lambda: 2, str, executor=way("lane")),
        Deferred(lambda: 3, str, executor=way("lane"), ready=True),
        Deferred(lambda: 4, str, executor=way("lane")).then(str),
    ):
        finished: list[str] = []
        work.start(way("usual"), lambda work=work, finished=finished: finished.append(work.finish()))  # type: ignore[misc]
        assert len(finished) == 1
    assert ways == ["usual", "lane", "lane"]


def test_in_a_lane_only_so_many_are_on_their_way_and_the_others_follow_in_order() -> None:
    underway: list[tuple[Callable[[], None], Callable[[], None]]] = []
    lane = BoundedExecutor(lambda work, done: underway.append((work, done)), 2)
    order: list[int] = []
    for number in range(5):
        lane(lambda: None, lambda number=number: order.append(number))  # type: ignore[misc]
    while underway:
        assert len(underway) == min(2, 5 - len(order))
        underway.pop(0)[1]()
    assert order == [0, 1, 2, 3, 4]
    lane(lambda: None, lambda: order.append(5))
    lane(lambda: None, lambda: order.append(6))
    assert len(underway) == 2


def test_a_lane_goes_on_after_something_that_failed_when_it_was_done() -> None:
    underway: list[tuple[Callable[[], None], Callable[[], None]]] = []
    lane = BoundedExecutor(lambda work, done: underway.append((work, done)), 1)
    lane(lambda: None, lambda: 1 // 0)  # type: ignore[arg-type]
    lane(lambda: None, lambda: None)
    with pytest.raises(ZeroDivisionError):
        underway.pop(0)[1]()
    assert len(underway) == 1
