"""Clients that use FlyMQ's stateful features until the broker is gone, and write down what they asked and were told.

Each worker lives as long as the campaign: what it has to remember over a kill (commits without an answer, records that
can still be cancelled, how far it has read) it keeps. `step` is a few requests. They speak through Penstock's own
client, which is told never to ask twice by itself.
"""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.crash.payloads import id_of, payload_of
from tests.crash.rustlog_load import Connection
from tests.histories.history import ANYWHERE, History, Operation, Outcome, Place

from penstock.clients.flymq import (
    DIVERTED,
    Client,
    ConnectionFailed,
    EndOfLog,
    FlyMqError,
    NotFound,
    OutcomeUnknown,
    RequestSpec,
    RetryPolicy,
    SchemaRejected,
    TransactionOver,
    requests,
)
from penstock.wire.flymq import messages as m

LEFT, RIGHT, LATER, ORDERS, WASTE, MORTAL = "left", "right", "later", "orders", "waste", "mortal"
TOPICS: Final = {LEFT: 2, RIGHT: 3, LATER: 2, ORDERS: 1, WASTE: 1, MORTAL: 2}
PLACES: Final = [Place(topic, number) for topic, count in TOPICS.items() for number in range(count)]
SHARED: Final = [place for place in PLACES if place.topic in (LEFT, RIGHT)]
WATCHED: Final = [place for place in PLACES if place.topic != MORTAL]
REFUSING: Final = (ORDERS, WASTE)
SCHEMA: Final = "order"  # what ORDERS and WASTE want
HOUR_MS: Final = 3_600_000
MADE_TOPIC: Final = "topic/made-"
GONE: Final = (ConnectionFailed, OutcomeUnknown, ConnectionError)  # what the end of the broker looks like


def fitting(record: str, size: int) -> bytes:
    """A value that the schema takes. What `payload_of` makes is none."""
    return json.dumps({"record": payload_of(record, size).decode()}).encode()


def record_of(value: bytes) -> str:
    return id_of(json.loads(value)["record"].encode() if value.startswith(b"{") else value)


def results(outcomes: Sequence[Any]) -> Sequence[Any]:
    for outcome in outcomes:
        if isinstance(outcome, FlyMqError):
            raise outcome
    return outcomes


@dataclass(slots=True)
class Load:
    """The state that all workers of a campaign share."""

    history: History
    serial: Counter[str] = field(default_factory=Counter)  # records sent so far, by client
    known: dict[str, str] = field(default_factory=dict)  # what registers hold, as far as their keepers know
    passwords: dict[str, list[str]] = field(default_factory=dict)  # that a user ever had, or may have had
    problems: list[str] = field(default_factory=list)
    killed: threading.Event = field(default_factory=threading.Event)

    def ids(self, client: str, count: int) -> list[str]:
        first = self.serial[client]
        self.serial[client] += count
        return [f"{client}:{number}" for number in range(first, first + count)]


class Worker:
    def __init__(self, load: Load, name: str) -> None:
        self.load = load
        self.history = load.history
        self.name = name
        self.ports: dict[str, int] = {}

    def run(self, ports: dict[str, int], seed: int) -> None:
        """Until the broker is gone. Anything but a connection that is lost to a kill is a problem."""
        rng = random.Random(seed)
        try:
            with connect(ports) as client:
                self.ports = ports
                self.prepare(client)
                while True:
                    self.step(client, rng)
        except GONE as error:
            if not self.load.killed.is_set():
                self.load.problems.append(f"{self.name} lost a broker that was not killed: {error!r}")
        except Exception as error:  # noqa: BLE001 - it must not get lost in a thread
            self.load.problems.append(f"{self.name}: {error!r}")

    def prepare(self, client: Client) -> None:
        """Before the first step after a start of the broker."""

    def step(self, client: Client, rng: random.Random) -> None:
        raise NotImplementedError

    def ask_all(
        self,
        client: Client,
        asked: Sequence[tuple[Sequence[Operation], RequestSpec[Any]]],
        refusals: tuple[type[FlyMqError], ...] = (),
    ) -> list[Any]:
        """Ask all at once, and note what came of it. Each spec is about some operations."""
        lost: Exception | None = None
        outcomes = client.pipeline([spec for _, spec in asked])
        for (operations, _), outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, GONE):
                lost = outcome
                continue
            for operation in operations:
                if isinstance(outcome, refusals):
                    self.history.reject(operation, str(outcome))
                elif isinstance(outcome, FlyMqError):
                    raise outcome
                else:
                    self._accept(operation, outcome)
        if lost is not None:
            raise lost
        return outcomes

    def _accept(self, operation: Operation, outcome: Any) -> None:
        if isinstance(outcome, m.RecordMetadata):
            operation.stamp, operation.offset = outcome.timestamp_ms * 1000, outcome.offset
        self.history.acknowledge(operation)
        if operation.kind == "put":
            self.load.known[operation.key] = operation.value or ""


