"""The broker process: puts together lock, log, broker, doors and ports, runs them, and takes them apart again.

Everything that can keep it from starting is found before the first connection is taken, and is told in one line.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from penstock import __version__
from penstock.admin.audit import audit_policy
from penstock.admin.socket import SOCKET, AdminSocket
from penstock.broker.broker import Broker
from penstock.broker.cache.cache_store import CachePolicy
from penstock.broker.errors import StateUnreadable
from penstock.broker.limits import Limits
from penstock.broker.publications.staging import Staging
from penstock.broker.queues.queue import QueuePolicy
from penstock.broker.runtime.clock import wall_clock
from penstock.broker.runtime.executor import ThreadExecutor
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, ANONYMOUS, AccessPolicy, Grant
from penstock.broker.security.lockout import LockoutPolicy
from penstock.broker.security.user import UserPolicy
from penstock.broker.settings import BrokerSettings
from penstock.broker.tables.table import TablePolicy
from penstock.config.settings import Config, ConfigError, Settings
from penstock.config.tokens import token_policy
from penstock.log.committer import ThreadCommitter
from penstock.log.compiled import compiled
from penstock.log.engine import Retention
from penstock.log.errors import LogError
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.log.lock import DirectoryLock
from penstock.server.doors import BUILT, FELIX, FLIGHT, quic_door, stream_doors
from penstock.transport.busy_poll import BusyPoll
from penstock.transport.connection_limits import ConnectionLimits, ConnectionTracker
from penstock.transport.tcp_connection import Port
from penstock.transport.tcp_listener import Listener, Plan, PortUnavailable, bind, is_loopback, plan
from penstock.transport.tls import TlsUnusable, server_context
from penstock.workers.flight.endpoint import FlightDoor
from penstock.workers.flight.publish_rpc_handlers import PublishCalls
from penstock.workers.sql.rpc_handlers import SqlWorker, query_policy
from penstock.workers.tables.rpc_handlers import TableWorker

if TYPE_CHECKING:
    from penstock.transport.quic_listener import QuicListener

logger = logging.getLogger(__name__)

MAINTAIN_SECONDS = 1.0
SWEEP_SECONDS = 0.1
READ_THREADS = 4
SPARE_FILES = 256  # descriptors that are no connections: journal files, listeners, pipes


class StartFailed(Exception):
    """The broker cannot start. The text says why and what to do, for somebody at a terminal."""


class Server:
    """One running broker. `start`, then `stop`; what was opened before a failed start is closed again."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.plan: Plan = plan(config, BUILT)
        self.listeners: list[Listener] = []
        self._quic: QuicListener | None = None
        self.broker: Broker | None = None
        self.tracker: ConnectionTracker | None = None
        self._lock: DirectoryLock | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._maintenance: asyncio.Task[None] | None = None
        self._admin: AdminSocket | None = None
        self._flight: FlightDoor | None = None
        self._tables: TableWorker | None = None
        self._sql: SqlWorker | None = None

    async def start(self) -> None:
        """Raises StartFailed."""
        try:
            refuse_open_doors(self.config, self.plan)
            await self._open()
        except (ConfigError, LogError, StateUnreadable, PortUnavailable, TlsUnusable, StartFailed) as error:
            await self.stop()
            raise StartFailed(str(error)) from error
        except OSError as error:
            await self.stop()
            where = f": {error.filename}" if error.filename else ""
            raise StartFailed(f"{error.strerror}{where} (data directory {self.data_dir})") from error

    async def _open(self) -> None:
        settings = self.config.settings
        loop = asyncio.get_running_loop()
        tls = None
        if settings.tls.cert:
            tls = server_context(settings.tls.cert, settings.tls.key, settings.tls.client_ca)
        lock = DirectoryLock(self.data_dir)
        lock.acquire()
        self._lock = lock
        for place in self.plan.places:
            if FLIGHT in place.doors:
                self._flight = FlightDoor(place)
            elif FELIX in place.doors:
                from penstock.transport.quic_listener import QuicListener  # here: who has no such door loads no QUIC

                self._quic = QuicListener(place)
            else:
                self.listeners.append(Listener(place, bind(place)))
        self._threads = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="penstock-read")
        self.broker = open_broker(settings, loop, self._threads)
        self.broker.schemas.warm()
        limits = settings.limits
        self.tracker = ConnectionTracker(
            ConnectionLimits(
                limits.connections,
                limits.connection_bytes,
                limits.total_bytes,
                limits.idle_seconds,
                limits.handshake_seconds,
            ),
            self.broker.metrics,
            loop,
        )
        _raise_file_limit(limits.connections)
        busy_poll = BusyPoll(loop, settings.performance.busy_poll_us / 1e6)
        doors = stream_doors(settings)
        open_names = {name for place in self.plan.places for name in place.doors}
        for listener in self.listeners:
            port = Port(
                own=listener.place.doors[0],
                doors={name: door for name, door in doors.items() if name in open_names},
                broker=self.broker,
                identity=ANONYMOUS,
                tracker=self.tracker,
                pinned=listener.place.pinned,
                tls=tls,
                tls_required=settings.tls.required,
                busy_poll=busy_poll,
            )
            await listener.start(port)
        if self._quic is not None:
            self._start_quic(self._quic, self.broker, self.tracker, busy_poll)
        self._admin = await self._open_admin(self.broker)
        if self._flight is not None:
            publishing = PublishCalls(self.broker, settings.log.durability).handlers()
            await self._flight.start(self.broker, settings, self.data_dir, publishing)
        self._tables = TableWorker(self.broker, settings, self.data_dir)
        if settings.sql.enabled:
            self._sql = SqlWorker(self.broker, settings, self.data_dir)
        self._maintenance = loop.create_task(self._maintain(self.broker))

    def _start_quic(
        self, listener: QuicListener, broker: Broker, tracker: ConnectionTracker, busy_poll: BusyPoll
    ) -> None:
        from penstock.transport.quic.certificate import CertificateUnusable
        from penstock.transport.quic_listener import quic_settings, server_certificate
        from penstock.transport.quic_sessions import QuicPort

        settings = self.config.settings
        try:
            certificate = server_certificate(settings, self.data_dir)
        except CertificateUnusable as error:
            raise StartFailed(f"felix: {error}. To go without this door: --listen felix=off") from None
        port = QuicPort(quic_door(settings), broker, ANONYMOUS, tracker, asyncio.get_running_loop().time)
        listener.start(port, quic_settings(settings), certificate, busy_poll)

    async def _open_admin(self, broker: Broker) -> AdminSocket | None:
        """A file system that has no sockets is no reason not to serve."""
        admin = AdminSocket(self.data_dir, broker, self.config.settings.log.durability)
        try:
            await admin.start()
        except OSError as error:
            logger.warning(
                "%s cannot be opened (%s): keys can be changed only while the broker is stopped", SOCKET, error
            )
            return None
        return admin

    async def _maintain(self, broker: Broker) -> None:
        maintained = 0.0
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                broker.sweep(wall_clock())
                if time.monotonic() - maintained >= MAINTAIN_SECONDS:
                    maintained = time.monotonic()
                    broker.maintain(wall_clock())
                    if self._tables is not None:
                        self._tables.look()
            except Exception:
                logger.exception("maintenance failed; it is tried again in %g s", SWEEP_SECONDS)

    async def stop(self) -> None:
        """Take no more connections, answer what was accepted, commit it, and let go of the data directory."""
        for listener in self.listeners:
            listener.close()
        if self._quic is not None:
            self._quic.stop_accepting()
        if self._flight is not None:
            await self._flight.stop()
        if self.tracker is not None:
            seconds = self.config.settings.limits.shutdown_seconds
            cut_off = await self.tracker.drain(seconds)
            if cut_off:
                logger.warning("%d connections were not done after %g s and were cut off", cut_off, seconds)
            self.tracker.close()
        if self._quic is not None:
            self._quic.close()
        if self._admin is not None:
            await self._admin.stop(self.config.settings.limits.shutdown_seconds)
        if self._sql is not None:
            await self._sql.stop()
        if self._maintenance is not None:
            self._maintenance.cancel()
        if self._tables is not None:
            await self._tables.stop()
        if self.broker is not None:
            self.broker.close()
        if self._threads is not None:
            self._threads.shutdown()
        if self._lock is not None:
            self._lock.release()

    @property
    def data_dir(self) -> str:
        return os.path.abspath(os.path.expanduser(self.config.settings.data_dir))

    def addresses(self) -> dict[str, str]:
        """Door → where it is open."""
        found = {name: listener.address for listener in self.listeners for name in listener.place.doors}
        if self._quic is not None:
            found[FELIX] = self._quic.address
        if self._flight is not None:
            found[FLIGHT] = str(self._flight.endpoint)
        return found

    @property
    def fingerprint(self) -> str:
        """Of the certificate that QUIC clients see; empty if there are none."""
        return "" if self._quic is None else self._quic.fingerprint


