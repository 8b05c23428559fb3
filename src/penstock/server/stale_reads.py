"""Stale reads: what a standby serves itself, from its local disk, if `storage.stale_reads` says so.

A broker without writes follows the journal. A Flight process reads its segments and tables, and so do SQL processes for
the queries that come through it, with the same access checks as the owner's. They answer for what the standby has: a
read of more waits a little, or is refused. At a takeover another broker is opened on the same engine, and this one is
left.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.runtime.executor import ThreadExecutor, ThreadPool
from penstock.config import broker as config
from penstock.config.settings import Settings
from penstock.config.workers import flight_settings, sql_settings
from penstock.log.errors import LogUnavailable
from penstock.log.kafka.replica import Replica
from penstock.transport.tcp_listener import ReservedPort
from penstock.workers.flight.worker import FlightWorker
from penstock.workers.sql.worker import SqlWorker
from penstock.workers.standby import STANDBY

logger = logging.getLogger(__name__)


class StaleReads:
    """The reads of one standby: `begin` and `end` on the loop, `stop` after `end`."""

    def __init__(
        self,
        settings: Settings,
        data_dir: str,
        loop: asyncio.AbstractEventLoop,
        threads: ThreadPool,
        flight_port: ReservedPort,
    ) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self._loop = loop
        self._threads = threads
        self._endpoint = flight_port.endpoint
        self._broker: Broker | None = None
        self._worker: FlightWorker | None = None
        self._sql: SqlWorker | None = None
        self._starting: asyncio.Task[None] | None = None

    def begin(self, replica: Replica) -> None:
        """Serve what the engine of the replica has, and what comes. Raises LogError or StateUnreadable."""
        replica.engine.refuse_appends(LogUnavailable(STANDBY))
        broker = self._broker = Broker(
            replica.engine,
            config.broker_settings(self._settings, self._data_dir),
            executor=ThreadExecutor(self._loop, self._threads),
            scheduler=self._loop,
        )
        replica.watch(lambda group: broker.state_log.follow(group.core_events))
        settings = flight_settings(self._settings, self._data_dir, self._endpoint.host, self._endpoint.port)
        self._worker = FlightWorker(broker, msgspec.structs.replace(settings, standby=True))
        if self._settings.sql.enabled:
            of_sql = sql_settings(self._settings, self._data_dir)
            self._sql = SqlWorker(broker, msgspec.structs.replace(of_sql, standby=True))
        self._starting = self._loop.create_task(self._start(self._worker))

    async def _start(self, worker: FlightWorker) -> None:
        if not await worker.start():
            logger.warning("flight: the process that serves stale reads is not ready yet; its messages tell more")

    def end(self, replica: Replica) -> None:
        """Answer nothing more: the engine is somebody else's."""
        if self._broker is not None:
            self._broker.state_log.detach()
            self._broker = None
            replica.engine.resume()

    async def stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._worker is not None:
            await self._worker.stop()
            self._worker = None
        if self._sql is not None:
            await self._sql.stop()
            self._sql = None
