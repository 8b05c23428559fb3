"""Read planning: finds partitions, resolves positions, limits micro-batches, and detects lost records. It runs in
Spark's driver, with any `Log`; it reads no records and does not depend on Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from penstock.flight.errors import LogUnavailable, TopicMissing
from penstock.flight.log import Log, TopicPartition
from penstock.log.engine import Bounds
from penstock.spark.offsets import Offsets, Range, share, split
from penstock.spark.options import EARLIEST, LATEST, OffsetSpec, OptionRefused, SourceOptions, nested

logger = logging.getLogger(__name__)

Known = dict[TopicPartition, Bounds]

_REMEDY: Final = (
    "With option 'failOnDataLoss' set to 'false' the query goes on with what is there; for a stream that is to begin "
    "anew, use another checkpointLocation"
)


class DataLost(Exception):
    """Records to be read no longer exist, and the query is configured to fail in this case."""


class Planner:
    """The planner of one query. `clock` returns monotonic ms."""

    def __init__(self, log: Log, options: SourceOptions, clock: Callable[[], float]) -> None:
        self._log = log
        self._options = options
        self._clock = clock
        self._topics: list[str] | None = None
        self._topics_at = 0.0
        self._last_trigger: float | None = None

    def known(self) -> Known:
        """The requested partitions that exist, with their current bounds."""
        selection = self._options.selection
        if selection.pattern is not None:
            return dict(self._log.bounds(self._matching()))
        if selection.topics:
            return dict(self._log.bounds(selection.topics))
        bounds = self._log.bounds(sorted({place.topic for place in selection.assigned}))
        return {place: bounds[place] for place in selection.assigned if place in bounds}

    def _matching(self) -> list[str]:
        now, live = self._clock(), self._options.topics_live
        if self._topics is None or now - self._topics_at >= live:
            self._topics, self._topics_at = self._options.selection.matching(self._log.topics()), now
        return self._topics

    def check_all_there(self, known: Known) -> None:
        """Check that all named topics and partitions exist."""
        selection = self._options.selection
        there = {place.topic for place in known}
        missing = sorted({*selection.topics, *(place.topic for place in selection.assigned)} - there)
        if missing:
            self._lost_topics(missing)
        absent = [place for place in selection.assigned if place.topic in there and place not in known]
        if absent:
            self._loss(f"Option 'assign' names {_listed(absent)}, which the topic does not have.")

    def _lost_topics(self, missing: list[str]) -> None:
        names = ", ".join(map(repr, missing))
        self._refuse_stale(f"there is no topic {names}")
        if self._options.fail_on_data_loss:
            raise TopicMissing(
                f"There is no topic {names} (or this user may not read it). Create it, or use option "
                "'subscribePattern', which also finds topics that come later, or set 'failOnDataLoss' to 'false'"
            )
        logger.warning("There is no topic %s: it is left out", names)

    # A batch

    def batch(self) -> list[Range]:
        """The ranges of a batch query's tasks."""
        known = self.known()
        self.check_all_there(known)
        starts = self.resolved(self._options.starting, known)
        ends = self.resolved(self._options.ending, known)
        for place in sorted(known):
            if starts[place] > known[place].high_watermark:
                self._loss(
                    f"{_name(place)}: the query is to begin at offset {starts[place]}, but the log ends at "
                    f"{known[place].high_watermark}."
                )
        ranges = [Range(place, starts[place], ends[place]) for place in sorted(known) if ends[place] > starts[place]]
        return self._tasks(self._present(ranges, known))

    def resolved(self, position: OffsetSpec, known: Known) -> Offsets:
        """The offsets of a position, at the moment."""
        match position.kind:
            case "earliest":
                return {place: bounds.start for place, bounds in known.items()}
            case "latest":
                return {place: bounds.high_watermark for place, bounds in known.items()}
            case "offsets":
                _check_partitions(position, known)
                return {place: _offset(position.by_partition[place], bounds) for place, bounds in known.items()}
            case "times":
                _check_partitions(position, known)
                return self._at({place: position.by_partition[place] for place in known}, position, known)
            case "time":
                return self._at(dict.fromkeys(known, position.time), position, known)

    def _at(self, times: Mapping[TopicPartition, int], position: OffsetSpec, known: Known) -> Offsets:
        found = self._log.offsets_at({place: time * 1000 for place, time in times.items()}) if times else {}
        offsets = {}
        for place, bounds in known.items():
            offset = found.get(place)
            if offset is None and position is self._options.starting and self._options.without_match == "error":
                raise OptionRefused(
                    f"Option {position.option!r}: topic {place.topic!r}, partition {place.partition} has no record at "
                    f"or after {times[place]} ms. Choose an earlier time, or set 'startingOffsetsByTimestampStrategy' "
                    "to 'latest' to begin at its end"
                )
            offsets[place] = bounds.high_watermark if offset is None else min(offset, bounds.high_watermark)
        return offsets

    # A stream

    def advance(
        self, begins: Mapping[TopicPartition, int], known: Known, limited: bool, may_wait: bool = True
    ) -> Offsets | None:
        """The end of the micro-batch that starts at `begins`, or None if it should wait for more records. Partitions
        that are not in `begins` are new, and read from their first record."""
        for place in sorted(begins.keys() - known.keys()):
            self._loss(f"{_name(place)} is gone; the stream had read it up to offset {begins[place]}.")
        starts = {place: self._start(place, begins.get(place, 0), bounds) for place, bounds in known.items()}
        backlog = {place: bounds.high_watermark - starts[place] for place, bounds in known.items()}
        if limited:
            if may_wait and self._too_few(sum(backlog.values())):
                return None
            backlog = self._limited(backlog, starts)
        return {place: start + backlog.get(place, 0) for place, start in starts.items()}

    def _start(self, place: TopicPartition, begin: int, bounds: Bounds) -> int:
        if begin < bounds.start:
            self._loss(
                f"{_name(place)}: the stream is at offset {begin}, but the log begins at {bounds.start}: retention "
                f"removed {bounds.start - begin} records before they were read.",
                removed=True,
            )
            return bounds.start
        if begin > bounds.high_watermark:
            self._loss(
                f"{_name(place)}: the stream is at offset {begin}, but the log ends at {bounds.high_watermark}: the "
                "topic was made anew, or the log lost its end."
            )
            return bounds.start
        return begin

    def _too_few(self, rows: int) -> bool:
        limits, now = self._options.limits, self._clock()
        if limits.least_rows is None:
            return False
        waited = None if self._last_trigger is None else now - self._last_trigger
        if rows < limits.least_rows and waited is not None and waited <= limits.longest_wait:
            return True
        self._last_trigger = now
        return False

    def _limited(self, backlog: Offsets, starts: Offsets) -> Offsets:
        limits = self._options.limits
        if limits.rows is not None:
            backlog = share(backlog, limits.rows)
        waiting = {place: rows for place, rows in backlog.items() if rows > 0}
        if limits.bytes is None or not waiting:
            return waiting
        ends = {place: starts[place] + rows for place, rows in waiting.items()}
        fitting = self._log.fitting({place: starts[place] for place in waiting}, ends, limits.bytes)
        return {place: fitting[place] - starts[place] for place in waiting}

    def micro_batch(self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[Range]:
        """The ranges of a micro-batch's tasks. Deterministic for the same offsets, unless records were lost."""
        known = self._bounds_of({place.topic for place in ends})
        ranges = []
        for place, end in sorted(ends.items()):
            begin = begins.get(place, 0)
            if end < begin:  # a recreated topic: `advance` has reported it
                begin = known[place].start if place in known else end
            if end > begin:
                ranges.append(Range(place, begin, end))
        return self._tasks(self._present(ranges, known))

    def _bounds_of(self, topics: Collection[str]) -> Known:
        return dict(self._log.bounds(sorted(topics))) if topics else {}

    # Both

    def _present(self, ranges: Iterable[Range], known: Known) -> list[Range]:
        """The part of the ranges that the log still holds; fails the query if records are missing, unless data loss is
        accepted."""
        present = []
        for place, start, end in ranges:
            bounds = known.get(place)
            if bounds is None:
                self._loss(f"{_name(place)} is gone; offsets {start} to {end} were to be read.")
                continue
            if start < bounds.start or end > bounds.high_watermark:
                self._loss(
                    f"{_name(place)}: offsets {start} to {end} were to be read, but the log holds only "
                    f"{bounds.start} to {bounds.high_watermark}.",
                    removed=end <= bounds.high_watermark,
                )
            present.append(Range(place, max(start, bounds.start), min(end, bounds.high_watermark)))
        return present

    def _tasks(self, ranges: list[Range]) -> list[Range]:
        return split(ranges, self._options.least_tasks, self._options.most_rows_in_task)

    def _refuse_stale(self, text: str) -> None:
        """Nothing is lost only because a standby does not have it yet: the log is asked again."""
        if self._log.stale:
            raise LogUnavailable(f"a standby answered, which may lag: {text}")

    def _loss(self, text: str, *, removed: bool = False) -> None:
        """`removed`: by retention, of which a standby does not hear before the owner."""
        if not removed:
            self._refuse_stale(text)
        if self._options.fail_on_data_loss:
            raise DataLost(f"{text} {_REMEDY}")
        logger.warning("%s The query goes on with what is there", text)


def capped(known: Known, target: Known) -> Known:
    """The bounds without records that arrived after `target`."""
    return {
        place: Bounds(bounds.start, max(bounds.start, min(bounds.high_watermark, target[place].high_watermark)))
        for place, bounds in known.items()
        if place in target
    }


def _offset(wanted: int, bounds: Bounds) -> int:
    return bounds.start if wanted == EARLIEST else bounds.high_watermark if wanted == LATEST else wanted


def _check_partitions(position: OffsetSpec, known: Known) -> None:
    missing, surplus = sorted(known.keys() - position.by_partition), sorted(position.by_partition.keys() - known)
    if missing or surplus:
        said = f"does not say {_listed(missing)}" if missing else f"says {_listed(surplus)}, which is not read here"
        raise OptionRefused(
            f"Option {position.option!r} {said}. It must name exactly the partitions that are read: "
            f"{nested(dict.fromkeys(known, 0))} with your numbers"
            + (" (-2 is the earliest, -1 the latest)" if position.kind == "offsets" else "")
        )


def _name(place: TopicPartition) -> str:
    return f"Topic {place.topic!r}, partition {place.partition}"


def _listed(places: list[TopicPartition]) -> str:
    shown = ", ".join(f"{place.topic}-{place.partition}" for place in places[:5])
    return shown if len(places) <= 5 else f"{shown} and {len(places) - 5} more"
