"""The broker's handles for the SQL processes. Each executes one statement at a time, so that memory and time are
accounted per statement, and the statement responsible for the end of a process is always known.

The first process starts with the first client or statement, or before the doors open. While a statement is running, one
more process is kept ready, up to the limit; idle ones are ended after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.queries.queries import Queries
from penstock.broker.queries.statement import Statement
from penstock.workers.sql.rpc_handlers import SqlHandlers
from penstock.workers.sql.rpc_messages import SqlSettings
from penstock.workers.standby import refusing
from penstock.workers.supervisor import WorkerProcess
from penstock.workers.table_damage import damage_handlers

logger = logging.getLogger(__name__)

WATCH_SECONDS: Final = 0.25
START_SECONDS: Final = 30.0  # that the broker's start waits for the first process
IDLE_SECONDS: Final = 60.0  # after which an idle process is ended, except for the first
WRITES: Final = ("sql.declare", "sql.append", "sql.break_glass")  # the last one writes to the audit log
OVERHEAD_BYTES: Final = 512 << 20  # memory besides the statement's limit: libraries, indexes, results

Verdict: TypeAlias = tuple[Sequence[Statement], str]
"""The statements that caused the end of the process, if known, and the reason."""
_UNEXPECTED: Final[Verdict] = ((), "ended unexpectedly")


class SqlProcess:
    """One SQL process. It is killed when its statement exceeds a limit, and started again."""

    def __init__(self, broker: Broker, settings: SqlSettings, others: Sequence[SqlProcess]) -> None:
        """`others` is the live list of all processes."""
        self._others = others
        self._queries: Queries = broker.queries
        self._seconds = broker.queries.policy.seconds
        self._memory_limit = settings.memory_bytes + OVERHEAD_BYTES
        self._verdict = _UNEXPECTED
        self.idle_ticks = 0  # ticks of the watch since it was last busy
        self.handlers = SqlHandlers(broker, self, self._is_last, self._replace)
        handlers = {**self.handlers.handlers(), **damage_handlers(broker)}
        if settings.standby:
            handlers.update(refusing(WRITES))
        self.process = WorkerProcess("SQL", "penstock.workers.sql.main", handlers, settings, self._ended)

    @property
    def busy(self) -> bool:
        return any(statement.worker is self for statement in self._queries.capability.running())

    @property
    def free(self) -> bool:
        return self.process.is_ready and not self.busy

    def _is_last(self) -> bool:
        return not any(one.free for one in self._others if one is not self)

    def _ended(self) -> None:
        culprits, why = verdict = self._verdict
        self._verdict = _UNEXPECTED
        self._queries.lost(culprits, why, self, again=verdict is _UNEXPECTED)

    def check_limits(self) -> None:
        """Kill the process if it exceeds a limit, since it may not stop by itself."""
        if self.process.process is None or self._verdict is not _UNEXPECTED:
            return
        mine = [statement for statement in self._queries.capability.running() if statement.worker is self]
        if late := [statement for statement in self._queries.overdue() if statement.worker is self]:
            logger.warning("the SQL process does not stop statement %d: it is ended", late[0].number)
            self._end((late, f"was ended, because a statement did not stop after {self._seconds:g} s"))
        elif (held := resident_bytes(self.process.process.pid)) > self._memory_limit:
            logger.warning("the SQL process holds %d MiB of memory: it is ended", held >> 20)
            self._end((mine, "was ended, because it took more memory than a statement may"))

    def _end(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self.process.kill()

    def _replace(self) -> None:
        logger.info("the SQL process keeps too much memory for another statement: a new one takes its place")
        self.process.kill()

    async def stop(self, why: str) -> None:
        self._verdict = ((), why)
        await self.process.stop()


class SqlWorker:
    """All SQL processes."""

    def __init__(self, broker: Broker, settings: SqlSettings) -> None:
        self._broker = broker
        self._settings = settings
        self._queries: Queries = broker.queries
        self._watch: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self.processes: list[SqlProcess] = []
        self._add(first=True)
        broker.queries.attach_worker(self._start, self._stop_statements)

    def _start(self) -> None:
        if self._watch is None:
            self.processes[0].process.start()
            self._watch = asyncio.get_running_loop().create_task(self._watch_processes())
        self._keep_ready(0)
        for one in self.processes:
            one.handlers.arrived()

    async def ready(self) -> bool:
        """Wait until the first process, if started, can execute statements; False if that takes too long."""
        return self._watch is None or await self.processes[0].process.ready(START_SECONDS)

    def _stop_statements(self) -> None:
        for one in self.processes:
            one.handlers.stop()

    def _keep_ready(self, ahead: int) -> None:
        """Make sure that there is a process for each tenant that could use one now, and `ahead` more for the next
        ones."""
        idle = sum(not one.busy for one in self.processes)
        for _ in range(self._queries.startable + ahead - idle):
            if len(self.processes) < self._settings.threads:
                self._add().process.start()

    def _add(self, *, first: bool = False) -> SqlProcess:
        settings = msgspec.structs.replace(self._settings, first=first)
        one = SqlProcess(self._broker, settings, self.processes)
        self.processes.append(one)
        return one

    async def _watch_processes(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._queries.sweep(ready=any(one.process.is_ready for one in self.processes))
            self._queries.make_room()
            for one in self.processes:
                one.check_limits()
                one.idle_ticks = 0 if one.busy else one.idle_ticks + 1
                one.handlers.arrived()  # which statements may run depends on what the others run
            self._keep_ready(int(any(one.busy for one in self.processes)))
            self._end_spare()

    def _end_spare(self) -> None:
        """End processes that were idle for a while, except for the first, and for one more while any is busy."""
        spare = [one for one in self.processes[1:] if one.idle_ticks * WATCH_SECONDS > IDLE_SECONDS]
        busy = any(one.busy for one in self.processes)
        for one in spare[busy:]:
            self.processes.remove(one)
            task = asyncio.get_running_loop().create_task(one.stop("is not needed"))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.gather(*(one.stop("ends with the broker") for one in self.processes), *self._stopping)
        self._queries.close()


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
