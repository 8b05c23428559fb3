"""A conversation with a session: bytes in pieces and, between them, whatever can happen to a connection, as a script
says. A real broker on a simulated disk stands behind it, whose clock, commits, threads and turns the script moves.

The promises: no exception, no line of the log at the level of an error, whole replies; and at the end, however it
comes, the session has closed its channel and holds nothing, and nothing of the broker waits for it any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from typing import Any, Final, NamedTuple

from tests.broker.broker_fixture import CHEAP, START, BrokerFixture, LaterScheduler, later
from tests.crash.simdisk import Fault, SimDisk
from tests.doors.channel import Channel
from tests.fuzz.targets.target import Script

from penstock.broker.errors import BrokerError, SchemaInvalid
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.schemas.formats import protobuf_schema
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy, Permission
from penstock.broker.security.audit_event import AuditPolicy
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.passwords import PasswordHashing
from penstock.broker.state.events import UserSet
from penstock.doors.session import Session
from penstock.log.engine import Durability
from penstock.log.errors import LogError
from penstock.log.file_engine import LogSettings

SECURED: Final = 2  # bit of the mode: security is on, and the client is nobody
SETTINGS: Final = LogSettings(file_bytes=32 << 10, durability=Durability.WRITTEN)  # files are not filled with zeros
PATIENCE: Final = 3  # hours in which nothing happens, after which nothing will
TENANTS: Final = ("default", "42", "t1")  # their topics have the ids 1, 2 and 3
USER, PASSWORD = "u", "correct horse"
SECOND: Final = 1.0
HOUR: Final = 3600.0


class Complaints(logging.Handler):
    """Errors in the broker's log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def no_errors_logged() -> Iterator[Complaints]:
    """Raises the first error that was logged."""
    complaints = Complaints()
    logger = logging.getLogger("penstock")
    logger.addHandler(complaints)
    try:
        yield complaints
    finally:
        logger.removeHandler(complaints)
    if complaints.records:
        record = complaints.records[0]
        cause = record.exc_info[1] if record.exc_info else None
        raise AssertionError(f"logged: {record.getMessage()}") from cause


@contextmanager
def without_protoc() -> Iterator[None]:
    """Definitions of Protobuf are refused: each would start a process."""
    compile_definition = protobuf_schema._protoc
    protobuf_schema._protoc = _refuse
    try:
        yield
    finally:
        protobuf_schema._protoc = compile_definition


def _refuse(definition: bytes) -> bytes:
    raise SchemaInvalid(f"{len(definition)} bytes that nobody compiles here")


# -- the broker


class Furnished(NamedTuple):
    """A disk with a topic `t` of some records in each tenant, a group's offset, a user, and keys by tenant."""

    disk: SimDisk
    keys: dict[str, str]


@cache
def furnished() -> Furnished:
    fixture = BrokerFixture(SETTINGS)
    broker = fixture.broker
    keys = {}
    for tenant in TENANTS:
        scope = Scope(tenant, "default")
        broker.topics.create(ADMINISTRATOR, scope, "t", 2)
        broker.produce.append(ADMINISTRATOR, scope, "t", 0, [b"first", b"second", b'{"a": 1}'], keys=[None, b"k", b""])
        made, _ = broker.keys.add(ADMINISTRATOR, KeyTerms("k", tenant, [Permission.READ, Permission.WRITE]))
        keys[tenant] = made.secret
    broker.groups.commit(ADMINISTRATOR, DEFAULT_SCOPE, "g", "t", 0, 1)
    password = PasswordHashing(CHEAP).hashed(PASSWORD)
    broker.state_log.commit([UserSet("default", USER, password, ["producer", "consumer"], True, START, START)])
    fixture.commit()
    return Furnished(fixture.disk.kill().copy(), keys)


