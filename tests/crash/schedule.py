"""Schedules: by seed, what clients and the operator do to a log, where the machine stops, and what must be left.

`Schedule` opens a `FileEngine` on a `SimDisk`, works on it, stops it somewhere, opens what is left, compares it with
the `Model`, and goes on. The same seed always does the same. `run` is one random schedule; `run_every_boundary`
does one short schedule again and again and stops it at each of its boundaries in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.crash.model import Mismatch, Model, all_events, encode_events
from tests.crash.simdisk import Crash, SimDisk
from tests.log.harness import Stored, prepared
from tests.log.table import MemoryTable

from penstock.log.committer import InlineCommitter, Log
from penstock.log.engine import (
    CommitGroup,
    Durability,
    GroupState,
    PartitionId,
    Producer,
    Records,
    Retention,
    partition_id,
)
from penstock.log.errors import LogError, LogFull, OffsetMismatch, SequenceOutOfOrder
from penstock.log.file_engine import FileEngine, LogSettings

PARTITIONS = (partition_id(1, 0), partition_id(1, 1), partition_id(2, 0), partition_id(900, 17))
PRODUCERS = (b"p", b"q", b"a longer name of a producer")
START = 1_700_000_000_000_000
SECOND = 1_000_000


class WatchedEngine(FileEngine):
    """Tells of every trim, so that the model also hears of those that retention decides."""

    on_trim: Callable[[CommitGroup, Mapping[PartitionId, int]], None]

    def advance_table_ends(self, ends: Mapping[PartitionId, int]) -> CommitGroup:
        group = super().advance_table_ends(ends)
        self.on_trim(group, {})  # nothing for readers changes, but it is in the log
        return group

    def trim(self, starts: Mapping[PartitionId, int], *, drop: bool = False) -> CommitGroup:
        group = super().trim(starts, drop=drop)
        self.on_trim(group, starts)
        return group


class LaggingCommitter:
    """Does what the committer with its threads may do: the next group is sealed, perhaps written too, before this
    one is completed, and work beside the groups waits until somebody gets round to it."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._log: Log
        self._written: tuple[Any, Exception | None] | None = None  # not completed yet
        self._background: list[Callable[[], None]] = []

    def attach(self, log: Log) -> None:
        self._log = log

    def request(self) -> None:
        """Nothing: `run` commits."""

    def run_in_background(self, work: Callable[[], None]) -> None:
        self._background.append(work)

    def run(self) -> bool:
        if self._background and self._rng.random() < 0.4:
            self._background.pop(0)()
        if self._written is None:
            sealed = self._log.seal()
            if sealed is None:
                return False
            self._written = sealed, self._write(sealed)
            if not sealed.must_sync:
                self._complete()
            return True
        sealed, error = self._written
        following = self._log.seal() if error is None else None
        if following is None:
            self._complete()
        elif self._rng.random() < 0.5:
            self._complete()
            self._written = following, self._write(following)
        else:
            outcome = self._write(following)
            self._complete()
            self._written = following, outcome
        return True

    def _write(self, sealed: Any) -> Exception | None:
        try:
            self._log.write(sealed)
        except Exception as error:  # noqa: BLE001 - as the committers do
            return error
        return None

    def _complete(self) -> None:
        assert self._written is not None
        (sealed, error), self._written = self._written, None
        self._log.complete(sealed, error)

    def drain(self) -> None:
        while self._background:
            self._background.pop(0)()
        while self._written is not None or self._background or self.run():
            if self._written is not None:
                self._complete()
            while self._background:
                self._background.pop(0)()


@dataclass(slots=True)
class Plan:
    """The options of a schedule, besides its own steps."""

    durability: Durability = Durability.SYNCED
    power: bool = True  # power may be lost; otherwise only the process ends
    sessions: int = 3  # times the log is opened
    steps: int = 25  # in each session
    faults: bool = False  # the disk also gets full now and then
    settings: LogSettings = field(default_factory=LogSettings)
    sector: int = 512
    lagging: bool = False  # commit as with threads, instead of one thing after the other
    tabling: float = 0.03  # how much of the work is to move closed files to tables
    uniform: bool = False  # all appends alike, so that a new group fits exactly where a lost one lay


def random_plan(rng: Random) -> Plan:
    durability = rng.choices((Durability.SYNCED, Durability.WRITTEN, Durability.MEMORY), (14, 5, 1))[0]
    return Plan(
        durability=durability,
        power=rng.random() < 0.75,
        sessions=rng.randint(2, 5),
        steps=rng.choice((5, 15, 30)),
        faults=durability is not Durability.MEMORY and rng.random() < 0.2,
        settings=small_settings(rng, durability),
        sector=rng.choice((512, 512, 4096)),
        lagging=rng.random() < 0.5,
        tabling=rng.choice((0, 0.1, 0.25)),
        uniform=rng.random() < 0.2,
    )


