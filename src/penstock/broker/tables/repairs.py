"""Repairs of tables, requested by operators. They run one at a time in the table worker, which does all other work on
tables too, so that nothing else changes a table meanwhile. This module tracks which repairs are waiting and running,
and their outcomes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from penstock.broker.tables.table import RepairReport


class RepairStatus(msgspec.Struct, omit_defaults=True):
    """The progress of a repair. It is not kept across a restart of the broker."""

    state: Literal["none", "waiting", "running", "done", "failed"]
    checked: int = 0  # records, in the current pass over the table
    total: int = 0
    error: str = ""
    report: RepairReport | None = None


class RepairWatch:
    """A watcher of the repair of a topic's table: gets its progress and its outcome."""

    def __init__(self, on_progress: Callable[[int, int], None]) -> None:
        self.on_progress = on_progress
        self._callback: Callable[[RepairStatus], None] | None = None
        self._outcome: RepairStatus | None = None

    def on_done(self, callback: Callable[[RepairStatus], None]) -> None:
        """Call back at the end of the repair; immediately if it has ended."""
        self._callback = callback
        if self._outcome is not None:
            callback(self._outcome)

    def end(self, outcome: RepairStatus) -> None:
        self._outcome = outcome
        if self._callback is not None:
            self._callback(outcome)


class Repairs:
    """Repairs by topic. Each is remembered until the topic is repaired again or deleted. Verifications, which change
    nothing, are tracked in another instance.
    """

    def __init__(self) -> None:
        self._watches: dict[int, list[RepairWatch]] = {}
        self._known: dict[int, RepairStatus] = {}
        self._wanted: dict[int, bool] = {}  # in order; True if files without checksums are to be rewritten

    def ask(self, topic: int, *, checksums: bool) -> RepairStatus:
        """Request a repair. If one is already waiting, it is that one; if one is running, another is queued
        after it.
        """
        if topic not in self._wanted:
            self._wanted[topic] = checksums
            self._known[topic] = RepairStatus("waiting")
        self._wanted[topic] |= checksums
        return self.status(topic)

    def status(self, topic: int) -> RepairStatus:
        return self._known.get(topic, RepairStatus("none"))

    def watch(self, topic: int, on_progress: Callable[[int, int], None]) -> RepairWatch:
        """Watch the repair that is waiting or running."""
        watch = RepairWatch(on_progress)
        self._watches.setdefault(topic, []).append(watch)
        return watch

    def withdraw(self, topic: int) -> bool:
        """Cancel a repair that has not begun. False if there is none."""
        if self._wanted.pop(topic, None) is None:
            return False
        self._end(topic, RepairStatus("failed", error="it was cancelled"))
        return True

    def _end(self, topic: int, status: RepairStatus) -> None:
        self._known[topic] = status
        for watch in self._watches.pop(topic, ()):
            watch.end(status)

    @property
    def waiting(self) -> bool:
        return bool(self._wanted)

    def begin(self) -> tuple[int, bool] | None:
        """Start the next repair: its topic, and whether to add checksums. None if there is none."""
        if not self._wanted:
            return None
        topic = next(iter(self._wanted))
        self._known[topic] = RepairStatus("running")
        return topic, self._wanted.pop(topic)

    def put_back(self, topic: int, *, checksums: bool) -> None:
        """Requeue, at the front, a repair that could not be started."""
        self._wanted = {topic: checksums or self._wanted.get(topic, False), **self._wanted}
        self._known[topic] = RepairStatus("waiting")

    def progress(self, topic: int, checked: int, total: int) -> None:
        if (status := self._known.get(topic)) is not None and status.state == "running":
            status.checked, status.total = checked, total
            for watch in self._watches.get(topic, ()):
                watch.on_progress(checked, total)

    def finish(self, topic: int, report: RepairReport | None, error: str = "") -> None:
        if topic not in self._wanted and topic in self._known:  # else another was requested meanwhile
            self._end(topic, RepairStatus("failed" if error else "done", error=error, report=report))

    def forget(self, topic: int) -> None:
        """The topic was deleted."""
        self._wanted.pop(topic, None)
        self._end(topic, RepairStatus("failed", error="the topic is gone"))
        self._known.pop(topic, None)