def open_broker(settings: Settings, loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor) -> Broker:
    """The log and the broker over it. Raises LogError, StateUnreadable or OSError."""
    root = os.path.abspath(os.path.expanduser(settings.data_dir))
    engine = FileEngine(
        OsFiles(root),
        LogSettings(**msgspec.structs.asdict(settings.log)),
        committer=ThreadCommitter(loop),
        clock=wall_clock,
    )
    grants = [
        Grant(grant.principal, frozenset(grant.permissions), grant.tenant, grant.namespace, grant.topic)
        for grant in settings.security.grants
    ]
    try:
        broker_settings = BrokerSettings(
            access=AccessPolicy(settings.security.mode == "on", [*grants, ADMINISTRATION]),
            limits=Limits(
                record_bytes=settings.limits.record_bytes,
                transaction_us=int(settings.topics.transaction_seconds * 1_000_000),
                delay_us=int(settings.topics.max_delay_seconds * 1_000_000),
                transaction_bytes=min(Limits().transaction_bytes, settings.log.entry_bytes),
                staged_bytes=settings.flight.staged_bytes,
                publication_entry_bytes=settings.flight.atomic_bytes,
                tenant_connections=settings.limits.tenant_connections,
                tenant_requests=settings.limits.tenant_requests_per_second,
                tenant_topics=settings.limits.tenant_topics,
                tenant_bytes=settings.limits.tenant_bytes,
            ),
            default_retention=Retention(
                settings.topics.retention_seconds or None, settings.topics.retention_bytes or None
            ),
            queues=QueuePolicy(
                capacity=settings.queues.capacity,
                ttl=int(settings.queues.ttl_seconds * 1_000_000),
                attempts=settings.queues.attempts,
                backoff=int(settings.queues.backoff_seconds * 1_000_000),
                idle=int(settings.queues.idle_seconds * 1_000_000),
            ),
            auto_create_topics=settings.topics.auto_create_topics,
            lockout=LockoutPolicy(settings.security.lockout_failures, settings.security.lockout_seconds),
            users=UserPolicy(settings.security.default_public, settings.security.allow_anonymous),
            audit=audit_policy(settings),
            tables=table_policy(settings, root),
            tokens=token_policy(settings),
            queries=query_policy(settings),
            caches=cache_policy(settings),
        )
        return Broker(
            engine,
            broker_settings,
            executor=ThreadExecutor(loop, threads),
            scheduler=loop,
            staging=Staging(OsFiles(root)),
        )
    except BaseException:
        engine.close()
        raise


