"""Reading what is live: records that neither expired nor were removed. Every read for a client goes through here, or
(a queue's) by the same `VisibilityFilter`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.broker.fetch.removal import NOTHING, Gone
from penstock.broker.state.state import State, Topic
from penstock.log.batch import EXPIRES, RecordSlice
from penstock.log.engine import Engine, PartitionId, ReadPlan, partition_id

LOOKS: Final = 16_384  # records looked at one by one in a step
PARTS: Final = 1_024  # pieces that one step may find: each costs its reader more than a record does
STEP_BYTES: Final = 1 << 20  # read by a step that only looks for the next live record
STEPS: Final = 256  # after which a fetch is answered with nothing but where to go on

FOREVER: Final = 1e10  # seconds: more than have passed since 1970


class VisibilityFilter(NamedTuple):
    """What of a partition is live at one moment."""

    now: int  # µs since 1970
    horizon: int = 0  # what was stored by then has expired
    gone: Gone = NOTHING

    def all_of(self, part: RecordSlice) -> bool:
        """Whether it is clear without a look at its records that all of them are live."""
        batch, gone = part.batch, self.gone
        if batch.flags & EXPIRES or batch.min_timestamp <= self.horizon:
            return False
        return gone is NOTHING or (part.base_offset >= gone.below and not gone.single)

    def parts(self, part: RecordSlice) -> Iterator[RecordSlice]:
        """What is live of consecutive records, in order."""
        dead = self._dead(part)
        at, end = part.base_offset, part.end_offset
        if len(dead) == end - at:
            return
        for offset in sorted(dead):
            if offset > at:
                yield part.between(at, offset)
            at = offset + 1
        if at < end:
            yield part.between(at, end)

    def _dead(self, part: RecordSlice) -> set[int]:
        batch, now, horizon = part.batch, self.now, self.horizon
        first, end = part.base_offset, part.end_offset
        if batch.max_timestamp <= horizon:
            return set(range(first, end))
        dead: set[int] = set()
        if batch.flags & EXPIRES:
            dead.update([offset for offset, at in enumerate(part.expires(), first) if 0 < at <= now])
        if batch.min_timestamp <= horizon:
            dead.update([offset for offset, at in enumerate(part.timestamps(), first) if at <= horizon])
        if self.gone is not NOTHING:
            dead |= self.gone.within(first, end)
        return dead


def view(state: State, topic: Topic, partition: int, now: int) -> VisibilityFilter:
    if topic.settings.expiry_seconds is None and not state.removed:
        return VisibilityFilter(now)
    return VisibilityFilter(now, horizon(topic, now), state.removed.get(partition_id(topic.id, partition), NOTHING))


def horizon(topic: Topic, now: int) -> int:
    """What the topic stored by then has expired; 0 if nothing ever does."""
    lifetime = expiry(topic)
    return max(0, now - lifetime) if lifetime else 0


def expiry(topic: Topic) -> int:
    """How many µs a record of the topic is delivered; 0 if without end."""
    seconds = topic.settings.expiry_seconds
    return int(seconds * 1_000_000) if seconds is not None and 0 < seconds < FOREVER else 0


class VisibleRead:
    """A plan to read live records; `run` as that of a `ReadPlan`. What it is to deliver is fixed when it is made.

    If nothing of what was read is live, there may still be more behind it: `continuation` plans to go on, in steps
    that are bounded, so that no number of expired records keeps the loop from its other work."""

    __slots__ = ("_engine", "_max_bytes", "_max_records", "_partition", "_plan", "_steps", "_view", "end", "passed")

    def __init__(
        self,
        engine: Engine,
        partition: PartitionId,
        offset: int,
        max_bytes: int,
        max_records: int,
        view: VisibilityFilter,
        steps: int = 0,
    ) -> None:
        """Raises OffsetOutOfRange. `steps`: how many came before, all in vain."""
        self._engine = engine
        self._partition = partition
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._view = view
        self._steps = steps
        self._plan: ReadPlan = (
            engine.read(partition, offset, STEP_BYTES, LOOKS)
            if steps
            else engine.read(partition, offset, max_bytes, max_records)
        )
        self.end = offset  # after `run`: behind the last record looked at
        self.passed = False  # after `run`: there were records, and none of them is live

    @property
    def ready(self) -> bool:
        """True if `run` takes little enough to be called on the loop's thread."""
        return not self._steps and self._plan.ready

    @property
    def high_watermark(self) -> int:
        """Where the partition ends by now: behind its last committed record."""
        return self._engine.bounds(self._partition).high_watermark

    def run(self) -> list[RecordSlice]:
        """The live records in order of offset; from one slice to the next there may be a gap. Any thread, once."""
        slices = self._plan.run()
        if not slices:
            return slices
        if not self._steps and self._all_live(slices):
            self.end = slices[-1].end_offset
            return slices
        found = self._pick(slices)
        self.passed = not found
        return found

    def _all_live(self, slices: list[RecordSlice]) -> bool:
        view = self._view
        if view.horizon or view.gone is not NOTHING:
            return all(map(view.all_of, slices))
        for part in slices:  # noqa: SIM110 - a generator or a comprehension costs a call for the one slice of most reads
            if part.batch.flags & EXPIRES:
                return False
        return True

    def _pick(self, slices: list[RecordSlice]) -> list[RecordSlice]:
        found: list[RecordSlice] = []
        left_bytes, left_records, looks = self._max_bytes, self._max_records, 0
        for part in slices:
            whole = self._view.all_of(part)
            for live in (part,) if whole else self._view.parts(part):
                taken = live.batch.slice(live.base_offset, live.end_offset, left_bytes, left_records)
                size = taken.byte_size()
                if found and size > left_bytes:
                    return found
                found.append(taken)
                self.end = taken.end_offset
                left_bytes -= size
                left_records -= len(taken)
                if left_bytes <= 0 or left_records <= 0 or len(taken) < len(live) or len(found) == PARTS:
                    return found
            self.end = part.end_offset
            looks += 0 if whole else len(part)
            if looks >= LOOKS:
                return found
        return found

    def continuation(self) -> VisibleRead | None:
        """After a `run` that `passed` everything by: the next step, or None if there is nothing more or it has been
        enough for one fetch (then `end` is where the next fetch goes on). On the broker's thread."""
        if not self.passed or self._steps >= STEPS:
            return None
        bounds = self._engine.bounds(self._partition)
        offset = max(self.end, bounds.start)  # retention may have come by
        if offset >= bounds.high_watermark:
            return None
        limits = self._max_bytes, self._max_records
        return VisibleRead(self._engine, self._partition, offset, *limits, self._view, self._steps + 1)
