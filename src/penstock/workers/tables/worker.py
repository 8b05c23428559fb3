"""The table worker, as the broker sees it."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.workers.supervisor import WorkerProcess
from penstock.workers.tables.rpc_handlers import TableHandlers
from penstock.workers.tables.rpc_messages import TableSettings


class TableWorker:
    """The process that builds tables: started when there is something to do for it."""

    def __init__(self, broker: Broker, settings: TableSettings) -> None:
        handlers = TableHandlers(broker, broker.retention_now).handlers()
        self._broker = broker
        self._started = False
        self.process = WorkerProcess("tables", "penstock.workers.tables.main", handlers, settings)

    def start_if_needed(self) -> None:
        """Called about once a second."""
        if not self._started and self._broker.tables.needed():
            self._started = True
            self.process.start()

    async def stop(self) -> None:
        await self.process.stop()
