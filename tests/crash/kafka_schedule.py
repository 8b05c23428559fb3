"""Schedules on the engine of a journal on Kafka: the journal (in memory, with a network that loses, repeats and delays)
holds the truth, and the simulated disk is its cache. The disk may be lost, torn, or replaced by an earlier image of
itself whenever the machine stops; what was acknowledged is there all the same, once and in order.

The engine's threads do their work here when the schedule says so, so that the same seed always does the same.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from tests.crash.model import all_events
from tests.crash.schedule import Plan, Schedule, WatchedEngine, small_settings
from tests.crash.simdisk import SimDisk
from tests.log.kafka.sim_journal import SimJournal

from penstock.log.engine import Durability
from penstock.log.kafka import committer as committing
from penstock.log.kafka import opening as opening_replicas
from penstock.log.kafka.checkpoint import JournalSource
from penstock.log.kafka.committer import CommitterSettings, KafkaCommitter
from penstock.log.kafka.engine import ReplicatedEngine
from penstock.log.kafka.fencing import Kind, Stamp
from penstock.log.kafka.opening import ReplicaOpening

SOURCE = JournalSource("cluster", "topic", "test", 0)
BY_HAND = CommitterSettings(unknown_after_seconds=60, poll_seconds=0)
FAULTS = ("lose", "silent", "twice", "late")
Work = Callable[[], None]


class WatchedReplicatedEngine(WatchedEngine, ReplicatedEngine):
    """`WatchedEngine`, on Kafka."""


class Turns:
    """The loop of a process and its threads, each of which goes on when it is given a turn."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[Work]] = {}
        self.hear: Work = lambda: None  # Kafka's answers

    def queue(self, name: str) -> deque[Work]:
        return self.queues.setdefault(name, deque())

    # -- a loop

    def call_soon(self, work: Work) -> None:
        self.queue("loop").append(work)

    call_soon_threadsafe = call_soon

    # -- in the place of `Worker` and `threading.Thread`

    def worker(self, name: str) -> Any:
        queue = self.queue(name)

        def put(work: Work | None) -> None:
            if work is not None:
                queue.append(work)

        def stop() -> None:
            while queue:
                queue.popleft()()

        return SimpleNamespace(put=put, stop=stop)

    def thread(self, *, target: Work, name: str, daemon: bool) -> Any:
        assert daemon
        start = (lambda: None) if name == "penstock-kafka" else (lambda: self.queue(name).append(target))
        return SimpleNamespace(start=start, join=lambda: None)  # Kafka's answers are heard by `hear`

    def sleep(self, _seconds: float) -> None:
        """Somebody waits for the others."""
        self.hear()
        self.take(Random(0))

    def take(self, rng: Random) -> bool:
        """One piece of work of one of them; False if there is none."""
        ready = [queue for queue in self.queues.values() if queue]
        if ready:
            rng.choice(ready).popleft()()
        return bool(ready)


class SteppedCommitter:
    """A schedule's committer: what the process of an owner does next, by chance."""

    def __init__(self, rng: Random, turns: Turns, committer: KafkaCommitter) -> None:
        self._rng = rng
        self._turns = turns
        self._committer = committer
        turns.hear = self.hear

    def run(self) -> bool:
        for _ in range(self._rng.choice((1, 2, 6))):
            choice = self._rng.random()
            if choice < 0.5:
                self._turns.take(self._rng)
            elif choice < 0.9:
                self.hear()
            elif choice < 0.95:
                self._committer.run_in_background(self._committer._store_checkpoint)
            else:
                self._turns.queue("upkeep").append(self._committer._keep_up)
        return True

    def hear(self) -> None:
        producer = self._committer._producer
        assert producer is not None
        producer.poll(0)

    def drain(self) -> None:
        engine = self._committer._engine
        assert engine is not None
        while self._turns.take(self._rng) or self._committer._sent or engine.waiting:
            self.hear()


