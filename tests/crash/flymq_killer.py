"""A real broker, killed again and again while clients use all of FlyMQ's stateful features at the same time.

The clients are in `flymq_load` and `flymq_keepers`. After every start it is looked at what groups, users, roles, access
lists and schemas have become. In the end everything that is due may appear, everything is read back through two doors,
the broker is started once more with security on, to see whose password is whose, and `flymq_history` compares.
"""

from __future__ import annotations

import base64
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

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
from tests.crash.killer import Broker, Connection
from tests.crash.transaction_workers import RuleKeeper, SchemaKeeper, UserKeeper, read_view, try_passwords

from penstock.clients.flymq import Client

W = TypeVar("W", bound=Worker)

SETTINGS = {"PENSTOCK_LOG__FILE_BYTES": "262144", "PENSTOCK_LOG__SNAPSHOT_BYTES": "65536"}
SECURE = {"PENSTOCK_SECURITY__MODE": "on", "PENSTOCK_SECURITY__LOCKOUT_FAILURES": "0"}
PATIENCE = 60.0  # s in which what is due has to appear


class FlyMqBroker(Broker):
    """With the door that this module needs, too."""

    def launch(self) -> subprocess.Popen[bytes]:
        shut, wide = "--listen=flymq=off", "--listen=flymq=127.0.0.1:0"
        self._command = [wide if part == shut else part for part in self._command]
        return super().launch()


def microseconds() -> int:
    """The clock that the broker reads, too."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class Campaign:
    directory: str
    cycles: int
    seed: int = 0
    durability: str = "synced"
    load_seconds: float = 1.0  # at most, in each cycle


@dataclass(slots=True)
class Outcomes:
    history: FlyHistory
    contents: FlyContents
    violations: list[Violation]
    kills: int

    def count(self, kind: str, outcome: Outcome | None = None) -> int:
        return sum(outcome in (None, operation.outcome) for operation in self.history.of(kind))


def run(campaign: Campaign, progress: Callable[[str], None] = lambda _: None) -> Outcomes:
    """Kill the broker `cycles` times, then read everything back and check it."""
    rng = random.Random(campaign.seed)
    load = Load(FlyHistory(microseconds))
    workers = crew(load)
    with FlyMqBroker(campaign.directory, campaign.durability, settings=SETTINGS) as broker:
        _set_up(campaign, broker)
        for cycle in range(campaign.cycles):
            _cycle(campaign, broker, load, workers, rng)
            if load.problems:
                raise AssertionError(f"cycle {cycle}: {load.problems[:3]}\n{broker.errors()}")
            if cycle % 20 == 19:
                progress(f"{cycle + 1} kills, {sum(load.serial.values())} records and changes")
        broker.start()
        _look(load, workers, broker.ports)
        with connect(broker.ports) as client:
            waited = _finish(load, workers, client)
        contents = read_back(load, broker.ports)
        contents.waited = waited
        _stopped(broker)
    with FlyMqBroker(campaign.directory, campaign.durability, settings=SETTINGS | SECURE) as broker:
        broker.start()
        try_passwords(load, broker.ports)
        _stopped(broker)
    return Outcomes(load.history, contents, check_flymq(load.history, contents), campaign.cycles)


def crew(load: Load) -> list[Worker]:
    return [
        Transactor(load, "transactor-0"),
        Transactor(load, "transactor-1"),
        Watcher(load, "watcher"),
        Delayer(load, "delayer"),
        Committer(load, "committer"),
        UserKeeper(load, "users"),
        RuleKeeper(load, "rules"),
        SchemaKeeper(load, "schemas"),
        Misfit(load, "misfit"),
        Replayer(load, "replayer-0"),
        Replayer(load, "replayer-1"),
        Mortal(load, "mortal"),
        MortalReader(load, "mortal-reader"),
    ]


def _the(workers: list[Worker], kind: type[W]) -> list[W]:
    return [worker for worker in workers if isinstance(worker, kind)]


def _set_up(campaign: Campaign, broker: Broker) -> None:
    broker.start()
    with connect(broker.ports) as client:
        for topic, partitions in TOPICS.items():
            client.create_topic(topic, partitions)
        client.register_schema(SCHEMA, "json", b'{"type": "object", "required": ["record"]}')
    _stopped(broker)
    for topic in REFUSING:
        settings = ["--schema", SCHEMA, "--rejected", "dead-letter", "--data-dir", f"{campaign.directory}/data"]
        command = [sys.executable, "-m", "penstock.cli.main", "topic", "set", topic, *settings]
        subprocess.run(command, check=True, timeout=60, capture_output=True, env={**os.environ, **SETTINGS})


def _stopped(broker: Broker) -> None:
    if (code := broker.stop()) != 0:
        raise AssertionError(f"the broker ended with {code}\n{broker.errors()}")


def _cycle(campaign: Campaign, broker: Broker, load: Load, workers: list[Worker], rng: random.Random) -> None:
    if rng.random() < 0.1:  # killed while it starts
        broker.launch()
        time.sleep(rng.uniform(0.0, 0.8))
        broker.kill()
        return
    broker.start()
    load.killed.clear()
    _look(load, workers, broker.ports)
    threads = [
        threading.Thread(target=worker.run, args=(broker.ports, rng.getrandbits(32)), name=worker.name)
        for worker in workers
    ]
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(0.05, campaign.load_seconds))
    kill = load.history.ask("campaign", "kill", Place("", 0))
    load.killed.set()
    broker.kill()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), f"{thread.name} hangs"
    load.history.acknowledge(kill)


def _look(load: Load, workers: list[Worker], ports: dict[str, int]) -> None:
    """What has become of all that is told by value."""
    with connect(ports) as client:
        read_view(load, client)
        for committer in _the(workers, Committer):
            committer.look(client)


def _finish(load: Load, workers: list[Worker], client: Client) -> int:
    """Settle what is open, and let everything appear that is due in less than an hour. The answer is up to when."""
    for transactor in _the(workers, Transactor):
        transactor.prepare(client)
    for delayer in _the(workers, Delayer):
        delayer.cancel(client, delayer.distant)  # they must still be there
    history = load.history
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
