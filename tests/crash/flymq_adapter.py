"""FlyMQ in a kill campaign: clients use all of its stateful features at the same time.

The clients are in `flymq_load` and `transaction_workers`. After every start it is looked at what groups, users, roles,
access lists and schemas have become. In the end everything that is due may appear, everything is read back through two
doors, and the broker is started once more with security on, to see whose password is whose.
"""

from __future__ import annotations

import base64
import random
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tests.crash.campaign import SMALL_FILES, Outcomes, ThreadedAdapter
from tests.crash.flymq_load import (
    HOUR_MS,
    LATER,
    MADE_TOPIC,
    MORTAL,
    REFUSING,
    SCHEMA,
    TOPICS,
    Committer,
    Delayer,
    Load,
    Misfit,
    Mortal,
    MortalReader,
    Replayer,
    Transactor,
    Watcher,
    Worker,
    by_flymq,
    by_rustlog,
    connect,
    read_all,
    record_of,
)
from tests.crash.rustlog_load import Connection
from tests.crash.transaction_workers import RuleWorker, SchemaWorker, UserWorker, read_view, try_passwords
from tests.histories.evidence import Evidence
from tests.histories.history import History, Place, microseconds
from tests.launcher import COMMAND, WITHOUT_SETTINGS, RestartableBroker

from penstock.clients.flymq import Client

W = TypeVar("W", bound=Worker)

PATIENCE = 60.0  # s in which what is due has to appear
COUNTS = {
    "transaction": "transactions and batches",
    "delay": "delayed records",
    "commit": "offsets",
    "put": "changes of users, roles, access lists and schemas",
    "replay": "replays",
    "append_ttl": "records that expire",
}


class FlyMqAdapter(ThreadedAdapter):
    name = "FlyMQ"
    doors = ("rustlog", "flymq")
    kills_at_start = 0.1
    load_seconds = (0.05, 1.0)
    checks_credentials = True

    def __init__(self) -> None:
        super().__init__(History())
        self._load = Load(self.history, problems=self.problems)
        self._workers = workers(self._load)

    def prepare(self, broker: RestartableBroker) -> None:
        with connect(broker.ports) as client:
            for topic, partitions in TOPICS.items():
                client.create_topic(topic, partitions)
            client.register_schema(SCHEMA, "json", b'{"type": "object", "required": ["record"]}')
        broker.stop_cleanly()
        for topic in REFUSING:
            settings = ["--schema", SCHEMA, "--rejected", "dead-letter", "--data-dir", broker.data_dir]
            command = [*COMMAND, "topic", "set", topic, *settings]
            subprocess.run(
                command, check=True, timeout=60, capture_output=True, env={**WITHOUT_SETTINGS, **SMALL_FILES}
            )

    def clients(self, broker: RestartableBroker, rng: random.Random) -> dict[str, Callable[[], None]]:
        self._load.killed.clear()
        self._look(broker.ports)
        ports = broker.ports
        return {worker.name: partial(worker.run, ports, rng.getrandbits(32)) for worker in self._workers}

    def before_kill(self) -> None:
        self._load.killed.set()

    def _look(self, ports: dict[str, int]) -> None:
        """The outcome of all records that are identified by value."""
        with connect(ports) as client:
            read_view(self._load, client)
            for committer in self._of(Committer):
                committer.look(client)

    def _of(self, kind: type[W]) -> list[W]:
        return [worker for worker in self._workers if isinstance(worker, kind)]

    def read_back(self, broker: RestartableBroker) -> None:
        self._look(broker.ports)
        with connect(broker.ports) as client:
            self._finish(client)
        read_back(self._load, broker.ports)

    def _finish(self, client: Client) -> None:
        """Settle what is open, and let everything appear that is due in less than an hour."""
        for transactor in self._of(Transactor):
            transactor.prepare(client)
        for delayer in self._of(Delayer):
            delayer.cancel(client, delayer.distant)  # they must still be there
        evidence = Evidence(self.history)
        delays = [delay for delay in evidence.of("delay") if delay.number != HOUR_MS]
        cancelled = {cancel.ids for cancel in evidence.of("cancel") if not cancel.rejected}
        due = max((evidence.last_time(delay) + (delay.number or 0) * 1000 for delay in delays), default=0)
        time.sleep(max(0.0, (due - microseconds()) / 1e6))
        missing = {d.ids[0] for d in delays if d.acknowledged and d.ids not in cancelled}
        end = time.monotonic() + PATIENCE
        while missing and time.monotonic() < end:
            time.sleep(0.3)  # several sweeps: also for those of which nobody knows whether they were accepted
            for number in range(TOPICS[LATER]):
                missing -= {record for _, record in records_of(client, Place(LATER, number))}
        self.history.note("campaign", "wait")

    def check_credentials(self, broker: RestartableBroker) -> None:
        try_passwords(self._load, broker.ports)

    def progress(self) -> str:
        return f"{sum(self._load.serial.values())} records and changes"

    def summary(self, outcomes: Outcomes) -> str:
        return ", ".join(f"{outcomes.count(kind, outcome=None)} {what}" for kind, what in COUNTS.items())