class KafkaSchedule(Schedule):
    def __init__(self, rng: Random, plan: Plan) -> None:
        super().__init__(rng, plan)
        self.journal = SimJournal()
        self.journal.faults = self._fault
        self.empty_disks = self.old_disks = self.failures = 0
        self._dropped = False  # groups that failed, and nobody has looked at the state since
        self._unruly = 0.0  # how many of the groups meet with a fault
        self._image: SimDisk | None = None  # of the disk, as it once was
        self._astray: list[tuple[Stamp, bytes]] = []  # sent by owners that are gone, and not stored yet

    def _fault(self, stamp: Stamp) -> str:
        unruly = stamp.kind is Kind.GROUP and self.rng.random() < self._unruly
        return self.rng.choice(FAULTS) if unruly else "store"

    def _may_forget(self) -> bool:
        return False  # Kafka has it

    def open(self) -> None:
        turns = Turns()
        with stepped(turns):
            opening = ReplicaOpening(
                *(self.journal, SOURCE, self.disk, self.plan.settings, cast(Any, turns), lambda: self.now), BY_HAND
            )
            opening.replica.catch_up()
            assert opening.own(b"{}")
        assert isinstance(opening.engine, WatchedEngine)
        self._owner = opening._committer
        self.engine = opening.engine
        self.committer = cast(Any, SteppedCommitter(self.rng, turns, opening._committer))
        self._turns = turns
        self.engine.on_trim = self.trimmed
        self.engine.read_tiered_from(self.table)
        events = all_events(self.engine.recover())
        self._safe = self.model.settle(self.engine, events, self.model.acknowledged(), self.rng.choice((1, 1 << 30)))
        self.engine.snapshot_from(self._snapshot)
        self.model.check_producers(self.engine)
        self._take_up_producers()

    def step(self) -> None:
        self._unruly = self.rng.choice((0.0, 0.0, 0.3))
        if self._image is None and self.rng.random() < 0.05:
            self._image = self.disk.copy()
        if self.rng.random() < 0.1:
            self.journal.arrive()
            if self._astray:
                self.journal.store(*self._astray.pop(0))
        with stepped(self._turns):
            super().step()
            if self._dropped:
                self._after_failure()

    def _snapshot(self) -> bytes:
        self._dropped |= bool(self.model.drop_failed())
        return super()._snapshot()

    def _after_failure(self) -> None:
        self._dropped, self._unruly = False, 0.0
        self.failures += 1
        self.committer.drain()  # what came behind
        super()._after_failure()

    def look(self) -> None:
        self._settle()
        super().look()

    def _settle(self) -> None:
        """Groups that failed are void; what comes behind them is looked at when that is known."""
        self._unruly = 0.0
        self.committer.drain()
        if self.model.drop_failed():
            self._after_failure()

    def close(self) -> None:
        with stepped(self._turns):
            self._settle()
            super().close()

    def go_on(self) -> None:
        self.step()

    def finish(self) -> None:
        self.open_through_crashes()
        self.close()

    def stop(self) -> None:
        """Records that the process has sent may be stored much later, and the disk may be gone, or an old one."""
        if (producer := getattr(self, "_owner", None) and self._owner._producer) is not None:
            sent = cast(Any, producer)._sent
            if self.rng.random() < 0.5:
                self._astray += [(stamp, value) for stamp, value, _ in sent]
            sent.clear()
        super().stop()
        choice = self.rng.random()
        if choice < 0.15:
            self.disk = SimDisk(self.plan.sector)
            self.empty_disks += 1
        elif choice < 0.3 and self._image is not None:
            self.disk, self._image = self._image.crash(self.rng), None
            self.old_disks += 1


@contextmanager
def stepped(turns: Turns) -> Iterator[None]:
    """A committer that is made or used here has no threads of its own."""
    threads = SimpleNamespace(Thread=turns.thread, Lock=threading.Lock)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=turns.sleep)
    with (
        patch.object(committing, "time", clock),
        patch.object(committing, "Worker", turns.worker),
        patch.object(committing, "threading", threads),
        patch.object(opening_replicas, "ReplicatedEngine", WatchedReplicatedEngine),
    ):
        yield


def run(seed: int) -> KafkaSchedule:
    """One random schedule. Raises Mismatch, or whatever the engine raised."""
    rng = Random(seed)
    plan = Plan(
        Durability.WRITTEN,
        power=rng.random() < 0.75,
        sessions=rng.randint(2, 4),
        steps=rng.choice((5, 15, 30)),
        settings=small_settings(rng),
        tabling=rng.choice((0, 0.1, 0.25)),
    )
    schedule = KafkaSchedule(rng, plan)
    schedule.play()
    return schedule


def run_every_boundary(seed: int, *, power: bool, steps: int = 14) -> int:
    """One short schedule, stopped at every boundary of its disk in turn; returns how many there were."""
    boundary = 0
    while True:
        plan = Plan(Durability.WRITTEN, power, steps=steps, settings=small_settings(Random(seed)), tabling=0.1)
        schedule = KafkaSchedule(Random(seed), plan)
        if schedule.play_to(boundary, Random(seed * 1_000_003 + boundary)):
            return boundary
        boundary += 1