def connect(ports: dict[str, int]) -> Client:
    return Client(port=ports["flymq"], retry=RetryPolicy(attempts=1), timeout=120)


# -- records of several topics


class Transactor(Worker):
    """Transactions that are committed, rolled back or given up, and batches; and commits that are asked for again."""

    def __init__(self, load: Load, name: str) -> None:
        super().__init__(load, name)
        self._open: list[Operation] = []  # whose commit was asked for and not answered
        self._settled: deque[Operation] = deque(maxlen=40)

    def prepare(self, client: Client) -> None:
        for operation in list(self._open):
            self._repeat(client, operation)

    def step(self, client: Client, rng: random.Random) -> None:
        roll = rng.random()
        if roll < 0.2:
            self._batch(client, rng)
        elif roll < 0.35 and self._settled:
            with client.another() as other:
                self._repeat(rng.choice((client, other)), rng.choice(self._settled))
        else:
            self._transaction(client, rng)
        time.sleep(rng.uniform(0, 0.01))

    def _records(self, rng: random.Random, where: Sequence[Place]) -> tuple[list[str], list[bytes]]:
        ids = self.load.ids(self.name, len(where))
        return ids, [payload_of(record, rng.choice((20, 300))) for record in ids]

    def _batch(self, client: Client, rng: random.Random) -> None:
        topic = rng.choice((LEFT, RIGHT))
        where = [Place(topic, rng.randrange(TOPICS[topic])) for _ in range(rng.choice((1, 4, 20)))]
        ids, values = self._records(rng, where)
        batch = self.history.invoke(self.name, "transaction", where[0], ids, places=tuple(where))
        spec = requests.produce_batch(topic, values, partitions=[place.partition for place in where])
        self.ask_all(client, [([batch], spec)])

    def _transaction(self, client: Client, rng: random.Random) -> None:
        where = [rng.choice(SHARED) for _ in range(rng.choice((0, 1, 3, 8)))]
        where += [Place(LEFT, rng.randrange(2)), Place(RIGHT, rng.choice((0, 1, 2, ANYWHERE)))]
        made = f"{self.name}-{self.load.serial[self.name]}" if rng.random() < 0.05 else ""
        where += [Place(f"made-{made}", 0)] if made else []
        ids, values = self._records(rng, where)
        key = client.begin()
        transaction = self.history.invoke(self.name, "transaction", where[0], ids, places=tuple(where), group=key)
        transaction.key = f"{MADE_TOPIC}{made}" if made else ""
        end = rng.choice(("commit",) * 6 + ("twice", "roll back", "give up"))
        adds = [
            requests.produce_in_transaction(key, place.topic, value, partition=place.partition)
            for place, value in zip(where, values, strict=True)
        ]
        try:
            results(client.pipeline(adds))
            if end == "roll back":
                client.rollback_transaction(key)
        except GONE:
            self.history.reject(transaction, "nobody asked for its commit")
            raise
        if end in ("commit", "twice"):
            self._commit(client, transaction, 2 if end == "twice" else 1)
            return
        if end == "give up":
            client.close()
        self.history.reject(transaction, "nobody asked for its commit")
        self._settled.append(transaction)

    def _commit(self, client: Client, transaction: Operation, times: int) -> None:
        self._open.append(transaction)
        results(client.pipeline([requests.commit_transaction(transaction.group)] * times))
        self.history.acknowledge(transaction)
        self._open.remove(transaction)
        self._settled.append(transaction)

    def _repeat(self, client: Client, transaction: Operation) -> None:
        recommit = self.history.invoke(self.name, "recommit", transaction.place, group=transaction.group)
        self.ask_all(client, [([recommit], requests.commit_transaction(transaction.group))], (TransactionOver,))
        if transaction in self._open:
            self._open.remove(transaction)
            self._settled.append(transaction)


