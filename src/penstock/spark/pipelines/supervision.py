"""Supervision of streaming queries: a failed query is restarted automatically, with exponential backoff; one that fails
repeatedly without completing a batch is quarantined, and the others continue.

An unreachable broker, or a machine too busy to start Python processes, is not the query's fault: such failures are
retried forever. This module does not depend on Spark: a query is any object with the interface of `Query`, and time is
an argument.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol

from penstock.retry import RetryPolicy
from penstock.spark.query_start import TOO_SLOW

logger = logging.getLogger(__name__)

OUTAGE: Final = "LogUnavailable"  # in the text of an error: the broker did not respond for long enough
PASSING: Final = (OUTAGE, TOO_SLOW)  # failures of the environment, independent of the query
MAX_ERROR: Final = 2_000  # characters kept of an error; the log has all of it

Phase = Literal["running", "restarting", "quarantined", "completed"]


class Query(Protocol):
    """The required part of Spark's streaming query."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802

    @property
    def lastProgress(self) -> Any: ...  # noqa: N802

    def exception(self) -> Exception | None: ...

    def stop(self) -> None: ...


class SparkLost(Exception):
    """Spark itself no longer responds: queries cannot be restarted without a new one."""


class Flow:
    """One query across all its restarts."""

    def __init__(self, name: str, query: Query, start: Callable[[], Query] | None, policy: RetryPolicy) -> None:
        self.name = name
        self.phase: Phase = "running"
        self.restarts = 0  # since the start of the run
        self.error = ""  # of the last failure
        self._query = query
        self._start = start
        self._policy = policy
        self._failures = 0  # consecutive, without a batch in between
        self._passing = 0  # consecutive, of the environment
        self._batch = -1  # the last one completed before the failure
        self._due = 0.0

    def look(self, now: float, may_start: bool = True) -> str | None:
        """Check the query, and restart it if due; returns a message if anything happened. `may_start`: whether a
        restart is allowed now."""
        if self.phase == "running" and not self._is_active():
            return self._ended(now)
        if self.phase == "restarting" and may_start and now >= self._due:
            return self._restart(now)
        return None

    def stop(self) -> None:
        if self.phase == "running" and self._query.isActive:
            self._query.stop()

    def _is_active(self) -> bool:
        try:
            return self._query.isActive
        except Exception as error:
            raise SparkLost(f"Spark does not answer: {first_line(error)}") from error

    def _ended(self, now: float) -> str:
        error = self._query.exception()
        if error is None:
            self.phase = "completed"
            return f"Flow {self.name} is COMPLETED."
        return self._failed(error, now)

    def _failed(self, error: Exception, now: float) -> str:
        self.error = shortened(error)
        logger.error("%s failed: %s", self.name, error)
        done = self._last_batch()
        if done > self._batch:
            self._batch, self._failures = done, 0
        passing = any(text in str(error) for text in PASSING)
        self._failures += not passing
        self._passing = self._passing + 1 if passing else 0
        if self._start is None or self._failures >= self._policy.attempts:
            self.phase = "quarantined"
            return f"Flow {self.name} is QUARANTINED after {_times(self._failures)}: {first_line(error)}"
        self.phase = "restarting"
        seconds = self._policy.delay(max(0, self._failures - 1, self._passing - 1 if TOO_SLOW in str(error) else 0))
        self._due = now + seconds
        return f"Flow {self.name} is RESTARTING in {seconds:g} s: {first_line(error)}"

    def _restart(self, now: float) -> str:
        assert self._start is not None
        self.restarts += 1
        try:
            self._query = self._start()
        except Exception as error:  # noqa: BLE001 - any error is a failure of this query
            return self._failed(error, now)
        self.phase = "running"
        return f"Flow {self.name} is RUNNING again."

    def _last_batch(self) -> int:
        try:
            progress = self._query.lastProgress
            return -1 if progress is None else int(progress["batchId"])
        except Exception:  # noqa: BLE001 - Spark Connect forgets queries that have ended
            return -1


class Supervisor:
    """All queries of a run. `tell` is called with messages about them."""

    def __init__(self, flows: Sequence[Flow], tell: Callable[[str], None]) -> None:
        self.flows = list(flows)
        self._tell = tell

    def look(self, now: float) -> None:
        """Check all of them. Only one is started at a time: starting many at once fails on slow machines. Raises
        SparkLost."""
        may_start = True
        for flow in self.flows:
            restarts = flow.restarts
            said = flow.look(now, may_start)
            may_start = may_start and flow.restarts == restarts
            if said is not None:
                self._tell(said)

    @property
    def ended(self) -> bool:
        return all(flow.phase in ("completed", "quarantined") for flow in self.flows)

    @property
    def quarantined(self) -> list[Flow]:
        return [flow for flow in self.flows if flow.phase == "quarantined"]

    def stop(self) -> None:
        for flow in self.flows:
            flow.stop()


def first_line(error: object) -> str:
    """The essential line of an error. For an exception in Python code that is the last line of its traceback, which
    Spark quotes in the middle of its own text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    quoted = [at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    if quoted:
        after = lines[quoted[-1] + 1 :]
        named = [line for line in after if _is_exception(line)]
        if named:
            return named[0]
    return lines[0] if lines else type(error).__name__


def shortened(error: object) -> str:
    """As much of an error as is kept: what comes first, and its essential line, which may be far behind that."""
    text, line = str(error), first_line(error)
    if len(text) <= MAX_ERROR or first_line(text[:MAX_ERROR]) == line:
        return text[:MAX_ERROR]
    return f"{line}\n{text.strip().splitlines()[0]}"[:MAX_ERROR]


def _is_exception(line: str) -> bool:
    name, colon, _ = line.partition(": ")
    return bool(colon) and name.replace(".", "").replace("_", "").isalnum() and name[:1].isalpha() and " " not in name


def _times(count: int) -> str:
    return "1 failure" if count == 1 else f"{count} failures in a row"
