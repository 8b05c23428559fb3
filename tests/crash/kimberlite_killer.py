"""A real broker, killed again and again while clients use Kimberlite's door: appends of several generations, with an
expected offset and without, SQL, a consumer group, tenants, keys and tables.

The clients are in `kimberlite_load`. In the end everything is read back, the past is looked at once more at every
position, the group gets the rest, the broker is started once more with security on, to see which keys are good, and
`kimberlite_history` compares.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.crash.history import Contents, Outcome, Violation
from tests.crash.killer import Broker
from tests.crash.kimberlite_history import DeedHistory, check_kimberlite
from tests.crash.kimberlite_load import (
    FACTS,
    OPEN,
    PLACES,
    Appender,
    Clerk,
    Follower,
    Inserter,
    Line,
    Load,
    Racer,
    Reader,
    Worker,
    acknowledged,
    observe,
    observe_tables,
    record_of,
)

from penstock.wire.kimberlite import messages as m

SETTINGS = {"PENSTOCK_LOG__FILE_BYTES": "262144", "PENSTOCK_LOG__SNAPSHOT_BYTES": "65536"}
SECURE = {"PENSTOCK_SECURITY__MODE": "on", "PENSTOCK_SECURITY__LOCKOUT_FAILURES": "0"}
PATIENCE = 60.0  # s in which SQL has to start


class KimberliteBroker(Broker):
    """With the door that this module needs, and no other."""

    def launch(self) -> subprocess.Popen[bytes]:
        shut, wide = "--listen=kimberlite=off", "--listen=kimberlite=127.0.0.1:0"
        self._command = [wide if part == shut else part for part in self._command]
        return super().launch()

    @property
    def port(self) -> int:
        return self.ports["kimberlite"]


@dataclass(slots=True)
class Campaign:
    directory: str
    cycles: int
    seed: int = 0
    durability: str = "synced"
    load_seconds: float = 1.0  # at most, in each cycle, beside what SQL takes to start
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Outcomes:
    history: DeedHistory
    contents: Contents
    violations: list[Violation]
    kills: int

    def count(self, *kinds: str) -> int:
        """Operations of these kinds that were acknowledged."""
        return len(acknowledged(self.history, *kinds))

    def events(self) -> int:
        return sum(len(deed.ids) for deed in acknowledged(self.history, "append", "retry", "insert"))

    def refused(self) -> int:
        """Appends that came to their offset too late."""
        return sum(deed.outcome is Outcome.REJECTED for deed in self.history.asked("append", "retry"))


class Crew:
    """All clients of a campaign."""

    def __init__(self, load: Load, rng: random.Random) -> None:
        self.inserter = Inserter(load, "inserter", rng.getrandbits(32))
        self.clerk = Clerk(load, "clerk", rng.getrandbits(32))
        self.followers = [Follower(load, f"follower-{place.topic}", rng.getrandbits(32), place) for place in PLACES]
        self.all: Sequence[Worker] = (
            Appender(load, "first", rng.getrandbits(32), "v0.1", OPEN),
            Appender(load, "second", rng.getrandbits(32), "seed", OPEN),
            Appender(load, "raw", rng.getrandbits(32), "seed/bincode", FACTS),
            *(Racer(load, f"racer-{name}", rng.getrandbits(32), name) for name in ("v0.4", "v3", "5b")),
            Reader(load, "reader", rng.getrandbits(32)),
            self.inserter,
            self.clerk,
            *self.followers,
        )


def run(campaign: Campaign, progress: Callable[[str], None] = lambda _: None) -> Outcomes:
    """Kill the broker `cycles` times, then read everything back and check it."""
    rng = random.Random(campaign.seed)
    load = Load(DeedHistory())
    crew = Crew(load, rng)
    settings = SETTINGS | campaign.settings
    with KimberliteBroker(campaign.directory, campaign.durability, settings=settings) as broker:
        broker.start()
        with Line(broker.port) as line:
            _prepare(load, line)
        for cycle in range(campaign.cycles):
            # Every other time SQL, which takes more than a second to start, is to have done something.
            _cycle(campaign, broker, load, crew, rng, awaited=crew.inserter if cycle % 2 == 0 else None)
            if load.problems:
                raise AssertionError(f"cycle {cycle}: {load.problems[:3]}\n{broker.errors()}")
            if cycle % 10 == 9:
                progress(f"{cycle + 1} kills, {len(load.history.operations)} operations")
        broker.start()
        contents = _read_back(load, crew, broker.port)
        _stop(broker)
    with KimberliteBroker(campaign.directory, campaign.durability, settings=settings | SECURE) as broker:
        broker.start()
        crew.clerk.try_keys(broker.port)
        _stop(broker)
    return Outcomes(load.history, contents, check_kimberlite(load.history, contents), campaign.cycles)


def _stop(broker: Broker) -> None:
    if (code := broker.stop()) != 0 or "Traceback" in broker.errors():
        raise AssertionError(f"the broker ended with {code}\n{broker.errors()}")


def _prepare(load: Load, line: Line) -> None:
    """The streams, one of them as a table; and the group begins with the first event of each."""
    line.query("CREATE TABLE facts (id VARCHAR PRIMARY KEY, n BIGINT)")
    for place in PLACES:
        made = line.ask(m.CreateStream(place.topic, m.DataClass.PUBLIC, m.Everywhere()), m.CreateStreamResponse)
        load.streams[place] = made.stream_id


def _cycle(
    campaign: Campaign, broker: Broker, load: Load, crew: Crew, rng: random.Random, *, awaited: Worker | None
) -> None:
    if broker.process is None:
        if awaited is None and rng.random() < 0.3:  # killed while it starts
            broker.launch()
            time.sleep(rng.uniform(0.0, 1.0))
            broker.kill()
            return
        broker.start()
    threads = [threading.Thread(target=one.run, args=(broker.port,), name=one.name) for one in crew.all]
    for thread in threads:
        thread.start()
    end = time.monotonic() + PATIENCE
    while awaited is not None and not awaited.busy and not load.problems:
        assert time.monotonic() < end, f"{awaited.name} gets nothing done"
        time.sleep(0.01)
    time.sleep(rng.uniform(0.01, campaign.load_seconds))
    broker.kill()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), f"{thread.name} hangs"


def _read_back(load: Load, crew: Crew, port: int) -> Contents:
    records, ends = {}, {}
    with Line(port) as line:
        for place, stream in load.streams.items():
            records[place] = list(enumerate(map(record_of, line.events(stream))))
            ends[place] = line.length(stream)
        observe(load.history, "reader", line)
        observe_tables(load.history, "reader", line)
    crew.inserter.look_back(port)
    for follower, place in zip(crew.followers, PLACES, strict=True):
        follower.drain(port, ends[place])
    return Contents(records, ends=ends)
