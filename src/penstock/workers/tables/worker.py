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
    """The process that builds tables: started when there is work for it, and replaced by a new one when it is behind,
    because a process that has lowered its priority is not allowed to raise it again."""

    def __init__(self, broker: Broker, settings: TableSettings) -> None:
        self._handlers = TableHandlers(broker, broker.retention_now)
        self._tables = broker.tables
        self._started = False
        self._looks = 0
        self.process = WorkerProcess(
            "tables", "penstock.workers.tables.main", self._handlers.handlers(), settings, self._exited
        )

    def look_after(self) -> None:
        """Start the process if it has work; replace it if it has to run at another priority. Called about once a
        second."""
        if not self._started:
            if self._tables.needed():
                self._started = True
                self.process.start()
            return
        self._looks += 1
        if self._looks % LOOK_EVERY == 0:
            self._tables.observe_backlog()
            if self._handlers.background and not self._tables.backlog.background:
                logger.warning("%s; it goes on at normal priority", self._tables.backlog.trouble())
                self._handlers.background = False
                self._tables.interrupt()
                self.process.kill()

    def _exited(self) -> None:
        self._handlers.background = False

    async def stop(self) -> None:
        await self.process.stop()
