"""The kill campaign: a real broker under load is killed with SIGKILL at random moments and started again, many times;
then everything is read back, and the history of what clients were told is checked against it.

This is the same for every door, as the rules are (`tests/histories`). What differs is a door's `Adapter`: its clients,
and how everything is read back. `python -m tests.crash.long` runs campaigns for hours, `tests/crash/test_*_kill.py` for
seconds.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.histories.checker import Violation, check
from tests.histories.history import History, Operation, Outcome
from tests.launcher import RestartableBroker

SMALL_FILES: Mapping[str, str] = {"PENSTOCK_LOG__FILE_BYTES": "262144", "PENSTOCK_LOG__SNAPSHOT_BYTES": "65536"}
SECURITY: Mapping[str, str] = {"PENSTOCK_SECURITY__MODE": "on", "PENSTOCK_SECURITY__LOCKOUT_FAILURES": "0"}
START_SECONDS = 300.0  # in which a broker has started, on a machine that has much else to do
JOIN_SECONDS = 300.0  # in which a client has noticed that its broker was killed


@dataclass(slots=True)
class Campaign:
    directory: str
    cycles: int
    seed: int = 0
    durability: str = "synced"
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Outcomes:
    history: History
    violations: list[Violation]
    kills: int

    def operations(self, *kinds: str, outcome: Outcome | None = Outcome.ACKNOWLEDGED) -> list[Operation]:
        """The operations of these kinds that had this outcome, or any."""
        return [one for one in self.history.operations if one.kind in kinds and outcome in (None, one.outcome)]

    def count(self, *kinds: str, outcome: Outcome | None = Outcome.ACKNOWLEDGED) -> int:
        return len(self.operations(*kinds, outcome=outcome))

    def records(self, *kinds: str) -> int:
        """Records of operations that were acknowledged."""
        return sum(len(one.ids) for one in self.operations(*kinds))

    def verify(self, directory: Path) -> None:
        """Raises AssertionError if a rule was broken, and leaves the history to be looked at."""
        path = directory / "history.jsonl"
        if self.violations:
            self.history.dump(str(path))
        texts = [str(violation) for violation in self.violations[:5]]
        assert not self.violations, f"{len(self.violations)}, see python -m tests.histories check {path}: {texts}"


class Adapter(ABC):
    """One door's part of a campaign. Clients write down in `history` what they ask and what they are told."""

    name: ClassVar[str]  # for messages
    doors: ClassVar[Sequence[str]] = ("rustlog",)  # that are open
    settings: Mapping[str, str] = SMALL_FILES
    kills_at_start: float = 0.0  # the part of all kills that come while the broker starts
    load_seconds: tuple[float, float] = (0.01, 0.3)  # from when there is load to the kill
    checks_credentials = False  # in the end, with security on

    def __init__(self, history: History) -> None:
        self.history = history
        self.problems: list[str] = []  # anything that went wrong beside what kills explain

    def addresses(self) -> dict[str, str]:
        return dict.fromkeys(self.doors, "127.0.0.1:0")

    @abstractmethod
    def prepare(self, broker: RestartableBroker) -> None:
        """Topics and the like, on a broker that runs. It may be left running or not."""

    @abstractmethod
    def start_load(self, broker: RestartableBroker, rng: random.Random, cycle: int) -> None:
        """Return when there is load."""

    def before_kill(self) -> None:  # noqa: B027 - most doors need nothing here
        """The broker is about to be killed."""

    def after_kill(self) -> None:  # noqa: B027
        """The broker was killed."""

    @abstractmethod
    def read_back(self, broker: RestartableBroker) -> None:
        """Note in the history all that is there in the end, of a broker that runs."""

    def read_stopped(self, directory: str) -> None:  # noqa: B027
        """The same for what is only found in the data directory, without a broker."""

    def check_credentials(self, broker: RestartableBroker) -> None:
        """The login of the campaign's clients, on a broker with security on."""
        raise NotImplementedError

    def abandon(self) -> None:  # noqa: B027
        """The campaign has failed: clients that would go on for ever are stopped."""

    def progress(self) -> str:
        return f"{len(self.history.operations)} operations"

    @abstractmethod
    def summary(self, outcomes: Outcomes) -> str:
        """The campaign in numbers."""


class ThreadedAdapter(Adapter):
    """Clients are functions that run, each in a thread, until their connection breaks."""

    _threads: Sequence[threading.Thread] = ()

    @abstractmethod
    def clients(self, broker: RestartableBroker, rng: random.Random) -> dict[str, Callable[[], None]]:
        """By name."""

    def start_load(self, broker: RestartableBroker, rng: random.Random, cycle: int) -> None:
        self._threads = [
            threading.Thread(target=self._run, args=(name, client), name=f"{name}/{cycle}")
            for name, client in self.clients(broker, rng).items()
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, name: str, client: Callable[[], None]) -> None:
        """Anything but a broken connection is a problem."""
        try:
            client()
        except ConnectionError:
            pass
        except Exception as error:  # noqa: BLE001 - it must not get lost in a thread
            self.problems.append(f"{name}: {error!r}")

    def after_kill(self) -> None:
        for thread in self._threads:
            thread.join(JOIN_SECONDS)
            assert not thread.is_alive(), f"{thread.name} hangs"
        self._threads = ()


def run(adapter: Adapter, campaign: Campaign, progress: Callable[[str], None] = lambda _: None) -> Outcomes:
    """Kill the broker `cycles` times, then read everything back and check it."""
    rng = random.Random(campaign.seed)
    settings = {**adapter.settings, **campaign.settings}
    with _broker(adapter, campaign, settings) as broker:
        broker.start(START_SECONDS)
        adapter.prepare(broker)
        try:
            for cycle in range(campaign.cycles):
                _cycle(adapter, broker, rng, cycle)
                if adapter.problems:
                    raise AssertionError(f"cycle {cycle}: {adapter.problems[:3]}\n{broker.errors()}")
                if cycle % 10 == 9:
                    progress(f"{cycle + 1} kills, {adapter.progress()}")
            broker.start(START_SECONDS)
            adapter.read_back(broker)
        except BaseException:
            adapter.abandon()
            raise
        broker.stop_cleanly()
    adapter.read_stopped(campaign.directory)
    if adapter.checks_credentials:
        with _broker(adapter, campaign, {**settings, **SECURITY}) as broker:
            broker.start(START_SECONDS)
            adapter.check_credentials(broker)
            broker.stop_cleanly()
    if adapter.problems:
        raise AssertionError(f"{adapter.problems[:3]}")
    return Outcomes(adapter.history, check(adapter.history), campaign.cycles)


def _broker(adapter: Adapter, campaign: Campaign, settings: Mapping[str, str]) -> RestartableBroker:
    return RestartableBroker(campaign.directory, campaign.durability, doors=adapter.addresses(), settings=settings)


def _cycle(adapter: Adapter, broker: RestartableBroker, rng: random.Random, cycle: int) -> None:
    if not broker.running:
        if rng.random() < adapter.kills_at_start:
            broker.launch()
            time.sleep(rng.uniform(0.0, 0.2))  # it recovers at once: it is forked with its imports done
            _kill(adapter, broker)
            return
        broker.start(START_SECONDS)
    adapter.start_load(broker, rng, cycle)
    time.sleep(rng.uniform(*adapter.load_seconds))
    _kill(adapter, broker)


def _kill(adapter: Adapter, broker: RestartableBroker) -> None:
    kill = adapter.history.invoke("campaign", "kill")
    adapter.before_kill()
    broker.kill()
    adapter.after_kill()
    adapter.history.acknowledge(kill)
