"""All queues of a broker: starting one, taking messages out of it, acknowledging them, giving them up.

The rules of one queue are in `queue`; this module brings them together with the log. Every change is an event. A
message may leave only when the event that says so is committed, so that nothing is forgotten that a client may have
seen: neither how often a message was tried, nor that it was acknowledged.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from penstock.broker.errors import BrokerError, InvalidName, LimitReached, ShuttingDown
from penstock.broker.fetch import visible_read
from penstock.broker.fetch.fetch_waiters import watch_all
from penstock.broker.fetch.removal import Gone
from penstock.broker.limits import Limits
from penstock.broker.names import Scope, is_internal
from penstock.broker.queues import dead_letter
from penstock.broker.queues.queue import FOREVER, Queue, QueuePolicy
from penstock.broker.runtime.executor import Executor
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.events import QueueEnded, QueueMoved, QueueStarted
from penstock.broker.state.state import State, Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.topics import id_lookup
from penstock.broker.topics.topics import Topics
from penstock.log.batch import EXPIRES, HEADERS, Headers, RecordSlice
from penstock.log.engine import CommitGroup, PartitionId, ReadPlan, Records, partition_id
from penstock.log.errors import LogError, OffsetOutOfRange
from penstock.log.reading import ReadyPlan

logger = logging.getLogger(__name__)

AT_MOST_ONCE: Final[Headers] = (("qos", b"0"),)
"""The headers of a record whose producer wants it delivered once at most."""

READ_BYTES: Final = 1 << 20  # about the most bytes taken at once
AGAIN: Final = 256  # most messages taken once more at once: each is a read of its own
MAX_SKIPPED_PER_STEP: Final = 4096  # expired or removed records passed over in one step
LETTERS: Final = 256  # most messages given up at once
LOOK_AGAIN: Final = 1_000_000  # µs after which a queue is looked at again whose overdue messages nobody takes


_NOTHING: Final = ReadyPlan([])


class Message(NamedTuple):
    tag: int
    at_least_once: bool
    value: bytes


class Dequeue:
    """Messages on their way out of a queue. If not `ready`, `read` blocks on the disk. `finish` or `cancel` comes last,
    and until then nobody else can take from the queue."""

    __slots__ = (
        "_plans_again",
        "_plans_fresh",
        "_queues",
        "again",
        "answers",
        "error",
        "fresh",
        "more",
        "passed",
        "queue",
        "ready",
        "settle",
        "topic",
        "wanted",
    )

    def __init__(self, queues: Queues, queue: Queue, topic: Topic, wanted: int) -> None:
        self._queues = queues
        self.queue = queue
        self.topic = topic
        self.wanted = wanted
        self._plans_again: list[tuple[int, ReadPlan]] = []  # by tag
        self._plans_fresh: list[tuple[int, ReadPlan]] = []  # by partition
        self.again: list[tuple[int, list[RecordSlice]]] = []  # what was read, by tag
        self.fresh: list[tuple[int, list[RecordSlice]]] = []  # what was read, by partition
        self.settle: list[int] = []  # tags that are acknowledged by the same event
        self.answers: list[bool] = []  # of the tags that `take` was told to settle, which were in flight
        self.ready = True
        self.more = False  # after `finish`: fewer were taken than are there and were wanted
        self.passed = False  # after `finish`: expired or removed messages were passed over
        self.error: LogError | None = None

    def plan_again(self, tag: int, plan: ReadPlan) -> None:
        self._plans_again.append((tag, plan))
        self.ready = self.ready and plan.ready

    def plan_fresh(self, partition: int, plan: ReadPlan) -> None:
        self._plans_fresh.append((partition, plan))
        self.ready = self.ready and plan.ready

    def read(self) -> None:
        """May be called on any thread. An error comes out of `finish`."""
        try:
            if self._plans_again:
                self.again = [(tag, plan.run()) for tag, plan in self._plans_again]
            self.fresh = [(partition, plan.run()) for partition, plan in self._plans_fresh]
        except LogError as error:
            self.error = error

    def finish(self) -> tuple[list[Message], CommitGroup | None]:
        """The messages, which may be sent once the group is committed (None: nothing has changed)."""
        return self._queues._finish(self)

    def cancel(self) -> None:
        """Leave the messages where they are."""
        self._queues._release(self)


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
        self._engine = state_log.engine
        self._state = state_log.current
        self._commit = state_log.commit
        self._access = access
        self._topics = topics
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._executor = executor
        self._taking: dict[int, Dequeue] = {}  # under way, by queue
        self._armed: dict[int, int] = {}  # when to look at a queue again
        self._heap: list[tuple[int, int]] = []  # the same, in order; an entry that `_armed` does not have is void
        self._stalled: set[int] = set()  # queues whose messages could not be taken, though they are there
        self._watchers: dict[int, Callable[[], None]] = {}
        self._idle_checked = 0
        self.rebuilt()

    # -- for clients

    def create(self, identity: Identity, scope: Scope, topic: str, *, at_least_once: bool) -> tuple[Queue, CommitGroup]:
        """A queue of everything that is stored in the topic from now on. The topic is created if that is allowed."""
        self._access.require(identity, Permission.READ, scope, topic)
        if is_internal(topic):  # its records are not to be dequeued, nor routed to a topic of dead letters
            raise InvalidName(f"'{topic}' is the broker's own: it can be read, but there are no queues of it")
        return self._create(self._topics.ensure(identity, scope, topic, Permission.READ), at_least_once)

    def _create(self, topic: Topic, at_least_once: bool) -> tuple[Queue, CommitGroup]:
        state = self._state()
        if len(state.queues) >= self._limits.queues:
            raise LimitReached(f"The broker holds {self._limits.queues} queues, which is its limit")
        starts = [self._engine.bounds(partition_id(topic.id, n)).high_watermark for n in range(topic.partitions)]
        event = QueueStarted(state.next_queue_id, topic.id, at_least_once, starts, self._clock())
        group = self._commit((event,))
        return self._state().queues[event.id], group

    def find(self, identity: Identity, id: int) -> tuple[Queue, Topic]:  # noqa: A002 - it is the queue's id
        """The queue and its topic: see `id_lookup.queue`."""
        return id_lookup.queue(self._state(), self._access, identity, id)

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
    ) -> Dequeue | None:
        """Plan to dequeue up to `count` messages; None if another read of this queue is under way. `skip_expired` after
        a `Dequeue` that `passed` some: look at many records at once to get past the expired ones.

        The tags in `settle` are acknowledged first, as `acknowledge` does, but by the event of `finish`: one instead of
        two for a client that acknowledges a message and asks for the next. Who cannot finish at once takes them out."""
        queue, topic = self.find(identity, id)
        now = self._clock()
        queue.used = max(queue.used, now)
        if queue.id in self._taking:
            return None
        taking = Dequeue(self, queue, topic, count)
        if settle:
            taking.answers, taking.settle = _in_flight(queue, settle)
        left = count - self._plan_again(taking, now) if queue.tries else count
        partitions = len(queue.cursors)
        for number in range(partitions):
            if left <= 0:
                break
            partition = (number + now) % partitions if partitions > 1 else 0
            start, end = self._engine.bounds(partition_id(queue.topic, partition))
            offset = queue.floor(self.policy, partition, start, end, taking.settle)
            if offset < end:
                limit = max(left, MAX_SKIPPED_PER_STEP) if skip_expired else left
                taking.plan_fresh(partition, self._read(queue, partition, offset, limit))
                left -= end - offset
        self._taking[queue.id] = taking
        return taking

    def _plan_again(self, taking: Dequeue, now: int) -> int:
        """Plan to take what is due once more; returns how many messages that is."""
        queue, settled, count = taking.queue, set(taking.settle), 0
        for tag, attempt in queue.overdue(self.policy, now):
            if count == min(taking.wanted, AGAIN):
                break
            if not self.policy.exhausted(attempt) and tag not in settled:  # the exhausted are given up by `sweep`
                taking.plan_again(tag, self._read(queue, *queue.place(tag), 1))
                count += 1
        return count

    def _read(self, queue: Queue, partition: int, offset: int, limit: int) -> ReadPlan:
        try:
            return self._engine.read(partition_id(queue.topic, partition), offset, READ_BYTES, limit)
        except OffsetOutOfRange:
            return _NOTHING  # retention was quicker

    def _finish(self, taking: Dequeue) -> tuple[list[Message], CommitGroup | None]:
        queue, now = taking.queue, self._clock()
        state = self._state()
        if not self._release(taking) or state.queues.get(queue.id) is not queue:
            taking.answers = [False] * len(taking.answers)
            return [], None  # the queue ended meanwhile, or was read from the log again
        if taking.error is not None:
            self._stall(queue, now)
            raise taking.error
        turn = _Turn(queue, _policy_for(taking.topic, self.policy), now, _removed(state, queue))
        for tag, slices in taking.again:
            turn.again(tag, slices)
        for partition, slices in taking.fresh:
            turn.fresh(partition, slices, taking.wanted)
        event = turn.event(taking.settle)
        if event is None:
            return turn.messages, None
        try:
            group = self._commit((event,))
        except LogError:
            self._stall(queue, now)
            raise
        if self._armed.get(queue.id, FOREVER) > now + self.policy.backoff:  # it is not armed for all that was sent
            self._arm(queue)
        turn.count(self._metrics)
        taking.passed = turn.passed
        taking.more = len(turn.messages) < taking.wanted and self._has_more(queue, now)
        return turn.messages, group

    def _has_more(self, queue: Queue, now: int) -> bool:
        for partition in range(len(queue.cursors)):
            bounds = self._engine.bounds(partition_id(queue.topic, partition))
            if queue.floor(self.policy, partition, *bounds) < bounds.high_watermark:
                return True
        return any(not self.policy.exhausted(attempt) for _, attempt in queue.overdue(self.policy, now))

    def _release(self, taking: Dequeue) -> bool:
        """Let others take from the queue. False if that was so already."""
        if self._taking.get(taking.queue.id) is not taking:
            return False
        del self._taking[taking.queue.id]
        return True

    def _stall(self, queue: Queue, now: int) -> None:
        """Who pushes is not told of messages that were there before: wake it for another try."""
        self._stalled.add(queue.id)
        self._look_at(queue.id, now + LOOK_AGAIN)

    def acknowledge(
        self,
        identity: Identity,
        id: int,  # noqa: A002 - it is the queue's id
        tags: Sequence[int],
    ) -> tuple[list[bool], CommitGroup | None]:
        """Which of the tags were in flight, and are no longer."""
        queue = self.find(identity, id)[0]
        answers, known = _in_flight(queue, tags)
        if not known:
            return answers, None
        queue.used = max(queue.used, self._clock())
        return answers, self._commit((QueueMoved(queue.id, queue.used, queue.cursors, settled=known),))

    def watch(self, identity: Identity, id: int, callback: Callable[[], None]) -> Callable[[], None]:  # noqa: A002
        """Call back when the queue may have messages: the topic grew, or some fall due again. Ends when the function
        that is returned is called. Of several watchers of a queue, the last one is called back; see `is_watching`."""
        queue, topic = self.find(identity, id)
        partitions = [partition_id(topic.id, number) for number in range(topic.partitions)]
        unwatch = watch_all(self._engine, partitions, callback)
        self._watchers[id] = callback
        self._arm(queue)

        def stop() -> None:
            unwatch()
            self._unwatch(id, callback)

        return stop

    def is_watching(self, id: int, callback: Callable[[], None]) -> bool:  # noqa: A002 - it is the queue's id
        """Whether nobody else has begun to watch the queue since this one did."""
        return self._watchers.get(id) == callback

    def _unwatch(self, id: int, callback: Callable[[], None]) -> None:  # noqa: A002 - it is the queue's id
        if self.is_watching(id, callback):
            del self._watchers[id]
            with contextlib.suppress(ShuttingDown):
                if (queue := self._state().queues.get(id)) is not None:
                    queue.used = max(queue.used, self._clock())  # in use until now

    # -- by the clock

    def rebuilt(self) -> None:
        """The state was read from the log: find out anew when to look at which queue."""
        self._heap.clear()
        self._armed.clear()
        self._taking.clear()
        self._stalled.clear()
        now = self._clock()
        for queue in self._state().queues.values():
            queue.used = max(queue.used, now)  # polls that found nothing left no trace: count from here
            self._arm(queue)

    def _arm(self, queue: Queue) -> None:
        if queue.tries:
            self._look_at(queue.id, queue.next_due(self.policy))

    def _look_at(self, id: int, at: int) -> None:  # noqa: A002 - it is the queue's id
        known = self._armed.get(id)
        if known is None or at < known:
            self._armed[id] = at
            heapq.heappush(self._heap, (at, id))

    def sweep(self, now: int) -> None:
        """Give up what was tried often enough, wake who pushes, end queues that nobody uses. A few times a second."""
        while self._heap and self._heap[0][0] <= now:
            at, id = heapq.heappop(self._heap)  # noqa: A001 - it is the queue's id
            if self._armed.get(id) == at:
                del self._armed[id]
                if (queue := self._state().queues.get(id)) is not None:
                    self._look(queue, now)
        if self.policy.idle and now - self._idle_checked > min(self.policy.idle // 4, 60_000_000):
            self._idle_checked = now
            self._end_idle(now)

    def _look(self, queue: Queue, now: int) -> None:
        policy, watcher = self.policy, self._watchers.get(queue.id)
        overdue = list(queue.overdue(policy, now))
        doomed = [tag for tag, attempt in overdue if policy.exhausted(attempt)]
        if doomed:
            _GivingUp(self, queue, doomed[:LETTERS]).start()
        stalled = queue.id in self._stalled
        self._stalled.discard(queue.id)
        if watcher is not None and (stalled or len(doomed) < len(overdue)):
            try:
                watcher()
            except Exception:
                logger.exception("whoever pushes queue %d failed", queue.id)
        # Who polls finds by itself what is due: only what will have to be given up needs another look then.
        attempts = policy.attempts if watcher is None else 1
        if attempts and (due := queue.due_after(policy, now, attempts)) < FOREVER:
            self._look_at(queue.id, due)
        if doomed or (watcher is not None and overdue):
            self._look_at(queue.id, now + (1 if len(doomed) > LETTERS else LOOK_AGAIN))

    def _end_idle(self, now: int) -> None:
        idle = [q for q in self._state().queues.values() if now - q.used > self.policy.idle]
        idle = [queue for queue in idle if queue.id not in self._watchers]
        if not idle:
            return
        try:
            self._commit([QueueEnded(queue.id) for queue in idle])
        except LogError as error:
            logger.warning("%d queues that nobody uses could not be ended yet: %s", len(idle), error)
            return
        self._metrics.queues_ended += len(idle)
        logger.info("%d queues ended that nobody had used for %g s", len(idle), self.policy.idle / 1e6)


def _policy_for(topic: Topic, policy: QueuePolicy) -> QueuePolicy:
    """With the topic's own expiry, if it is the shorter one."""
    expiry = visible_read.expiry(topic)
    return policy._replace(ttl=expiry) if expiry and not 0 < policy.ttl <= expiry else policy


