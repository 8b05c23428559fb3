"""A real broker, killed again and again while Felix's clients publish, subscribe, and use a cache that survives.

The clients are in `felix_load`; they outlive the broker, and find it again at the same port. In the end everything is
read back through another door, subscribers get the rest, keys are looked at once more, and `felix_history` compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.crash.felix_history import FelixHistory, check_felix
from tests.crash.felix_load import (
    KEPT,
    PLACES,
    WIDE,
    WIDE_PARTITIONS,
    Keeper,
    Load,
    Publisher,
    Shouter,
    Subscriber,
    Teller,
    Undertaker,
    Visitor,
    Worker,
)
from tests.crash.history import Contents, Outcome, Place, Violation
from tests.crash.killer import Broker, Connection, id_of
from tests.ports import steady_udp_port

SETTINGS = {
    "PENSTOCK_LOG__FILE_BYTES": "262144",
    "PENSTOCK_LOG__SNAPSHOT_BYTES": "65536",
    "PENSTOCK_CACHE__JOURNALLED": KEPT,
}
PATIENCE = 60.0  # s in which clients find the broker again, and get to the end


class FelixBroker(Broker):
    """With the door that this module needs, always at the same port, and RustLog's to read everything back."""

    felix = 0

    def launch(self) -> subprocess.Popen[bytes]:
        self.felix = self.felix or steady_udp_port()
        wide = f"--listen=felix=127.0.0.1:{self.felix}"
        self._command = [wide if part == "--listen=felix=off" else part for part in self._command]
        return super().launch()


@dataclass(slots=True)
class Campaign:
    directory: str
    cycles: int
    seed: int = 0
    durability: str = "synced"
    load_seconds: float = 0.5  # at most, in each cycle, from when clients have found the broker
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Outcomes:
    history: FelixHistory
    contents: Contents
    violations: list[Violation]
    kills: int

    def count(self, *kinds: str) -> int:
        """Operations of these kinds that were acknowledged."""
        return sum(deed.outcome is Outcome.ACKNOWLEDGED for deed in self.history.asked(*kinds))

    def events(self) -> int:
        """That were acknowledged."""
        return sum(len(deed.ids) for deed in self.history.asked("append") if deed.outcome is Outcome.ACKNOWLEDGED)

    def unasked(self) -> int:
        """Events that are there although nobody acknowledged them."""
        found = self.contents.where()
        unknown = (deed for deed in self.history.asked("append") if deed.outcome is Outcome.UNKNOWN)
        return sum(record in found for deed in unknown for record in deed.ids)


class Crew:
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
            *(Keeper(load, f"keeper-{number}", seed()) for number in range(4)),
            *(Undertaker(load, f"undertaker-{number}", seed()) for number in range(2)),
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name="crew", daemon=True)
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


def run(campaign: Campaign, progress: Callable[[str], None] = lambda _: None) -> Outcomes:
    """Kill the broker `cycles` times, then read everything back and check it."""
    rng = random.Random(campaign.seed)
    history = FelixHistory(time.monotonic)
    broker = FelixBroker(campaign.directory, campaign.durability, settings=SETTINGS | campaign.settings)
    with broker:
        broker.start()
        with Connection(broker.port) as connection:
            for place in PLACES:
                connection.create_topic(place.topic, WIDE_PARTITIONS if place == WIDE else 1)
        load = Load(history, broker.felix)
        crew = Crew(load, rng)
        try:
            for cycle in range(campaign.cycles):
                _cycle(campaign, broker, crew, rng)
                if load.problems:
                    raise AssertionError(f"cycle {cycle}: {load.problems[:3]}\n{broker.errors()}")
                if cycle % 10 == 9:
                    progress(f"{cycle + 1} kills, {len(history.operations)} operations")
            broker.start()
            crew.wait_for(AWAITED)
            load.stopping = True
            contents = _read_back(broker, crew)
        except BaseException:
            crew.abandon()
            raise
        if (code := broker.stop()) != 0 or "Traceback" in broker.errors():
            raise AssertionError(f"the broker ended with {code}\n{broker.errors()}")
    if load.problems:
        raise AssertionError(f"{load.problems[:3]}")
    return Outcomes(history, contents, check_felix(history, contents), campaign.cycles)


def _cycle(campaign: Campaign, broker: FelixBroker, crew: Crew, rng: random.Random) -> None:
    if broker.process is None:
        if rng.random() < 0.2:  # killed while it starts
            broker.launch()
            time.sleep(rng.uniform(0.0, 1.0))
            broker.kill()
            crew.load.history.kill()
            return
        broker.start()
    if rng.random() < 0.8:
        crew.wait_for(AWAITED)
    time.sleep(rng.uniform(0.01, campaign.load_seconds))
    broker.kill()
    crew.load.history.kill()


def _read_back(broker: FelixBroker, crew: Crew) -> Contents:
    """When nobody publishes any more. Subscribers get as far as everything that was there then."""
    records, starts, ends = {}, {}, {}
    with Connection(broker.port) as connection:
        _settle(connection)
        for place in PLACES:
            starts[place], ends[place] = connection.bounds(*place)
            records[place] = [(offset, id_of(payload)) for offset, payload in connection.fetch_all(*place)]
    crew.finish(ends)
    return Contents(records, starts, ends)


def _settle(connection: Connection) -> None:
    """What was published without acknowledgement may still be on its way."""
    last: object = None
    end = time.monotonic() + PATIENCE
    while (now := [connection.bounds(*place) for place in PLACES]) != last:
        assert time.monotonic() < end, "the streams never stop growing"
        last = now
        time.sleep(0.3)
