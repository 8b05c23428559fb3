"""Clients of all doors at once, on the same topics: each writes until the broker is gone, and notes what it asks for
and what it is told. After the next start each goes on where it was; a publication that was not answered is repeated."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from tests.crash import flymq_load
from tests.crash.kimberlite_load import Line, Refused
from tests.crash.payloads import payload_of
from tests.crash.rustlog_load import Connection, binary_produce, binary_reply
from tests.histories.history import History, Operation, Place

from penstock.broker.names import DEFAULT_SCOPE
from penstock.clients.felix import FelixClient, FelixError, RetryPolicy
from penstock.clients.flymq import Client, requests
from penstock.flight.client import FlightLog
from penstock.flight.errors import LogUnavailable
from penstock.flight.options import BrokerOptions
from penstock.wire.kimberlite import messages as m

SHARED: Final = Place("shared", 0)
WIDE: Final = (Place("wide", 0), Place("wide", 1))
FACTS: Final = Place("facts", 0)  # rows of a table
PLACES: Final = (SHARED, *WIDE, FACTS)
GROUP: Final = "readers"
IDLE: Final = 1.0  # s after which a broker that is silent is taken for dead, where there is no connection to lose
SIZES: Final = (20, 100, 1000)
GONE: Final = (*flymq_load.GONE, FelixError, LogUnavailable, pa.ArrowException)  # what the end of the broker looks like


def value_of(place: Place, record: str, size: int) -> bytes:
    if place == FACTS:
        return json.dumps({"id": record, "n": len(record)}).encode()
    return payload_of(record, size)


def felix_name(place: Place) -> str:
    return f"{place.topic}#{place.partition}" if place in WIDE else place.topic


def felix_client(ports: dict[str, int]) -> FelixClient:
    """One that gives up soon: the broker will be killed."""
    retry = RetryPolicy(attempts=1)
    return FelixClient(f"127.0.0.1:{ports['felix']}", insecure=True, retry=retry, idle=IDLE, timeout=20.0)


def flight_log(ports: dict[str, int]) -> FlightLog:
    return FlightLog(BrokerOptions((("127.0.0.1", ports["flight"]),), DEFAULT_SCOPE), retries=0)


@dataclass(slots=True)
class Load:
    """The state that all clients of a campaign share."""

    history: History
    streams: dict[Place, int] = field(default_factory=dict)  # Kimberlite's numbers
    problems: list[str] = field(default_factory=list)
    killed: threading.Event = field(default_factory=threading.Event)
    answered: Counter[str] = field(default_factory=Counter)  # by client: rounds since the start


class Writer:
    """A client that lives as long as the campaign."""

    door = ""

    def __init__(self, load: Load, name: str) -> None:
        self.load = load
        self.history = load.history
        self.name = name
        self._serial = 0

    def ids(self, count: int) -> list[str]:
        self._serial += count
        return [f"{self.name}:{number}" for number in range(self._serial - count, self._serial)]

    def run(self, ports: dict[str, int], seed: int) -> None:
        """Until the broker is gone. Anything but a connection that is lost to a kill is a problem."""
        try:
            for _ in self.work(ports, random.Random(seed)):
                self.load.answered[self.name] += 1
        except GONE as error:
            if not self.load.killed.is_set():
                self.load.problems.append(f"{self.name} lost a broker that was not killed: {error!r}")
        except Exception as error:  # noqa: BLE001 - it must not get lost in a thread
            self.load.problems.append(f"{self.name}: {error!r}")

    def work(self, ports: dict[str, int], rng: random.Random) -> Iterator[None]:
        """Yields after each round that was answered."""
        raise NotImplementedError

    def append(self, place: Place, count: int) -> Operation:
        return self.history.invoke(self.name, "append", place, self.ids(count), door=self.door)


def burst(rng: random.Random, places: Sequence[Place] = PLACES) -> list[tuple[Place, int, int]]:
    """Some appends: where, how many records, of which size."""
    return [
        (rng.choice(places), rng.choice((1, 1, 3, 20)), rng.choice(SIZES)) for _ in range(rng.choice((1, 1, 4, 12)))
    ]


def values(operation: Operation, size: int) -> list[bytes]:
    return [value_of(operation.place, record, size) for record in operation.ids]


class RustLogWriter(Writer):
    """Also moves a group forward, whose position is asked for at another door."""

    door = "rustlog"

    def work(self, ports: dict[str, int], rng: random.Random) -> Iterator[None]:
        with Connection(ports["rustlog"]) as connection:
            while True:
                asked = [(self.append(place, count), size) for place, count, size in burst(rng)]
                connection.send([binary_produce(*one.place, values(one, size)) for one, size in asked])
                for operation, _ in asked:
                    base = int.from_bytes(binary_reply(connection.receive())[:8], "big")
                    self.history.acknowledge(operation, offset=base)
                self._commit(connection, rng.choice(PLACES), rng.randrange(1000))
                yield
                time.sleep(rng.uniform(0, 0.02))

    def _commit(self, connection: Connection, place: Place, offset: int) -> None:
        commit = self.history.invoke(self.name, "commit", place, group=GROUP, offset=offset, door=self.door)
        asked = {"topic": place.topic, "partition": place.partition, "offset": offset}
        connection.json(type="OffsetCommit", group=GROUP, **asked)
        self.history.acknowledge(commit)


class FlyMqWriter(Writer):
    """Single records, and transactions over all topics."""

    door = "flymq"

    def work(self, ports: dict[str, int], rng: random.Random) -> Iterator[None]:
        with flymq_load.connect(ports) as client:
            while True:
                if rng.random() < 0.5:
                    self._produce(client, rng)
                else:
                    self._transaction(client, rng)
                yield
                time.sleep(rng.uniform(0, 0.02))

    def _produce(self, client: Client, rng: random.Random) -> None:
        asked = [self.append(rng.choice(PLACES), 1) for _ in range(rng.choice((1, 4, 16)))]
        specs = []
        for one in asked:
            (value,) = values(one, rng.choice(SIZES))
            specs.append(requests.produce(one.place.topic, value, partition=one.place.partition))
        outcomes = client.pipeline(specs)
        for one, outcome in zip(asked, outcomes, strict=True):
            if not isinstance(outcome, Exception):
                self.history.acknowledge(one, offset=outcome.offset)
        flymq_load.results(outcomes)

    def _transaction(self, client: Client, rng: random.Random) -> None:
        places = tuple(rng.choice(PLACES) for _ in range(rng.choice((2, 5, 9))))
        ids = self.ids(len(places))
        key = client.begin()
        transaction = self.history.invoke(
            self.name, "transaction", places[0], ids, places=places, group=key, door=self.door
        )
        adds = [
            requests.produce_in_transaction(
                key, place.topic, value_of(place, record, rng.choice(SIZES)), partition=place.partition
            )
            for record, place in transaction.targets()
        ]
        try:
            flymq_load.results(client.pipeline(adds))
        except GONE:
            self.history.reject(transaction, "nobody asked for its commit")
            raise
        flymq_load.results(client.pipeline([requests.commit_transaction(key)]))
        self.history.acknowledge(transaction)


class KimberliteWriter(Writer):
    door = "kimberlite"

    def work(self, ports: dict[str, int], rng: random.Random) -> Iterator[None]:
        with Line(ports["kimberlite"], "seed") as line:
            while True:
                asked = [(self.append(place, count), size) for place, count, size in burst(rng)]
                line.send(*(m.AppendEvents(self.load.streams[one.place], values(one, size)) for one, size in asked))
                for operation, _ in asked:
                    told = line.reply(m.AppendEventsResponse)
                    self.history.acknowledge(operation, offset=told.first_offset)
                yield
                time.sleep(rng.uniform(0, 0.02))


class FelixWriter(Writer):
    door = "felix"

    def work(self, ports: dict[str, int], rng: random.Random) -> Iterator[None]:
        while True:
            try:
                yield from self._publish(ports, rng)
            except FelixError:  # a broker that is silent for a second may only be slow
                if self.load.killed.is_set():
                    raise

    def _publish(self, ports: dict[str, int], rng: random.Random) -> Iterator[None]:
        with felix_client(ports) as client:
            while True:
                place, count, size = burst(rng)[0]
                operation = self.append(place, count)
                client.publish_many(felix_name(place), values(operation, size))
                self.history.acknowledge(operation)
                yield
                time.sleep(rng.uniform(0, 0.01))


class SqlWriter(Writer):
    """INSERT, through Kimberlite's door."""

    door = "sql"

    def work(self, ports: dict[str, int], rng: random.Random) -> Iterator[None]:
        with Line(ports["kimberlite"]) as line:
            while True:
                insert = self.append(FACTS, rng.choice((1, 2, 5)))
                rows = ", ".join(f"(${2 * n + 1}, ${2 * n + 2})" for n in range(len(insert.ids)))
                params = [value for record in insert.ids for value in (record, len(record))]
                try:
                    told = line.query(f"INSERT INTO facts (id, n) VALUES {rows}", *params)
                except Refused as refused:
                    if "may be tried again" not in str(refused):  # others were faster, again and again
                        raise
                    self.history.reject(insert, str(refused))
                else:
                    ((_, position),) = told.rows
                    insert.position = position if isinstance(position, int) else None
                    self.history.acknowledge(insert)
                yield
                time.sleep(rng.uniform(0, 0.05))


