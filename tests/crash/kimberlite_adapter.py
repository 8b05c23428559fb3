"""Kimberlite in a kill campaign: appends of several generations, with an expected offset and without, SQL, a consumer
group, tenants, keys and tables.

The clients are in `kimberlite_load`. In the end everything is read back, the past is looked at once more at every
position, the group gets the rest, and the broker is started once more with security on, to see which keys are good.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial

from tests.crash.campaign import Outcomes, ThreadedAdapter
from tests.crash.kimberlite_load import (
    FACTS,
    OPEN,
    PLACES,
    SECRET,
    SQL,
    Appender,
    Clerk,
    Follower,
    Inserter,
    Line,
    Load,
    Racer,
    Reader,
    Worker,
    observe,
    observe_tables,
    record_of,
)
from tests.histories.history import History, Outcome
from tests.launcher import RestartableBroker

from penstock.wire.kimberlite import messages as m

PATIENCE = 60.0  # s in which SQL has to start
COUNTS = {
    "query_at": "looks at the past",
    "commit": "credits of groups",
    "put": "tenants, streams, tables and keys",
}


class KimberliteAdapter(ThreadedAdapter):
    name = "Kimberlite"
    doors = ("kimberlite",)
    kills_at_start = 0.15
    load_seconds = (0.01, 1.0)  # beside what SQL takes to start
    checks_credentials = True

    def __init__(self, seed: int = 0) -> None:
        super().__init__(History())
        load = self._load = Load(self.history, problems=self.problems)
        rng = random.Random(seed)
        self._inserter = Inserter(load, "inserter", rng.getrandbits(32))
        self._clerk = Clerk(load, "clerk", rng.getrandbits(32))
        self._followers = [Follower(load, f"follower-{place.topic}", rng.getrandbits(32), place) for place in PLACES]
        self._workers: Sequence[Worker] = (
            Appender(load, "first", rng.getrandbits(32), "v0.1", OPEN),
            Appender(load, "second", rng.getrandbits(32), "seed", OPEN),
            Appender(load, "raw", rng.getrandbits(32), "seed/bincode", FACTS),
            *(Racer(load, f"racer-{name}", rng.getrandbits(32), name) for name in ("v0.4", "v3", "5b")),
            Reader(load, "reader", rng.getrandbits(32)),
            self._inserter,
            self._clerk,
            *self._followers,
        )

    def prepare(self, broker: RestartableBroker) -> None:
        """The streams, one of them as a table; and the group begins with the first event of each."""
        with Line(broker.ports["kimberlite"]) as line:
            line.query("CREATE TABLE facts (id VARCHAR PRIMARY KEY, n BIGINT)")
            for place in PLACES:
                made = line.ask(m.CreateStream(place.topic, m.DataClass.PUBLIC, m.Everywhere()), m.CreateStreamResponse)
                self._load.streams[place] = made.stream_id

    def clients(self, broker: RestartableBroker, rng: random.Random) -> dict[str, Callable[[], None]]:  # noqa: ARG002
        return {worker.name: partial(worker.run, broker.ports["kimberlite"]) for worker in self._workers}

    def start_load(self, broker: RestartableBroker, rng: random.Random, cycle: int) -> None:
        """Every other time SQL, which takes more than a second to start, is to have done something."""
        super().start_load(broker, rng, cycle)
        end = time.monotonic() + PATIENCE
        while cycle % 2 == 0 and self._inserter.busy < 2 and not self.problems:
            assert time.monotonic() < end, f"{self._inserter.name} gets nothing done"
            time.sleep(0.01)

    def read_back(self, broker: RestartableBroker) -> None:
        ends = {}
        port = broker.ports["kimberlite"]
        with Line(port) as line:
            for place, stream in self._load.streams.items():
                contents = self.history.invoke("reader", "contents", place, door="kimberlite", offset=0)
                events = line.events(stream)
                contents.end = ends[place] = line.length(stream)
                self.history.acknowledge(contents, ids=map(record_of, events))
            observe(self.history, "reader", line)
            observe_tables(self.history, "reader", line)
        self._inserter.look_back(port)
        for follower, place in zip(self._followers, PLACES, strict=True):
            follower.drain(port, ends[place])

    def check_credentials(self, broker: RestartableBroker) -> None:
        self._clerk.try_keys(broker.ports["kimberlite"])

    def summary(self, outcomes: Outcomes) -> str:
        late = outcomes.count("append", outcome=Outcome.REJECTED)
        counts = ", ".join(f"{outcomes.count(kind)} {what}" for kind, what in COUNTS.items())
        told = f"{inserts(outcomes)} inserts, {keys_tried(outcomes)} keys tried"
        return f"{outcomes.records('append')} events, {late} appends too late for their offset, {told}, {counts}"


def inserts(outcomes: Outcomes) -> int:
    return sum(one.door == SQL for one in outcomes.operations("append"))


def keys_tried(outcomes: Outcomes) -> int:
    return sum(one.key.startswith(SECRET) for one in outcomes.operations("get"))