def _removed(state: State, queue: Queue) -> dict[int, Gone]:
    """What was removed from the queue's partitions."""
    if not state.removed:
        return {}
    places = {number: partition_id(queue.topic, number) for number in range(len(queue.cursors))}
    return {number: state.removed[place] for number, place in places.items() if place in state.removed}


def _is_removed(queue: Queue, tag: int, removed: dict[int, Gone]) -> bool:
    if not removed:
        return False
    partition, offset = queue.place(tag)
    return partition in removed and removed[partition].has(offset)


def _in_flight(queue: Queue, tags: Sequence[int]) -> tuple[list[bool], list[int]]:
    """Which of the tags are in flight, as answers and as tags; one that is named twice is, for the first time only."""
    tries = queue.tries.values()
    if len(tries) == 1:  # almost always
        (attempted,) = tries
        answers = [tag in attempted for tag in tags]
        if all(answers) and len(set(tags)) == len(tags):
            return answers, list(tags)
    known: dict[int, None] = {}  # in order
    answers = []
    for tag in tags:
        found = tag not in known and any(tag in attempted for attempted in tries)
        answers.append(found)
        if found:
            known[tag] = None
    return answers, list(known)


class _Turn:
    """What one `Dequeue` does to its queue."""

    __slots__ = (
        "_bytes",
        "_cursors",
        "_now",
        "_policy",
        "_queue",
        "_removed",
        "_sent",
        "_settled",
        "dropped",
        "expired",
        "messages",
        "passed",
        "repeated",
    )

    def __init__(self, queue: Queue, policy: QueuePolicy, now: int, removed: dict[int, Gone]) -> None:
        self._removed = removed  # by partition
        self._queue = queue
        self._policy = policy
        self._now = now
        self._cursors = list(queue.cursors)
        self._sent: list[int] = []
        self.repeated: list[int] = []
        self._settled: list[int] = []
        self.messages: list[Message] = []
        self.expired = self.dropped = 0
        self.passed = False
        self._bytes = 0  # of what is taken once more

    def again(self, tag: int, slices: list[RecordSlice]) -> None:
        if not self._queue.attempt(tag) or self._bytes > READ_BYTES:
            return  # acknowledged meanwhile, or left for the next time
        record = slices[0] if slices else None
        if record is None or _is_removed(self._queue, tag, self._removed):
            self.dropped += 1
            self._settled.append(tag)
        elif self._policy.expired(self._now, record.timestamps()[0], record.expires()[0]):
            self.expired += 1
            self.passed = True
            self._settled.append(tag)
        else:
            self.repeated.append(tag)
            self.messages.append(Message(tag, True, record.values()[0]))
            self._bytes += len(self.messages[-1].value)

    def fresh(self, partition: int, slices: list[RecordSlice], wanted: int) -> None:
        for part in slices:
            left = wanted - len(self.messages)
            if left <= 0:
                return
            offset = part.base_offset
            if offset > self._cursors[partition]:
                self.dropped += offset - self._cursors[partition]
            if self._plain(part):
                self._take_plain(partition, part, offset, left)
            else:
                self._cursors[partition] = offset
                self._take_one_by_one(partition, part, wanted)

    def _plain(self, part: RecordSlice) -> bool:
        """No record of it has expired or was removed, and all are to be delivered alike."""
        batch, ttl = part.batch, self._policy.ttl
        if batch.flags & (HEADERS | EXPIRES) or self._removed:
            return False
        return not ttl or self._now - batch.min_timestamp < ttl

    def _take_plain(self, partition: int, part: RecordSlice, offset: int, count: int) -> None:
        queue, at_least_once = self._queue, self._queue.at_least_once
        values = part.values()
        if len(values) > count:
            del values[count:]
        first, step = queue.tag(partition, offset), len(self._cursors)
        tags = range(first, first + step * len(values), step)
        self.messages += map(Message, tags, repeat(at_least_once), values)
        self._cursors[partition] = offset + len(values)
        if at_least_once:
            self._sent += tags

    def _take_one_by_one(self, partition: int, part: RecordSlice, wanted: int) -> None:
        queue, policy, now = self._queue, self._policy, self._now
        gone = self._removed.get(partition)
        columns = zip(part.values(), part.timestamps(), part.expires(), part.headers(), strict=True)
        for offset, (value, stored, expires, headers) in enumerate(columns, part.base_offset):
            if len(self.messages) >= wanted:
                return
            self._cursors[partition] = offset + 1
            if gone is not None and gone.has(offset):
                self.dropped += 1
                self.passed = True
                continue
            if policy.expired(now, stored, expires):
                self.expired += 1
                self.passed = True
                continue
            tag = queue.tag(partition, offset)
            at_least_once = queue.at_least_once and AT_MOST_ONCE[0] not in headers
            if at_least_once:
                self._sent.append(tag)
            self.messages.append(Message(tag, at_least_once, value))

    def count(self, metrics: Metrics) -> None:
        if self.expired or self.dropped or self.repeated:
            metrics.queue_expired += self.expired
            metrics.queue_dropped += self.dropped
            metrics.queue_redelivered += len(self.repeated)
        metrics.messages_fetched += len(self.messages)
        metrics.bytes_out += sum([len(value) for _, _, value in self.messages])

    def event(self, settle: list[int]) -> QueueMoved | None:
        """`settle`: tags that are acknowledged with it."""
        settled = settle + self._settled if self._settled else settle
        if self._cursors == self._queue.cursors and not self.repeated and not settled:
            return None
        return QueueMoved(self._queue.id, self._now, self._cursors, self._sent, self.repeated, settled)


