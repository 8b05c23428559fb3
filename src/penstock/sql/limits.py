"""The limits of one statement, and how it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from penstock.broker.errors import QueryError, QueryTooLarge

MIB: Final = 1 << 20
_AGAIN: Final = 0.05  # seconds between interrupts: one that comes before the work begins is lost


class QueryLimits(NamedTuple):
    seconds: float = 30.0
    memory_bytes: int = 512 * MIB
    rows: int = 100_000  # of the result, or of an INSERT
    threads: int = 2  # per statement
    result_bytes: int = 64 * MIB


class Stop:
    """Stops one statement at its deadline, or on `cancel`, which may be called from any thread."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._wake = threading.Event()
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._wake.set()

    def check(self) -> None:
        """Raises if the statement has to end."""
        if self._cancelled:
            raise QueryError("The statement was cancelled")
        if time.monotonic() >= self._deadline:
            raise QueryTooLarge(f"The statement took longer than the {self.seconds:g} s that one may take")

    @property
    def due(self) -> bool:
        return self._cancelled or time.monotonic() >= self._deadline

    @contextmanager
    def watching(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call `interrupt` repeatedly from a separate thread once the statement has to end, until the block is left."""
        ended = threading.Event()

        def watch() -> None:
            self._wake.wait(max(0.0, self._deadline - time.monotonic()))
            while not ended.is_set():
                interrupt()
                ended.wait(_AGAIN)

        thread = threading.Thread(target=watch, name="sql-stop", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            self._wake.set()
            thread.join()
            if not self._cancelled:
                self._wake.clear()
