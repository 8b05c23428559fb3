"""Schedulers: yield to the event loop before continuing.

Executors are not used for this: all of their threads may be busy with slow reads, and yielding must not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Scheduler(Protocol):
    """Any asyncio event loop conforms to this."""

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Call back on the broker's thread, after all callbacks that are ready now."""


class InlineScheduler:
    """Calls back immediately: for tests and for programs without an event loop."""

    def call_soon(self, callback: Callable[[], None], /) -> None:
        callback()


INLINE: Scheduler = InlineScheduler()
