"""The Flight door, as the broker has it: a port that is kept for it, and the process that serves it.

gRPC opens its port itself, in that process. The broker only binds a socket there and never listens on it: so a taken
port is found before anything else is opened, a port that the system chose stays the same when the process is started
again, and nobody else gets it meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from penstock.broker.broker import Broker
from penstock.config.settings import Endpoint, Settings
from penstock.transport.tcp_listener import BindAddress, PortUnavailable, bind
from penstock.workers.flight.rpc_handlers import FlightCalls
from penstock.workers.flight.rpc_messages import FlightSettings
from penstock.workers.rpc import Handler
from penstock.workers.supervisor import WorkerProcess

START_SECONDS = 60.0
CALLS_PER_STREAM = 4


class FlightDoor:
    """`start`, then `stop`."""

    def __init__(self, place: BindAddress) -> None:
        """Raises PortUnavailable."""
        self._sockets = bind(place)
        self.endpoint = Endpoint(place.endpoint.host, self._sockets[0].getsockname()[1])
        self.child: WorkerProcess | None = None

    async def start(self, broker: Broker, settings: Settings, data_dir: str, more: Mapping[str, Handler]) -> None:
        """Start the process, and wait until it serves. `more` are handlers of what it asks the broker besides. Raises
        PortUnavailable."""
        handlers = {**FlightCalls(broker).handlers(), **more}
        self.child = WorkerProcess(
            "flight", "penstock.workers.flight.main", handlers, self._settings(settings, data_dir)
        )
        self.child.start()
        if not await self.child.ready(START_SECONDS):
            raise PortUnavailable(
                f"flight: the process that serves {self.endpoint} did not start; its messages above tell more. To go "
                "without it: --listen flight=off"
            )

    def _settings(self, settings: Settings, data_dir: str) -> FlightSettings:
        tls, streams = settings.tls, settings.flight.streams
        return FlightSettings(
            data_dir=data_dir,
            host=self.endpoint.host,
            port=self.endpoint.port,
            cert=tls.cert,
            key=tls.key,
            client_ca=tls.client_ca,
            streams=streams,
            calls=CALLS_PER_STREAM * streams,
            log_level=settings.log_level,
            durability=settings.log.durability,
            record_bytes=settings.limits.record_bytes,
        )

    async def stop(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.close()
        if self.child is not None:
            await self.child.stop()
