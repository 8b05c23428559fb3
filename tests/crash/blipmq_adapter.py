"""BlipMQ in a kill campaign: messages are published to queues and taken from them. In the end every queue is run dry,
and the log itself is read."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial

from tests.crash.blipmq_load import (
    ATTEMPTS,
    MODES,
    PLACE,
    TOPIC,
    Connection,
    Load,
    connected,
    consume,
    produce,
    subscribe,
)
from tests.crash.campaign import SMALL_FILES, Outcomes, ThreadedAdapter
from tests.crash.payloads import id_of
from tests.histories.history import History
from tests.launcher import RestartableBroker

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queues.queue import QueuePolicy
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.settings import BrokerSettings
from penstock.log.committer import InlineCommitter
from penstock.log.engine import partition_id
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles


class BlipMqAdapter(ThreadedAdapter):
    """`ttl` seconds is how long messages live, 0 for ever; in `quiet_seconds` before the end they may expire."""

    name = "BlipMQ"
    doors = ("blipmq",)
    load_seconds = (0.02, 0.4)

    def __init__(
        self,
        *,
        modes: Sequence[str] = MODES,
        producers: int = 3,
        ttl: float = 0.0,
        backoff: float = 0.05,
        quiet_seconds: float = 0.0,
    ) -> None:
        super().__init__(History())
        self._modes = modes
        self._producers = producers
        self._ttl = ttl
        self._backoff = backoff
        self._quiet_seconds = quiet_seconds
        self._load = Load(self.history)
        self.settings = {
            **SMALL_FILES,
            "PENSTOCK_QUEUES__CAPACITY": "0",
            "PENSTOCK_QUEUES__TTL_SECONDS": str(ttl),
            "PENSTOCK_QUEUES__ATTEMPTS": str(ATTEMPTS),
            "PENSTOCK_QUEUES__BACKOFF_SECONDS": str(backoff),
        }

    def prepare(self, broker: RestartableBroker) -> None:
        with Connection(broker.ports["blipmq"]) as connection:
            for mode in self._modes:
                queue = self._load.subscriptions[mode] = subscribe(connection)
                life = int(self._ttl * 1000)
                self.history.note(mode, "subscribe", PLACE, group=str(queue), number=ATTEMPTS, ttl_ms=life)

    def clients(self, broker: RestartableBroker, rng: random.Random) -> dict[str, Callable[[], None]]:
        jobs = {f"producer-{number}": produce for number in range(self._producers)}
        jobs |= dict.fromkeys(self._modes, consume)
        port = broker.ports["blipmq"]
        return {name: partial(job, self._load, port, name, rng.getrandbits(32)) for name, job in jobs.items()}

    def read_back(self, broker: RestartableBroker) -> None:
        time.sleep(self._quiet_seconds)
        self._run_dry(broker.ports["blipmq"])

    def _run_dry(self, port: int) -> None:
        """Take until nothing has come for longer than the longest backoff, and what is given up has been."""
        patience = self._backoff * 2 ** (ATTEMPTS - 1) + 1.5
        consumers = [connected(self._load, port, mode, 1) for mode in self._modes]
        for consumer in consumers:
            consumer.attach()
        last = time.monotonic()
        while time.monotonic() - last < patience:
            for consumer in consumers:
                if consumer.step(256) or consumer.late or consumer.acks:
                    last = time.monotonic()
            time.sleep(0.01)
        for consumer in consumers:
            consumer.connection.close()

    def read_stopped(self, directory: str) -> None:
        """Read the log when the broker has stopped: no protocol tells the headers of dead letters yet."""
        files = OsFiles(f"{directory}/data")
        engine = FileEngine(files, LogSettings(), committer=InlineCommitter(), clock=lambda: time.time_ns() // 1000)
        broker = Broker(engine, BrokerSettings(queues=QueuePolicy(capacity=0)))
        history = self.history
        try:
            stored = _records(broker, TOPIC)
            times = tuple(at for _, at, _, _ in stored)
            ids = [id_of(value) for _, _, value, _ in stored]
            history.note("campaign", "contents", PLACE, ids, offset=0, end=len(ids), times=times)
            for _, _, value, headers in _records(broker, f"{TOPIC}.dlq"):
                told = {name: int(headers[f"dead-letter-{name}"]) for name in ("queue", "offset", "attempts")}
                letter = history.note("campaign", "dead_letter", PLACE, (id_of(value),), group=str(told["queue"]))
                letter.offset, letter.number = told["offset"], told["attempts"]
            for subscription in self._load.subscriptions.values():
                queue, _ = broker.queues.find(ANONYMOUS, subscription)
                end = engine.bounds(partition_id(queue.topic, 0)).high_watermark
                left = queue.in_flight + end - queue.cursors[0]
                history.note("campaign", "drained", PLACE, group=str(subscription), number=left)
        finally:
            broker.close()

    def progress(self) -> str:
        return f"{sum(self._load.serial.values())} messages sent"

    def summary(self, outcomes: Outcomes) -> str:
        return (
            f"{outcomes.count('append')} messages, {outcomes.count('deliver')} deliveries, "
            f"{outcomes.count('dead_letter')} dead letters"
        )


def _records(broker: Broker, topic: str) -> list[tuple[int, int, bytes, dict[str, bytes]]]:
    """(offset, timestamp, value, headers) of everything in a topic, which may not exist."""
    names = [one.name for one in broker.topics.list(ANONYMOUS, DEFAULT_SCOPE)]
    found: list[tuple[int, int, bytes, dict[str, bytes]]] = []
    while topic in names:
        parts = broker.fetch.plan(ANONYMOUS, DEFAULT_SCOPE, topic, 0, len(found), 1 << 20, 1 << 20).run()
        if not parts:
            break
        for part in parts:
            headers = map(dict, part.headers())
            offsets = range(part.base_offset, part.end_offset)
            found += zip(offsets, part.timestamps(), part.values(), headers, strict=True)
    return found
