"""A real broker and a real Spark pipeline, both killed again and again at random moments while the input grows.

Killed is one of: the broker; the driver with its JVM and all workers; one Python worker of Spark's; the broker's child
that serves Flight; the one that builds tables. In the end everything is let run dry, read back, and checked.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from tests.crash.spark_driver import SOURCE, TABLES, table
from tests.crash.spark_driver import TOPICS as INTO_TOPICS
from tests.histories.checker import Violation, check
from tests.histories.history import History, Place
from tests.launcher import RestartableBroker
from tests.ports import steady_port
from tests.preloaded import STARTED_WORKERS

from penstock.clients.rustlog import Client, RustLogError
from penstock.flight.client import FlightLog
from penstock.flight.connect import connect
from penstock.flight.errors import LogUnavailable
from penstock.flight.log import Log, TopicPartition
from penstock.log.tables.location import TableRef
from penstock.log.tables.table import Table

PARTITIONS = 3
KEYS = 7
COPIES = ("copy", "newest", "appended", "upserted")  # queries whose every row is one record of the input
TOPICS = {SOURCE: PARTITIONS, "copy": 2, "newest": 1, "count": 1}
DAEMONS = ("penstock.spark.worker_daemon", "pyspark.daemon")  # of tasks, and of those that plan
VICTIMS = ("driver", "worker", "broker", "flight", "tables")
SETTINGS = {
    "PENSTOCK_LOG__FILE_BYTES": "262144",
    "PENSTOCK_LOG__SNAPSHOT_BYTES": "131072",
    "PENSTOCK_LOG__ROLL_SECONDS": "2",
    "PENSTOCK_TABLES__ENABLED": "true",
}
UP_SECONDS = 300.0  # in which the pipeline has to be at work
DRY_SECONDS = 600.0  # in which the pipeline has to catch up when nobody is killed any more


@dataclass(slots=True)
class Campaign:
    directory: str
    kills: int
    seed: int = 0
    durability: str = "synced"
    pause: tuple[float, float] = (0.5, 6.0)  # seconds between two kills, when everything is up
    victims: tuple[str, ...] = VICTIMS
    queries: tuple[str, ...] = INTO_TOPICS


@dataclass(slots=True)
class Outcomes:
    kills: dict[str, int] = field(default_factory=dict)
    inputs: int = 0
    copies: dict[str, Copies] = field(default_factory=dict)  # by query
    history: History = field(default_factory=History)
    violations: list[Violation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Copies:
    """The outcome of the inputs of one query."""

    written: int
    lost: int
    doubled: int


class SparkBroker(RestartableBroker):
    """With a Flight endpoint at an address that stays the same, as a pipeline knows only one."""

    def __init__(self, directory: str, durability: str) -> None:
        self.flight = f"127.0.0.1:{steady_port()}"
        doors = {"rustlog": "127.0.0.1:0", "flight": self.flight}
        super().__init__(directory, durability, doors=doors, settings=SETTINGS | STARTED_WORKERS)


class Driver:
    """The pipeline's process."""

    def __init__(self, server: str, directory: str, queries: Sequence[str]) -> None:
        self._arguments = (server, directory, *queries)
        self._log = f"{directory}/driver.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.spark_driver", *self._arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Itself, its JVM and all that the JVM has started."""
        if self.process is not None:
            with_all = [self.process.pid, *descendants(self.process.pid)]
            for pid in with_all:
                _kill(pid)
            self.process.wait()
            self.process = None

    def workers(self) -> list[int]:
        if self.process is None:
            return []
        return [pid for pid in descendants(self.process.pid) if any(name in _command(pid) for name in DAEMONS)]

    def errors(self) -> str:
        return Path(self._log).read_text(errors="replace")[-6000:]


class Producer(threading.Thread):
    """Writes inputs that are all different, through RustLog, and remembers what was acknowledged."""

    def __init__(self, broker: SparkBroker, seed: int) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._random = random.Random(seed)
        self._over = threading.Event()
        self.history = History()
        self.acknowledged = 0
        self._number = 0

    def run(self) -> None:
        while not self._over.is_set():
            try:
                with Client("127.0.0.1", self._broker.port) as client:
                    while not self._over.wait(0.05):
                        self._produce(client)
            except (OSError, RustLogError, KeyError):
                time.sleep(0.1)  # it is being killed; what was not acknowledged may be there or not

    def _produce(self, client: Client) -> None:
        partition = self._random.randrange(PARTITIONS)
        values = [self._value() for _ in range(self._random.randint(1, 40))]
        append = self.history.invoke("producer", "append", Place(SOURCE, partition), map(bytes.decode, values))
        base = client.produce(SOURCE, partition, values).base_offset
        self.history.acknowledge(append, offset=base)
        self.acknowledged += len(values)

    def _value(self) -> bytes:
        self._number += 1
        return b"%d-%d:k%d" % (id(self), self._number, self._random.randrange(KEYS))

    def stop(self) -> None:
        self._over.set()
        self.join(60)


def run(campaign: Campaign, tell: Callable[[str], None] = lambda _: None) -> Outcomes:
    randomly = random.Random(campaign.seed)
    outcomes = Outcomes()
    broker = SparkBroker(campaign.directory, campaign.durability)
    with broker:
        broker.start()
        with Client("127.0.0.1", broker.port) as client:
            for topic, partitions in TOPICS.items():
                client.create_topic(topic, partitions)
        producer = Producer(broker, campaign.seed)
        producer.start()
        driver = Driver(broker.flight, campaign.directory, campaign.queries)
        driver.start()
        try:
            _wait(lambda: all(_commits(campaign.directory, name) for name in campaign.queries), UP_SECONDS, driver)
            for number in range(campaign.kills):
                victim = campaign.victims[number % len(campaign.victims)]
                done = _all_commits(campaign)
                _wait(partial(_at_work, campaign, done), UP_SECONDS, driver)
                time.sleep(randomly.uniform(*campaign.pause))
                _wait(partial(_kill_one, victim, broker, driver, randomly), UP_SECONDS, driver)
                outcomes.kills[victim] = outcomes.kills.get(victim, 0) + 1
                if not driver.running:
                    driver.kill()
                    driver.start()
                tell(f"kill {number + 1} of {campaign.kills}: {victim}; {producer.acknowledged} acknowledged")
            producer.stop()
            history = _run_dry(broker, driver, producer, campaign)
        finally:
            producer.stop()
            driver.kill()
    outcomes.inputs = sum(len(contents.ids) for contents in history.of("contents") if contents.door == "flight")
    outcomes.history, outcomes.violations, outcomes.copies = history, check(history), copies(history)
    return outcomes


def _kill_one(victim: str, broker: SparkBroker, driver: Driver, randomly: random.Random) -> bool:
    """False if there is nobody of this kind at the moment."""
    if victim == "broker":
        broker.kill()
        time.sleep(randomly.uniform(0, 1.0))
        broker.start()
        return True
    if victim == "driver":
        driver.kill()
        return True
    found = driver.workers() if victim == "worker" else _children(broker, f"penstock.workers.{victim}.main")
    if found:
        _kill(randomly.choice(found))
    return bool(found)


# -- the end


def _run_dry(broker: SparkBroker, driver: Driver, producer: Producer, campaign: Campaign) -> History:
    """Wait until nothing is missing or the time is over; then whatever is wrong is a finding."""
    log = connect({"bootstrap.servers": broker.flight})
    assert isinstance(log, FlightLog)
    end = time.monotonic() + DRY_SECONDS
    seen = None
    while True:
        late = time.monotonic() > end
        done = _all_commits(campaign)
        if late or done != seen:  # else there is nothing new to read
            try:
                history = _history(log, producer, campaign)
            except LogUnavailable:  # whoever was killed last is not back yet
                if late:
                    raise
            else:
                seen = done
                if late or not check(history):
                    return history
        if not driver.running:
            driver.start()
        time.sleep(1)


def _history(log: Log, producer: Producer, campaign: Campaign) -> History:
    """All that was sent, and all that is there now: in the topic, in its table, and in what the pipeline wrote."""
    history = producer.history.copy()
    for place, rows in _by_place(log, SOURCE).items():
        _note_contents(history, "flight", place, rows)
    for place, rows in _table(log).items():
        _note_contents(history, "table", place, rows)
    for name in campaign.queries:
        if name in TABLES:
            _note_table(history, table(campaign.directory, name), name)
        elif name in COPIES:
            _note_copies(history, log, name)
        else:
            _note_tallies(history, [value.decode() for rows in _by_place(log, name).values() for _, value in rows])
    if "newest" in campaign.queries:
        for partition, offset in _resolved(f"{campaign.directory}/checkpoints/newest/offsets").items():
            history.note("pipeline", "copy_start", Place(SOURCE, partition), key="newest", offset=offset)
    return history


def copies(history: History) -> dict[str, Copies]:
    """The output of each query, compared with its input."""
    there = {
        (contents.place, offset)
        for contents in history.of("contents")
        if contents.door == "flight"
        for offset in contents.offsets
    }
    starts = {(start.key, start.place): start.offset or 0 for start in history.of("copy_start")}
    written: dict[str, Counter[tuple[Place, int]]] = {}
    for copy in history.of("copy"):
        written.setdefault(copy.key, Counter())[copy.place, copy.offsets[0]] += 1
    found = {}
    for name, times in written.items():
        due = {(place, offset) for place, offset in there if offset >= starts.get((name, place), 0)}
        found[name] = Copies(times.total(), len(due - times.keys()), times.total() - len(times))
    return found


Rows = list[tuple[int, bytes]]  # offset and value


def _note_contents(history: History, door: str, place: Place, rows: Rows) -> None:
    ids = [value.decode() for _, value in rows]
    keys = tuple(record.rpartition(":")[2] for record in ids)  # those that the pipeline counts by
    offsets = tuple(offset for offset, _ in rows)
    history.note("campaign", "contents", place, ids, door=door, offset=0, offsets=offsets, keys=keys)


def _note_copies(history: History, log: Log, name: str) -> None:
    for rows in _by_place(log, name).values():
        for _, value in rows:
            partition, offset, copied = value.decode().split(" ")
            ids = [base64.b64decode(copied).decode()]
            history.note("pipeline", "copy", Place(SOURCE, int(partition)), ids, key=name, offsets=(int(offset),))


def _note_table(history: History, url: str, name: str) -> None:
    rows = DeltaTable(url).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(url) else []
    if name in COPIES:
        for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
            place = Place(SOURCE, row["partition"])
            history.note("pipeline", "copy", place, [row["value"].decode()], key=name, offsets=(row["offset"],))
    else:  # a table has no order, but no number may be there twice
        _note_tallies(history, sorted((row["value"] for row in rows), key=lambda text: int(text.split()[1])))


def _note_tallies(history: History, told: Sequence[str]) -> None:
    for text in told:
        key, count = text.split()
        history.note("pipeline", "tally", key=key, number=int(count))


def _by_place(log: Log, topic: str) -> dict[Place, Rows]:
    found: dict[Place, Rows] = {}
    for place, bounds in log.bounds([topic]).items():
        rows = found[Place(*place)] = []
        for batch in log.read(place, bounds.start, bounds.high_watermark, ["offset", "value"]):
            rows += _rows(batch)
    return found


def _resolved(offsets: str) -> dict[int, int]:
    """The start offset of the stream that was to begin at the end, by its first write-ahead entry."""
    first = Path(offsets, "0").read_text().splitlines()[-1]
    return {int(number): at for number, at in json.loads(first)["/from"][SOURCE].items()}


def _table(log: Log) -> dict[Place, Rows]:
    """The input topic as its table has it, and from the journal what the table has not."""
    info = log.table(SOURCE)
    found: dict[Place, Rows] = {}
    table = None if info is None else Table.open(TableRef(info.topic, SOURCE, info.url, dict(info.options)))
    for place, bounds in log.bounds([SOURCE]).items():
        end = 0 if table is None else table.ends().get(place.partition, 0)
        rows = found[Place(*place)] = []
        if table is not None and end:
            for batch in table.read(place.partition, 0, end, ["offset", "value"]):
                rows += _rows(batch)
        for batch in log.read(TopicPartition(SOURCE, place.partition), end, bounds.high_watermark, ["offset", "value"]):
            rows += _rows(batch)
    return found


def _rows(batch: pa.RecordBatch) -> Rows:
    rows = batch.to_pydict()
    return list(zip(rows["offset"], rows["value"], strict=True))


# -- processes


def descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for task in os.listdir(f"/proc/{pid}/task"):
            if int(task) != pid:
                children += Path(f"/proc/{pid}/task/{task}/children").read_text().split()
    except OSError:
        return []
    found = [int(child) for child in children]
    return [*found, *(deeper for child in found for deeper in descendants(child))]


def _children(broker: SparkBroker, module: str) -> list[int]:
    assert broker.process is not None
    return [pid for pid in descendants(broker.process.pid) if module in _command(pid)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _commits(directory: str, query: str) -> int:
    """The batches that a query has finished."""
    commits = Path(directory, "checkpoints", query, "commits")
    return max((int(name) + 1 for name in os.listdir(commits) if name.isdigit()), default=0) if commits.is_dir() else 0


def _all_commits(campaign: Campaign) -> dict[str, int]:
    return {name: _commits(campaign.directory, name) for name in campaign.queries}


def _at_work(campaign: Campaign, before: dict[str, int]) -> bool:
    """Whether a query has finished a batch since then: so that it is in the middle of others, and not at its start."""
    return any(count > before[name] for name, count in _all_commits(campaign).items())


def _wait(true: Callable[[], bool], seconds: float, driver: Driver) -> None:
    """A driver that ended by itself is started again: on a busy machine Spark gives Python ten seconds to start."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"the pipeline does not run: {driver.errors()}")
        if not driver.running:
            driver.kill()
            driver.start()
        time.sleep(0.05)
