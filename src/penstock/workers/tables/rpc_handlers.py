"""The broker's handlers of the table worker's requests: the next job, and the outcome of the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.broker.broker import Broker
from penstock.broker.runtime.executor import Deferred
from penstock.broker.tables.table import JobDone
from penstock.workers.rpc import Handler, committed, finished, typed
from penstock.workers.supervisor import Empty
from penstock.workers.tables.rpc_messages import NextJob, RepairProgress

POLL_SECONDS = 0.5  # between two checks for a job


class TableHandlers:
    def __init__(self, broker: Broker, now: Callable[[], int]) -> None:
        """`now` is the time used for retention, in µs."""
        self._broker = broker
        self._now = now

    def handlers(self) -> dict[str, Handler]:
        return {
            "tables.next": typed(Empty, self.next),
            "tables.progress": typed(RepairProgress, self.progress),
            "tables.done": typed(JobDone, self.done),
        }

    async def next(self, _: Empty) -> NextJob:
        """The next job; answers when there is one."""
        jobs = self._broker.tables.jobs
        while True:
            job = jobs.next_job(self._now())
            if job is not None:
                if await self._safe():
                    backlog = jobs.backlog
                    return NextJob(job, backlog.background, not backlog.behind)
                jobs.put_back(job)
            await asyncio.sleep(POLL_SECONDS)

    async def _safe(self) -> bool:
        """Whether jobs are safe to start: records that a job removes, or leaves out of a table because they are below
        the log start, must not reappear after a power failure."""
        return await finished(Deferred(self._broker.tables.jobs.safe, bool), self._broker.executor)

    async def progress(self, message: RepairProgress) -> Empty:
        self._broker.tables.jobs.repair_progress(message.job, message.checked, message.total)
        return Empty()

    async def done(self, done: JobDone) -> Empty:
        await committed(self._broker.tables.jobs.done(done))
        return Empty()
