"""Repairs of tables that operators have asked for: one after the other, each by the process that does all other work on
tables, so that nobody else changes a table meanwhile. Here is who waits, who is at it, and what came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from penstock.broker.tables.table import RepairReport


class RepairStatus(msgspec.Struct, omit_defaults=True):
    """The progress of a repair. A broker that is started again knows of none."""

    state: Literal["none", "waiting", "running", "done", "failed"]
    checked: int = 0  # records, in the pass over the table that is under way
    total: int = 0
    error: str = ""
    report: RepairReport | None = None


class RepairWatch:
    """Somebody who wants to know how far the repair of a topic's table is, and what comes of it."""

    def __init__(self, on_progress: Callable[[int, int], None]) -> None:
        self.on_progress = on_progress
        self._callback: Callable[[RepairStatus], None] | None = None
        self._outcome: RepairStatus | None = None

    def on_done(self, callback: Callable[[RepairStatus], None]) -> None:
        """Call back at its end; at once if that was."""
        self._callback = callback
        if self._outcome is not None:
            callback(self._outcome)

    def end(self, outcome: RepairStatus) -> None:
        self._outcome = outcome
        if self._callback is not None:
            self._callback(outcome)


class Repairs:
    """By topic. Each is remembered until the topic is repaired again or deleted. Verifications, which change nothing,
    are another set of the same."""

    def __init__(self) -> None:
        self._watches: dict[int, list[RepairWatch]] = {}
        self._known: dict[int, RepairStatus] = {}
        self._wanted: dict[int, bool] = {}  # in their turn; True if files without checksums are to be written again

    def ask(self, topic: int, *, checksums: bool) -> RepairStatus:
        """Want a repair. While one waits, it is the same one; while one is under way, another one after it."""
        if topic not in self._wanted:
            self._wanted[topic] = checksums
            self._known[topic] = RepairStatus("waiting")
        self._wanted[topic] |= checksums
        return self.status(topic)

    def status(self, topic: int) -> RepairStatus:
        return self._known.get(topic, RepairStatus("none"))

    def watch(self, topic: int, on_progress: Callable[[int, int], None]) -> RepairWatch:
        """Of the one that waits, or is under way."""
        watch = RepairWatch(on_progress)
        self._watches.setdefault(topic, []).append(watch)
        return watch

    def withdraw(self, topic: int) -> bool:
        """One that has not begun is not wanted any more. False if there is none."""
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
        """The topic whose turn it is."""
        if not self._wanted:
            return None
        topic = next(iter(self._wanted))
        self._known[topic] = RepairStatus("running")
        return topic, self._wanted.pop(topic)

    def put_back(self, topic: int, *, checksums: bool) -> None:
        """It has not begun."""
        self._wanted = {topic: checksums or self._wanted.get(topic, False), **self._wanted}
        self._known[topic] = RepairStatus("waiting")

    def progress(self, topic: int, checked: int, total: int) -> None:
        if (status := self._known.get(topic)) is not None and status.state == "running":
            status.checked, status.total = checked, total
            for watch in self._watches.get(topic, ()):
                watch.on_progress(checked, total)

    def finish(self, topic: int, report: RepairReport | None, error: str = "") -> None:
        if topic not in self._wanted and topic in self._known:  # else another one was asked for meanwhile
            self._end(topic, RepairStatus("failed" if error else "done", error=error, report=report))

    def forget(self, topic: int) -> None:
        """The topic is gone."""
        self._wanted.pop(topic, None)
        self._end(topic, RepairStatus("failed", error="the topic is gone"))
        self._known.pop(topic, None)
