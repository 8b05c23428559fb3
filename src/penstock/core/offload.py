"""Work that may block on the disk, moved off the event loop. A session has at most one such piece of work at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeAlias

logger = logging.getLogger(__name__)

Offload: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], None]
"""`offload(work, done)` runs `work`, perhaps in a thread, then `done` on the caller's thread. What `work` finds, its
errors too, it leaves where `done` can see it."""


def inline(work: Callable[[], None], done: Callable[[], None]) -> None:
    """Both at once: for tests and for programs without an event loop."""
    work()
    done()


class ThreadOffload:
    """Runs work on an executor and `done` on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._loop = loop
        self._executor = executor

    def __call__(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception:
                logger.exception("work that was to keep its own errors failed")
            finally:
                if not self._loop.is_closed():
                    self._loop.call_soon_threadsafe(done)

        self._executor.submit(run)
