"""The server: assembles lock, log, broker, doors, ports and workers, and shuts them down.

Everything that can prevent a start is detected before the first connection is accepted, and is reported in one line.
Ports are bound first and opened last: a client that can connect finds everything ready.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from penstock.admin.backups import remove_leftovers
from penstock.admin.environment import DoorView, Environment
from penstock.admin.socket import AdminSocket
from penstock.admin.socket_path import SOCKET, left_behind
from penstock.broker.broker import Broker
from penstock.broker.errors import StateUnreadable
from penstock.broker.runtime.clock import wall_clock
from penstock.broker.runtime.executor import ThreadPool
from penstock.broker.runtime.readiness import Phase
from penstock.broker.security.access import ANONYMOUS
from penstock.config.broker import data_directory
from penstock.config.listen import bind_plan, door_identities
from penstock.config.settings import Config, ConfigError
from penstock.config.transport import connection_limits, quic_settings
from penstock.log.errors import LogError
from penstock.log.lock import DirectoryLock
from penstock.server.broker import open_broker
from penstock.server.doors import BUILT, FELIX, FLIGHT, quic_door, stream_doors
from penstock.server.environment import config_values, connection_views, door_views
from penstock.server.errors import StandbyStopped, StartFailed
from penstock.server.exposure import exposed_secrets, refuse_exposed_doors
from penstock.server.figures import ProcessFigures
from penstock.server.forwarding import Forwarding, Waiting, close_all
from penstock.server.maintenance import maintain
from penstock.server.pipelines import pipeline_scopes, pipeline_views, restart_pipeline
from penstock.server.stale_reads import StaleReads
from penstock.server.storage import Standby
from penstock.server.telemetry import Telemetry
from penstock.server.watchdog import Watchdog
from penstock.server.workers import Workers
from penstock.transport.busy_poll import BusyPoll
from penstock.transport.connection_limits import ConnectionTracker
from penstock.transport.endpoint import Endpoint
from penstock.transport.forwarding import Forwarder
from penstock.transport.port import Port
from penstock.transport.tcp_listener import BindAddress, Listener, PortUnavailable, ReservedPort
from penstock.transport.tls import TlsUnusable, server_context

if TYPE_CHECKING:
    import ssl

    from penstock.transport.quic.certificate import Certificate
    from penstock.transport.quic_listener import QuicListener

logger = logging.getLogger(__name__)

READ_THREADS = 4
ORPHAN_SECONDS = 10.0  # for the Flight process of a killed broker to notice that: it has a low priority


class Server:
    """One running broker. `start`, then `stop`; a failed start closes everything it opened."""

    def __init__(self, config: Config, standby: Standby | None = None) -> None:
        self.config = config
        self._standby = standby or Standby()
        self.settings = config.settings
        self.data_dir = data_directory(config.settings)
        self.plan = bind_plan(config.settings, BUILT)
        self.listeners: list[Listener] = []
        self.broker: Broker | None = None
        self._stale_reads: StaleReads | None = None
        self._took_over = False  # the journal, from a broker that owned it when this one started
        self.tracker: ConnectionTracker | None = None
        self._quic: QuicListener | None = None
        self._certificate: Certificate | None = None  # of the QUIC door
        self._flight_port: ReservedPort | None = None
        self._lock: DirectoryLock | None = None
        self._threads: ThreadPool | None = None
        self._maintenance: asyncio.Task[None] | None = None
        self._watchdog: Watchdog | None = None
        self._admin: AdminSocket | None = None
        self._telemetry: Telemetry | None = None
        self.workers: Workers | None = None
        self.environment = Environment(
            "replicated" if self.settings.storage.url else str(self.settings.log.durability),
            None,
            wall_clock(),
            self._door_views,
            lambda: [] if self.tracker is None else connection_views(self.tracker),
            lambda number: self.tracker is not None and self.tracker.close_one(number),
            lambda: config_values(self.config),
            self.data_dir,
            lambda ends: pipeline_views(self.settings, self.data_dir, ends),
            lambda: pipeline_scopes(self.settings, self.data_dir),
            lambda name: restart_pipeline(self.settings, self.data_dir, name),
        )

    async def start(self) -> None:
        """Start the broker. Raises StartFailed."""
        try:
            refuse_exposed_doors(self.settings.security, self.plan)
            await self._open()
        except StandbyStopped:
            await self.stop()
            raise
        except (ConfigError, LogError, StateUnreadable, PortUnavailable, TlsUnusable, StartFailed) as error:
            await self.stop()
            raise StartFailed(str(error)) from error
        except OSError as error:
            await self.stop()
            where = f": {error.filename}" if error.filename else ""
            raise StartFailed(f"{error.strerror}{where} (data directory {self.data_dir})") from error

    async def _open(self) -> None:
        settings = self.settings
        loop = asyncio.get_running_loop()
        tls = None
        if settings.tls.cert:
            tls = server_context(
                settings.tls.cert, settings.tls.key, settings.tls.client_ca, min_version=settings.tls.min_version
            )
        lock = DirectoryLock(self.data_dir)
        lock.acquire()
        self._lock = lock
        remove_leftovers(self.data_dir)
        await self._bind(ORPHAN_SECONDS if left_behind(self.data_dir) else 0)
        if self._quic is not None:
            self._certificate = self._quic_certificate()
        for warning in exposed_secrets(settings, self.data_dir):
            logger.warning("%s", warning)
        self._threads = ThreadPool(READ_THREADS, thread_name_prefix="penstock-read")
        waiting = await self._open_broker(loop, self._threads)
        broker = self.broker
        assert broker is not None
        if settings.telemetry.otlp_endpoint:
            self._telemetry = Telemetry(settings.telemetry)
            self._telemetry.trace(broker)
        broker.schemas.warm()
        tracker = self.tracker = ConnectionTracker(connection_limits(settings), broker.metrics, loop)
        busy_poll = BusyPoll(loop, settings.performance.busy_poll_us / 1e6)
        self.workers = Workers(broker, settings, self.data_dir, self._flight_port)
        broker.exposition.more.append(ProcessFigures(self.data_dir, self.workers).collect)
        warming = [loop.run_in_executor(self._threads, broker.tables.warm)] if broker.tables.catalog.exist() else []
        self._watchdog = Watchdog(loop, broker, settings.performance.stall_seconds)
        self._maintenance = loop.create_task(maintain(broker, self.workers.look_after))
        if not self._took_over:
            await self.workers.start()
        if warming:
            await asyncio.wait(warming)
        self._admin = await self._open_admin(broker)
        await self._listen(broker, tracker, busy_poll, tls, waiting)
        if self._quic is not None:
            self._listen_quic(self._quic, broker, tracker, busy_poll)
        if self._took_over:  # clients of the previous owner are waiting: only those that need a worker wait longer
            await self.workers.start()
        broker.readiness.phase = Phase.SERVING

    async def _open_broker(self, loop: asyncio.AbstractEventLoop, threads: ThreadPool) -> Waiting:
        """Open the broker; while another one owns the journal, forward connections to it. Returns the connections that
        are waiting, by door. Raises like `open_broker`."""
        forwarding = Forwarding(self.settings, self._standby)
        standby = forwarding.standby(self._ports_meanwhile)
        if self.settings.storage.stale_reads:
            if not self.settings.storage.url:
                raise StartFailed("storage.stale_reads is for standbys of a journal on Kafka: it needs storage.url")
            if self._flight_port is None:
                raise StartFailed("storage.stale_reads: stale reads are served by the Flight door, which is closed")
            stale = self._stale_reads = StaleReads(self.settings, self.data_dir, loop, threads, self._flight_port)
            standby = msgspec.structs.replace(standby, on_following=stale.begin, on_leaving=stale.end)
        try:
            self.broker = await open_broker(self.settings, self.data_dir, loop, threads, standby, self._endpoints())
        except BaseException:
            close_all(await forwarding.stop())
            raise
        finally:
            if self._stale_reads is not None:
                await self._stale_reads.stop()
        self._took_over = forwarding.needed
        return await forwarding.stop()

    def _ports_meanwhile(self, forwarder: Forwarder) -> None:
        for listener in self.listeners:
            forwarder.add_stream(listener.bind_address.doors[0], listener.sockets_meanwhile())
        if self._flight_port is not None and self._stale_reads is None:
            forwarder.add_stream(FLIGHT, self._flight_port.sockets_meanwhile())
        if self._quic is not None:
            forwarder.add_datagrams(FELIX, self._quic.sockets_meanwhile())

    async def _bind(self, patience: float) -> None:
        """Bind every port before the log is opened: ports in use fail the start early, and all of them are reported."""
        unavailable: list[str] = []
        for bind_address in self.plan.addresses:
            try:
                if FLIGHT in bind_address.doors:
                    self._flight_port = await ReservedPort.once_free(bind_address, patience)
                else:
                    self._bind_address(bind_address)
            except PortUnavailable as error:
                unavailable.append(str(error))
        if unavailable:
            raise PortUnavailable("\n".join(unavailable))

    def _bind_address(self, bind_address: BindAddress) -> None:
        if FELIX in bind_address.doors:
            from penstock.transport.quic_listener import QuicListener  # not loaded without this door

            self._quic = QuicListener(bind_address)
        else:
            self.listeners.append(Listener(bind_address))

    async def _listen(
        self,
        broker: Broker,
        tracker: ConnectionTracker,
        busy_poll: BusyPoll,
        tls: ssl.SSLContext | None,
        waiting: Waiting,
    ) -> None:
        open_names = {name for bind_address in self.plan.addresses for name in bind_address.doors}
        doors = {
            name: door for name, door in stream_doors(self.settings, self.environment).items() if name in open_names
        }
        for listener in self.listeners:
            port = Port(
                protocol=listener.bind_address.doors[0],
                doors=doors,
                broker=broker,
                identity=ANONYMOUS,
                identities=door_identities(self.settings, listener.bind_address.doors),
                speaking={doors[name].speaks: name for name in listener.bind_address.doors if doors[name].speaks},
                tracker=tracker,
                pinned=listener.bind_address.pinned,
                tls=tls,
                tls_required=self.settings.tls.required,
                busy_poll=busy_poll,
            )
            await listener.start(port)
            for sock in waiting.pop(listener.bind_address.doors[0], ()):
                await listener.adopt(port, sock)
        close_all(waiting)  # of a door that another process serves

    def _quic_certificate(self) -> Certificate:
        from penstock.transport.quic.certificate import CertificateUnusable
        from penstock.transport.quic_listener import server_certificate

        tls = self.settings.tls
        try:
            return server_certificate(tls.cert, tls.key, self.data_dir)
        except CertificateUnusable as error:
            raise StartFailed(f"felix: {error}. To go without this door: --listen felix=off") from None

    def _listen_quic(
        self, listener: QuicListener, broker: Broker, tracker: ConnectionTracker, busy_poll: BusyPoll
    ) -> None:
        from penstock.transport.quic_sessions import QuicPort

        assert self._certificate is not None
        port = QuicPort(quic_door(self.settings), broker, ANONYMOUS, tracker, asyncio.get_running_loop().time)
        listener.start(port, quic_settings(self.settings), self._certificate, busy_poll)

    async def _open_admin(self, broker: Broker) -> AdminSocket | None:
        """The admin socket; None, with a warning, on file systems without sockets: the broker can serve without it."""
        admin = AdminSocket(self.data_dir, broker, self.environment)
        try:
            await admin.start()
        except OSError as error:
            logger.warning(
                "%s cannot be opened (%s): keys can be changed only while the broker is stopped", SOCKET, error
            )
            return None
        return admin

    async def stop(self) -> None:
        """Accept no more connections, answer and commit accepted requests, and release the data directory."""
        if self.broker is not None:
            self.broker.readiness.phase = Phase.STOPPING
        for listener in self.listeners:
            listener.close()
        if self._quic is not None:
            self._quic.stop_accepting()
        if self._flight_port is not None:
            self._flight_port.close()
        if self.workers is not None:
            await self.workers.stop_serving()
        await self._drain()
        if self._quic is not None:
            self._quic.close()
        if self._admin is not None:
            await self._admin.stop(self.settings.limits.shutdown_seconds)
        if self._maintenance is not None:
            self._maintenance.cancel()
        if self._watchdog is not None:
            self._watchdog.close()
        if self.workers is not None:
            await self.workers.stop()
        if self.broker is not None:
            self.broker.close()
        if self._telemetry is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._telemetry.close)
        if self._threads is not None:
            self._threads.shutdown()
        if self._lock is not None:
            self._lock.release()

    async def _drain(self) -> None:
        """Give every connection `limits.shutdown_seconds` to answer accepted requests."""
        if self.tracker is None:
            return
        seconds = self.settings.limits.shutdown_seconds
        cut_off = await self.tracker.drain(seconds)
        if cut_off:
            logger.warning("%d connections were not done after %g s and were cut off", cut_off, seconds)
        self.tracker.close()

    def addresses(self) -> dict[str, str]:
        """Door → its address, for open doors."""
        return {name: str(endpoint) for name, endpoint in self._endpoints().items()}

    def _endpoints(self) -> dict[str, Endpoint]:
        found = {name: listener.endpoint for listener in self.listeners for name in listener.bind_address.doors}
        if self._quic is not None:
            found[FELIX] = self._quic.endpoint
        if self._flight_port is not None:
            found[FLIGHT] = self._flight_port.endpoint
        return found

    def _door_views(self) -> list[DoorView]:
        return door_views(self.plan, self.addresses(), self.settings.tls, self._certificate)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the certificate for QUIC clients; empty without a QUIC door."""
        return "" if self._quic is None else self._quic.fingerprint
