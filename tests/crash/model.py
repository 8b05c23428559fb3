"""A model of the log as plain lists: the groups in order, and the state after each of them.

A test tells the model of every append and trim that the engine accepted. After a crash the model says whether what
the engine has is the state after some whole number of groups, at least the acknowledged ones, and takes that
state as its own. It does not know how the engine stores anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.log.harness import Stored, read_all

from penstock.log.engine import (
    Appended,
    CommitGroup,
    Engine,
    GroupState,
    PartitionId,
    Producer,
    Records,
    Recovered,
)
from penstock.log.errors import ProducerFenced


@dataclass(slots=True)
class Entry:
    """One accepted append or trim."""

    records: list[tuple[PartitionId, Stored]] = field(default_factory=list)
    events: tuple[bytes, ...] = ()
    trims: Mapping[PartitionId, int] = field(default_factory=dict)
    producer: Producer | None = None
    base_offsets: tuple[int, ...] = ()
    timestamp: int = 0


@dataclass(slots=True)
class Group:
    handle: CommitGroup
    entries: list[Entry] = field(default_factory=list)
    position: int | None = None  # of the log when it had been committed, if known


@dataclass(slots=True)
class State:
    """The log after some number of groups."""

    records: dict[PartitionId, list[Stored]] = field(default_factory=dict)
    starts: dict[PartitionId, int] = field(default_factory=dict)
    events: list[bytes] = field(default_factory=list)
    producers: dict[bytes, Entry] = field(default_factory=dict)  # the last append of each

    def apply(self, group: Group) -> None:
        for entry in group.entries:
            for partition, record in entry.records:
                stored = self.records.setdefault(partition, [])
                assert record.offset == len(stored)
                stored.append(record)
            self.events += entry.events
            for partition, start in entry.trims.items():
                self.starts[partition] = max(start, self.starts.get(partition, 0))
            if entry.producer is not None:
                self.producers[entry.producer.id] = entry


class Mismatch(AssertionError):
    """The engine does not hold what it must."""


class Model:
    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.tail = State()  # after all groups, committed or not

    # -- what happened

    def _group(self, handle: CommitGroup) -> Group:
        if not self.groups or self.groups[-1].handle is not handle:
            assert all(group.handle is not handle for group in self.groups), "a group was reopened"
            self.groups.append(Group(handle))
        return self.groups[-1]

    def appended(
        self, appended: Appended, writes: Sequence[Records], events: Sequence[bytes], producer: Producer | None
    ) -> None:
        """The engine accepted an append that is no repeat."""
        entry = Entry(
            events=tuple(events), producer=producer, base_offsets=appended.base_offsets, timestamp=appended.timestamp
        )
        ends = {partition: len(stored) for partition, stored in self.tail.records.items()}
        bases = []
        for write in writes:
            base = ends.get(write.partition, 0)
            bases.append(base)
            for i, value in enumerate(write.values):
                key = None if write.keys is None else write.keys[i]
                headers = () if write.headers is None else write.headers[i]
                expires = 0 if write.expires is None else write.expires[i]
                record = Stored(base + i, key, value, headers, appended.timestamp, expires)
                entry.records.append((write.partition, record))
            ends[write.partition] = base + len(write.values)
        if appended.base_offsets != tuple(bases):
            raise Mismatch(f"appended at {appended.base_offsets} instead of {tuple(bases)}")
        self._add(appended.group, entry)

    def trimmed(self, handle: CommitGroup, starts: Mapping[PartitionId, int]) -> None:
        self._add(handle, Entry(trims=dict(starts)))

    def _add(self, handle: CommitGroup, entry: Entry) -> None:
        if handle.state is GroupState.FAILED:
            return
        group = self._group(handle)
        group.entries.append(entry)
        self.tail.apply(Group(handle, [entry]))

    def committed(self, position: int) -> None:
        """The committer has run; the log's global position is known if nothing is open."""
        if self.groups and self.acknowledged() == len(self.groups):
            self.groups[-1].position = position

    def drop_failed(self) -> int:
        """Forget groups that failed; returns how many. They are the last ones, since groups commit in order."""
        kept = [group for group in self.groups if group.handle.state is not GroupState.FAILED]
        dropped = len(self.groups) - len(kept)
        if dropped:
            if kept != self.groups[: len(kept)]:
                raise Mismatch("a group was committed although one before it failed")
            self._keep(len(kept))
        return dropped

    def _keep(self, count: int) -> None:
        del self.groups[count:]
        self.tail = self.state(count)

    # -- what must be

    def acknowledged(self) -> int:
        """The number of committed groups."""
        states = [group.handle.state for group in self.groups]
        count = states.count(GroupState.COMMITTED)
        if any(state is not GroupState.COMMITTED for state in states[:count]):
            raise Mismatch("a group was committed before an earlier one")
        return count

    def state(self, groups: int) -> State:
        state = State()
        for group in self.groups[:groups]:
            state.apply(group)
        return state

    def settle(self, engine: Engine, events: Sequence[bytes], floor: int, max_bytes: int = 1 << 30) -> int:
        """Find how many groups the engine has, at least `floor`, and take that as the truth. Raises Mismatch."""
        reasons = []
        state = self.state(floor)
        for count in range(floor, len(self.groups) + 1):
            if count > floor:
                state.apply(self.groups[count - 1])
            reason = self.difference(state, engine, events, max_bytes)
            position = self.groups[count - 1].position if count else None
            if not reason and position not in (None, engine.position):
                reason = f"position {engine.position} instead of {position}"
            if not reason:
                self._keep(count)
                for group in self.groups:  # what was found after a crash counts as committed from now on
                    group.handle = _settled()
                return count
            reasons.append(f"after {count} groups: {reason}")
        raise Mismatch("; ".join(reasons[-4:]))

    def difference(self, state: State, engine: Engine, events: Sequence[bytes], max_bytes: int = 1 << 30) -> str:
        """The difference between the engine's contents and `state`; empty if there is none."""
        if list(events) != state.events:
            return f"events {_shorten(events)} instead of {_shorten(state.events)}"
        for partition in {*self.tail.records, *state.records}:
            expected = state.records.get(partition, [])
            start, end = engine.bounds(partition)
            if end != len(expected):
                return f"partition {partition:#x} ends at {end} instead of {len(expected)}"
            if start != state.starts.get(partition, 0):
                return f"partition {partition:#x} starts at {start} instead of {state.starts.get(partition, 0)}"
            found = read_all(engine, partition, max_bytes)
            for got, wanted in zip(found, expected[start:], strict=True):
                if got != wanted:
                    return f"partition {partition:#x}: {got} instead of {wanted}"
            if found:
                reason = _time_difference(engine, partition, expected[start:])
                if reason:
                    return reason
        return ""

    def check_producers(self, engine: Engine) -> None:
        """The last append of every producer is known, and an older epoch is fenced. Changes nothing in the log."""
        for entry in self.tail.producers.values():
            assert entry.producer is not None
            before = engine.position, engine.pending_bytes
            again = engine.append([], (), entry.producer)
            if not again.repeated or again.base_offsets != entry.base_offsets or again.timestamp != entry.timestamp:
                raise Mismatch(f"a repeat of {entry.producer} at {entry.base_offsets} gave {again}")
            if (engine.position, engine.pending_bytes) != before:
                raise Mismatch("a repeat appended something")
            if entry.producer.epoch:
                try:
                    engine.append([], (), entry.producer._replace(epoch=entry.producer.epoch - 1))
                except ProducerFenced:
                    continue
                raise Mismatch(f"{entry.producer} was not fenced")


def _settled() -> CommitGroup:
    group = CommitGroup()
    group.finish()
    return group


def _time_difference(engine: Engine, partition: PartitionId, records: Sequence[Stored]) -> str:
    for probe in (records[0], records[len(records) // 2], records[-1]):
        wanted = next(record.offset for record in records if record.timestamp >= probe.timestamp)
        found = engine.offset_at(partition, probe.timestamp)
        if found != wanted:
            return f"partition {partition:#x}: offset {found} at {probe.timestamp} instead of {wanted}"
    return ""


def _shorten(events: Sequence[bytes]) -> str:
    return f"{[event[:12] for event in events][-5:]} ({len(events)})"


# -- a snapshot of a state that is nothing but the list of its events


def encode_events(events: Sequence[bytes]) -> bytes:
    return b"".join(len(event).to_bytes(4, "little") + event for event in events)


def decode_events(data: bytes) -> list[bytes]:
    events, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        events.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return events


def all_events(recovered: Recovered) -> list[bytes]:
    """The events of a snapshot made by `encode_events` and those behind it."""
    return [*decode_events(recovered.snapshot or b""), *recovered.events]
