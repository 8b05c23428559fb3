"""Delayed records: scheduling and cancelling them, and appending them to their topics when they are due.

The schedule is state (`delay`); the contents are records of an internal partition. One entry of the log both appends a
due record to its topic and removes it from the schedule, so it is delivered exactly once, whatever fails. It must match
the schema that the topic has by then, or becomes a dead letter.
"""

from __future__ import annotations

import heapq
import logging
from bisect import bisect_right
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from penstock.broker.errors import BrokerError, DelayedNotFound, LimitReached, RecordRejected
from penstock.broker.limits import Limits
from penstock.broker.names import Scope
from penstock.broker.produce import delay
from penstock.broker.produce.delay import WAITING, Delayed
from penstock.broker.produce.partitioning import ANY, Partitioner
from penstock.broker.produce.validation import RecordValidator, ValidatedRecords
from penstock.broker.runtime.executor import Executor
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.events import DelayedEnded, TopicCreated
from penstock.broker.state.state import State, Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.topics import topic_rules
from penstock.log.batch import Headers
from penstock.log.engine import CommitGroup, GroupState, ReadPlan, Records
from penstock.log.errors import EntryTooLarge, LogError

logger = logging.getLogger(__name__)

APPEND_RECORDS: Final = 1_000  # most records appended in one entry of the log
APPEND_BYTES: Final = 1 << 20  # and their approximate bytes
TRY_AGAIN: Final = 1_000_000  # retry delay after a failure, µs
TRIM_EVERY: Final = 60_000_000  # µs between trims of obsolete contents, and retries of what is held back
MAX_LOOKED: Final = 10_000  # waiting records examined for one page
SPARE_ENTRIES: Final = 1_024  # stale entries tolerated in the heap


class DelayedPage(NamedTuple):
    records: list[tuple[Delayed, Topic]]
    next: int | None  # pass as `after` for the next page; None: this is the last


