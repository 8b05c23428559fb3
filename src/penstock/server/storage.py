"""The storage engine of the broker: on local files, or as the cache of a journal on Kafka.

With a journal on Kafka, a broker that finds a live owner waits: it follows the journal, and claims it after the owner
has been silent for `storage.takeover_seconds`. Only then is the engine open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from penstock.broker.runtime.clock import wall_clock
from penstock.config import broker as config
from penstock.config.settings import Settings
from penstock.log.committer import ThreadCommitter
from penstock.log.engine import Engine
from penstock.log.errors import LogUnavailable
from penstock.log.file_engine import FileEngine
from penstock.log.files import OsFiles
from penstock.log.kafka.checkpoint import JournalSource, refuse_cache
from penstock.log.kafka.journal import JournalTrimmed
from penstock.log.kafka.opening import ReplicaOpening
from penstock.log.kafka.replica import Replica
from penstock.log.kafka.url import parse
from penstock.log.settings import LogSettings
from penstock.server.doors import FELIX, FLIGHT
from penstock.server.errors import StandbyStopped, StartFailed
from penstock.server.owner_watch import FOLLOW_SECONDS, OwnerWatch
from penstock.transport.endpoint import Endpoint, parse_endpoint
from penstock.typed_decoding import decode_json

if TYPE_CHECKING:
    from penstock.log.kafka.client import KafkaJournal

logger = logging.getLogger(__name__)

LOOP_SECONDS = 60.0  # that work on the loop may take


class Standby(msgspec.Struct):
    """Callbacks about ownership. They run on the loop, except for `stopped`."""

    stopped: Callable[[], bool] = lambda: False  # called on another thread
    on_standby: Callable[[str], None] = lambda _: None
    on_lost: Callable[[str], None] = lambda _: None
    on_owner: Callable[[Mapping[str, Endpoint]], None] = lambda _: None  # with the addresses of its doors
    on_following: Callable[[Replica], None] = lambda _: None  # its engine may be read on the loop from now on
    on_leaving: Callable[[Replica], None] = lambda _: None  # and no more
    on_claim: Callable[[], None] = lambda: None  # this broker may soon be the owner


async def open_engine(
    settings: Settings,
    data_dir: str,
    loop: asyncio.AbstractEventLoop,
    threads: ThreadPoolExecutor,
    standby: Standby,
    doors: Mapping[str, Endpoint],
) -> Engine:
    """The open engine. `doors` are the endpoints on which this broker listens. Raises LogError, StartFailed or
    OSError."""
    files = OsFiles(data_dir)
    if not settings.storage.url:
        refuse_cache(files)
        return FileEngine(files, config.log_settings(settings), committer=ThreadCommitter(loop), clock=wall_clock)
    if not settings.tables.url:
        raise StartFailed(
            "with a journal on Kafka, tables must be where every broker of it reaches them: set tables.url to an "
            "object store or a shared directory"
        )
    return await loop.run_in_executor(threads, _Opening(settings, data_dir, loop, standby, doors).run)


def open_journal(settings: Settings, url: str, *, create: bool = True) -> tuple[KafkaJournal, JournalSource]:
    """The journal at a URL; with `create`, missing topics are created. Blocks; raises LogError or StartFailed."""
    try:
        from penstock.log.kafka.client import KafkaJournal
        from penstock.log.kafka.topics import ensure_topics
    except ImportError:
        raise StartFailed("a journal on Kafka needs confluent-kafka: pip install 'penstock[kafka]'") from None

    address = parse(url)
    source = ensure_topics(address, message_bytes(settings), create=create)
    journal = KafkaJournal(
        address.client_options(),
        address.topic,
        source.cell,
        message_bytes=message_bytes(settings),
        delivery_seconds=address.delivery_seconds,
    )
    return journal, source


def message_bytes(settings: Settings) -> int:
    """The largest Kafka message of a journal."""
    entry_bytes = settings.log.entry_bytes
    return entry_bytes + entry_bytes // 4 + (1 << 20)


class _Opening:
    """The opening of an engine on Kafka. Blocks, on its own thread."""

    def __init__(
        self,
        settings: Settings,
        data_dir: str,
        loop: asyncio.AbstractEventLoop,
        standby: Standby,
        doors: Mapping[str, Endpoint],
    ) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self._loop = loop
        self._standby = standby
        self._serving = False  # stale reads
        self._doors = {name: str(advertised(each, settings.storage.advertise)) for name, each in doors.items()}

    def run(self) -> Engine:
        journal, source = open_journal(self._settings, self._settings.storage.url)
        log = config.log_settings(self._settings)
        while True:
            try:
                return self._own(journal, source, log)
            except JournalTrimmed as error:
                logger.warning("%s: the data directory is filled anew", error)

    def _own(self, journal: KafkaJournal, source: JournalSource, log: LogSettings) -> Engine:
        """Wait for and claim the journal. Raises JournalTrimmed if it was trimmed so far meanwhile that reading cannot
        continue."""
        opening = ReplicaOpening(
            *(journal, source, OsFiles(self._data_dir), log, self._loop, wall_clock), on_lost=self._standby.on_lost
        )
        try:
            journal.prepare()
            opening.replica.catch_up()
            me = _Owner(opening.identity, socket.gethostname(), os.getpid(), self._doors)
            if _owner(opening.replica.owner).directory != me.directory and opening.replica.view.term.number:
                self._follow(opening.replica)
            while not self._claim(opening, msgspec.json.encode(me)):
                self._follow(opening.replica)
            self._leave(opening.replica)
        except BaseException:
            self._leave(opening.replica)
            opening.engine.close()
            raise
        return opening.engine

    def _claim(self, opening: ReplicaOpening, value: bytes) -> bool:
        """Try to claim the journal. False if another broker was faster, or if Kafka did not answer: the outcome of the
        claim will be read from the journal."""
        self._loop.call_soon_threadsafe(self._standby.on_claim)
        try:
            return opening.own(value)
        except LogUnavailable as error:
            logger.warning("the journal could not be claimed: %s", error)
            return False

    def _follow(self, replica: Replica) -> None:
        """Follow the journal until the owner is gone."""
        watch = OwnerWatch(replica, self._settings.storage.takeover_seconds)
        announced, owner = False, b""
        while not (gone := watch.verdict()):
            if self._standby.stopped():
                raise StandbyStopped("stopped while waiting for the journal's owner to go")
            try:
                watch.follow()
            except LogUnavailable as error:
                logger.warning("the journal on Kafka cannot be followed: %s", error)
                time.sleep(FOLLOW_SECONDS)
            if replica.owner != owner:
                owner = replica.owner
                addresses = self._addresses(_owner(owner))
                watch.doors = [each for door, each in addresses.items() if door not in (FELIX, FLIGHT)][:1]
                self._loop.call_soon_threadsafe(self._standby.on_owner, addresses)
            if not announced and watch.heard:
                announced = True
                text = (
                    f"standby: the journal belongs to {_owner(replica.owner)}. This broker follows it, passes "
                    "connections on to the owner, and takes over when it is gone"
                )
                self._loop.call_soon_threadsafe(self._standby.on_standby, text)
                self._load_libraries()
                self._serve_reads(replica)
        logger.info("%s is taken to be gone: %s; the journal is claimed", _owner(replica.owner), gone)

    def _serve_reads(self, replica: Replica) -> None:
        """From now on, the engine is used on the loop only."""
        if self._settings.storage.stale_reads and not self._serving:
            self._serving = True
            replica.ingest_by(self._on_loop)
            self._on_loop(lambda: self._standby.on_following(replica))

    def _leave(self, replica: Replica) -> None:
        if self._serving:
            self._serving = False
            self._on_loop(lambda: self._standby.on_leaving(replica))
            replica.unwatch()

    def _on_loop(self, work: Callable[[], None]) -> None:
        """Run it there, and wait for it. Raises what it raises."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                done.set_exception(error)
            else:
                done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result(LOOP_SECONDS)

    def _load_libraries(self) -> None:
        """Import the table libraries in the background: this takes a second, for which a takeover need not wait
        then."""
        reading_tables = "penstock.log.tables.row_group_reader"
        threading.Thread(target=import_module, args=(reading_tables,), name="penstock-load", daemon=True).start()

    def _addresses(self, owner: _Owner) -> dict[str, Endpoint]:
        """The numeric addresses of the owner's doors. Names are resolved here, where the lookup blocks nobody."""
        found = {}
        for door, text in owner.doors.items():
            if text == self._doors.get(door):
                continue  # our own address: from an earlier broker on this machine
            try:
                endpoint = parse_endpoint(text)
                if endpoint is not None:
                    host = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)[0][4][0]
                    found[door] = Endpoint(str(host), endpoint.port)
            except (ValueError, OSError) as error:
                logger.warning("connections of %s cannot be passed on to the owner at %s: %s", door, text, error)
        return found


def advertised(endpoint: Endpoint, host: str) -> Endpoint:
    """The address of a door as other brokers see it."""
    everywhere = endpoint.host in ("0.0.0.0", "::", "*")
    return Endpoint(host or (socket.gethostname() if everywhere else endpoint.host), endpoint.port)


class _Owner(msgspec.Struct, frozen=True):
    """The value of a claim, in JSON: for humans, and for a broker to recognise its own."""

    directory: str = ""
    host: str = ""
    process: int = 0
    doors: dict[str, str] = {}
    """The address of each door, for other brokers."""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}" if self.host else "another broker"


def _owner(value: bytes) -> _Owner:
    try:
        return decode_json(value, _Owner)
    except msgspec.MsgspecError:
        return _Owner()