class _GivingUp:
    """Messages that were tried often enough, on their way to the dead letters of their topic."""

    def __init__(self, queues: Queues, queue: Queue, tags: list[int]) -> None:
        self._queues = queues
        self._queue = queue
        self._attempts = {tag: queue.attempt(tag) for tag in tags}
        self._plans = {tag: queues._read(queue, *queue.place(tag), 1) for tag in tags}
        self._slices: dict[int, list[RecordSlice]] = {}  # of those that are given up now
        self._error: LogError | None = None

    def start(self) -> None:
        self._queues._executor(self._read, self._done)

    def _read(self) -> None:
        """As many as can be kept as one entry."""
        size = 0
        try:
            for tag, plan in self._plans.items():
                slices = self._slices[tag] = plan.run()
                size += sum([part.byte_size() for part in slices])
                if size > READ_BYTES:
                    break
        except LogError as error:
            self._error = error

    def _done(self) -> None:
        """What could not be kept is tried again at a later sweep."""
        try:
            if self._error is not None:
                raise self._error
            self._give_up()
        except (LogError, BrokerError) as error:
            logger.warning("messages of queue %d could not be given up yet: %s", self._queue.id, error)

    def _give_up(self) -> None:
        queues, queue = self._queues, self._queue
        state, now = queues._state(), queues._clock()
        if state.queues.get(queue.id) is not queue:
            return
        still = [tag for tag in self._slices if queue.attempt(tag) == self._attempts[tag]]
        removed = _removed(state, queue)
        letters = [tag for tag in still if self._slices[tag] and not _is_removed(queue, tag, removed)]
        topic = state.topics_by_id[queue.topic]
        target, created = dead_letter.target(state, queues._limits, topic, now) if letters else (None, [])
        if target is None:
            letters = []
        writes = [self._records(target, topic, letters, now)] if target is not None else []
        if still:
            queues._commit((*created, QueueMoved(queue.id, queue.used, queue.cursors, settled=still)), writes)
            queues._metrics.queue_dead_lettered += len(letters)
            queues._metrics.queue_dropped += len(still) - len(letters)
        if len(self._slices) < len(self._plans):
            queues._look_at(queue.id, now + 1)

    def _records(self, target: PartitionId, topic: Topic, tags: list[int], now: int) -> Records:
        parts = [self._slices[tag][0] for tag in tags]
        headers = []
        for tag, part in zip(tags, parts, strict=True):
            partition, offset = self._queue.place(tag)
            told = {
                "reason": "attempts used up",
                "attempts": self._attempts[tag],
                "topic": topic.name,
                "partition": partition,
                "offset": offset,
                "queue": self._queue.id,
                "stored": part.timestamps()[0],
                "last-attempt": self._queue.tries[self._attempts[tag]][tag],
                "given-up": now,
            }
            headers.append(dead_letter.headers(part.headers()[0], told))
        return Records(target, [part.values()[0] for part in parts], [part.keys()[0] for part in parts], headers)
