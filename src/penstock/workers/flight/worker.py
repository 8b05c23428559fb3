"""The broker's handle for the Flight process. gRPC opens the port itself, in that process; the broker keeps it reserved
(`transport.tcp_listener.ReservedPort`)."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.workers.flight.rpc_handlers import FlightHandlers, PublishHandlers
from penstock.workers.flight.rpc_messages import FlightSettings
from penstock.workers.standby import refusing
from penstock.workers.supervisor import WorkerProcess
from penstock.workers.table_damage import damage_handlers

START_SECONDS = 60.0


WRITES = ("flight.commit", "publish.prepare", "publish.publish", "publish.discard")


class FlightWorker:
    """`start`, then `stop`. That of a standby refuses what would write."""

    def __init__(self, broker: Broker, settings: FlightSettings) -> None:
        handlers = {
            **FlightHandlers(broker).handlers(),
            **PublishHandlers(broker, settings.durability).handlers(),
            **damage_handlers(broker),
        }
        if settings.standby:
            handlers.update(refusing(WRITES))
        self.process = WorkerProcess("flight", "penstock.workers.flight.main", handlers, settings)

    async def start(self) -> bool:
        """Start the process; False if it is not ready in time."""
        self.process.start()
        return await self.process.ready(START_SECONDS)

    async def stop(self) -> None:
        await self.process.stop()
