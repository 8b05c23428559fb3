"""The loop thread: coroutines of any thread run on one event loop, until it is stopped."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.clients._core.loop_thread import LoopThread


class Closed(Exception):
    pass


async def name_of_thread() -> str:
    return threading.current_thread().name


async def nothing() -> None:
    pass


def test_the_thread_starts_with_the_first_call_and_ends_with_stop() -> None:
    loop_thread = LoopThread("worker", Closed)
    assert "worker" not in [thread.name for thread in threading.enumerate()]
    assert loop_thread.run(name_of_thread()) == "worker"
    assert loop_thread.run(name_of_thread()) == "worker"
    loop_thread.stop(nothing)
    assert "worker" not in [thread.name for thread in threading.enumerate()]
    loop_thread.stop(nothing)
    with pytest.raises(Closed):
        loop_thread.run(name_of_thread())


def test_one_that_was_never_used_has_nothing_to_stop() -> None:
    loop_thread = LoopThread("worker", Closed)
    loop_thread.stop(nothing)
    with pytest.raises(Closed):
        loop_thread.run(name_of_thread())


def test_exceptions_reach_the_caller() -> None:
    loop_thread = LoopThread("worker", Closed)

    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop_thread.run(fail())
    loop_thread.stop(nothing)


def test_calls_that_stop_interrupts_are_closed() -> None:
    loop_thread = LoopThread("worker", Closed)
    begun = threading.Event()
    raised: list[BaseException] = []

    async def wait() -> None:
        begun.set()
        await asyncio.sleep(100)

    def work() -> None:
        try:
            loop_thread.run(wait())
        except Closed as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(10)
    loop_thread.stop(nothing)
    thread.join(10)
    assert len(raised) == 1