class Delays:
    """Scheduled records, ordered by the time they are due."""

    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        validator: RecordValidator,
        partitioner: Partitioner,
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], int],
        executor: Executor,
    ) -> None:
        self._state_log = state_log
        self._access = access
        self._validator = validator
        self._partitioner = partitioner
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._executor = executor
        self._heap: list[tuple[int, int]] = []  # (due, id); entries that are not in the state are stale
        self._appending = False  # due records are being read or appended
        self._advancing = False
        self._not_before = 0  # time of the next attempt after a failure
        self._trimmed = 0  # time of the last trim
        self._held_back: list[Delayed] = []  # due, but cannot be appended at present; must not block the others
        self.rebuilt()

    # -- for clients

    def schedule(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        value: bytes,
        key: bytes | None,
        partition: int,
        delay_us: int,
        headers: Headers = (),
    ) -> tuple[Delayed | int, CommitGroup]:
        """Append a record to the topic after `delay_us`; with `partition` -1 it is chosen by key or round-robin when
        due.

        The record must match the topic's schema now. If it does not, and the topic keeps invalid records as dead
        letters, it becomes one immediately, and its offset there is returned.
        """
        self._access.require(identity, Permission.WRITE, scope, topic)
        state, engine = self._state_log.current(), self._state_log.engine
        found = topic_rules.find(state, scope, topic)
        if partition != ANY:
            topic_rules.find_partition(state, scope, topic, partition)
        offset = engine.next_offset(WAITING)
        limits, now = self._limits, self._clock()
        mine = state.usage_of(scope.tenant).delayed
        event = delay.schedule(
            *(state.delayed, state.next_delayed_id, limits, scope.tenant, mine),
            *(found.id, partition, delay_us, offset, now),
        )
        columns = [value], None if key is None else [key], [headers] if headers else None
        self._validator.check_room(scope.tenant)
        admitted = self._validator.validate(found, [partition], *columns)
        if admitted.dead_lettered:
            appended = self._state_log.append(admitted.writes, admitted.events, door=self._metrics.caller.number)
            self._metrics.records_diverted += 1
            return appended.base_offsets[0], appended.group
        group = self._state_log.commit((event,), (Records(WAITING, *columns),))
        heapq.heappush(self._heap, (event.due, event.id))
        self._metrics.delayed_scheduled += 1
        return state.delayed[event.id], group

    def waiting(self, identity: Identity, scope: Scope, after: int = 0, limit: int = 1000) -> DelayedPage:
        """Waiting records of topics that this identity may see, ordered by id: those above `after`."""
        self._access.require_any(identity, Permission.DESCRIBE, scope)
        state, access = self._state_log.current(), self._access
        ids = list(state.delayed)  # ascending, as ids are assigned in order
        first = bisect_right(ids, after)
        seen: dict[int, bool] = {}
        found: list[tuple[Delayed, Topic]] = []
        for id in ids[first : first + MAX_LOOKED]:  # noqa: A001 - it is the id of what was delayed
            delayed = state.delayed[id]
            topic = state.topics_by_id[delayed.topic]
            if topic.id not in seen:
                seen[topic.id] = topic.scope == scope and access.allows(
                    identity, Permission.DESCRIBE, scope, topic.name
                )
            if seen[topic.id]:
                found.append((delayed, topic))
                if len(found) == limit:
                    return DelayedPage(found, None if id == ids[-1] else id)
        return DelayedPage(found, ids[first + MAX_LOOKED - 1] if first + MAX_LOOKED < len(ids) else None)

    def cancel(self, identity: Identity, scope: Scope, id: int) -> CommitGroup:  # noqa: A002 - of what was delayed
        """Cancel a delayed record. Raises DelayedNotFound, also for one that this identity could not have scheduled."""
        self._access.require_any(identity, Permission.WRITE, scope)
        state = self._state_log.current()
        delayed = state.delayed.get(id)
        topic = None if delayed is None else state.topics_by_id[delayed.topic]
        if (
            topic is None
            or topic.scope != scope
            or not self._access.allows(identity, Permission.WRITE, scope, topic.name)
        ):
            raise DelayedNotFound(id)
        group = self._state_log.commit((DelayedEnded([id]),))
        self._metrics.delayed_cancelled += 1
        self._tidy()
        return group

    # -- periodic work

    def rebuilt(self) -> None:
        """The state was reloaded from the log."""
        self._heap = [(delayed.due, delayed.id) for delayed in self._state_log.state.delayed.values()]
        heapq.heapify(self._heap)
        self._held_back.clear()

    def _tidy(self) -> None:
        """Rebuild the heap when stale entries dominate, so that scheduling and cancelling repeatedly does not fill the
        memory.
        """
        if len(self._heap) > 2 * len(self._state_log.state.delayed) + SPARE_ENTRIES:
            self.rebuilt()

    def sweep(self, now: int) -> None:
        """Append records that are due. Called a few times a second."""
        self._advance(now)
        if not self._appending and not 0 <= now - self._trimmed < TRIM_EVERY:
            self._trimmed = now
            self._trim()
            held_back, self._held_back = self._held_back, []
            self._put_back(held_back)

    def _advance(self, now: int) -> None:
        """Start appending due records, unless some are in progress: that will call this again when it is done."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while not self._appending and not self._state_log.closed:
                if 0 < self._not_before - now <= TRY_AGAIN:
                    break
                due = self._due(now)
                if not due:
                    break
                self._appending = True
                _DueBatch(self, due).start()
        finally:
            self._advancing = False

    def _due(self, now: int) -> list[Delayed]:
        """Pop due records from the heap, earliest first. Records that are not committed yet cannot be read and stay."""
        state, heap = self._state_log.current(), self._heap
        end = self._state_log.engine.bounds(WAITING).high_watermark
        due: dict[int, Delayed] = {}
        early: list[tuple[int, int]] = []
        while heap and heap[0][0] <= now and len(due) < APPEND_RECORDS and len(early) < APPEND_RECORDS:
            entry = heapq.heappop(heap)
            delayed = state.delayed.get(entry[1])
            if delayed is None or delayed.due != entry[0]:
                continue
            if delayed.offset < end:
                due[delayed.id] = delayed
            else:
                early.append(entry)
        for entry in early:
            heapq.heappush(heap, entry)
        return list(due.values())

    def _put_back(self, delayed: list[Delayed]) -> None:
        for one in delayed:
            heapq.heappush(self._heap, (one.due, one.id))
        self._tidy()

    def _hold_back(self, delayed: list[Delayed]) -> None:
        self._held_back += delayed

    def _done(self, *, failed: bool = False) -> None:
        self._appending = False
        now = self._clock()
        if failed:
            self._not_before = now + TRY_AGAIN
        else:
            self._advance(now)

    def _trim(self) -> None:
        """Trim contents before those of the oldest waiting record."""
        state, engine = self._state_log.current(), self._state_log.engine
        bounds = engine.bounds(WAITING)
        first = next(iter(state.delayed.values()), None)  # in order of offset
        oldest = bounds.high_watermark if first is None else min(first.offset, bounds.high_watermark)
        if oldest > bounds.start:
            try:
                engine.trim({WAITING: oldest})
            except LogError as error:
                logger.warning("the contents of delayed records could not be trimmed yet: %s", error)


class _Content(NamedTuple):
    delayed: Delayed
    value: bytes
    key: bytes | None
    headers: Headers


class _DueBatch:
    """A batch of due records: read, then appended in one entry. Those that do not fit into it are put back."""

    def __init__(self, delays: Delays, due: list[Delayed]) -> None:
        engine = delays._state_log.engine
        start = engine.bounds(WAITING).start
        self._delays = delays
        self._due = due
        self._lost = [delayed for delayed in due if delayed.offset < start]  # happens only after a repair of the log
        self._plans: list[tuple[list[Delayed], ReadPlan]] = []
        for run in _runs([delayed for delayed in due if delayed.offset >= start]):
            self._plans.append((run, engine.read(WAITING, run[0].offset, APPEND_BYTES, len(run))))
        self._contents: list[_Content] = []
        self._held_back: set[int] = set()  # ids of records that cannot even become dead letters
        self._dead_lettered = 0
        self._error: LogError | None = None

    def start(self) -> None:
        self._delays._executor(self._read, self._finish)

    def _read(self) -> None:
        """Read as many records as one entry should have."""
        size = 0
        try:
            for run, plan in self._plans:
                waiting = iter(run)
                for part in plan.run():
                    for value, key, headers in zip(part.values(), part.keys(), part.headers(), strict=True):
                        size += len(value) + len(key or b"") + sum([len(name) + len(data) for name, data in headers])
                        if size > APPEND_BYTES and self._contents:
                            return
                        self._contents.append(_Content(next(waiting), value, key, headers))
                if next(waiting, None) is not None:
                    return
        except LogError as error:
            self._error = error

    def _finish(self) -> None:
        delays = self._delays
        stuck = not self._contents and not self._lost  # must not be retried immediately
        try:
            if self._error is not None:
                raise self._error
            group = self._append()
        except EntryTooLarge as error:
            # It fitted when it was scheduled, so the limit has been lowered. It must not block the others.
            self._hold_back(self._contents, error)
            self._put_back()
            delays._done()
        except (LogError, BrokerError) as error:
            logger.warning("%d delayed records cannot appear yet: %s", len(self._due), error)
            self._put_back()
            delays._done(failed=True)
        else:
            self._put_back(but={content.delayed.id for content in self._contents})
            if group is None:
                delays._done(failed=stuck)
            else:
                group.on_done(self._settle)

    def _put_back(self, but: Collection[int] = ()) -> None:
        back = [delayed for delayed in self._due if delayed.id not in but and delayed.id not in self._held_back]
        self._delays._put_back(back)

    def _hold_back(self, contents: list[_Content], error: Exception) -> None:
        """Set these records aside for a while."""
        logger.error("%d delayed records cannot appear, and wait on: %s", len(contents), error)
        self._held_back.update(content.delayed.id for content in contents)
        self._delays._hold_back([content.delayed for content in contents])

    def _append(self) -> CommitGroup | None:
        """Append the records; None if none of them is waiting any more."""
        delays = self._delays
        started = delays._metrics.timer()
        state = delays._state_log.current()
        self._contents = [content for content in self._contents if _waiters(state, content.delayed)]
        lost = [delayed.id for delayed in self._lost if _waiters(state, delayed)]
        if not self._contents and not lost:
            return None
        group = self._keep(state, lost)
        if group is None:
            return None
        size = sum([len(content.value) + len(content.key or b"") for content in self._contents])
        if self._contents:
            delays._metrics.produced(group, len(self._contents), size, started)
        delays._metrics.records_diverted += self._dead_lettered
        if lost:
            logger.error("%d delayed records are lost: the log does not hold their contents any more", len(lost))
            delays._metrics.delayed_dropped += len(lost)
        return group

    def _keep(self, state: State, lost: list[int]) -> CommitGroup | None:
        """Commit all records, or as many as the log accepts in one entry."""
        while True:
            records, created = self._place(state)
            ended = [content.delayed.id for content in self._contents] + lost
            if not ended:
                return None
            try:
                return self._delays._state_log.commit((*created, DelayedEnded(ended)), records)
            except EntryTooLarge:
                if len(self._contents) <= 1:
                    raise
                self._contents = self._contents[: len(self._contents) // 2]

    def _place(self, state: State) -> tuple[list[Records], list[TopicCreated]]:
        """The writes per partition, and the dead-letter topics to create for them. Within a partition, records are
        ordered by the time they are due.
        """
        by_topic: dict[int, list[_Content]] = {}
        for content in self._contents:
            by_topic.setdefault(content.delayed.topic, []).append(content)
        found: list[Records] = []
        created: list[TopicCreated] = []
        self._dead_lettered = 0
        for number, contents in by_topic.items():
            topic = state.topics_by_id[number]
            try:
                placed = self._place_in(topic, contents, created)
            except (RecordRejected, LimitReached) as error:  # dead letters are not possible, or not at present
                mismatches = self._delays._validator.mismatches(topic, [content.value for content in contents])
                self._hold_back([contents[index] for index in mismatches], error)
                contents = [content for index, content in enumerate(contents) if index not in mismatches]
                if not contents:
                    continue
                placed = self._place_in(topic, contents, created)
            found += placed.writes
            created += placed.events
            self._dead_lettered += len(placed.dead_lettered)
        self._contents = [content for content in self._contents if content.delayed.id not in self._held_back]
        return found, created

    def _place_in(self, topic: Topic, contents: list[_Content], coming: list[TopicCreated]) -> ValidatedRecords:
        keys = [content.key for content in contents]
        headers = [content.headers for content in contents]
        return self._delays._validator.place_accepted(
            topic,
            self._delays._partitioner.choose(topic, keys, [content.delayed.partition for content in contents]),
            [content.value for content in contents],
            keys if any(key is not None for key in keys) else None,
            headers if any(headers) else None,
            coming=coming,
        )

    def _settle(self, group: CommitGroup) -> None:
        committed = group.state is GroupState.COMMITTED
        self._delays._metrics.delayed_appeared += len(self._contents) if committed else 0
        self._delays._done(failed=not committed)


def _waiters(state: State, delayed: Delayed) -> bool:
    return state.delayed.get(delayed.id) == delayed


def _runs(due: list[Delayed]) -> list[list[Delayed]]:
    """Runs of records with consecutive offsets, to be read together."""
    runs: list[list[Delayed]] = []
    for delayed in due:
        if runs and runs[-1][-1].offset + 1 == delayed.offset:
            runs[-1].append(delayed)
        else:
            runs.append([delayed])
    return runs