class Watcher(Worker):
    """Reads everything from the first record on, always to the end, one partition after the other or all at once."""

    def __init__(self, load: Load, name: str) -> None:
        super().__init__(load, name)
        self._cursors = dict.fromkeys(WATCHED, 0)

    def step(self, client: Client, rng: random.Random) -> None:
        places = rng.sample(WATCHED, len(WATCHED))
        for some in [[place] for place in places] if rng.random() < 0.7 else [places]:
            self._read(client, some)
        time.sleep(rng.uniform(0, 0.005))

    def _read(self, client: Client, places: list[Place]) -> None:
        at = {place: self._cursors[place] for place in places}
        reads = {place: self.history.invoke(self.name, "read", place, offset=at[place]) for place in places}
        found: dict[Place, list[str]] = {place: [] for place in places}
        left = list(places)
        while left:
            answers = results(client.pipeline([requests.fetch(*place, at[place], 500) for place in left]))
            for place, fetched in zip(list(left), answers, strict=True):
                for record in fetched.records:
                    if record.offset != at[place]:
                        raise AssertionError(f"{place}: {record.offset} came after {at[place] - 1}")
                    found[place].append(record_of(record.value))
                    at[place] += 1
                if not fetched.records:
                    left.remove(place)
        for place, read in reads.items():
            read.end = at[place]
            self.history.acknowledge(read, ids=found[place])
        self._cursors.update(at)


# -- delayed records


