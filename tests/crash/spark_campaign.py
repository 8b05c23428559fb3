"""A real broker and a real Spark pipeline, both killed again and again at random moments while the input grows.

Killed is one of: the broker; the driver with its JVM and all workers; one Python worker of Spark's; the broker's child
that serves Flight; the one that builds tables. In the end everything is let run dry, read back, and compared by
`spark_history`.
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
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from tests.crash.history import Violation
from tests.crash.spark_driver import SOURCE
from tests.crash.spark_history import At, Copied, SparkHistory, check
from tests.launcher import RestartableBroker
from tests.ports import steady_port

from penstock.clients.rustlog import Client, RustLogError
from penstock.flight.client import FlightLog
from penstock.flight.connect import connect
from penstock.flight.log import Log, TopicPartition
from penstock.log.tables.location import TableRef
from penstock.log.tables.table import Table

PARTITIONS = 3
KEYS = 7
TOPICS = {SOURCE: PARTITIONS, "copy": 2, "newest": 1, "count": 1}
VICTIMS = ("driver", "worker", "broker", "flight", "tables")
SETTINGS = {
    "PENSTOCK_LOG__FILE_BYTES": "262144",
    "PENSTOCK_LOG__SNAPSHOT_BYTES": "131072",
    "PENSTOCK_LOG__ROLL_SECONDS": "2",
    "PENSTOCK_TABLES__ENABLED": "true",
}
UP_SECONDS = 300.0  # in which the pipeline has to be at work
DRY_SECONDS = 240.0  # in which the pipeline has to catch up when nobody is killed any more


@dataclass(slots=True)
class Campaign:
    directory: str
    kills: int
    seed: int = 0
    durability: str = "synced"
    pause: tuple[float, float] = (0.5, 6.0)  # seconds between two kills, when everything is up
    victims: tuple[str, ...] = VICTIMS


@dataclass(slots=True)
class Outcomes:
    kills: dict[str, int] = field(default_factory=dict)
    inputs: int = 0
    violations: list[Violation] = field(default_factory=list)


class SparkBroker(RestartableBroker):
    """With a Flight endpoint at an address that stays the same, as a pipeline knows only one."""

    def __init__(self, directory: str, durability: str) -> None:
        self.flight = f"127.0.0.1:{steady_port()}"
        doors = {"rustlog": "127.0.0.1:0", "flight": self.flight}
        super().__init__(directory, durability, doors=doors, settings=SETTINGS)


class Driver:
    """The pipeline's process."""

    def __init__(self, server: str, directory: str) -> None:
        self._arguments = (server, directory)
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
        return [pid for pid in descendants(self.process.pid) if "pyspark.daemon" in _command(pid)]

    def errors(self) -> str:
        return Path(self._log).read_text(errors="replace")[-6000:]


class Producer(threading.Thread):
    """Writes inputs that are all different, through RustLog, and remembers what was acknowledged."""

    def __init__(self, broker: SparkBroker, seed: int) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._random = random.Random(seed)
        self._over = threading.Event()
        self.acknowledged: dict[At, bytes] = {}
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
        base = client.produce(SOURCE, partition, values).base_offset
        self.acknowledged.update({(partition, offset): value for offset, value in enumerate(values, base)})

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
        driver = Driver(broker.flight, campaign.directory)
        driver.start()
        try:
            _wait(lambda: _written(campaign.directory, "copy"), UP_SECONDS, driver)
            for number in range(campaign.kills):
                victim = campaign.victims[number % len(campaign.victims)]
                time.sleep(randomly.uniform(*campaign.pause))
                _wait(partial(_kill_one, victim, broker, driver, randomly), UP_SECONDS, driver)
                outcomes.kills[victim] = outcomes.kills.get(victim, 0) + 1
                if not driver.running:
                    driver.kill()
                    driver.start()
                tell(f"kill {number + 1} of {campaign.kills}: {victim}; {len(producer.acknowledged)} acknowledged")
            producer.stop()
            history = _run_dry(broker, driver, producer, campaign.directory)
        finally:
            producer.stop()
            driver.kill()
    outcomes.inputs = len(history.inputs)
    outcomes.violations = check(history)
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


