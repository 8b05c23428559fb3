"""All doors in one kill campaign: every protocol, SQL and Flight write to the same topics of the same broker. After
every start, what came since the last one is read back through two doors, which are others each time, and so is a part
of what is older and has moved to tables. In the end everything is read through every door."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from tests.crash import blipmq_load, flymq_load
from tests.crash.all_doors_load import FACTS, GROUP, PLACES, SHARED, WIDE, Load, Writer, writers
from tests.crash.all_doors_readers import READERS, FlightReader
from tests.crash.campaign import Outcomes, ThreadedAdapter
from tests.crash.kimberlite_load import TENANT, Line
from tests.crash.rustlog_load import Connection
from tests.histories.history import History, Place
from tests.launcher import RestartableBroker

from penstock.clients.flymq import NotFound
from penstock.wire.kimberlite import messages as m

ATTEMPTS: Final = 1_000_000  # nothing is given up here: BlipMQ's own campaign is about that
SETTINGS: Final = {
    "PENSTOCK_LOG__FILE_BYTES": "262144",
    "PENSTOCK_LOG__SNAPSHOT_BYTES": "131072",
    "PENSTOCK_LOG__ROLL_SECONDS": "1",
    "PENSTOCK_TABLES__ENABLED": "true",
    "PENSTOCK_TABLES__CARE_SECONDS": "1",
    "PENSTOCK_KIMBERLITE__TENANTS": f"{TENANT}=default",
    "PENSTOCK_QUEUES__CAPACITY": "0",
    "PENSTOCK_QUEUES__TTL_SECONDS": "0",
    "PENSTOCK_QUEUES__ATTEMPTS": str(ATTEMPTS),
    "PENSTOCK_QUEUES__BACKOFF_SECONDS": "0.05",
}
MODES: Final = ("eager", "pushed")
SAMPLE: Final = 300  # records of the older part that are read after a start
PATIENCE: Final = 300.0  # s in which a worker has to start, tables to be built, queues to run dry


class Watcher(Writer):
    """Reads the newest records to the end, while all others write."""

    def work(self, ports: dict[str, int], rng: random.Random) -> Iterator[None]:
        with READERS["rustlog"](self.load.streams, ports) as reader:
            while True:
                place = rng.choice(PLACES)
                if (end := reader.end(place)) > 1:
                    reader.note(self.history, place, max(1, end - rng.choice((1, 50))), name=self.name)
                yield
                time.sleep(rng.uniform(0, 0.02))


class AllDoorsAdapter(ThreadedAdapter):
    name = "all doors"
    doors = ("rustlog", "blipmq", "flymq", "kimberlite", "felix", "flight")
    settings = SETTINGS
    kills_at_start = 0.1
    load_seconds = (0.05, 0.8)

    def __init__(self) -> None:
        super().__init__(History())
        self._load = Load(self.history, problems=self.problems)
        self._queues = blipmq_load.Load(self.history, SHARED)
        self._writers = [*writers(self._load), Watcher(self._load, "watcher")]
        self._known: dict[Place, int] = dict.fromkeys(PLACES, 0)  # how far each partition was read back
        self._looks = 0
        self._with_sql = True
        self.tabled: dict[Place, int] = {}  # how far the tables go in the end

    def prepare(self, broker: RestartableBroker) -> None:
        with Connection(broker.port) as connection:
            connection.create_topic(SHARED.topic, 1)
            connection.create_topic(WIDE[0].topic, len(WIDE))
        with Line(broker.ports["kimberlite"]) as line:
            line.query(f"CREATE TABLE {FACTS.topic} (id VARCHAR, n BIGINT)")
            for place in PLACES:
                create = m.CreateStream(place.topic, m.DataClass.PUBLIC, m.Everywhere())
                found = line.ask(create, m.CreateStreamResponse)
                self._load.streams[place] = found.stream_id + (place.partition << 32)
        with blipmq_load.Connection(broker.ports["blipmq"]) as queue_connection:
            for mode in MODES:
                queue = self._queues.subscriptions[mode] = blipmq_load.subscribe(queue_connection, SHARED.topic)
                self.history.note(mode, "subscribe", SHARED, group=str(queue), number=ATTEMPTS)

    def clients(self, broker: RestartableBroker, rng: random.Random) -> dict[str, Callable[[], None]]:
        ports = broker.ports
        working = [one for one in self._writers if self._with_sql or one.door != "sql"]
        found = {one.name: partial(one.run, ports, rng.getrandbits(32)) for one in working}
        blip: dict[str, Callable[[], None]] = {
            name: partial(job, self._queues, ports["blipmq"], name, rng.getrandbits(32))
            for name, job in {"blipmq": blipmq_load.produce, **dict.fromkeys(MODES, blipmq_load.consume)}.items()
        }
        return {**found, **blip}

    def start_load(self, broker: RestartableBroker, rng: random.Random, cycle: int) -> None:
        """Every third time there is SQL too, which takes a second to start, and it and Flight are to have done
        something before the kill."""
        self._load.killed.clear()
        self._load.answered.clear()
        self._with_sql = cycle % 3 == 0
        if cycle:
            self._look(broker.ports, rng)
        super().start_load(broker, rng, cycle)
        end = time.monotonic() + PATIENCE
        while self._with_sql and not self.problems and not self._load.answered.keys() >= {"sql", "flight"}:
            assert time.monotonic() < end, f"SQL or Flight gets nothing done: {self._load.answered}"
            time.sleep(0.01)

    def before_kill(self) -> None:
        self._load.killed.set()

    def _look(self, ports: dict[str, int], rng: random.Random) -> None:
        """Through two doors: whoever wrote a record, one of them is another."""
        names = [name for name in READERS if name != "sql"]
        self._looks += 1
        ends: dict[Place, int] = {}
        first, second = (names[(self._looks + number) % len(names)] for number in (0, 1))
        for name in (first, "sql" if self._with_sql else second):
            with READERS[name](self._load.streams, ports) as reader:
                for place in PLACES:
                    known = self._known[place]
                    ends[place] = reader.note(self.history, place, known).end or ends.get(place, known)
                    if known > 1:
                        start = rng.randrange(1, known)
                        reader.note(self.history, place, start, min(start + SAMPLE, known))
        self._known.update(ends)
        self._look_at_group(ports)

    def _look_at_group(self, ports: dict[str, int]) -> None:
        """The offset of the group that RustLog's client commits, as FlyMQ reports it."""
        with flymq_load.connect(ports) as client:
            for place in PLACES:
                position = self.history.invoke("campaign", "position", place, group=GROUP, door="flymq")
                try:
                    offset = client.get_offset(place.topic, GROUP, place.partition)
                except NotFound:
                    offset = 0
                self.history.acknowledge(position, offset=offset)

    def read_back(self, broker: RestartableBroker) -> None:
        self._look_at_group(broker.ports)
        self._wait_for_tables(broker.ports)
        for door in READERS.values():
            with door(self._load.streams, broker.ports) as reader:
                for place in PLACES:
                    reader.note(self.history, place)
        self._run_dry(broker.ports["blipmq"])

    def _wait_for_tables(self, ports: dict[str, int]) -> None:
        """Until most of each partition is read from its table."""
        end = time.monotonic() + PATIENCE
        with FlightReader(self._load.streams, ports) as reader:
            while True:
                self.tabled = {place: reader.tabled(place) for place in PLACES}
                if all(2 * self.tabled[place] >= reader.end(place) for place in PLACES):
                    return
                assert time.monotonic() < end, f"tables are not built: {self.tabled}"
                time.sleep(0.2)

    def _run_dry(self, port: int) -> None:
        """Take until everything was delivered and acknowledged, or cannot be."""
        consumers = [blipmq_load.connected(self._queues, port, mode, 1) for mode in MODES]
        for consumer in consumers:
            consumer.attach()
        end = time.monotonic() + PATIENCE
        while self._undone() and time.monotonic() < end:
            while any(consumer.step(256) or consumer.acks for consumer in consumers):
                pass
        for consumer in consumers:
            consumer.connection.close()

    def _undone(self) -> int:
        """The number of records that some queue still has to deliver or get acknowledged."""
        stored = [contents for contents in self.history.of("contents") if contents.place == SHARED][-1].ids
        acks = {(ack.group, ack.ids[0]) for ack in self.history.of("ack") if not ack.rejected}
        queues = map(str, self._queues.subscriptions.values())
        return sum((queue, record) not in acks for queue in queues for record in stored)

    def progress(self) -> str:
        written = acknowledged_by_door(self.history)
        return ", ".join(f"{door} {count}" for door, count in written.items())

    def summary(self, outcomes: Outcomes) -> str:
        written = ", ".join(f"{door} {count}" for door, count in acknowledged_by_door(outcomes.history).items())
        tabled = ", ".join(f"{place.topic}#{place.partition} {end}" for place, end in self.tabled.items())
        return f"records acknowledged by door: {written}; tables up to {tabled}"


def acknowledged_by_door(history: History) -> Counter[str]:
    found: Counter[str] = Counter()
    for operation in history.of("append", "transaction"):
        if operation.acknowledged:
            found[operation.door] += len(operation.ids)
    return found


def shown_by_others(history: History) -> dict[str, int]:
    """By door: the records that it acknowledged and that another door showed."""
    shown: dict[str, set[str]] = defaultdict(set)
    for read in history.of("read", "contents", "deliver"):
        for record in read.ids:
            shown[record].add(read.door)
    found: Counter[str] = Counter()
    for operation in history.of("append", "transaction"):
        if operation.acknowledged:
            found[operation.door] += sum(bool(shown[record] - {operation.door}) for record in operation.ids)
    return found
