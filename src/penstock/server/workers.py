"""The worker processes of one broker: Flight, SQL and tables."""

from __future__ import annotations

import logging

from penstock.broker.broker import Broker
from penstock.config.settings import Settings
from penstock.config.workers import flight_settings, sql_settings, table_settings
from penstock.server.errors import StartFailed
from penstock.transport.tcp_listener import ReservedPort
from penstock.workers.flight.worker import FlightWorker
from penstock.workers.sql.worker import SqlWorker
from penstock.workers.tables.worker import TableWorker

logger = logging.getLogger(__name__)


class Workers:
    """`start`, then `stop_serving`, then `stop`. Flight runs from the start, and so does SQL if records are in tables
    or `sql.start` says so; otherwise workers start with their first work."""

    def __init__(self, broker: Broker, settings: Settings, data_dir: str, flight_port: ReservedPort | None) -> None:
        self._broker = broker
        self._flight_port = flight_port
        self._sql_first = settings.sql.start == "broker"
        self.flight: FlightWorker | None = None
        if flight_port is not None:
            endpoint = flight_port.endpoint
            self.flight = FlightWorker(broker, flight_settings(settings, data_dir, endpoint.host, endpoint.port))
            process = self.flight.process
            broker.readiness.require("flight", lambda: process.is_ready)
        self.tables = TableWorker(broker, table_settings(settings, data_dir))
        self.sql = SqlWorker(broker, sql_settings(settings, data_dir)) if settings.sql.enabled else None

    async def start(self) -> None:
        """Start workers, and wait until those that run from the start are ready. Raises StartFailed."""
        # A query on tables is likely, and should not wait for libraries to load. Both processes load theirs at the same
        # time.
        sql_first = self._sql_first or self._broker.tables.catalog.exist()
        if self.sql is not None and sql_first:
            self._broker.queries.expect()
        if self.flight is not None and self._flight_port is not None and not await self.flight.start():
            raise StartFailed(
                f"flight: the process that serves {self._flight_port.endpoint} did not start; its messages above tell "
                "more. To go without it: --listen flight=off"
            )
        if self.sql is not None and sql_first and not await self.sql.ready():
            logger.warning("the SQL process is not ready yet; its messages tell more, and statements wait for it")

    def look_after(self) -> None:
        """Start workers that have work, and see to their priority. Called about once a second."""
        self.tables.look_after()

    def restarts(self) -> dict[str, int]:
        """Kind of process → number of restarts."""
        processes = {"tables": [self.tables.process]}
        if self.flight is not None:
            processes["flight"] = [self.flight.process]
        if self.sql is not None:
            processes["sql"] = [one.process for one in self.sql.processes]
        return {name: sum(max(0, one.starts - 1) for one in found) for name, found in processes.items()}

    async def stop_serving(self) -> None:
        """Stop the worker that has its own clients (Flight)."""
        if self.flight is not None:
            await self.flight.stop()

    async def stop(self) -> None:
        if self.sql is not None:
            await self.sql.stop()
        await self.tables.stop()
