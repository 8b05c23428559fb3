"""Executors: run work that waits for a disk or takes much CPU time off the event loop.

A session has at most one such piece of work at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent import futures
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from penstock.log.engine import OPEN, CommitGroup

logger = logging.getLogger(__name__)

Executor: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], None]
"""`executor(work, done)` runs `work`, perhaps on a thread, then `done` on the caller's thread. `work` must not
raise: it stores its result, or its error, for `done`."""


Found = TypeVar("Found")
Result = TypeVar("Result")
Next = TypeVar("Next")


class Deferred(Generic[Found, Result]):
    """Work to run off the event loop: first `run`, on any thread; then `finish`, on the broker's thread, which returns
    the result or raises. If `ready`, `run` is cheap enough to be called directly on the event loop.
    """

    __slots__ = ("_after", "_conclude", "_error", "_executor", "_found", "_plan", "_work", "ready")

    def __init__(
        self,
        work: Callable[[], Found],
        conclude: Callable[[Found], Result],
        *,
        ready: bool = False,
        executor: Executor | None = None,
        plan: Callable[[], Callable[[], Found]] | None = None,
        after: CommitGroup | None = None,
    ) -> None:
        """`work` must not touch the broker's state; `conclude` may, and may raise. `executor` overrides the default
        executor. With `after`, the work starts once that group is committed or has failed. `plan` is called just before
        the work starts, on the broker's thread, and returns the function to run instead of `work`.
        """
        self.ready = ready
        self._executor = executor
        self._work = work
        self._plan = plan
        self._after = after
        self._conclude = conclude
        self._found: list[Found] = []
        self._error: Exception | None = None

    def start(self, executor: Executor, done: Callable[[], None]) -> None:
        """Run the work, inline or on its executor, then call `done` on the broker's thread, which calls `finish`."""
        after, self._after = self._after, None
        if after is not None and after.state is OPEN:
            after.on_done(lambda _: self.start(executor, done))
            return
        self._prepare()
        if self.ready:
            self.run()
            done()
        else:
            (executor if self._executor is None else self._executor)(self.run, done)

    def run(self) -> None:
        """Run the work. Never raises: `finish` raises its error."""
        self._prepare()
        if self._error is not None:
            return
        try:
            self._found.append(self._work())
        except Exception as error:  # noqa: BLE001 - raised again by `finish`, on the broker's thread
            self._error = error

    def _prepare(self) -> None:
        plan, self._plan = self._plan, None
        if plan is not None:
            try:
                self._work = plan()
            except Exception as error:  # noqa: BLE001 - as above
                self._error = error

    def finish(self) -> Result:
        if self._error is not None:
            raise self._error
        return self._conclude(self._found.pop())

    def then(self, conclude: Callable[[Result], Next]) -> Deferred[Found, Next]:
        """The same work, with `conclude` applied to its result. It replaces this object, which must not be used any
        more.
        """
        first = self._conclude
        return Deferred(
            self._work,
            lambda found: conclude(first(found)),
            ready=self.ready,
            executor=self._executor,
            plan=self._plan,
            after=self._after,
        )


def run_inline(work: Callable[[], None], done: Callable[[], None]) -> None:
    """Run both immediately: for tests and for programs without an event loop."""
    work()
    done()


class BoundedExecutor:
    """An executor for expensive work: at most `width` pieces run at once. The others are queued, in order, and hold no
    thread while they wait.
    """

    def __init__(self, executor: Executor, width: int) -> None:
        self._executor = executor
        self._free = width
        self._queued: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()

    def __call__(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self._queued.append((work, done))
        self._advance()

    def _advance(self) -> None:
        while self._free and self._queued:
            work, done = self._queued.popleft()
            self._free -= 1
            self._executor(work, partial(self._release, done))

    def _release(self, done: Callable[[], None]) -> None:
        self._free += 1
        self._advance()
        done()


class ThreadPool(futures.ThreadPoolExecutor):
    """Threads that say whether they have been shut down."""

    stopped = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.stopped = True
        super().shutdown(wait, cancel_futures=cancel_futures)


class ThreadExecutor:
    """Runs work on a thread pool and `done` on the event loop. What is asked for after the pool was shut down, such as
    the second step of a job whose first one was still running, is dropped: the broker has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: ThreadPool) -> None:
        self._loop = loop
        self._threads = threads

    def __call__(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception:
                logger.exception("deferred work raised an error instead of returning it")
            finally:
                if not self._loop.is_closed():
                    self._loop.call_soon_threadsafe(done)

        if not self._threads.stopped:
            self._threads.submit(run)