def cache_policy(settings: Settings) -> CachePolicy:
    return CachePolicy(**msgspec.structs.asdict(settings.cache))


def table_policy(settings: Settings, data_dir: str) -> TablePolicy:
    tables = settings.tables
    return TablePolicy(
        enabled=tables.enabled,
        root=tables.url or os.path.join(data_dir, "tables"),
        options=dict(option.split("=", 1) for option in tables.options),
        file_bytes=tables.file_bytes,
        keep_us=int(tables.keep_seconds * 1_000_000),
        care_us=int(tables.care_seconds * 1_000_000),
    )


def refuse_open_doors(config: Config, planned: Plan) -> None:
    """Without security, anybody who can connect is the administrator; so only this machine may connect."""
    security = config.settings.security
    if security.mode == "on" or security.insecure_ok:
        return
    for place in planned.places:
        if not is_loopback(place.endpoint):
            raise StartFailed(
                f"{place.doors[0]} would be open to the network at {place.endpoint}, and security is off: anybody who "
                "can connect would be administrator of every tenant. Three ways out:\n"
                f"  - listen on this machine only:  --listen {place.doors[0]}=127.0.0.1:{place.endpoint.port}\n"
                '  - turn security on:             mode = "on" in [security] of the configuration file; then\n'
                "                                  penstock users add NAME --role admin, or penstock keys add\n"
                "  - accept it, on a network where everybody is trusted:  --allow-insecure"
            )


