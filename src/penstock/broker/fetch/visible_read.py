"""Visible reads: records that have neither expired nor been removed. Every read for a client goes through here, except
those of queues, which apply the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.broker.fetch.removal import NOTHING_REMOVED, RemovedRecords
from penstock.broker.state.state import State, Topic
from penstock.log.batch import EXPIRES, RecordSlice
from penstock.log.engine import Engine, PartitionId, ReadPlan, partition_id

MAX_CHECKED_PER_STEP: Final = 16_384  # records checked one by one in a step
MAX_SLICES_PER_STEP: Final = 1_024  # returned by one step: each costs its reader more than a record does
STEP_BYTES: Final = 1 << 20  # read by a step that only looks for the next visible record
MAX_STEPS: Final = 256  # after which a fetch returns only the offset to continue at

FOREVER: Final = 1e10  # seconds: more than have passed since 1970


class VisibilityFilter:
    """The visible records of a partition at one point in time."""

    __slots__ = ("horizon", "now", "removed")

    def __init__(self, now: int, horizon: int = 0, removed: RemovedRecords = NOTHING_REMOVED) -> None:
        self.now = now  # µs since 1970
        self.horizon = horizon  # records stored at or before this time have expired
        self.removed = removed

    def shows_all(self, part: RecordSlice) -> bool:
        """Whether all records are visible, judging by the batch header only; False if that is not certain."""
        batch, removed = part.batch, self.removed
        if batch.flags & EXPIRES or batch.min_timestamp <= self.horizon:
            return False
        return removed is NOTHING_REMOVED or (part.base_offset >= removed.below and not removed.single)

    def parts(self, part: RecordSlice) -> Iterator[RecordSlice]:
        """The visible runs of consecutive records, in order."""
        hidden = self._hidden(part)
        at, end = part.base_offset, part.end_offset
        if len(hidden) == end - at:
            return
        for offset in sorted(hidden):
            if offset > at:
                yield part.between(at, offset)
            at = offset + 1
        if at < end:
            yield part.between(at, end)

    def _hidden(self, part: RecordSlice) -> set[int]:
        batch, now, horizon = part.batch, self.now, self.horizon
        first, end = part.base_offset, part.end_offset
        if batch.max_timestamp <= horizon:
            return set(range(first, end))
        hidden: set[int] = set()
        if batch.flags & EXPIRES:
            hidden.update([offset for offset, at in enumerate(part.expires(), first) if 0 < at <= now])
        if batch.min_timestamp <= horizon:
            hidden.update([offset for offset, at in enumerate(part.timestamps(), first) if at <= horizon])
        if self.removed is not NOTHING_REMOVED:
            hidden |= self.removed.within(first, end)
        return hidden


def view(state: State, topic: Topic, partition: int, now: int) -> VisibilityFilter:
    if topic.settings.expiry_seconds is None and not state.removed:
        return VisibilityFilter(now)
    return VisibilityFilter(
        now, horizon(topic, now), state.removed.get(partition_id(topic.id, partition), NOTHING_REMOVED)
    )


def horizon(topic: Topic, now: int) -> int:
    """Records of the topic stored at or before this time have expired; 0 if they never do."""
    lifetime = expiry(topic)
    return max(0, now - lifetime) if lifetime else 0


def expiry(topic: Topic) -> int:
    """The time for which a record of the topic is visible, in µs; 0 if it does not expire."""
    seconds = topic.settings.expiry_seconds
    return int(seconds * 1_000_000) if seconds is not None and 0 < seconds < FOREVER else 0


class VisibleRead:
    """A plan to read visible records; `run` is like that of a `ReadPlan`. Visibility is determined when the plan is
    made.

    If no record of a step is visible, there may still be some after it: `continuation` plans the next step. Steps are
    bounded, so that no number of expired records can block the event loop.
    """

    __slots__ = (
        "_engine",
        "_max_bytes",
        "_max_records",
        "_partition",
        "_plan",
        "_steps",
        "_view",
        "all_filtered",
        "end",
    )

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
        """Raises OffsetOutOfRange. `steps`: the number of previous steps, which found nothing."""
        self._engine = engine
        self._partition = partition
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._view = view
        self._steps = steps
        self._plan: ReadPlan = (
            engine.read(partition, offset, STEP_BYTES, MAX_CHECKED_PER_STEP)
            if steps
            else engine.read(partition, offset, max_bytes, max_records)
        )
        self.end = offset  # after `run`: the offset after the last record checked
        self.all_filtered = False  # after `run`: there were records, but none is visible

    @property
    def ready(self) -> bool:
        """Whether `run` is cheap enough for the event loop's thread."""
        return not self._steps and self._plan.ready

    @property
    def high_watermark(self) -> int:
        """The partition's current end: the offset after its last committed record."""
        return self._engine.bounds(self._partition).high_watermark

    def run(self) -> list[RecordSlice]:
        """The visible records in order of offset, possibly with gaps between slices. Any thread; call once."""
        slices = self._plan.run()
        if not slices:
            return slices
        if not self._steps and self._all_visible(slices):
            self.end = slices[-1].end_offset
            return slices
        found = self._pick(slices)
        self.all_filtered = not found
        return found

    def _all_visible(self, slices: list[RecordSlice]) -> bool:
        view = self._view
        if view.horizon or view.removed is not NOTHING_REMOVED:
            return all(map(view.shows_all, slices))
        for part in slices:  # noqa: SIM110 - a generator or a comprehension costs a call for the one slice of most reads
            if part.batch.flags & EXPIRES:
                return False
        return True

    def _pick(self, slices: list[RecordSlice]) -> list[RecordSlice]:
        found: list[RecordSlice] = []
        left_bytes, left_records, checked = self._max_bytes, self._max_records, 0
        for part in slices:
            whole = self._view.shows_all(part)
            for visible in (part,) if whole else self._view.parts(part):
                taken = visible.batch.slice(visible.base_offset, visible.end_offset, left_bytes, left_records)
                size = taken.byte_size()
                if found and size > left_bytes:
                    return found
                found.append(taken)
                self.end = taken.end_offset
                left_bytes -= size
                left_records -= len(taken)
                if (
                    left_bytes <= 0
                    or left_records <= 0
                    or len(taken) < len(visible)
                    or len(found) == MAX_SLICES_PER_STEP
                ):
                    return found
            self.end = part.end_offset
            checked += 0 if whole else len(part)
            if checked >= MAX_CHECKED_PER_STEP:
                return found
        return found

    def continuation(self) -> VisibleRead | None:
        """The next step after a `run` with `all_filtered`, on the broker's thread. None if there are no more records,
        or the fetch has taken enough steps: then the next fetch continues at `end`.
        """
        if not self.all_filtered or self._steps >= MAX_STEPS:
            return None
        bounds = self._engine.bounds(self._partition)
        offset = max(self.end, bounds.start)  # retention may have removed some meanwhile
        if offset >= bounds.high_watermark:
            return None
        limits = self._max_bytes, self._max_records
        return VisibleRead(self._engine, self._partition, offset, *limits, self._view, self._steps + 1)
