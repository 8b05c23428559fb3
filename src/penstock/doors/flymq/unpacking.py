"""Decompression of payloads: after the access check, in steps, one payload at a time.

A payload of a few KiB may decompress to the maximum size. The work is spread over turns of the event loop, and only one
payload of the whole door is being decompressed at a time, which bounds the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.broker.runtime.turns import TurnOwner, Turns
from penstock.doors.reply import Completion, Outcome, PendingReply, Reply
from penstock.wire.flymq.frames import Inflation

STEP_BYTES: Final = 1 << 20  # consumed or produced in one step: about 2 ms


class UnpackingQueue:
    """The requests of one door whose payloads take more than one step."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: deque[UnpackingTask] = deque()  # the first is active

    def join(self, task: UnpackingTask) -> None:
        self._tasks.append(task)
        if len(self._tasks) == 1:
            task.go_on()

    def leave(self, task: UnpackingTask) -> None:
        if task not in self._tasks:
            return
        working = self._tasks[0] is task
        self._tasks.remove(task)
        if working and self._tasks:
            self._tasks[0].go_on()


class UnpackingTask:
    """A request whose payload is being decompressed; a `PendingReply`. `execute` gets the content."""

    __slots__ = ("_execute", "_inflation", "_on_complete", "_outcome", "_over", "_owner", "_queue", "_turns")

    def __init__(
        self,
        queue: UnpackingQueue,
        turns: Turns,
        owner: TurnOwner,
        inflation: Inflation,
        execute: Callable[[bytes], Outcome | None],
    ) -> None:
        self._queue = queue
        self._turns = turns
        self._owner = owner
        self._inflation = inflation
        self._execute = execute
        self._outcome: PendingReply | None = None  # of the request itself
        self._over = False
        self._on_complete: Completion

    def start(self, on_complete: Completion) -> None:
        self._on_complete = on_complete
        self._queue.join(self)

    def cancel(self) -> None:
        self._over = True
        self._inflation.discard()
        self._queue.leave(self)
        if self._outcome is not None:
            self._outcome.cancel()

    def go_on(self) -> None:
        self._turns.later(self._step)

    def _step(self) -> None:
        if self._over:
            return
        began = self._turns.timer()
        try:
            done = self._inflation.step(STEP_BYTES)
        except Exception as error:  # noqa: BLE001 - the error boundary is the pipeline's; other tasks wait for this one
            self._finish(error)
        else:
            if done:
                self._finish(None)
            else:
                self.go_on()
        self._turns.charge(self._turns.timer() - began, self._owner)

    def _finish(self, error: Exception | None) -> None:
        self._over = True
        content = self._inflation.content() if error is None else b""
        self._inflation.discard()  # now: the task is in a reference cycle, which only the next collection frees
        outcome: Outcome | Exception | None = error
        if error is None:
            try:
                outcome = self._execute(content)
            except Exception as refusal:  # noqa: BLE001 - the error boundary is the pipeline's
                outcome = refusal
        self._queue.leave(self)
        if outcome is None or isinstance(outcome, Reply | Exception):
            self._on_complete(outcome)
        else:
            self._outcome = outcome
            outcome.start(self._on_complete)
