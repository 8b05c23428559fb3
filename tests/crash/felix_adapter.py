"""Felix in a kill campaign: clients publish, subscribe, and use a cache that survives.

The clients are in `felix_load`; they outlive the broker, and find it again at the same port. In the end everything is
read back through another door, subscribers get the rest, and keys are looked at once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Sequence

from tests.crash.campaign import SMALL_FILES, Adapter, Outcomes
from tests.crash.felix_load import (
    KEPT,
    PLACES,
    WIDE,
    WIDE_PARTITIONS,
    CacheWorker,
    Load,
    Publisher,
    Shouter,
    Subscriber,
    Teller,
    Undertaker,
    Visitor,
    Worker,
)
from tests.crash.rustlog_load import Connection, note_contents
from tests.histories.evidence import Evidence
from tests.histories.history import History, Outcome, Place
from tests.launcher import RestartableBroker
from tests.ports import steady_udp_port

SETTINGS = {**SMALL_FILES, "PENSTOCK_CACHE__JOURNALLED": KEPT}
PATIENCE = 60.0  # s in which clients find the broker again, and get to the end
COUNTS = {
    "put": "puts",
    "delete": "deletions",
    "swap": "swaps",
    "add": "additions",
    "count": "counts",
    "put_ttl": "values with a time",
}


class Clients:
    """All clients of a campaign, on an event loop in a thread."""

    def __init__(self, load: Load, rng: random.Random) -> None:
        def seed() -> int:
            return rng.getrandbits(32)

        self.load = load
        self.all: Sequence[Worker] = (
            Publisher(load, "binary", seed(), window=8),
            Publisher(load, "binary-2", seed()),
            Publisher(load, "json", seed(), window=4, encoding="json"),
            Publisher(load, "document", seed(), dialect="document"),
            Teller(load, "teller", seed()),
            Shouter(load, "shouter", seed()),
            *(Subscriber(load, f"subscriber-{place.topic}", seed(), place) for place in PLACES),
            Visitor(load, "visitor", seed()),
            *(CacheWorker(load, f"keeper-{number}", seed()) for number in range(4)),
            *(Undertaker(load, f"undertaker-{number}", seed()) for number in range(2)),
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name="clients", daemon=True)
        self._thread.start()

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner, contextlib.suppress(asyncio.CancelledError):
            runner.run(self._work())

    async def _work(self) -> None:
        self._working = asyncio.gather(*[worker.run() for worker in self.all], return_exceptions=True)
        await self._working

    def abandon(self) -> None:
        """Something went wrong: nobody is to look for the broker for ever."""
        with contextlib.suppress(RuntimeError):  # they have ended already
            self._loop.call_soon_threadsafe(self._working.cancel)
        self._thread.join(PATIENCE)

    def wait_for(self, names: Sequence[str]) -> None:
        """Until each of these has been answered once more."""
        before = dict(self.load.answered)
        end = time.monotonic() + PATIENCE
        for name in names:
            while self.load.answered.get(name, 0) <= before.get(name, 0) and not self.load.problems:
                assert time.monotonic() < end, f"{name} gets nothing done"
                time.sleep(0.01)

    def finish(self, ends: dict[Place, int]) -> None:
        """Subscribers are to go so far, and everybody to end."""
        self.load.ends = ends
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise AssertionError(f"clients do not end; {self.load.answered}, {ends}, {self.load.problems[:3]}")


AWAITED = ("binary", "json", "document", "keeper-0", "undertaker-0", "subscriber-first")


class FelixAdapter(Adapter):
    """RustLog's door is open too, to read everything back."""

    name = "Felix"
    settings = SETTINGS
    kills_at_start = 0.2
    load_seconds = (0.01, 0.5)  # from when clients have found the broker

    def __init__(self, seed: int = 0) -> None:
        super().__init__(History(lambda: time.monotonic_ns() // 1000))
        self._port = steady_udp_port()
        self._load = Load(self.history, self._port, problems=self.problems)
        self._seed = seed

    def addresses(self) -> dict[str, str]:
        """Felix's is always the same: clients look for the broker where it was."""
        return super().addresses() | {"felix": f"127.0.0.1:{self._port}"}

    def prepare(self, broker: RestartableBroker) -> None:
        with Connection(broker.port) as connection:
            for place in PLACES:
                connection.create_topic(place.topic, WIDE_PARTITIONS if place == WIDE else 1)
        self._clients = Clients(self._load, random.Random(self._seed))

    def start_load(self, broker: RestartableBroker, rng: random.Random, cycle: int) -> None:  # noqa: ARG002
        if rng.random() < 0.8:
            self._clients.wait_for(AWAITED)

    def read_back(self, broker: RestartableBroker) -> None:
        """Called when nobody publishes any more. Subscribers read on to the end as of then."""
        self._clients.wait_for(AWAITED)
        self._load.stopping = True
        ends = {}
        with Connection(broker.port) as connection:
            _settle(connection)
            for place in PLACES:
                note_contents(self.history, connection, place)
                _, ends[place] = connection.bounds(*place)
        self._clients.finish(ends)

    def abandon(self) -> None:
        self._clients.abandon()

    def summary(self, outcomes: Outcomes) -> str:
        counts = ", ".join(f"{outcomes.count(kind)} {what}" for kind, what in COUNTS.items())
        return f"{outcomes.records('append')} events, and {unacknowledged(outcomes)} not acknowledged, {counts}"


def unacknowledged(outcomes: Outcomes) -> int:
    """Events that are there although nobody acknowledged them."""
    found = Evidence(outcomes.history).where
    unknown = outcomes.operations("append", outcome=Outcome.UNKNOWN)
    return sum(record in found for operation in unknown for record in operation.ids)


def _settle(connection: Connection) -> None:
    """Events that were published without acknowledgement may still be on their way."""
    last: object = None
    end = time.monotonic() + PATIENCE
    while (now := [connection.bounds(*place) for place in PLACES]) != last:
        assert time.monotonic() < end, "the streams never stop growing"
        last = now
        time.sleep(0.3)
