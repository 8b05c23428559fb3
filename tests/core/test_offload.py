from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.core.offload import ThreadOffload, inline


def test_inline_does_the_work_and_then_says_so() -> None:
    order: list[str] = []
    inline(lambda: order.append("work"), lambda: order.append("done"))
    assert order == ["work", "done"]


def test_a_thread_does_the_work_and_the_loop_hears_of_it() -> None:
    async def main() -> list[int]:
        loop, seen, finished = asyncio.get_running_loop(), list[int](), asyncio.Event()

        def done() -> None:
            seen.append(threading.get_ident())
            finished.set()

        with ThreadPoolExecutor(1) as executor:
            ThreadOffload(loop, executor)(lambda: seen.append(threading.get_ident()), done)
            await asyncio.wait_for(finished.wait(), 10)
        return seen

    worker, caller = asyncio.run(main())
    assert caller == threading.get_ident() != worker


def test_work_that_fails_is_logged_and_still_done(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        finished = asyncio.Event()
        with ThreadPoolExecutor(1) as executor:
            ThreadOffload(asyncio.get_running_loop(), executor)(lambda: 1 // 0, finished.set)  # type: ignore[arg-type]
            await asyncio.wait_for(finished.wait(), 10)

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "ZeroDivisionError" in caplog.text