class Delayer(Worker):
    """Lets records appear later, and cancels some, best of all when they are about to appear."""

    DELAYS_MS: Final = (0, 5, 60, 150, 150, 500, 1200, 2500)

    def __init__(self, load: Load, name: str) -> None:
        super().__init__(load, name)
        self.pending: deque[Operation] = deque(maxlen=300)
        self.distant: list[Operation] = []  # not due while the campaign runs

    def step(self, client: Client, rng: random.Random) -> None:
        if self.pending and rng.random() < 0.3:
            now = time.time() * 1000
            nearest = min(self.pending, key=lambda one: abs(one.stamp // 1000 + (one.number or 0) - now))
            self.cancel(client, [rng.choice((nearest, rng.choice(self.pending)))])
        else:
            self._delay(client, rng)
        time.sleep(rng.uniform(0, 0.01))

    def _delay(self, client: Client, rng: random.Random) -> None:
        asked, delays = [], []
        for record in self.load.ids(self.name, rng.choice((1, 1, 4, 10))):
            place = Place(LATER, rng.choice((0, 1, ANYWHERE)))
            wait = HOUR_MS if rng.random() < 0.02 else rng.choice(self.DELAYS_MS)
            delay = self.history.invoke(self.name, "delay", place, (record,), number=wait)
            key = rng.choice((None, b"one", b"two"))
            value = payload_of(record, rng.choice((20, 300)))
            delays.append(delay)
            asked.append(([delay], requests.produce_delayed(LATER, value, wait, key, place.partition)))
        try:
            self.ask_all(client, asked)
        finally:
            accepted = [delay for delay in delays if delay.outcome is Outcome.ACKNOWLEDGED]
            self.distant += [delay for delay in accepted if delay.number == HOUR_MS]
            self.pending.extend(delay for delay in accepted if delay.number != HOUR_MS)

    def cancel(self, client: Client, delays: Sequence[Operation]) -> None:
        asked = []
        for delay in delays:
            cancel = self.history.invoke(self.name, "cancel", delay.place, delay.ids)
            asked.append(([cancel], requests.cancel_delayed(delay.offset or 0)))
            if delay in self.pending:
                self.pending.remove(delay)
        self.ask_all(client, asked, (NotFound,))


# -- groups


class Committer(Worker):
    """Moves groups forward, and asks now and then where they stand."""

    def __init__(self, load: Load, name: str) -> None:
        super().__init__(load, name)
        self._offsets = {(f"group-{number}", place): 0 for number in range(3) for place in SHARED}

    def step(self, client: Client, rng: random.Random) -> None:
        asked = []
        for group, place in rng.sample(list(self._offsets), rng.choice((1, 1, 5))):
            self._offsets[group, place] += rng.choice((1, 1, 7))
            offset = self._offsets[group, place]
            commit = self.history.invoke(self.name, "commit", place, offset=offset, group=group)
            asked.append(([commit], requests.commit(place.topic, group, place.partition, offset)))
        self.ask_all(client, asked)
        if rng.random() < 0.1:
            self.look(client)
        time.sleep(rng.uniform(0, 0.01))

    def look(self, client: Client) -> None:
        """The committed offsets of all groups."""
        keys = list(self._offsets)
        positions = [self.history.invoke(self.name, "position", place, group=group) for group, place in keys]
        asked = [requests.get_offset(place.topic, group, place.partition) for group, place in keys]
        for position, outcome in zip(positions, client.pipeline(asked), strict=True):
            if isinstance(outcome, FlyMqError) and not isinstance(outcome, NotFound):
                raise outcome
            self.history.acknowledge(position, offset=0 if isinstance(outcome, NotFound) else outcome)


# -- dead letters


class Misfit(Worker):
    """Sends records that do not fit the schema of their topic, and some that do; and some that would, to its dead
    letters."""

    def step(self, client: Client, rng: random.Random) -> None:
        place = Place(rng.choice(REFUSING), 0)
        if rng.random() < 0.5:
            self._send_misfits(client, rng, place)
        else:
            letters = [
                self.history.invoke(self.name, "letter", place, (record,)) for record in self.load.ids(self.name, 2)
            ]
            values = [fitting(one.ids[0], 40) for one in letters]
            topic = place.topic + ".dlq"
            asked = [([one], requests.produce(topic, value)) for one, value in zip(letters, values, strict=True)]
            self.ask_all(client, asked)
        time.sleep(rng.uniform(0, 0.02))

    def _send_misfits(self, client: Client, rng: random.Random, place: Place) -> None:
        bad = self.load.ids(self.name, rng.choice((1, 1, 3)))
        letters = [self.history.invoke(self.name, "letter", place, (record,), number=0) for record in bad]
        values = [payload_of(record, rng.choice((20, 300))) for record in bad]
        if rng.random() < 0.5:
            asked = [([one], requests.produce(place.topic, value)) for one, value in zip(letters, values, strict=True)]
            outcomes = self.ask_all(client, asked)
            assert all(outcome.topic == place.topic + ".dlq" for outcome in outcomes), outcomes
        else:
            good = self.load.ids(self.name, rng.choice((1, 4)))
            store = self.history.invoke(self.name, "transaction", place, good)
            values += [fitting(record, 40) for record in good]
            (outcome,) = self.ask_all(client, [([store, *letters], requests.produce_batch(place.topic, values))])
            assert [offset == DIVERTED for offset in outcome.offsets] == [True] * len(bad) + [False] * len(good)


class Replayer(Worker):
    """Replays some of the oldest letters, sometimes twice; purges WASTE. There are two, in each other's way."""

    PEEK: Final = 40

    def step(self, client: Client, rng: random.Random) -> None:
        topic = rng.choice(REFUSING)
        place = Place(topic, 0)
        look = self.history.invoke(self.name, "letters", place)
        found = client.fetch_dlq(topic, self.PEEK)
        self.history.acknowledge(look, ids=[record_of(letter.value) for letter in found])
        asked: list[tuple[list[Operation], RequestSpec[Any]]] = []
        for letter in rng.sample(found, min(len(found), rng.choice((0, 1, 3)))):
            for _ in range(rng.choice((1, 1, 1, 2))):
                which = rng.choice((letter.message_id, int(letter.message_id.partition("-")[2])))
                replay = self.history.invoke(self.name, "replay", place, (record_of(letter.value),))
                asked.append(([replay], requests.replay_dlq(topic, which)))
        if topic == WASTE and rng.random() < 0.05:
            asked.append(([self.history.invoke(self.name, "purge", place)], requests.purge_dlq(topic)))
        self.ask_all(client, asked, (NotFound, SchemaRejected))
        time.sleep(rng.uniform(0, 0.02))


# -- records that expire


class Mortal(Worker):
    LIVES_MS: Final = (20, 60, 200, 200, 600, 1500, HOUR_MS)

    def step(self, client: Client, rng: random.Random) -> None:
        asked = []
        for record in self.load.ids(self.name, rng.choice((1, 1, 5))):
            place, life = Place(MORTAL, rng.randrange(2)), rng.choice(self.LIVES_MS)
            mortal = self.history.invoke(self.name, "append_ttl", place, (record,), number=life)
            value = payload_of(record, 30)
            asked.append(([mortal], requests.produce_with_ttl(MORTAL, value, life, partition=place.partition)))
        self.ask_all(client, asked)
        time.sleep(rng.uniform(0, 0.01))


class MortalReader(Worker):
    """Reads the newest records that expire, again and again, through several doors."""

    def step(self, client: Client, rng: random.Random) -> None:
        place = Place(MORTAL, rng.randrange(2))
        end = client.metadata(MORTAL).partitions[place.partition].newest_offset
        start = max(0, end - rng.choice((5, 100, 500)))
        roll = rng.random()
        if roll < 0.4:
            read_all(self.history, self.name, "flymq", place, start, by_flymq(client, place))
        elif roll < 0.6:
            for offset in range(start, min(start + 5, end)):
                read_all(self.history, self.name, "consume", place, offset, by_consume(client, place), 1)
        else:
            with Connection(self.ports["rustlog"]) as connection:
                read_all(self.history, self.name, "rustlog", place, start, by_rustlog(connection, place))
        time.sleep(rng.uniform(0, 0.005))


Fetch = Callable[[int], tuple[list[bytes], int]]  # from an offset: values, and where to go on


def read_all(
    history: History, client: str, door: str, place: Place, start: int, fetch: Fetch, times: int = 1000
) -> None:
    """Fetch until there is nothing more. Each fetch is an operation: it matters when it was asked for."""
    at = start
    for _ in range(times):
        read = history.invoke(client, "read", place, offset=at, door=door, gaps=True)
        values, read.end = fetch(at)
        history.acknowledge(read, ids=[id_of(value) for value in values])
        if read.end <= at:
            return
        at = read.end


def by_flymq(client: Client, place: Place) -> Fetch:
    def fetch(offset: int) -> tuple[list[bytes], int]:
        fetched = client.fetch(*place, offset, 500)
        return [record.value for record in fetched.records], fetched.next_offset

    return fetch


def by_consume(client: Client, place: Place) -> Fetch:
    def fetch(offset: int) -> tuple[list[bytes], int]:
        try:
            return [client.consume(place.topic, offset, place.partition).value], offset + 1
        except EndOfLog:
            return [], offset + 1

    return fetch


def by_rustlog(connection: Connection, place: Place) -> Fetch:
    def fetch(offset: int) -> tuple[list[bytes], int]:
        asked = {"topic": place.topic, "partition": place.partition, "offset": offset, "max_bytes": 1 << 16}
        fetched = connection.json(type="Fetch", **asked)
        return [base64.b64decode(record["payload"]) for record in fetched["records"]], fetched["next_offset"]

    return fetch
