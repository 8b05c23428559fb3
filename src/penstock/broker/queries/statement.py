"""One statement of SQL on its way: who sent it, where it is, and what came of it."""

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
    RUNNING = enum.auto()  # in the process for SQL
    OVER = enum.auto()


class StatementQueue(Protocol):
    """The queue in which statements wait; `penstock.broker.queries.queries.Queries`."""

    def submit(self, statement: Statement) -> None: ...

    def cancel(self, statement: Statement) -> None: ...

    def ended(self, statement: Statement) -> None: ...


class Statement:
    """A `QueryRun` for those who ask."""

    __slots__ = (
        "_done",
        "_queues",
        "changed",
        "error",
        "identity",
        "number",
        "pages",
        "params",
        "position",
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
        self.stage = Stage.NEW
        self.since = 0  # when it came to its stage: µs of the monotonic clock
        self.worker: object = None  # the process that carries it out, or did
        self.tries = 0  # that were in vain, by no fault of its own
        self.changed = False  # something was appended or declared for it, or is about to be
        self.refusal: Exception | None = None  # the last that it was refused, as it was raised
        self.pages: list[list[Value]] = []  # rows that have come so far
        self.rows: Rows | None = None
        self.error: Exception | None = None

    @property
    def byte_size(self) -> int:
        """About what it holds while it waits."""
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
        """Tell what came of it; the first to say so is believed."""
        if self.stage is Stage.OVER:
            return
        self.move(Stage.OVER, now)
        if isinstance(outcome, Exception):
            self.error = outcome
        else:
            self.rows = outcome
        self.refusal = None  # its traceback knows the statement: the two would keep each other
        self._queues.ended(self)
        done, self._done = self._done, None
        if done is not None:
            done()
