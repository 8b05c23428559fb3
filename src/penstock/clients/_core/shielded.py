"""A coroutine that goes on when its caller is cancelled: the next caller waits for the same one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class ShieldedTask:
    """Runs `start()` in a task, at most one at a time: for requests that must neither be repeated nor go unnoticed."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._start = start
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._task is not None

    async def run(self) -> None:
        """Start it, unless it is running, and wait for its end."""
        task = self._task
        if task is None:
            task = self._task = asyncio.create_task(self._start())
            task.add_done_callback(_retrieve_exception)
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._task = None

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Avoid asyncio's warning if the caller was cancelled and nobody else retrieves the exception."""
    if not task.cancelled():
        task.exception()