def small_settings(rng: Random, durability: Durability = Durability.SYNCED) -> LogSettings:
    """Sizes so small that files roll, snapshots are taken and the memory tail overflows all the time."""
    return LogSettings(
        durability=durability,
        file_bytes=rng.choice((6144, 8192, 16384)),
        group_bytes=rng.choice((600, 4000)),
        tail_bytes=rng.choice((0, 500, 4000, 1 << 20)),
        roll_seconds=rng.choice((5, 60, 10_000)),
        snapshot_bytes=rng.choice((1, 2000, 10_000)),
    )


class Schedule:
    def __init__(self, rng: Random, plan: Plan) -> None:
        self.rng = rng
        self.plan = plan
        self.disk = SimDisk(plan.sector)
        self.model = Model()
        self.table = MemoryTable()  # its own commits are atomic and durable: that is the table's promise
        self.now = START
        self.crashes = 0
        self._serial = 0
        self._safe = 0  # groups that no crash may take, at any level
        self._sequences: dict[bytes, tuple[int, int]] = {}  # producer → epoch and next sequence
        self.committer: InlineCommitter | LaggingCommitter
        self.engine: WatchedEngine
        self._limits: dict[PartitionId, Retention] = {}

    # -- opening and stopping

    def open(self) -> None:
        """Open what is on the disk, and compare. What was acknowledged must be there."""
        floor = self._safe if self._may_forget() else self.model.acknowledged()
        self.committer = LaggingCommitter(self.rng) if self.plan.lagging else InlineCommitter()
        self.engine = WatchedEngine(self.disk, self.plan.settings, committer=self.committer, clock=lambda: self.now)
        self.engine.on_trim = self.trimmed
        self.engine.read_tiered_from(self.table)
        events = all_events(self.engine.recover())
        # What the log has shown once it must not lose later, not even what it found unsynced.
        self._safe = self.model.settle(self.engine, events, floor, self.rng.choice((1, 300, 1 << 30)))
        self.engine.snapshot_from(self._snapshot)
        self.model.check_producers(self.engine)
        self._take_up_producers()

    def _snapshot(self) -> bytes:
        self.model.drop_failed()  # as `core` does at once when a group with its events fails
        return encode_events(self.model.tail.events)

    def _may_forget(self) -> bool:
        """At level `written` a loss of power, at level `memory` any crash may take acknowledged groups: what is left
        is a prefix all the same."""
        durability = self.plan.durability
        return durability is Durability.MEMORY or (durability is Durability.WRITTEN and self.plan.power)

    def open_through_crashes(self) -> None:
        """Open, where opening itself may be stopped some times."""
        while True:
            try:
                self.open()
                return
            except Crash:
                self.stop()
                if self.rng.random() < 0.5:
                    self.disk.crash_at(self.rng.randint(0, 12))
            except LogError:
                if self.disk.capacity is None:
                    raise
                self.disk.capacity = None  # a full disk may keep a log from being opened

    def stop(self) -> None:
        """Stop the machine, or only the process: what a killed one wrote may still be lost by a later loss of power."""
        self.crashes += 1
        power = self.plan.power and self.rng.random() < 0.75
        self.disk = self.disk.crash(self.rng) if power else self.disk.kill()

    def session(self) -> None:
        """Work until the session is over, then close cleanly or stop the machine as it is."""
        for _ in range(self.plan.steps):
            self.step()
        if self.rng.random() < 0.4:
            self.close()
        else:
            self.stop()

    def close(self) -> None:
        """A clean close commits everything and loses nothing, whatever happens next."""
        self.engine.close()
        self.model.drop_failed()
        if self.model.acknowledged() != len(self.model.groups):
            raise Mismatch("something was neither committed nor failed when the log was closed")
        if self.engine.health().writable:
            self._safe = len(self.model.groups)

    def play(self) -> None:
        """The sessions of the plan, with crashes when opening and at work."""
        for _ in range(self.plan.sessions):
            if self.rng.random() < 0.3:
                self.disk.crash_at(self.disk.operations + self.rng.randint(0, 15))
            self.open_through_crashes()
            if self.rng.random() < 0.8:
                self.disk.crash_at(self.disk.operations + self.rng.randint(0, 5 * self.plan.steps))
            try:
                self.session()
            except Crash:
                self.stop()
        self.disk.crash_at(-1)
        self.finish()

    def play_to(self, boundary: int, after: Random) -> bool:
        """One session, stopped at this boundary of the disk, and a short one after it. True if it ended before."""
        self.disk.crash_at(boundary)
        try:
            self.open()
            for _ in range(self.plan.steps):
                self.step()
            self.close()
            return True
        except Crash:
            self.rng = after
            self.stop()
            self.open()
            for _ in range(3):
                self.go_on()
            self.stop()
            self.finish()
            return False

    def go_on(self) -> None:
        """A step after a crash."""
        self.append()
        self.commit()

    def finish(self) -> None:
        """Stop the last session, and open once more."""
        self.open_through_crashes()
        self.engine.close()

    # -- steps

    def step(self) -> None:
        self.now += self.rng.choice((0, 1, 1000, SECOND, 10 * SECOND, -3 * SECOND))
        if self.plan.faults:
            room = self.rng.choice((None, None, 0, 300, 9000))
            self.disk.capacity = None if room is None else self.disk.used() + room
        choice = self.rng.random()
        try:
            if choice < self.plan.tabling:
                self.hand_over()
            elif choice < 0.55:
                self.append()
            elif choice < 0.80:
                self.commit()
            elif choice < 0.84:
                self.trim()
            elif choice < 0.87:
                self.drop_from_table()
            elif choice < 0.92:
                self.maintain()
            else:
                self.look()
        except LogFull:
            if not self.plan.faults:
                raise
        if any(group.handle.state is GroupState.FAILED for group in self.model.groups):
            self.model.drop_failed()
            self.disk.capacity = None
            self._after_failure()

    def _after_failure(self) -> None:
        """As `core` does when a group failed: what it held is void, the committed state is what counts."""
        events = all_events(self.engine.recover())
        if events != self.model.tail.events:
            raise Mismatch(f"after a failed group the events are {events} instead of {self.model.tail.events}")
        self._take_up_producers()

    def _take_up_producers(self) -> None:
        """Go on with each producer where the log has it."""
        self._sequences = {
            name: (entry.producer.epoch, entry.producer.sequence + 1)
            for name, entry in self.model.tail.producers.items()
            if entry.producer is not None
        }

    def append(self) -> None:
        rng = self.rng
        if self.plan.uniform:
            self._serial += 1
            writes = [Records(PARTITIONS[0], [b"value-%08d" % self._serial])]
            self.model.appended(self.engine.append(writes), writes, (), None)
            return
        chosen = rng.choices(PARTITIONS, k=rng.choice((0, 1, 1, 1, 2, 4)))
        events = [self._value(b"event") for _ in range(rng.choice((0, 0, 1, 2) if chosen else (1, 2)))]
        writes = [self._records(partition) for partition in chosen]
        producer = self._producer() if rng.random() < 0.4 else None
        if writes and rng.random() < 0.2:
            self._expect(writes, producer)
            return
        given = [prepared(write) if write.values and rng.random() < 0.2 else write for write in writes]
        appended = self.engine.append(given, events, producer)
        if appended.repeated:
            raise Mismatch(f"{producer} is new, and was taken for a repeat")
        self.model.appended(appended, writes, events, producer)
        if producer is not None:
            self._sequences[producer.id] = (producer.epoch, producer.sequence + 1)
            if rng.random() < 0.5:
                self._repeat(producer, writes, events, appended.base_offsets)

    def _expect(self, writes: list[Records], producer: Producer | None) -> None:
        """Conditional appends: a wrong expectation appends nothing at all, a right one appends."""
        first = writes[0]
        following = self.engine.next_offset(first.partition)
        first.expected_offset = following + self.rng.choice((-1, 1, 5))
        try:
            self.engine.append(writes, [b"never"], producer)
        except OffsetMismatch:
            pass
        else:
            raise Mismatch("a conditional append with a wrong offset was accepted")
        first.expected_offset = following
        appended = self.engine.append(writes, (), producer)
        self.model.appended(appended, writes, (), producer)
        if producer is not None:
            self._sequences[producer.id] = (producer.epoch, producer.sequence + 1)

    def _repeat(self, producer: Producer, writes: list[Records], events: list[bytes], bases: tuple[int, ...]) -> None:
        again = self.engine.append(writes, events, producer)
        if not again.repeated or again.base_offsets != bases:
            raise Mismatch(f"a repeat of {producer} at {bases} gave {again}")
        gap = producer._replace(sequence=producer.sequence + 2)
        try:
            self.engine.append(writes, events, gap)
        except SequenceOutOfOrder:
            return
        raise Mismatch(f"{gap} was accepted after {producer}")

    def _producer(self) -> Producer:
        name = self.rng.choice(PRODUCERS)
        epoch, sequence = self._sequences.get(name, (self.rng.randint(0, 1), self.rng.randint(0, 3)))
        if self.rng.random() < 0.1:
            epoch, sequence = epoch + 1, 0
        return Producer(name, epoch, sequence)

    def _value(self, what: bytes) -> bytes:
        self._serial += 1
        size = self.rng.choice((0, 0, 3, 40, 500, 1500))
        return b"%s-%d" % (what, self._serial) + bytes([self._serial & 0xFF]) * size

    def _records(self, partition: PartitionId) -> Records:
        rng = self.rng
        count = rng.choice((1, 1, 2, 5))
        records = Records(partition, [self._value(b"value") for _ in range(count)])
        if rng.random() < 0.4:
            records.keys = [rng.choice((None, b"", self._value(b"key"))) for _ in range(count)]
        if rng.random() < 0.2:
            records.headers = [rng.choice(((), (("n", b"x"), ("ß", b"")))) for _ in range(count)]
        if rng.random() < 0.2:
            records.expires = [rng.choice((0, self.now)) for _ in range(count)]
        return records

    def commit(self) -> None:
        self.committer.run()
        self.model.committed(self.engine.position)

    def hand_over(self) -> None:
        """Closed files become tables; what the table has committed the log may never hear of."""
        for _ in range(self.rng.choice((1, 1, 5))):
            closed = self.engine.closed_files()
            if not closed or not self.engine.sync():  # a log start that is lost would bring back what no table gets
                return
            ends = self.table.build(self.engine, closed[0])
            if self.rng.random() < 0.2:
                return
            self.engine.advance_table_ends(ends)
            for _ in range(self.rng.choice((0, 1, 3))):  # as often as it takes for files to go
                self.commit()
                if any(group.handle.state is GroupState.FAILED for group in self.model.groups):
                    return
                self.engine.maintain(self.now, lambda _: Retention())

    def drop_from_table(self) -> None:
        """Records below the log start are dropped from the table, once no crash can take the start back."""
        if self.engine.sync():
            for partition in PARTITIONS:
                self.table.drop_below(partition, self.engine.bounds(partition).start)

    def trim(self) -> None:
        starts = {}
        for partition in self.rng.sample(PARTITIONS, k=self.rng.randint(1, 2)):
            start, end = self.engine.bounds(partition)
            starts[partition] = self.rng.randint(start, end)
        self.engine.trim(starts)

    def maintain(self) -> None:
        rng = self.rng
        self._limits = {
            partition: rng.choice((Retention(), Retention(seconds=rng.randint(0, 60)), Retention(bytes=2000)))
            for partition in PARTITIONS
        }
        try:
            self.engine.maintain(self.now, lambda partition: self._limits[partition])
        finally:
            self._limits = {}

    def trimmed(self, group: CommitGroup, starts: Mapping[PartitionId, int]) -> None:
        """The engine has accepted a trim, by the schedule itself or by retention."""
        for partition, limit in self._limits.items():
            before = self.model.tail.starts.get(partition, 0)
            if starts.get(partition, 0) > before:
                self._check_retention(self.model.tail.records[partition], before, starts[partition], limit)
        self.model.trimmed(group, starts)

    def _check_retention(self, records: Sequence[Stored], before: int, start: int, limit: Retention) -> None:
        """Nothing goes that is young enough, or within the bytes to keep."""
        if limit.seconds is not None:
            youngest = max(record.timestamp for record in records[before:start])
            if self.now - youngest < limit.seconds * SECOND:
                raise Mismatch(f"retention took a record of age {self.now - youngest} µs with {limit}")
        elif limit.bytes is not None:
            # The engine counts what a record takes in its files, which is more than its key and value.
            left = sum(len(record.value) + len(record.key or b"") + 250 for record in records[start:])
            if left < limit.bytes:
                raise Mismatch(f"retention left {left} bytes with {limit}")
        else:
            raise Mismatch(f"retention moved {before} to {start} without a limit")

    def look(self) -> None:
        """Everything committed is readable while the log is in use."""
        state = self.model.state(self.model.acknowledged())
        events = all_events(self.engine.recover())
        reason = self.model.difference(state, self.engine, events, self.rng.choice((1, 300, 1 << 30)))
        if reason:
            raise Mismatch(reason)


def run(seed: int) -> Schedule:
    """One random schedule. Raises Mismatch, or whatever the engine raised."""
    rng = Random(seed)
    schedule = Schedule(rng, random_plan(rng))
    schedule.play()
    return schedule


def run_every_boundary(
    seed: int, *, power: bool, durability: Durability = Durability.SYNCED, steps: int = 14, tabling: float = 0
) -> tuple[int, int]:
    """One short schedule, stopped at every boundary in turn; returns how many there were, and in how many schedules
    something was read from a table."""
    reads = 0
    boundary = 0
    while True:
        settings = small_settings(Random(seed), durability)
        plan = Plan(durability, power, steps=steps, settings=settings, lagging=seed % 2 == 1, tabling=tabling)
        schedule = Schedule(Random(seed), plan)
        if schedule.play_to(boundary, Random(seed * 1_000_003 + boundary)):
            return boundary, reads
        reads += schedule.table.reads > 0
        boundary += 1
