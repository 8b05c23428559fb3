"""The SQL process, as the broker sees it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Sequence
from typing import Final, TypeAlias

from penstock.broker.broker import Broker
from penstock.broker.queries.queries import Queries
from penstock.broker.queries.statement import Statement
from penstock.workers.sql.rpc_handlers import SqlHandlers
from penstock.workers.sql.rpc_messages import SqlSettings
from penstock.workers.supervisor import WorkerProcess
from penstock.workers.table_damage import damage_handlers

logger = logging.getLogger(__name__)

WATCH_SECONDS: Final = 0.25
OVERHEAD_BYTES: Final = 512 << 20  # of memory beside what statements may take: libraries, indexes, results

Verdict: TypeAlias = tuple[Sequence[Statement], str]
"""The statements that are to blame for the end of the process, if that is known, and the reason."""
_UNEXPECTED: Final[Verdict] = ((), "ended unexpectedly")


class SqlWorker:
    """The SQL process: started with the first client or the first statement, ended when a statement takes more than it
    may."""

    def __init__(self, broker: Broker, settings: SqlSettings) -> None:
        self._queries: Queries = broker.queries
        self._handlers = SqlHandlers(broker)
        self._memory_limit = settings.threads * settings.memory_bytes + OVERHEAD_BYTES
        self._watch: asyncio.Task[None] | None = None
        self._verdict = _UNEXPECTED
        handlers = {**self._handlers.handlers(), **damage_handlers(broker)}
        self.process = WorkerProcess("SQL", "penstock.workers.sql.main", handlers, settings, self._ended)
        broker.queries.on_waiting = self._start

    def _start(self) -> None:
        if self._watch is None:
            self.process.start()
            self._watch = asyncio.get_running_loop().create_task(self._watch_process())
        self._handlers.arrived()

    def _ended(self) -> None:
        culprits, why = verdict = self._verdict
        self._verdict = _UNEXPECTED
        self._queries.lost(culprits, why, again=verdict is _UNEXPECTED)

    async def _watch_process(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._queries.sweep(ready=self.process.is_ready)
            if self.process.process is not None and self._verdict is _UNEXPECTED:
                self._check_limits(self.process.process.pid)

    def _check_limits(self, pid: int) -> None:
        """End the process if it takes more than it may: for it is not known to stop by itself."""
        if late := self._queries.overdue():
            seconds = self._queries.policy.seconds
            logger.warning("the SQL process does not stop statement %d: it is ended", late[0].number)
            self._end((late, f"was ended, because a statement did not stop after {seconds:g} s"))
        elif (held := resident_bytes(pid)) > self._memory_limit:
            logger.warning("the SQL process holds %d MiB of memory: it is ended", held >> 20)
            self._end(((), "was ended, because statements took more memory than they may"))

    def _end(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self.process.kill()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._verdict = ((), "ends with the broker")
        await self.process.stop()
        self._queries.close()


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 if the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