class ScriptedBroker(BrokerFixture):
    """A broker whose threads and turns wait until the script has them run."""

    def __init__(self, *, secured: bool) -> None:
        self.now = START
        self.elapsed = 0
        self.calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.disk = furnished().disk.copy()
        self.settings = SETTINGS
        self.options: dict[str, Any] = {"executor": later(self.calls), "scheduler": LaterScheduler(self.calls)}
        if secured:
            self.options |= {"access": AccessPolicy(True, [ADMINISTRATION]), "audit": AuditPolicy(enabled=True)}
        self._fault: Fault | None = None
        self.faulty = False  # whether the disk has ever been full: that is logged
        self.open()
        numbers = count()
        self.broker.transactions._token = lambda size: next(numbers).to_bytes(
            size, "big"
        )  # so that inputs can name one

    def run_one(self) -> None:
        if self.calls:
            work, done = self.calls.pop(0)
            work()
            done()

    def run_all(self) -> None:
        for _ in range(10_000):
            if not self.calls:
                return
            self.run_one()
        raise AssertionError("work makes more work, and does not end")

    def wait(self, seconds: float) -> None:
        self.pass_time(seconds)
        self.broker.sweep(self.now)
        self.broker.maintain(self.now)

    def somebody_writes(self) -> None:
        """Reads that are still possible: the client may have deleted the topic, or the disk may be full."""
        for tenant in TENANTS:
            with suppress(BrokerError, LogError):
                self.broker.produce.append(ADMINISTRATOR, Scope(tenant, "default"), "t", 0, [b"news"])

    def fill(self) -> None:
        if self._fault is None:
            self._fault, self.faulty = self.fill_disk(), True

    def free(self) -> None:
        if self._fault is not None:
            self._fault.count = 0
            self._fault = None
            self.broker.maintain(self.now)

    def settle(self, over: Callable[[], bool], progress: Callable[[], object]) -> None:
        """Let everything go on until it is over, or until nothing changes any more, however long one waits."""
        hours, before = 0, progress()
        while not over() and hours < PATIENCE:
            self.run_all()
            self.commit()
            if (now := (progress(), self.engine.position)) == before:
                hours += 1
                self.wait(HOUR)
            else:
                hours, before = 0, now

    @property
    def watched(self) -> int:
        """Watchers of partitions: what somebody waits for."""
        return sum(len(log.watchers or ()) for log in self.engine._partitions.values())


# -- one connection


class Line(Channel):
    """The connection, and what the transport knows of it. `open` makes the session."""

    def __init__(self, fixture: ScriptedBroker, open_session: Callable[[ScriptedBroker, Channel], Session]) -> None:
        super().__init__()
        self.fixture = fixture
        self.lost = False
        self.ended = False
        self.session = open_session(fixture, self)

    @property
    def over(self) -> bool:
        return self.lost or self.closed

    def receive(self, data: bytes) -> None:
        if data and not self.over and not self.ended:
            self.session.receive(data)

    def act(self, action: int) -> None:
        ACTIONS[action % len(ACTIONS)](self)

    def congest(self) -> None:
        self.limit = -1

    def drain(self) -> None:
        if self.limit is not None:
            self.limit = None
            if not self.over:
                self.session.receive(b"")

    def end(self) -> None:
        if not self.over and not self.ended:
            self.ended = True
            self.session.end_of_input()

    def stop(self) -> None:
        if not self.over:
            self.session.stop()

    def lose(self) -> None:
        if not self.lost:
            self.lost = True
            self.session.lost()

    def send(self, data: bytes) -> None:
        assert not self.lost, "sent on a connection that is lost"
        super().send(data)

    def finish(self) -> None:
        """The client takes everything and says that it sends no more; the disk works again."""
        fixture = self.fixture
        fixture.free()
        self.drain()
        self.end()
        fixture.settle(lambda: self.over, lambda: (len(self.sent), self.session.held_bytes))
        assert self.over, "the connection is not closed, although everything was answered"
        self.lose()  # the transport says so, after every close
        fixture.run_all()
        fixture.commit()
        assert self.session.held_bytes == 0, f"{self.session.held_bytes} bytes are held"


def _nothing(_: Line) -> None: ...


ACTIONS: Final[Sequence[Callable[[Any], None]]] = (
    *[lambda line: line.fixture.commit()] * 8,
    *[_nothing] * 4,
    lambda line: line.congest(),
    lambda line: line.drain(),
    *[lambda line: line.fixture.run_one()] * 4,
    lambda line: line.fixture.run_all(),
    lambda line: line.fixture.wait(SECOND),
    lambda line: line.fixture.wait(HOUR),
    lambda line: line.fixture.somebody_writes(),
    lambda line: line.end(),
    lambda line: line.stop(),
    lambda line: line.lose(),
    lambda line: line.fixture.fill(),
    lambda line: line.fixture.free(),
)
"""By number: see `target`. What ends a connection has few, so that most conversations last."""


def converse(
    run: Script, stream: bytes, open_session: Callable[[ScriptedBroker, Channel], Session], hello: bytes = b""
) -> bytes:
    """All that the session sent. `hello` comes first, and is answered before the script begins."""
    fixture = ScriptedBroker(secured=bool(run.mode & SECURED))
    with without_protoc(), no_errors_logged() as complaints:
        line = Line(fixture, open_session)
        if hello:
            line.receive(hello)
            fixture.run_all()
            fixture.commit()
        for piece, action in Script(stream, run.steps).pieces():
            line.receive(piece)
            line.act(action)
        line.finish()
        assert fixture.watched == 0, "somebody waits for records on behalf of a connection that is gone"
        if fixture.faulty:
            complaints.records.clear()
    return b"".join(line.sent)
