"""Schedulers: giving everybody else a turn of the event loop before going on.

Not the executor's business: its threads may all be busy with slow reads, and a turn must not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Scheduler(Protocol):
    """An asyncio event loop is one."""

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Call back on the broker's thread, once everything that is ready by now has had its turn."""


class InlineScheduler:
    """Calls back at once: for tests and for programs without an event loop."""

    def call_soon(self, callback: Callable[[], None], /) -> None:
        callback()


INLINE: Scheduler = InlineScheduler()