def workers(load: Load) -> list[Worker]:
    return [
        Transactor(load, "transactor-0"),
        Transactor(load, "transactor-1"),
        Watcher(load, "watcher"),
        Delayer(load, "delayer"),
        Committer(load, "committer"),
        UserWorker(load, "users"),
        RuleWorker(load, "rules"),
        SchemaWorker(load, "schemas"),
        Misfit(load, "misfit"),
        Replayer(load, "replayer-0"),
        Replayer(load, "replayer-1"),
        Mortal(load, "mortal"),
        MortalReader(load, "mortal-reader"),
    ]


def records_of(client: Client, place: Place) -> list[tuple[int, str]]:
    """(offset, id) of all that FlyMQ tells of a partition."""
    found: list[tuple[int, str]] = []
    at = 0
    while True:
        fetched = client.fetch(*place, at, 1000)
        if fetched.next_offset <= at:
            return found
        found += [(record.offset, record_of(record.value)) for record in fetched.records]
        at = fetched.next_offset


def read_back(load: Load, ports: dict[str, int]) -> None:
    """Everything that is there, through FlyMQ's door, and through RustLog's, which tells times too."""
    history = load.history
    with connect(ports) as client, Connection(ports["rustlog"]) as connection:
        topics = connection.topics()
        for topic, partitions in topics.items():
            for place in [Place(topic, number) for number in range(partitions)]:
                _note_contents(history, client, connection, place)
        made = [f"topic/{topic}" for topic in topics]
        history.note("campaign", "list", key=MADE_TOPIC, ids=[topic for topic in made if topic.startswith(MADE_TOPIC)])
        for topic in REFUSING:
            letters = [record for _, record in records_of(client, Place(topic + ".dlq", 0))]
            first = [record_of(letter.value) for letter in client.fetch_dlq(topic, 1000)]
            if first != letters[: len(first)] or len(first) < min(1000, len(letters)):
                raise AssertionError(f"{topic}: its dead letters are not what is in {topic}.dlq")
        for place in [Place(MORTAL, number) for number in range(TOPICS[MORTAL])]:
            read_all(history, "campaign", "flymq", place, 0, by_flymq(client, place))
            read_all(history, "campaign", "rustlog", place, 0, by_rustlog(connection, place))


def _note_contents(history: History, client: Client, connection: Connection, place: Place) -> None:
    gaps = place.topic == MORTAL or place.topic.endswith(".dlq")
    contents = history.invoke("campaign", "contents", place, door="flymq", offset=0, gaps=gaps)
    found = records_of(client, place)
    contents.offsets = tuple(offset for offset, _ in found)
    history.acknowledge(contents, ids=[record for _, record in found])
    if place.topic.endswith(".dlq"):
        return
    contents = history.invoke("campaign", "contents", place, door="rustlog", offset=0, gaps=gaps)
    ids: list[str] = []
    at = 0
    while True:
        asked = {"topic": place.topic, "partition": place.partition, "offset": at, "max_bytes": 1 << 20}
        fetched = connection.json(type="Fetch", **asked)
        if fetched["next_offset"] <= at:
            break
        ids += [record_of(base64.b64decode(record["payload"])) for record in fetched["records"]]
        contents.offsets += tuple(record["offset"] for record in fetched["records"])
        contents.times += tuple(record["timestamp"] for record in fetched["records"])
        at = fetched["next_offset"]
    contents.end = at
    history.acknowledge(contents, ids=ids)
