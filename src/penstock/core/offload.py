"""Work that may block on the disk, moved off the event loop. A session has at most one such piece of work at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeAlias, TypeVar

logger = logging.getLogger(__name__)

Offload: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], None]
"""`offload(work, done)` runs `work`, perhaps in a thread, then `done` on the caller's thread. What `work` finds, its
errors too, it leaves where `done` can see it."""


Found = TypeVar("Found")
Result = TypeVar("Result")


class Work(Generic[Found, Result]):
    """Something that takes its time: first `run`, on any thread; then `finish`, on the broker's, which says what came
    of it. If `ready`, `run` takes so little that it may as well be called at once."""

    __slots__ = ("_conclude", "_error", "_found", "_work", "ready")

    def __init__(self, work: Callable[[], Found], conclude: Callable[[Found], Result], *, ready: bool = False) -> None:
        """`work` must not touch the broker's state; `conclude` may, and may raise."""
        self.ready = ready
        self._work = work
        self._conclude = conclude
        self._found: list[Found] = []
        self._error: Exception | None = None

    def run(self) -> None:
        """Never raises: what went wrong comes out of `finish`."""
        try:
            self._found.append(self._work())
        except Exception as error:  # noqa: BLE001 - raised again by `finish`, on the thread that wants to know
            self._error = error

    def finish(self) -> Result:
        if self._error is not None:
            raise self._error
        return self._conclude(self._found.pop())


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
