"""RustLog in a kill campaign: records of four writers, read from anywhere while they are written, offsets of groups."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from tests.crash.campaign import Outcomes, ThreadedAdapter
from tests.crash.rustlog_load import Connection, Load, read_along, read_back, write
from tests.histories.history import History, Place
from tests.launcher import RestartableBroker

TOPICS = ("first", "second")
PARTITIONS = 2
SETTINGS = {"PENSTOCK_LOG__FILE_BYTES": "262144", "PENSTOCK_LOG__SNAPSHOT_BYTES": "131072"}


class RustLogAdapter(ThreadedAdapter):
    name = "RustLog"
    settings = SETTINGS
    kills_at_start = 0.15

    def __init__(self, writers: int = 4) -> None:
        super().__init__(History())
        self._writers = writers
        places = tuple(Place(topic, number) for topic in TOPICS for number in range(PARTITIONS))
        self._load = Load(self.history, places)

    def prepare(self, broker: RestartableBroker) -> None:
        with Connection(broker.port) as connection:
            for topic in TOPICS:
                connection.create_topic(topic, PARTITIONS)

    def clients(self, broker: RestartableBroker, rng: random.Random) -> dict[str, Callable[[], None]]:
        jobs = {f"writer-{number}": write for number in range(self._writers)} | {"reader": read_along}
        return {name: partial(job, self._load, broker.port, name, rng.getrandbits(32)) for name, job in jobs.items()}

    def read_back(self, broker: RestartableBroker) -> None:
        with Connection(broker.port) as connection:
            read_back(connection, self._load)

    def progress(self) -> str:
        return f"{sum(self._load.serial.values())} records sent"

    def summary(self, outcomes: Outcomes) -> str:
        return f"{outcomes.records('append')} records acknowledged"
