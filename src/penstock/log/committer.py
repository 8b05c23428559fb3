"""Group commit: decides when commit groups are written.

Appends made in one turn of the event loop form a group, or those of a few turns if it must be synced. While a thread
writes a group, arriving appends form the next one. `ThreadCommitter` is for a running broker; `InlineCommitter` writes
on request, for tools and deterministic tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Protocol

logger = logging.getLogger(__name__)

INLINE_BYTES: Final = 64 << 10
MAX_POLLS: Final = 3  # of the sockets, before a group is synced
QUICK_SECONDS: Final = 0.0005  # two hand-overs between threads and the loop take a good part of this


class Log(Protocol):
    """The log, as seen by its committer."""

    @property
    def waiting(self) -> bool:
        """Whether there are appends that are not sealed."""

    @property
    def gathered(self) -> int:
        """The number of appends in the open group, if it is small and must be synced; otherwise 0."""

    def seal(self) -> Any:
        """Turn the appends so far into a group that can be written; None if there are none. The group has `byte_size`,
        and `must_sync` if replies wait until it is on disk."""

    def write(self, sealed: Any) -> None:
        """Write a group, and sync it if the durability level requires it. Blocks; called on any thread."""

    def complete(self, sealed: Any, error: Exception | None) -> None:
        """Complete a group that was written, or failed."""


class Committer(Protocol):
    def attach(self, log: Log) -> None: ...

    def request(self) -> None:
        """Called after an append."""

    def run_in_background(self, work: Callable[[], None]) -> None:
        """Run other blocking work, in order, without delaying the groups."""

    def drain(self) -> None:
        """Commit everything appended so far, then accept no more. Blocks."""


class InlineCommitter:
    """Writes on request."""

    def __init__(self) -> None:
        self._log: Log | None = None

    def attach(self, log: Log) -> None:
        self._log = log

    def request(self) -> None:
        """Does nothing: `run` commits."""

    def run(self) -> bool:
        """Commit everything appended so far as one group; False if there was nothing."""
        assert self._log is not None
        sealed = self._log.seal()
        if sealed is None:
            return False
        self._log.complete(sealed, _write(self._log, sealed))
        return True

    def run_in_background(self, work: Callable[[], None]) -> None:
        work()

    def drain(self) -> None:
        while self.run():
            pass


class ThreadCommitter:
    """Writes in a thread, on behalf of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._call_soon = loop.call_soon
        self._on_turn = self._commit  # bound once
        self._log: Log | None = None
        self._commits = Worker("penstock-commit")
        self._background = Worker("penstock-background")
        self._scheduled = False
        self._writing: Any = None  # the group that the thread is writing
        self._outcome: Exception | None = None  # of that group, after the write
        self._stopped = False
        self._polls = 0  # of the sockets, since the open group has its first append
        self._gathered = 0  # appends at the last of them
        self._shared = False  # the group before had more than one append
        self._seconds = 1.0  # recent duration of a write; initially assumed to be slow

    def attach(self, log: Log) -> None:
        self._log = log

    def request(self) -> None:
        if not self._scheduled and self._writing is None and not self._stopped:
            self._scheduled = True
            self._call_soon(self._on_turn)

    def _commit(self) -> None:
        """Commit what the turn has brought, unless a group is being written: then `_done` goes on."""
        self._scheduled = False
        log = self._log
        if self._writing is not None or self._stopped or log is None:
            return
        if self._grows(log):
            self.request()
            return
        sealed = log.seal()
        if sealed is None:
            return
        if sealed.byte_size > INLINE_BYTES or (sealed.must_sync and self._seconds >= QUICK_SECONDS):
            self._hand_over(log, sealed)
            return
        # Writing a small group, and even syncing it to a fast disk, takes less time than waking a thread and being
        # woken by it. No reply could be sent before that anyway. If the disk turns slow, the thread takes over.
        log.complete(sealed, self._write(log, sealed) if sealed.must_sync else _write(log, sealed))
        if log.waiting:
            self.request()

    def _hand_over(self, log: Log, sealed: Any) -> None:
        """Let the thread write a group."""
        self._writing = sealed
        self._commits.put(partial(self._write_and_tell, log, sealed))

    def _grows(self, log: Log) -> bool:
        """Whether to poll the sockets again before a sync. It takes as long for one append as for many, and while some
        were decoded, others arrived. A single client is not kept waiting for others."""
        appends = log.gathered
        if self._gathered < appends and self._polls < MAX_POLLS and (appends > 1 or self._shared):
            self._gathered = appends
            self._polls += 1
            return True
        self._shared = appends > 1
        self._gathered = self._polls = 0
        return False

    def _write(self, log: Log, sealed: Any) -> Exception | None:
        started = time.perf_counter()
        outcome = _write(log, sealed)
        self._seconds += (time.perf_counter() - started - self._seconds) / 4
        return outcome

    def _write_and_tell(self, log: Log, sealed: Any) -> None:
        self._outcome = self._write(log, sealed)
        with contextlib.suppress(RuntimeError):  # the loop may be closed: `drain` completes the rest
            self._loop.call_soon_threadsafe(self._done, sealed)

    def _done(self, sealed: Any) -> None:
        if self._writing is not sealed:
            return  # `drain` has completed it
        log = self._log
        assert log is not None
        error, self._outcome, self._writing = self._outcome, None, None
        if error is None and sealed.must_sync:
            # Keep the disk busy while replies are sent. Behind a group that failed nothing may be written. Without a
            # sync there is nothing to wait for: the thread would only take the processor from the replies.
            following = log.seal()
            if following is not None:
                self._hand_over(log, following)
        log.complete(sealed, error)
        self.request()

    def run_in_background(self, work: Callable[[], None]) -> None:
        if self._stopped:
            work()
        else:
            self._background.put(work)

    def drain(self) -> None:
        log = self._log
        assert log is not None
        if self._stopped:
            return
        self._stopped = True
        self._commits.stop()
        self._background.stop()
        if self._writing is not None:
            sealed, error = self._writing, self._outcome
            self._writing = self._outcome = None
            log.complete(sealed, error)
        while (sealed := log.seal()) is not None:
            log.complete(sealed, _write(log, sealed))


class Worker:
    """A thread that runs queued work in order."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.put = self._queue.put
        self._runner = threading.Thread(target=self._run, name=name, daemon=True)  # `__thread` is a word of C
        self._runner.start()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception:
                logger.exception("work on the journal failed")

    def stop(self) -> None:
        """Finish queued work. Blocks."""
        self._queue.put(None)
        self._runner.join()


def _write(log: Log, sealed: Any) -> Exception | None:
    try:
        log.write(sealed)
    except Exception as error:  # noqa: BLE001 - any error fails the group
        return error
    return None
