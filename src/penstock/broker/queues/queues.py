"""All queues of a broker: creating them, dequeuing and acknowledging messages, and periodic work.

The rules of one queue are in `queue`, those of one read in `dequeue`; this module connects them to the log. Every
change is an event.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.broker.errors import InvalidName, ShuttingDown
from penstock.broker.fetch.fetch_waiters import watch_all
from penstock.broker.limits import Limits
from penstock.broker.names import Scope, check_group, is_internal
from penstock.broker.queues.dequeue import (
    NO_FRAME,
    READ_BYTES,
    Dequeue,
    DequeueOutcome,
    Message,
    policy_for,
    removed_of,
)
from penstock.broker.queues.exhausted import ExhaustedMessages
from penstock.broker.queues.queue import FOREVER, Queue, QueuePolicy, QueueTerms
from penstock.broker.runtime.executor import Executor
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.events import QueueEnded, QueueMoved, QueueStarted
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.tenancy.fair_share import check_room
from penstock.broker.topics import id_lookup
from penstock.broker.topics.topics import Topics
from penstock.log.engine import CommitGroup, ReadPlan, partition_id
from penstock.log.errors import LogError, OffsetOutOfRange
from penstock.log.reading import ReadyPlan

logger = logging.getLogger(__name__)

MAX_REDELIVERIES: Final = 256  # messages redelivered by one dequeue: each is a separate read
MAX_SKIPPED_PER_STEP: Final = 4096  # expired or removed records skipped in one step
MAX_EXHAUSTED: Final = 256  # messages routed to dead letters at once
RECHECK_US: Final = 1_000_000  # until a queue with overdue messages that nobody dequeues is checked again


_NOTHING: Final = ReadyPlan([])


class Queues:
    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        topics: Topics,
        policy: QueuePolicy,
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], int],
        executor: Executor,
    ) -> None:
        self.policy = policy
        self._state_log = state_log
        self._engine = state_log.engine
        self._state = state_log.current
        self._commit = state_log.commit
        self._access = access
        self._topics = topics
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._executor = executor
        self._dequeues: dict[int, Dequeue] = {}  # in progress, by queue
        self._scheduled: dict[int, int] = {}  # queue → time of its next check
        self._heap: list[tuple[int, int]] = []  # (time, queue) in order; entries that are not in `_scheduled` are stale
        self._stalled: set[int] = set()  # queues whose messages could not be read or committed
        self._watchers: dict[int, Callable[[], None]] = {}
        self._idle_checked = 0
        self.rebuilt()

    # -- for clients

    def create(self, identity: Identity, scope: Scope, topic: str, *, at_least_once: bool) -> tuple[Queue, CommitGroup]:
        """A queue of everything stored in the topic from now on. The topic is created if that is allowed."""
        return self._create(self._topic(identity, scope, topic), at_least_once, QueueTerms())

    def named(
        self, identity: Identity, scope: Scope, topic: str, terms: QueueTerms
    ) -> tuple[Queue, CommitGroup | None]:
        """The queue with this name, created with `terms` if it does not exist; an existing one keeps its terms. Its
        messages are delivered at least once. Valid once the group is committed (None: it already is).
        """
        found = self._topic(identity, scope, topic)
        check_group(terms.name)
        queues = self._state().queues.values()
        queue = next((each for each in queues if each.topic == found.id and each.name == terms.name), None)
        if queue is not None:
            return queue, self._state_log.pending_commit
        return self._create(found, True, terms)

    def _topic(self, identity: Identity, scope: Scope, topic: str) -> Topic:
        self._access.require(identity, Permission.READ, scope, topic)
        if is_internal(topic):  # its records must not be dequeued, nor become dead letters
            raise InvalidName(f"'{topic}' is the broker's own: it can be read, but there are no queues of it")
        return self._topics.ensure(identity, scope, topic, Permission.READ)

    def _create(self, topic: Topic, at_least_once: bool, terms: QueueTerms) -> tuple[Queue, CommitGroup]:
        state = self._state()
        tenant, limits = topic.scope.tenant, self._limits
        mine = state.usage_of(tenant).queues
        check_room("queues", limits.queues, len(state.queues), tenant, mine, limits.tenant_share)
        starts = [self._engine.bounds(partition_id(topic.id, n)).high_watermark for n in range(topic.partitions)]
        event = QueueStarted(state.next_queue_id, topic.id, at_least_once, starts, self._clock(), *terms)
        group = self._commit((event,))
        return self._state().queues[event.id], group

    def find(self, identity: Identity, id: int) -> tuple[Queue, Topic]:  # noqa: A002 - it is the queue's id
        """The queue and its topic: see `id_lookup.queue`."""
        return id_lookup.queue(self._state(), self._access, identity, id)

    def in_scope(self, identity: Identity, scope: Scope) -> Sequence[tuple[Queue, Topic]]:
        """The queues of topics that this identity may see, ordered by id."""
        self._access.require_any(identity, Permission.DESCRIBE, scope)
        state, access = self._state(), self._access
        found = [(queue, state.topics_by_id[queue.topic]) for _, queue in sorted(state.queues.items())]
        return [
            (queue, topic)
            for queue, topic in found
            if topic.scope == scope and access.allows(identity, Permission.DESCRIBE, scope, topic.name)
        ]

    def delete(self, identity: Identity, id: int) -> CommitGroup:  # noqa: A002 - it is the queue's id
        return self._commit((QueueEnded(self.find(identity, id)[0].id),))

    def dequeue(
        self,
        identity: Identity,
        id: int,  # noqa: A002 - it is the queue's id
        count: int,
        *,
        skip_expired: bool = False,
        settle: Sequence[int] = (),
        frame_bytes: int = NO_FRAME,
    ) -> Dequeue | None:
        """Plan to dequeue at most `count` messages; None if another read of this queue is in progress. Use
        `skip_expired` after a `Dequeue` that `skipped` some: it reads many records at once to get past the expired
        ones.

        A message that has more than `frame_bytes`, together with its topic's name, is skipped when its turn comes: it
        is reported as `Dequeue.unsendable`, without other messages.

        The tags in `settle` are acknowledged first, as by `acknowledge`, but in the event of `finish`: one event
        instead of two for a client that acknowledges a message and polls for the next. A caller that cannot finish
        immediately clears `Dequeue.settle`.
        """
        queue, topic = self.find(identity, id)
        now = self._clock()
        queue.used = max(queue.used, now)
        if queue.id in self._dequeues:
            return None
        dequeue = Dequeue(self, queue, topic, count, frame_bytes)
        if settle:
            dequeue.acknowledged, dequeue.settle = _in_flight(queue, settle)
        left = count - self._plan_redeliveries(dequeue, now) if queue.tries else count
        partitions = len(queue.cursors)
        for number in range(partitions):
            if left <= 0:
                break
            partition = (number + now) % partitions if partitions > 1 else 0
            start, end = self._engine.bounds(partition_id(queue.topic, partition))
            offset = queue.floor(queue.policy(self.policy), partition, start, end, dequeue.settle)
            if offset < end:
                limit = max(left, MAX_SKIPPED_PER_STEP) if skip_expired else left
                dequeue.plan_new(partition, self._read(queue, partition, offset, limit))
                left -= end - offset
        self._dequeues[queue.id] = dequeue
        return dequeue

    def _plan_redeliveries(self, dequeue: Dequeue, now: int) -> int:
        """Plan redelivery of messages that are due; returns their number."""
        queue, settled, count = dequeue.queue, set(dequeue.settle), 0
        policy = queue.policy(self.policy)
        for tag, attempt in queue.overdue(policy, now):
            if count == min(dequeue.limit, MAX_REDELIVERIES):
                break
            if not policy.exhausted(attempt) and tag not in settled:  # `sweep` handles exhausted ones
                dequeue.plan_redelivery(tag, self._read(queue, *queue.locate(tag), 1))
                count += 1
        return count

    def _read(self, queue: Queue, partition: int, offset: int, limit: int) -> ReadPlan:
        try:
            return self._engine.read(partition_id(queue.topic, partition), offset, READ_BYTES, limit)
        except OffsetOutOfRange:
            return _NOTHING  # removed by retention meanwhile

    def finish(self, dequeue: Dequeue) -> tuple[list[Message], CommitGroup | None]:
        """Implements `Dequeue.finish`."""
        queue, now = dequeue.queue, self._clock()
        state = self._state()
        if not self.end_dequeue(dequeue) or state.queues.get(queue.id) is not queue:
            dequeue.acknowledged = [False] * len(dequeue.acknowledged)
            return [], None  # the queue was deleted meanwhile, or reloaded from the log
        if dequeue.error is not None:
            self._stall(queue, now)
            raise dequeue.error
        topic, policy = dequeue.topic, policy_for(dequeue.topic, queue.policy(self.policy))
        outcome = DequeueOutcome(queue, policy, now, removed_of(state, queue), topic.name, dequeue.frame_bytes)
        for tag, slices in dequeue.redelivered:
            outcome.add_redelivered(tag, slices)
        for partition, slices in dequeue.new:
            outcome.add_new(partition, slices, dequeue.limit)
        event = outcome.event(dequeue.settle)
        if event is None:
            return outcome.messages, None
        try:
            group = self._commit((event,))
        except LogError:
            self._stall(queue, now)
            raise
        if self._scheduled.get(queue.id, FOREVER) > now + policy.backoff:  # not scheduled early enough
            self._schedule(queue)
        outcome.count(self._metrics)
        dequeue.skipped = outcome.skipped
        dequeue.unsendable = outcome.unsendable
        dequeue.more = len(outcome.messages) < dequeue.limit and self._has_more(queue, now)
        return outcome.messages, group

    def _has_more(self, queue: Queue, now: int) -> bool:
        policy = queue.policy(self.policy)
        for partition in range(len(queue.cursors)):
            bounds = self._engine.bounds(partition_id(queue.topic, partition))
            if queue.floor(policy, partition, *bounds) < bounds.high_watermark:
                return True
        return any(not policy.exhausted(attempt) for _, attempt in queue.overdue(policy, now))

    def end_dequeue(self, dequeue: Dequeue) -> bool:
        """Implements `Dequeue.cancel`: allow other dequeues. False if it had ended already."""
        if self._dequeues.get(dequeue.queue.id) is not dequeue:
            return False
        del self._dequeues[dequeue.queue.id]
        return True

    def _stall(self, queue: Queue, now: int) -> None:
        """Schedule a retry: watchers are not called for messages that were there before."""
        self._stalled.add(queue.id)
        self._check_at(queue.id, now + RECHECK_US)

    def acknowledge(
        self,
        identity: Identity,
        id: int,  # noqa: A002 - it is the queue's id
        tags: Sequence[int],
    ) -> tuple[list[bool], CommitGroup | None]:
        """Settle the tags; returns for each whether it was in flight."""
        queue = self.find(identity, id)[0]
        acknowledged, known = _in_flight(queue, tags)
        if not known:
            return acknowledged, None
        queue.used = max(queue.used, self._clock())
        return acknowledged, self._commit((QueueMoved(queue.id, queue.used, queue.cursors, settled=known),))

    def release(
        self,
        identity: Identity,
        id: int,  # noqa: A002 - it is the queue's id
        tags: Sequence[int],
    ) -> CommitGroup | None:
        """Make deliveries in flight due immediately, for another attempt, or as dead letters if that was the last. None
        if none was in flight.
        """
        queue = self.find(identity, id)[0]
        _, known = _in_flight(queue, tags)
        if not known:
            return None
        now = queue.used = max(queue.used, self._clock())
        group = self._commit((QueueMoved(queue.id, now, queue.cursors, released=known),))
        self._check_at(queue.id, now)
        return group

    def watch(self, identity: Identity, id: int, callback: Callable[[], None]) -> Callable[[], None]:  # noqa: A002
        """Call back when the queue may have messages: the topic grew, or deliveries are due again. The returned
        function ends it. A queue has one watcher, the last one registered; see `is_watching`.
        """
        queue, topic = self.find(identity, id)
        partitions = [partition_id(topic.id, number) for number in range(topic.partitions)]
        unwatch = watch_all(self._engine, partitions, callback)
        self._watchers[id] = callback
        self._schedule(queue)

        def stop() -> None:
            unwatch()
            self._unwatch(id, callback)

        return stop

    def is_watching(self, id: int, callback: Callable[[], None]) -> bool:  # noqa: A002 - it is the queue's id
        """Whether no other watcher has been registered for the queue since."""
        return self._watchers.get(id) == callback

    def _unwatch(self, id: int, callback: Callable[[], None]) -> None:  # noqa: A002 - it is the queue's id
        if self.is_watching(id, callback):
            del self._watchers[id]
            with contextlib.suppress(ShuttingDown):
                if (queue := self._state().queues.get(id)) is not None:
                    queue.used = max(queue.used, self._clock())  # it was in use until now

    # -- periodic work

    def rebuilt(self) -> None:
        """The state was reloaded from the log: schedule the checks of all queues again."""
        self._heap.clear()
        self._scheduled.clear()
        self._dequeues.clear()
        self._stalled.clear()
        now = self._clock()
        for queue in self._state().queues.values():
            queue.used = max(queue.used, now)  # empty polls are not logged: count from now
            self._schedule(queue)

    def _schedule(self, queue: Queue) -> None:
        if queue.tries:
            self._check_at(queue.id, queue.next_due(queue.policy(self.policy)))

    def _check_at(self, id: int, at: int) -> None:  # noqa: A002 - it is the queue's id
        known = self._scheduled.get(id)
        if known is None or at < known:
            self._scheduled[id] = at
            heapq.heappush(self._heap, (at, id))

    def sweep(self, now: int) -> None:
        """Route exhausted messages to dead letters, wake watchers, delete idle queues. Called a few times a second."""
        while self._heap and self._heap[0][0] <= now:
            at, id = heapq.heappop(self._heap)  # noqa: A001 - it is the queue's id
            if self._scheduled.get(id) == at:
                del self._scheduled[id]
                if (queue := self._state().queues.get(id)) is not None:
                    self._check(queue, now)
        if self.policy.idle and now - self._idle_checked > min(self.policy.idle // 4, 60_000_000):
            self._idle_checked = now
            self._end_idle(now)

    def _check(self, queue: Queue, now: int) -> None:
        policy, watcher = queue.policy(self.policy), self._watchers.get(queue.id)
        overdue = list(queue.overdue(policy, now))
        exhausted = [tag for tag, attempt in overdue if policy.exhausted(attempt)]
        if exhausted:
            self._route_to_dead_letters(queue, exhausted[:MAX_EXHAUSTED])
        stalled = queue.id in self._stalled
        self._stalled.discard(queue.id)
        if watcher is not None and (stalled or len(exhausted) < len(overdue)):
            try:
                watcher()
            except Exception:
                logger.exception("pushing messages of queue %d failed", queue.id, extra={"queue": queue.id})
        # Polling clients find due messages themselves: only messages to be exhausted need another check.
        attempts = policy.attempts if watcher is None else 1
        if attempts and (due := queue.due_after(policy, now, attempts)) < FOREVER:
            self._check_at(queue.id, due)
        if exhausted or (watcher is not None and overdue):
            self._check_at(queue.id, now + (1 if len(exhausted) > MAX_EXHAUSTED else RECHECK_US))

    def _route_to_dead_letters(self, queue: Queue, tags: Sequence[int]) -> None:
        plans = {tag: self._read(queue, *queue.locate(tag), 1) for tag in tags}
        ExhaustedMessages(
            *(self._state_log, self._limits, self._metrics, self._clock, queue, plans),
            partial(self._check_at, queue.id),
        ).start(self._executor)

    def _end_idle(self, now: int) -> None:
        idle = [q for q in self._state().queues.values() if now - q.used > self.policy.idle and not q.name]
        idle = [queue for queue in idle if queue.id not in self._watchers]
        if not idle:
            return
        try:
            self._commit([QueueEnded(queue.id) for queue in idle])
        except LogError as error:
            logger.warning("%d unused queues could not be ended yet: %s", len(idle), error)
            return
        self._metrics.queues_ended += len(idle)
        logger.info("%d queues ended, unused for %g s", len(idle), self.policy.idle / 1e6)


def _in_flight(queue: Queue, tags: Sequence[int]) -> tuple[list[bool], list[int]]:
    """The tags in flight, as flags and as tags; a repeated tag counts only the first time."""
    tries = queue.tries.values()
    if len(tries) == 1:  # almost always
        (attempted,) = tries
        acknowledged = [tag in attempted for tag in tags]
        if all(acknowledged) and len(set(tags)) == len(tags):
            return acknowledged, list(tags)
    known: dict[int, None] = {}  # in order
    acknowledged = []
    for tag in tags:
        found = tag not in known and any(tag in attempted for attempted in tries)
        acknowledged.append(found)
        if found:
            known[tag] = None
    return acknowledged, list(known)
