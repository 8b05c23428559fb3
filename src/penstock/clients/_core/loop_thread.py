"""An event loop in its own thread: blocking calls from any number of threads on top of an asyncio client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class LoopThread:
    """The thread starts with the first call and ends with `stop`. `closed` makes the exception for calls after `stop`,
    and for those that it interrupts."""

    def __init__(self, name: str, closed: Callable[[], Exception]) -> None:
        self._name = name
        self._closed = closed
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the loop and wait for its result. Interrupting the wait cancels the coroutine."""
        with self._lock:
            if self._stopped:
                coroutine.close()
                raise self._closed()
            loop = self._loop = self._loop or self._start()
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise self._closed() from None
        except BaseException:
            future.cancel()
            raise

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one last coroutine, cancel all others, and end the thread."""
        with self._lock:
            stopped, self._stopped = self._stopped, True
        if stopped or self._loop is None or self._thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(last(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_loop, args=(loop,), name=self._name, daemon=True)
        self._thread.start()
        return loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_all())
    finally:
        loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