def _count(server: Server) -> str:
    """Who could be let in."""
    grants = len(server.config.settings.security.grants)
    if server.broker is None:
        return f"{grants} grants"
    keys = [key for key in server.broker.keys.list(ADMINISTRATOR) if key.state(wall_clock()) == "active"]
    issuers = len(server.config.settings.security.token_keys)
    tokens = f", {issuers} token keys" if issuers else ""
    return f"{server.broker.users.count} users, {len(keys)} keys{tokens}, {grants} grants"


def _tables(server: Server) -> str:
    """Where the past goes."""
    policy = table_policy(server.config.settings, server.data_dir)
    return policy.root if policy.enabled else "off (but for topics that ask for one)"


def start_block(server: Server) -> str:
    """What the operator sees when the broker is up."""
    settings = server.config.settings
    addresses = server.addresses()
    durability = {
        "synced": "synced (acknowledged means on disk)",
        "written": "written (acknowledged means handed to the operating system)",
        "memory": "memory (acknowledged means in this process)",
    }[settings.log.durability]
    if settings.security.mode == "on":
        security = f"on ({_count(server)}; what is not allowed is denied)"
    else:
        security = "off (everybody who can connect is administrator)"
    tls = "off" if not settings.tls.cert else "required" if settings.tls.required else "on, beside plain text"
    lines = [f"Penstock {__version__}{' (compiled)' if compiled() else ''}", ""]
    lines += [f"  {label:<12}{text}" for label, text in (
        ("data", server.data_dir), ("durability", durability), ("tables", _tables(server)), ("security", security),
        ("tls", tls),
    )]  # fmt: skip
    lines.append("")
    order = [*addresses, *(name for name in server.plan.closed if name not in addresses)]
    more = {FELIX: f" (QUIC), certificate sha256:{server.fingerprint}"} if FELIX in addresses else {}
    lines += [f"  {name:<12}{addresses.get(name) or server.plan.closed[name]}{more.get(name, '')}" for name in order]
    lines += ["", *(f"  note: {note}" for note in (server.broker.notes if server.broker else ()))]
    lines.append(f"  Process {os.getpid()} is ready. Stop it with Ctrl-C or SIGTERM; a second signal does not wait.")
    return "\n".join(lines)


async def serve(config: Config, announce: Callable[[str], None]) -> None:
    """Run a broker until SIGTERM or SIGINT. Raises StartFailed."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def on_signal(number: int) -> None:
        if stopped.is_set():
            os._exit(128 + number)
        announce(f"{signal.Signals(number).name}: finishing what was accepted")
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    server = Server(config)
    await server.start()
    announce(start_block(server))
    await stopped.wait()
    began = time.monotonic()
    await server.stop()
    announce(f"stopped cleanly after {time.monotonic() - began:.1f} s")


def run(config: Config, announce: Callable[[str], None]) -> None:
    """`serve` on the fastest event loop there is. Raises StartFailed."""
    factory = None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        logger.info("uvloop is not installed: running on asyncio's own event loop, which is slower")
    # What lives long here (batches, connections, state) is many objects and few cycles. With the defaults the collector
    # would go through all of them again and again.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(config, announce))


def _raise_file_limit(connections: int) -> None:
    """Every connection takes a descriptor; shells often allow 1,024 where the system allows far more."""
    wanted = connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    if reachable < wanted:
        logger.warning(
            "limits.connections is %d, but the system allows this process %d open files (ulimit -n)", connections, hard
        )
