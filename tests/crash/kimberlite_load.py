"""Clients of Kimberlite's door for the kill harness: each works until the broker is gone, tells the history what it
asks for and what it is told, and goes on after the next start where it was.

They speak several generations of the protocol, by `ClientCodec`: its bytes are pinned elsewhere, by golden vectors.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeVar

from tests.crash.payloads import id_of, payload_of
from tests.histories.history import History, Operation, Place

from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ClientCodec

TENANT: Final = 7
GROUP: Final = "workers"
RACE, OPEN, FACTS = (Place(name, 0) for name in ("race", "open", "facts"))
PLACES: Final = (RACE, OPEN, FACTS)
SQL: Final = "sql"  # as the door of what is inserted by it
THERE: Final = "there"  # the value of all that only is there or not
SECRET: Final = "secret/"  # before an API key: whether it is good
LOOK: Final = 'SELECT id FROM facts ORDER BY "offset"'

M = TypeVar("M", bound=m.Message)


class Refused(Exception):
    """The broker answered with an error."""

    def __init__(self, told: m.ErrorResponse) -> None:
        super().__init__(f"{told.code.name}: {told.message}")
        self.code = told.code


class Line:
    """A blocking connection that has shaken hands. Pushes are put aside."""

    def __init__(self, port: int, dialect: str = "5b", token: str | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wire = ClientCodec(dialect)
        self._id = 0
        self._waiting: deque[int] = deque()  # ids of requests that are not answered
        self.pushed: deque[m.Message] = deque()
        try:
            greeting = self.ask(m.Handshake(self._wire.version, token), m.HandshakeResponse)
            self.let_in = greeting.authenticated
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def send(self, *requests: m.Message) -> None:
        data = b""
        for request in requests:
            self._id += 1
            self._waiting.append(self._id)
            data += self._wire.request(self._id, TENANT, request)
        self._socket.sendall(data)

    def reply(self, kind: type[M]) -> M:
        """To the oldest request that is not answered. Raises Refused."""
        while True:
            arrived = self._next()
            if isinstance(arrived, m.Push):
                self.pushed.append(arrived.payload)
                continue
            assert arrived.request_id == self._waiting.popleft()
            if isinstance(arrived.payload, m.ErrorResponse):
                raise Refused(arrived.payload)
            assert isinstance(arrived.payload, kind), arrived.payload
            return arrived.payload

    def push(self) -> m.Message:
        while not self.pushed:
            arrived = self._next()
            assert isinstance(arrived, m.Push)
            self.pushed.append(arrived.payload)
        return self.pushed.popleft()

    def ask(self, request: m.Message, kind: type[M]) -> M:
        self.send(request)
        return self.reply(kind)

    def _next(self) -> m.Response | m.Push:
        while (arrived := self._wire.next()) is None:
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._wire.feed(data)
        return arrived

    # -- what is often asked for

    def query(self, sql: str, *params: str | int) -> m.QueryResponse:
        return self.ask(m.Query(sql, list(params)), m.QueryResponse)

    def length(self, stream: int) -> int:
        return self.ask(m.StreamInfo(stream), m.StreamInfoResponse).length

    def events(self, stream: int, offset: int = 0) -> list[bytes]:
        """All from there to the end."""
        found: list[bytes] = []
        at: int | None = offset
        while at is not None:
            part = self.ask(m.ReadEvents(stream, at, 1 << 20), m.ReadEventsResponse)
            found += part.events
            at = part.next_offset
        return found


def record_of(event: bytes) -> str:
    """The id of an event: of a row, or of a plain one."""
    return str(json.loads(event)["id"]) if event.startswith(b"{") else id_of(event)


@dataclass(slots=True)
class Load:
    """The state that all clients of a campaign share."""

    history: History
    streams: dict[Place, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Worker:
    """A client that lives as long as the campaign."""

    def __init__(self, load: Load, name: str, seed: int) -> None:
        self.load = load
        self.history = load.history
        self.name = name
        self.rng = random.Random(seed)
        self.busy = 0  # rounds that were answered since the broker was started
        self._serial = 0

    def ids(self, count: int) -> list[str]:
        self._serial += count
        return [f"{self.name}:{number}" for number in range(self._serial - count, self._serial)]

    def run(self, port: int) -> None:
        """Work until the broker is gone. Anything but a broken connection is a problem."""
        self.busy = 0
        try:
            self.work(port)
        except ConnectionError:
            pass
        except Exception as error:  # noqa: BLE001 - it must not get lost in a thread
            self.load.problems.append(f"{self.name}: {error!r}")

    def work(self, port: int) -> None:
        raise NotImplementedError


class Appender(Worker):
    """Appends in bursts, wherever the stream ends: with a version of the protocol that cannot say where it should."""

    def __init__(self, load: Load, name: str, seed: int, dialect: str, place: Place) -> None:
        super().__init__(load, name, seed)
        self._dialect = dialect
        self._place = place

    def _event(self, record: str) -> bytes:
        if self._place == FACTS:
            return json.dumps({"id": record, "n": len(record)}).encode()
        return payload_of(record, self.rng.choice((20, 100, 1000)))

    def work(self, port: int) -> None:
        stream = self.load.streams[self._place]
        with Line(port, self._dialect) as line:
            while True:
                burst: list[Operation] = []
                for _ in range(self.rng.choice((1, 1, 4, 16))):
                    ids = self.ids(self.rng.choice((1, 1, 3, 20)))
                    burst.append(self.history.invoke(self.name, "append", self._place, ids))
                line.send(
                    *(m.AppendEvents(stream, [self._event(record) for record in operation.ids]) for operation in burst)
                )
                for operation in burst:
                    told = line.reply(m.AppendEventsResponse)
                    assert told.count == len(operation.ids)
                    self.history.acknowledge(operation, offset=told.first_offset)
                self.busy += 1
                time.sleep(0.3 if self._place == FACTS else 0.01)


class Racer(Worker):
    """Appends in bursts at offsets that it names, against others who do the same. What was not answered when the broker
    was killed is sent once more, at the same offset: that is what such an offset is for. With it goes what was refused
    in the same burst: its place was taken, and must still be."""

    def __init__(self, load: Load, name: str, seed: int, dialect: str) -> None:
        super().__init__(load, name, seed)
        self._dialect = dialect
        self._open: list[Operation] = []  # a burst that was not answered, or not all of it

    def work(self, port: int) -> None:
        stream = self.load.streams[RACE]
        with Line(port, self._dialect) as line, Line(port) as asking:
            again = [
                self.history.invoke(self.name, "append", operation.place, operation.ids, number=operation.number)
                for operation in self._open
            ]
            self._append(line, stream, again)
            while True:
                at = asking.length(stream)
                self._open = []
                for _ in range(self.rng.choice((1, 1, 2, 6))):
                    ids = self.ids(self.rng.choice((1, 2, 10)))
                    self._open.append(self.history.invoke(self.name, "append", RACE, ids, number=at))
                    at += len(ids)
                self._append(line, stream, self._open)
                self.busy += 1
                time.sleep(0.005)

    def _append(self, line: Line, stream: int, operations: Sequence[Operation]) -> None:
        line.send(
            *(
                m.AppendEvents(stream, [payload_of(one, 60) for one in operation.ids], operation.number or 0)
                for operation in operations
            )
        )
        for operation in operations:
            try:
                told = line.reply(m.AppendEventsResponse)
            except Refused as refused:
                if refused.code is not m.ErrorCode.OFFSET_MISMATCH:
                    raise
                self.history.reject(operation, str(refused))
            else:
                assert told.count == len(operation.ids)
                self.history.acknowledge(operation, offset=told.first_offset)
        self._open = []


class Inserter(Worker):
    """Inserts rows by SQL, and looks at the table where they were said to be. After a start it looks at the past."""

    def __init__(self, load: Load, name: str, seed: int) -> None:
        super().__init__(load, name, seed)
        self._positions: list[int] = []

    def work(self, port: int) -> None:
        with Line(port) as line:
            if self._positions:
                self._look(line, self._positions[-1])
                self._look(line, self.rng.choice(self._positions))
            while True:
                self._insert(line)
                if self._positions and self.rng.random() < 0.3:
                    self._look(line, self.rng.choice(self._positions))
                if self.rng.random() < 0.2:
                    self._declare(line)
                self.busy += 1

    def _insert(self, line: Line) -> None:
        ids = self.ids(self.rng.choice((1, 2, 5)))
        values = ", ".join(f"(${2 * n + 1}, ${2 * n + 2})" for n in range(len(ids)))
        params = [value for record in ids for value in (record, len(record))]
        operation = self.history.invoke(self.name, "append", FACTS, ids, door=SQL)
        try:
            told = line.query(f"INSERT INTO facts (id, n) VALUES {values}", *params)
        except Refused as refused:
            if "may be tried again" not in str(refused):  # others were faster, again and again
                raise
            self.history.reject(operation, str(refused))
            return
        ((rows, position),) = told.rows
        assert rows == len(ids) and isinstance(position, int), told
        operation.position = position
        self.history.acknowledge(operation)
        self._positions.append(position)
        self._look(line, position)

    def _look(self, line: Line, position: int) -> None:
        operation = self.history.invoke(self.name, "query_at", FACTS, position=position)
        try:
            found = line.ask(m.QueryAt(LOOK, [], position), m.QueryAtResponse)
        except Refused as refused:
            self.history.reject(operation, str(refused))
        else:
            self.history.acknowledge(operation, ids=[str(row[0]) for row in found.rows])

    def look_back(self, port: int) -> None:
        """At every position that there was."""
        with Line(port) as line:
            for position in self._positions:
                self._look(line, position)

    def _declare(self, line: Line) -> None:
        name = f"t{self._serial}"
        operation = self.history.invoke(self.name, "put", key=f"table/{name}", value=THERE)
        line.query(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, n VARCHAR)")
        self.history.acknowledge(operation)


class Clerk(Worker):
    """Makes tenants, streams and API keys, replaces and revokes keys, and deletes tenants."""

    def __init__(self, load: Load, name: str, seed: int) -> None:
        super().__init__(load, name, seed)
        self.secrets: list[str] = []  # all that it was ever told
        self._subjects: dict[str, str] = {}  # of keys that are good for certain → the secret

    def work(self, port: int) -> None:
        acts: Sequence[Callable[[Line], None]] = (self._tenant, self._stream, self._key, self._rotate, self._revoke)
        with Line(port) as line:
            observe(self.history, self.name, line)
            while True:
                self.rng.choice(acts)(line)
                if self.rng.random() < 0.1:
                    observe(self.history, self.name, line)
                self.busy += 1
                time.sleep(0.005)

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def _tenant(self, line: Line) -> None:
        number = 1000 + self._next()
        operation = self.history.invoke(self.name, "put", key=f"tenant/{number}", value=THERE)
        assert line.ask(m.TenantCreate(number, f"number {number}"), m.TenantCreateResponse).created
        self.history.acknowledge(operation)
        if self.rng.random() < 0.3:
            operation = self.history.invoke(self.name, "delete", key=f"tenant/{number}")
            assert line.ask(m.TenantDelete(number), m.TenantDeleteResponse).deleted
            self.history.acknowledge(operation)

    def _stream(self, line: Line) -> None:
        name = f"made{self._next()}"
        operation = self.history.invoke(self.name, "put", key=f"stream/{name}", value=THERE)
        line.ask(m.CreateStream(name, m.DataClass.PUBLIC, m.Everywhere()), m.CreateStreamResponse)
        self.history.acknowledge(operation)

    def _key(self, line: Line) -> None:
        subject = f"subject{self._next()}"
        operation = self.history.invoke(self.name, "put", key=f"key/{subject}", value=THERE)
        told = line.ask(m.ApiKeyRegister(subject, TENANT, ["User"]), m.ApiKeyRegisterResponse)
        self.history.acknowledge(operation)
        self._good(subject, told.key)

    def _good(self, subject: str, secret: str) -> None:
        self.history.note(self.name, "put", key=f"{SECRET}{secret}", value=THERE)
        self.secrets.append(secret)
        self._subjects[subject] = secret

    def _rotate(self, line: Line) -> None:
        if self._subjects:
            subject, secret = self._subjects.popitem()
            operation = self.history.invoke(self.name, "delete", key=f"{SECRET}{secret}")
            told = line.ask(m.ApiKeyRotate(secret), m.ApiKeyRotateResponse)
            self.history.acknowledge(operation)
            self._good(subject, told.new_key)

    def _revoke(self, line: Line) -> None:
        if self._subjects and self.rng.random() < 0.5:
            subject, secret = self._subjects.popitem()
            operation = self.history.invoke(self.name, "delete", key=f"{SECRET}{secret}")
            end = self.history.invoke(self.name, "delete", key=f"key/{subject}")
            assert line.ask(m.ApiKeyRevoke(secret), m.ApiKeyRevokeResponse).revoked
            self.history.acknowledge(operation)
            self.history.acknowledge(end)

    def try_keys(self, port: int) -> None:
        """At a broker whose security is on."""
        for secret in self.secrets:
            try:
                with Line(port, token=secret) as line:
                    good = line.let_in
            except Refused:
                good = False
            self.history.note(self.name, "get", key=f"{SECRET}{secret}", found=THERE if good else None)


def observe(history: History, name: str, line: Line) -> None:
    """The tenants and keys that exist, except for its own tenant."""
    operation = history.invoke(name, "list", key="tenant/")
    tenants = line.ask(m.TenantList(), m.TenantListResponse).tenants
    history.acknowledge(operation, ids=[f"tenant/{one.tenant_id}" for one in tenants if one.tenant_id != TENANT])
    operation = history.invoke(name, "list", key="key/")
    keys = line.ask(m.ApiKeyList(), m.ApiKeyListResponse).keys
    history.acknowledge(operation, ids=[f"key/{one.subject}" for one in keys])


def observe_tables(history: History, name: str, line: Line) -> None:
    """The streams and declared tables that exist; with SQL, which may have to start first."""
    places = {place.topic for place in PLACES}
    streams, tables = history.invoke(name, "list", key="stream/"), history.invoke(name, "list", key="table/")
    found = {table.name for table in line.ask(m.ListTables(), m.ListTablesResponse).tables} - places
    declared = []
    for table in sorted(name for name in found if name.startswith("t")):
        columns = line.ask(m.DescribeTable(table), m.DescribeTableResponse).columns
        assert [(column.name, column.primary_key) for column in columns] == [("id", True), ("n", False)]
        declared.append(f"table/{table}")
    history.acknowledge(tables, ids=declared)
    history.acknowledge(streams, ids=[f"stream/{name}" for name in found if name.startswith("made")])


class Follower(Worker):
    """The one member of a group: handles what it is sent, and gives credit for it afterwards."""

    def __init__(self, load: Load, name: str, seed: int, place: Place) -> None:
        super().__init__(load, name, seed)
        self._place = place

    def work(self, port: int) -> None:
        self._follow(port, None)

    def drain(self, port: int, end: int) -> None:
        self._follow(port, end)

    def _follow(self, port: int, end: int | None) -> None:
        """Up to `end`, or as long as the broker lives."""
        window = self.rng.randint(1, 200) if end is None else 1000
        with Line(port) as line:
            at, number = self._subscribe(line, window)
            done = at
            while end is None or at < end:
                pushed = line.push()
                assert isinstance(pushed, m.SubscriptionEvents) and pushed.subscription_id == number, pushed
                assert pushed.start_offset == at, f"{pushed.start_offset} comes where {at} is expected"
                read = self.history.invoke(self.name, "consume", self._place, group=GROUP)
                self.history.acknowledge(read, offset=at, ids=map(record_of, pushed.events))
                at += len(pushed.events)
                if (not line.pushed and at - done >= min(window, 50)) or at - done >= window:
                    self._settle(line, number, at, at - done)
                    done = at
                    self.busy += 1

    def _subscribe(self, line: Line, window: int) -> tuple[int, int]:
        resume = self.history.invoke(self.name, "position", self._place, group=GROUP)
        told = line.ask(m.Subscribe(self.load.streams[self._place], 0, window, GROUP), m.SubscribeResponse)
        self.history.acknowledge(resume, offset=told.start_offset)
        return told.start_offset, told.subscription_id

    def _settle(self, line: Line, number: int, at: int, count: int) -> None:
        settle = self.history.invoke(self.name, "commit", self._place, group=GROUP, offset=at)
        line.ask(m.SubscribeCredit(number, count), m.SubscriptionAck)
        self.history.acknowledge(settle)


class Reader(Worker):
    """Reads from anywhere, as version 1 does."""

    def work(self, port: int) -> None:
        with Line(port, "seed") as line, Line(port) as asking:
            while True:
                place = self.rng.choice(PLACES)
                stream = self.load.streams[place]
                offset = self.rng.randint(0, asking.length(stream))
                operation = self.history.invoke(self.name, "read", place)
                found = line.ask(m.ReadEvents(stream, offset, 20_000), m.ReadEventsResponse)
                self.history.acknowledge(operation, offset=offset, ids=map(record_of, found.events))
                self.busy += 1
                time.sleep(0.005)
