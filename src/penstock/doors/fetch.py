"""One fetch in progress: plan a read, run it on or off the event loop, continue past expired records, reply.

The door decides what to read next, which records to keep, and when to reply.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.runtime.executor import Executor
from penstock.doors.reply import Completion, Reply
from penstock.log.batch import RecordSlice


class Step(enum.Enum):
    """The step after a read."""

    READ = enum.auto()  # plan and run another read
    REPLY = enum.auto()
    WAIT = enum.auto()  # until the door calls `resume`


READ: Final = Step.READ
REPLY: Final = Step.REPLY
WAIT: Final = Step.WAIT


class FetchTask(ABC):
    """A `PendingReply`. All methods except `_collect` are called on the broker's thread; an exception becomes the
    reply."""

    __slots__ = (
        *("broker", "caller", "executor", "offloaded", "plan", "started"),
        *("_error", "_on_complete", "_returned", "_sending"),
    )

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.plan: VisibleRead | None = None  # the last read
        self.offloaded = False  # it ran off the loop: anything may have changed meanwhile
        self.started = broker.metrics.timer()
        self.caller = broker.metrics.caller  # the door, for which the records in the reply are counted
        self.executor: Executor | None = None  # for all reads; None: on the loop unless the disk is needed
        self._error: Exception | None = None
        self._sending = False  # a read is being submitted to the executor
        self._returned = False  # and completed synchronously
        self._on_complete: Completion | None = None

    # -- defined by a door

    @abstractmethod
    def _next_plan(self) -> VisibleRead | None:
        """The next read; None if there is nothing more."""

    @abstractmethod
    def _collect(self, slices: list[RecordSlice]) -> None:
        """Keep the requested records of a read. Called on any thread."""

    @abstractmethod
    def _after_read(self, plan: VisibleRead) -> Step:
        """The step after this read."""

    @abstractmethod
    def _reply(self) -> Reply: ...

    def _failed(self, error: Exception) -> Reply | Exception:
        """The outcome after a read that failed."""
        return error

    # -- called by the pipeline

    def start(self, on_complete: Completion) -> None:
        self._on_complete = on_complete
        self.resume()

    def cancel(self) -> None:
        self._on_complete = None

    # -- the reads

    def resume(self) -> None:
        """Read until there is a reply. Reads that need the disk run off the loop. Never raises: an error becomes the
        outcome."""
        try:
            self._advance()
        except Exception as error:  # noqa: BLE001 - the error boundary is the pipeline's
            self._complete(error)

    def _advance(self) -> None:
        while self._on_complete is not None:
            self.plan = plan = self._next_plan()
            if plan is None:
                self._complete(self._reply())
                return
            executor = self.executor
            self.offloaded = executor is not None or not plan.ready
            if not self.offloaded:
                try:
                    self._collect(plan.run())
                except Exception as error:  # noqa: BLE001 - the door may still have a reply
                    self._complete(self._failed(error))
                    return
            elif not self._submit(self.broker.executor if executor is None else executor):
                return
            if not self._goes_on(plan):
                return

    def _submit(self, executor: Executor) -> bool:
        """Submit a read to the executor. Whether it is already done; otherwise `_on_read` continues."""
        self._sending, self._returned = True, False
        executor(self._read, self._on_read)
        self._sending = False
        return self._returned

    def _on_read(self) -> None:
        if self._sending:
            self._returned = True
            return
        try:
            if self._on_complete is not None and self.plan is not None and self._goes_on(self.plan):
                self._advance()
        except Exception as error:  # noqa: BLE001 - the error boundary is the pipeline's
            self._complete(error)

    def _read(self) -> None:
        """Run the read. Called on any thread."""
        if self._on_complete is None:
            return  # the client disconnected while the read was queued
        try:
            assert self.plan is not None
            self._collect(self.plan.run())
        except Exception as error:  # noqa: BLE001 - raised again on the broker's thread
            self._error = error

    def _goes_on(self, plan: VisibleRead) -> bool:
        """Whether to read on immediately. Raises the door's errors: the topic may be deleted, or the permission to read
        it revoked."""
        if self._error is not None:
            self._complete(self._failed(self._error))
            return False
        step = self._after_read(plan)
        if step is REPLY:
            self._complete(self._reply())
        return step is READ

    def _complete(self, outcome: Reply | Exception | None) -> None:
        on_complete, self._on_complete = self._on_complete, None
        if on_complete is not None:
            on_complete(outcome)
