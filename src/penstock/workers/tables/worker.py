"""The broker's handle for the table worker."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.workers.supervisor import WorkerProcess
from penstock.workers.tables.rpc_handlers import TableHandlers
from penstock.workers.tables.rpc_messages import TableSettings


class TableWorker:
    """The process that builds tables: started when there is work for it."""

    def __init__(self, broker: Broker, settings: TableSettings) -> None:
        handlers = TableHandlers(broker, broker.retention_now).handlers()
        self._broker = broker
        self._started = False
        self.process = WorkerProcess("tables", "penstock.workers.tables.main", handlers, settings)

    def start_if_needed(self) -> None:
        """Start the process if it has work. Called about once a second."""
        if not self._started and self._broker.tables.needed():
            self._started = True
            self.process.start()

    async def stop(self) -> None:
        await self.process.stop()
