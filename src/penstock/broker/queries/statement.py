"""One SQL statement in progress: its sender, its stage, and its outcome."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.broker.names import Scope
from penstock.broker.queries.query import Rows, Value
from penstock.broker.security.access import Identity


class Stage(enum.Enum):
    NEW = enum.auto()
    WAITING = enum.auto()  # in its queue
    RUNNING = enum.auto()  # in an SQL worker process
    OVER = enum.auto()


class StatementQueue(Protocol):
    """The queue of statements; implemented by `penstock.broker.queries.queries.Queries`."""

    def submit(self, statement: Statement) -> None: ...

    def cancel(self, statement: Statement) -> None: ...

    def ended(self, statement: Statement) -> None: ...


class Statement:
    """Implements `QueryRun` for clients."""

    __slots__ = (
        "_done",
        "_queues",
        "changed",
        "error",
        "head",
        "identity",
        "number",
        "pages",
        "params",
        "position",
        "read_only",
        "reason",
        "refusal",
        "rows",
        "scope",
        "since",
        "sql",
        "stage",
        "tries",
        "worker",
    )

    def __init__(
        self,
        queues: StatementQueue,
        number: int,
        identity: Identity,
        scope: Scope,
        sql: str,
        params: Sequence[Value],
        position: int | None,
        reason: str | None,
    ) -> None:
        self._queues = queues
        self._done: Callable[[], None] | None = None
        self.number = number
        self.identity = identity
        self.scope = scope
        self.sql = sql
        self.params = params
        self.position = position
        self.reason = reason
        self.read_only = False  # it may not append or declare anything
        self.head: int | None = None  # the first committed position that it was shown
        self.stage = Stage.NEW
        self.since = 0  # start of its stage: µs of the monotonic clock
        self.worker: object = None  # the process that runs it, or did
        self.tries = 0  # failed attempts that it did not cause
        self.changed = False  # it has appended or declared something, or is about to
        self.refusal: Exception | None = None  # the last error raised by the capability
        self.pages: list[list[Value]] = []  # rows received so far
        self.rows: Rows | None = None
        self.error: Exception | None = None

    @property
    def byte_size(self) -> int:
        """Approximate memory while it waits."""
        return len(self.sql) + sum(len(value) if isinstance(value, str) else 16 for value in self.params)

    def start(self, done: Callable[[], None]) -> None:
        self._done = done
        self._queues.submit(self)

    def finish(self) -> Rows:
        if self.error is not None:
            raise self.error
        assert self.rows is not None, "`done` was called"
        return self.rows

    def cancel(self) -> None:
        self._done = None
        self._queues.cancel(self)

    def move(self, stage: Stage, now: int) -> None:
        self.stage, self.since = stage, now

    def end(self, outcome: Rows | Exception, now: int) -> None:
        """Record the outcome; only the first call counts."""
        if self.stage is Stage.OVER:
            return
        self.move(Stage.OVER, now)
        if isinstance(outcome, Exception):
            self.error = outcome
        else:
            self.rows = outcome
        self.refusal = None  # its traceback refers to the statement: a reference cycle
        self._queues.ended(self)
        done, self._done = self._done, None
        if done is not None:
            done()
