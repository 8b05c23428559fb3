"""The broker's handle for the table worker."""

from __future__ import annotations

import logging

from penstock.broker.broker import Broker
from penstock.workers.supervisor import WorkerProcess
from penstock.workers.tables.rpc_handlers import TableHandlers
from penstock.workers.tables.rpc_messages import TableSettings

logger = logging.getLogger(__name__)

LOOK_EVERY = 5  # calls of `look_after`: the backlog of many topics takes a moment to add up


class TableWorker:
    """The process that builds tables, started when there is work for it.

    In the background it is in the broker's session, where it gives way as soon as the broker has something to do. A
    process that is behind has a session of its own, and with it a fair share of the processors. One is replaced by the
    other, because a process that has lowered its priority is not allowed to raise it again, and none can join a
    session.
    """

    def __init__(self, broker: Broker, settings: TableSettings) -> None:
        self._handlers = TableHandlers(broker, broker.retention_now)
        self._jobs = broker.tables.jobs
        self._started = False
        self._looks = 0
        self._replaced = False
        self.process = WorkerProcess(
            "tables", "penstock.workers.tables.main", self._handlers.handlers(), settings, self._exited
        )
        self.process.own_session = False

    def look_after(self) -> None:
        """Start the process if it has work; replace it if it has to run at another priority. Called about once a
        second."""
        if not self._started:
            if self._jobs.needed():
                self._started = True
                self.process.start()
            return
        self._looks += 1
        if self._looks % LOOK_EVERY == 0:
            self._jobs.observe_backlog()
            background = self._jobs.backlog.background
            if not background and not self.process.own_session:
                logger.warning("%s; it goes on at normal priority", self._jobs.backlog.trouble())
                self._replace(own_session=True)
            elif background and self.process.own_session and not self._jobs.busy:
                logger.info("the table worker has kept up for a while: it goes on in the background")
                self._replace(own_session=False)

    def _replace(self, *, own_session: bool) -> None:
        self.process.own_session = own_session
        self._replaced = self.process.process is not None
        self.process.kill()

    def _exited(self) -> None:
        if self._replaced:
            self._replaced = False
            self._jobs.interrupt()  # no failure of its job

    async def stop(self) -> None:
        await self.process.stop()