ROW: Final = pa.schema([("value", pa.binary()), ("partition", pa.int32())])


class FlightWriter(Writer):
    """Publications of two topics. One that was not answered is asked for again after the start: it counts once."""

    door = "flight"

    def __init__(self, load: Load, name: str) -> None:
        super().__init__(load, name)
        self._batch = 0
        self._open: Operation | None = None

    def work(self, ports: dict[str, int], rng: random.Random) -> Iterator[None]:
        log = flight_log(ports)
        try:
            if self._open is not None:
                self._publish(log, self._open, again=True)
                yield
            while True:
                places = tuple(rng.choice((SHARED, *WIDE)) for _ in range(rng.choice((1, 4, 20))))
                self._batch += 1
                self._open = self.history.invoke(
                    self.name, "transaction", places[0], self.ids(len(places)), places=places, door=self.door
                )
                self._open.group = f"{self.name}/{self._batch}"
                self._publish(log, self._open, again=False)
                yield
                time.sleep(rng.uniform(0, 0.05))
        finally:
            log.close()

    def _publish(self, log: FlightLog, publication: Operation, *, again: bool) -> None:
        asked = publication
        if again:
            asked = self.history.invoke(self.name, "recommit", group=publication.group, door=self.door)
        refs = []
        for topic in (SHARED.topic, WIDE[0].topic):
            rows = [(value_of(place, record, 100), place.partition) for record, place in publication.targets()
                    if place.topic == topic]  # fmt: skip
            if rows:
                columns = [pa.array([value for value, _ in rows], pa.binary()),
                           pa.array([partition for _, partition in rows], pa.int32())]  # fmt: skip
                batch = pa.record_batch(columns, schema=ROW)
                refs.append(log.stage(self.name, self._batch, topic, topic, iter([batch]), ROW).ref)
        log.publish(self.name, self._batch, refs)
        self.history.acknowledge(asked)
        self._open = None


def writers(load: Load) -> list[Writer]:
    return [
        RustLogWriter(load, "rustlog"),
        FlyMqWriter(load, "flymq"),
        KimberliteWriter(load, "kimberlite"),
        FelixWriter(load, "felix"),
        SqlWriter(load, "sql"),
        FlightWriter(load, "flight"),
    ]