def _run_dry(broker: SparkBroker, driver: Driver, producer: Producer, directory: str) -> SparkHistory:
    """Wait until nothing is missing or the time is over; then whatever is wrong is a finding."""
    log = connect({"bootstrap.servers": broker.flight})
    assert isinstance(log, FlightLog)
    inputs = _by_place(log, SOURCE)
    end = time.monotonic() + DRY_SECONDS
    while True:
        history = _history(log, inputs, producer, directory)
        if not check(history) or time.monotonic() > end:
            return history
        if not driver.running:
            driver.start()
        time.sleep(1)


def _history(log: Log, inputs: dict[At, bytes], producer: Producer, directory: str) -> SparkHistory:
    counts = [value.decode().split() for _, value in sorted(_by_place(log, "count").items())]
    copies = {
        "copy": Copied(_copied(log, "copy")),
        "newest": Copied(_copied(log, "newest"), _resolved(f"{directory}/checkpoints/newest/offsets")),
    }
    table, repeated = _table(log)
    return SparkHistory(
        dict(producer.acknowledged), inputs, copies, [(key, int(count)) for key, count in counts], table, repeated
    )


def _by_place(log: Log, topic: str) -> dict[At, bytes]:
    found: dict[At, bytes] = {}
    for place, bounds in log.bounds([topic]).items():
        for batch in log.read(place, bounds.start, bounds.high_watermark, ["offset", "value"]):
            rows = batch.to_pydict()
            found.update(
                {(place.partition, at): value for at, value in zip(rows["offset"], rows["value"], strict=True)}
            )
    return found


def _copied(log: Log, topic: str) -> list[tuple[At, bytes]]:
    rows = [value.decode().split(" ") for _, value in sorted(_by_place(log, topic).items())]
    return [((int(partition), int(offset)), base64.b64decode(value)) for partition, offset, value in rows]


def _resolved(offsets: str) -> dict[int, int]:
    """Where the stream began that was to begin at the end: as its first write-ahead entry says."""
    first = Path(offsets, "0").read_text().splitlines()[-1]
    return {int(number): at for number, at in json.loads(first)["/from"][SOURCE].items()}


def _table(log: Log) -> tuple[dict[At, bytes], int]:
    """The input topic as its table has it, and from the journal what the table has not."""
    info = log.table(SOURCE)
    rows: list[tuple[At, bytes]] = []
    ends: dict[int, int] = {}
    table = None if info is None else Table.open(TableRef(info.topic, SOURCE, info.url, dict(info.options)))
    for place, bounds in log.bounds([SOURCE]).items():
        end = 0 if table is None else table.ends().get(place.partition, 0)
        ends[place.partition] = end
        if table is not None and end:
            for batch in table.read(place.partition, 0, end, ["offset", "value"]):
                rows += _places(place.partition, batch)
        for batch in log.read(TopicPartition(SOURCE, place.partition), end, bounds.high_watermark, ["offset", "value"]):
            rows += _places(place.partition, batch)
    found = dict(rows)
    return found, len(rows) - len(found)


def _places(partition: int, batch: pa.RecordBatch) -> list[tuple[At, bytes]]:
    rows = batch.to_pydict()
    return [((partition, at), value) for at, value in zip(rows["offset"], rows["value"], strict=True)]


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


def _written(directory: str, query: str) -> bool:
    """Whether a query has finished a batch."""
    commits = Path(directory, "checkpoints", query, "commits")
    return commits.is_dir() and any(name.isdigit() for name in os.listdir(commits))


def _wait(true: Callable[[], bool], seconds: float, driver: Driver) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end or not driver.running:
            raise AssertionError(f"the pipeline does not run: {driver.errors()}")
        time.sleep(0.05)
