"""FlyMQ in a kill campaign: clients use all of its stateful features at the same time.

The clients are in `flymq_load` and `transaction_workers`. After every start it is looked at what groups, users, roles,
access lists and schemas have become. In the end everything that is due may appear, everything is read back through two
doors, and the broker is started once more with security on, to see whose password is whose.
"""

from __future__ import annotations

import base64
import os
import random
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tests.crash.campaign import SMALL_FILES, Outcomes, ThreadedAdapter
from tests.crash.flymq_history import NEVER, FlyContents, FlyHistory, Kept, check_flymq
from tests.crash.flymq_load import (
    HOUR_MS,
    LATER,
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
from tests.crash.history import Outcome, Place, Violation
from tests.crash.rustlog_load import Connection
from tests.crash.transaction_workers import RuleWorker, SchemaWorker, UserWorker, read_view, try_passwords
from tests.launcher import COMMAND, RestartableBroker

from penstock.clients.flymq import Client

W = TypeVar("W", bound=Worker)

PATIENCE = 60.0  # s in which what is due has to appear
COUNTS = {
    "store": "transactions and batches",
    "delay": "delayed records",
    "commit": "offsets",
    "change": "changes of users, roles, access lists and schemas",
    "replay": "replays",
    "mortal": "records that expire",
}


def microseconds() -> int:
    """The clock that the broker reads, too."""
    return time.time_ns() // 1000


class FlyMqAdapter(ThreadedAdapter[FlyHistory, FlyContents]):
    name = "FlyMQ"
    doors = ("rustlog", "flymq")
    kills_at_start = 0.1
    load_seconds = (0.05, 1.0)
    checks_credentials = True

    def __init__(self) -> None:
        super().__init__(FlyHistory(microseconds))
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
            subprocess.run(command, check=True, timeout=60, capture_output=True, env={**os.environ, **SMALL_FILES})

    def clients(self, broker: RestartableBroker, rng: random.Random) -> dict[str, Callable[[], None]]:
        self._load.killed.clear()
        self._look(broker.ports)
        ports = broker.ports
        return {worker.name: partial(worker.run, ports, rng.getrandbits(32)) for worker in self._workers}

    def before_kill(self) -> None:
        self._kill = self.history.ask("campaign", "kill", Place("", 0))
        self._load.killed.set()

    def after_kill(self) -> None:
        super().after_kill()
        self.history.acknowledge(self._kill)

    def _look(self, ports: dict[str, int]) -> None:
        """What has become of all that is told by value."""
        with connect(ports) as client:
            read_view(self._load, client)
            for committer in self._of(Committer):
                committer.look(client)

    def _of(self, kind: type[W]) -> list[W]:
        return [worker for worker in self._workers if isinstance(worker, kind)]

    def read_back(self, broker: RestartableBroker) -> FlyContents:
        self._look(broker.ports)
        with connect(broker.ports) as client:
            waited = self._finish(client)
        contents = read_back(self._load, broker.ports)
        contents.waited = waited
        return contents

    def _finish(self, client: Client) -> int:
        """Settle what is open, and let everything appear that is due in less than an hour. The answer is up to when."""
        for transactor in self._of(Transactor):
            transactor.prepare(client)
        for delayer in self._of(Delayer):
            delayer.cancel(client, delayer.distant)  # they must still be there
        history = self.history
        delays = [delay for delay in history.asked("delay") if delay.number != HOUR_MS]
        cancelled = {cancel.ids for cancel in history.asked("cancel") if cancel.outcome is not Outcome.REJECTED}
        due = max((min(history.ended(delay), NEVER) + delay.number * 1000 for delay in delays), default=0)
        time.sleep(max(0.0, (due - microseconds()) / 1e6))
        missing = {d.ids[0] for d in delays if d.outcome is Outcome.ACKNOWLEDGED and d.ids not in cancelled}
        end = time.monotonic() + PATIENCE
        while missing and time.monotonic() < end:
            time.sleep(0.3)  # several sweeps: also for those of which nobody knows whether they were accepted
            for number in range(TOPICS[LATER]):
                missing -= {record.id for record in records_of(client, Place(LATER, number))}
        return microseconds()

    def check_credentials(self, broker: RestartableBroker) -> None:
        try_passwords(self._load, broker.ports)

    def check(self, contents: FlyContents) -> list[Violation]:
        return check_flymq(self.history, contents)

    def progress(self) -> str:
        return f"{sum(self._load.serial.values())} records and changes"

    def summary(self, outcomes: Outcomes[FlyHistory, FlyContents]) -> str:
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


def records_of(client: Client, place: Place) -> list[Kept]:
    """All that FlyMQ tells of a partition. It does not tell when a record was stored."""
    found: list[Kept] = []
    at = 0
    while True:
        fetched = client.fetch(*place, at, 1000)
        if fetched.next_offset <= at:
            return found
        found += [Kept(record_of(record.value), record.offset, 0) for record in fetched.records]
        at = fetched.next_offset


def read_back(load: Load, ports: dict[str, int]) -> FlyContents:
    """Everything that is there, through RustLog's door, which tells times, and through FlyMQ's, which must agree."""
    records, letters = {}, {}
    with connect(ports) as client, Connection(ports["rustlog"]) as connection:
        topics = connection.topics()
        for topic, partitions in topics.items():
            if topic.endswith(".dlq"):
                continue
            for place in [Place(topic, number) for number in range(partitions)]:
                records[place] = _records_with_times(connection, place)
                also = records_of(client, place)
                if [one[:2] for one in also] != [one[:2] for one in records[place]]:
                    raise AssertionError(f"{place}: FlyMQ and RustLog do not tell the same")
        for topic in REFUSING:
            letters[topic] = [one.id for one in records_of(client, Place(topic + ".dlq", 0))]
            first = [record_of(letter.value) for letter in client.fetch_dlq(topic, 1000)]
            if first != letters[topic][: len(first)] or len(first) < min(1000, len(letters[topic])):
                raise AssertionError(f"{topic}: its dead letters are not what is in {topic}.dlq")
        for place in [Place(MORTAL, number) for number in range(TOPICS[MORTAL])]:
            read_all(load.history, "campaign", "flymq", place, 0, by_flymq(client, place))
            read_all(load.history, "campaign", "rustlog", place, 0, by_rustlog(connection, place))
    return FlyContents(records, letters, frozenset(topics), frozenset({MORTAL}))


def _records_with_times(connection: Connection, place: Place) -> list[Kept]:
    found: list[Kept] = []
    at = 0
    while True:
        asked = {"topic": place.topic, "partition": place.partition, "offset": at, "max_bytes": 1 << 20}
        fetched = connection.json(type="Fetch", **asked)
        if fetched["next_offset"] <= at:
            return found
        for record in fetched["records"]:
            value = base64.b64decode(record["payload"])
            found.append(Kept(record_of(value), record["offset"], record["timestamp"]))
        at = fetched["next_offset"]
