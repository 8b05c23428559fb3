"""One read of a queue: which messages it delivers, and the event that moves the queue.

Messages are sent only when that event is committed, so that nothing a client may have seen is lost in a crash: neither
the number of attempts, nor an acknowledgement.
"""

from __future__ import annotations

from itertools import repeat
from typing import Final, NamedTuple, Protocol

from penstock.broker.errors import RecordUnsendable
from penstock.broker.fetch import visible_read
from penstock.broker.fetch.removal import RemovedRecords
from penstock.broker.names import MAX_NAME_BYTES
from penstock.broker.queues.queue import Queue, QueuePolicy
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.state.events import QueueMoved
from penstock.broker.state.state import State, Topic
from penstock.log.batch import EXPIRES, HEADERS, Headers, RecordSlice
from penstock.log.engine import CommitGroup, ReadPlan, partition_id

AT_MOST_ONCE: Final[Headers] = (("qos", b"0"),)
"""The headers of a record that its producer wants delivered at most once."""

READ_BYTES: Final = 1 << 20  # approximate limit of one read, bytes
NO_FRAME: Final = 1 << 62  # bytes: for a reader whose protocol has no frame limit


class Message(NamedTuple):
    tag: int
    at_least_once: bool
    value: bytes


class DequeueOwner(Protocol):
    """The queues that a `Dequeue` belongs to."""

    def finish(self, dequeue: Dequeue) -> tuple[list[Message], CommitGroup | None]: ...

    def end_dequeue(self, dequeue: Dequeue) -> bool: ...


class Dequeue:
    """One read of a queue. `read` reads the messages (from disk unless `ready`: any thread); `finish` delivers them and
    moves the queue, `cancel` leaves it unchanged. Until then no other dequeue of the queue is possible.
    """

    __slots__ = (
        "_new_plans",
        "_queues",
        "_redelivery_plans",
        "acknowledged",
        "error",
        "frame_bytes",
        "limit",
        "more",
        "new",
        "queue",
        "ready",
        "redelivered",
        "settle",
        "skipped",
        "topic",
        "unsendable",
    )

    def __init__(
        self, queues: DequeueOwner, queue: Queue, topic: Topic, limit: int, frame_bytes: int = NO_FRAME
    ) -> None:
        """`frame_bytes`: the most that a message and its topic's name may have together to be delivered."""
        self._queues = queues
        self.queue = queue
        self.topic = topic
        self.limit = limit
        self._redelivery_plans: list[tuple[int, ReadPlan]] = []  # by tag
        self._new_plans: list[tuple[int, ReadPlan]] = []  # by partition
        self.redelivered: list[tuple[int, list[RecordSlice]]] = []  # records, by tag
        self.new: list[tuple[int, list[RecordSlice]]] = []  # records, by partition
        self.settle: list[int] = []  # tags to acknowledge in the same event
        self.acknowledged: list[bool] = []  # for each tag that was to be settled: whether it was in flight
        self.ready = True
        self.more = False  # after `finish`: fewer than the limit were delivered although there are more
        self.skipped = False  # after `finish`: expired or removed messages were skipped
        self.frame_bytes = frame_bytes
        self.unsendable: RecordUnsendable | None = None  # after `finish`: a skipped message that is too large
        self.error: Exception | None = None

    def plan_redelivery(self, tag: int, plan: ReadPlan) -> None:
        self._redelivery_plans.append((tag, plan))
        self.ready = self.ready and plan.ready

    def plan_new(self, partition: int, plan: ReadPlan) -> None:
        self._new_plans.append((partition, plan))
        self.ready = self.ready and plan.ready

    def read(self) -> None:
        """Read the messages, on any thread. An error is raised by `finish`."""
        try:
            if self._redelivery_plans:
                self.redelivered = [(tag, plan.run()) for tag, plan in self._redelivery_plans]
            self.new = [(partition, plan.run()) for partition, plan in self._new_plans]
        except Exception as error:  # noqa: BLE001 - raised again on the broker's thread
            self.error = error

    def finish(self) -> tuple[list[Message], CommitGroup | None]:
        """The messages, which may be sent once the group is committed (None: nothing changed)."""
        return self._queues.finish(self)

    def cancel(self) -> None:
        """Leave the messages in the queue."""
        self._queues.end_dequeue(self)


class DequeueOutcome:
    """The messages of one `Dequeue`, and the changes to its queue."""

    __slots__ = (
        "_bytes",
        "_cursors",
        "_frame_bytes",
        "_now",
        "_policy",
        "_queue",
        "_removed",
        "_sent",
        "_settled",
        "_topic",
        "dropped",
        "expired",
        "messages",
        "repeated",
        "skipped",
        "unsendable",
    )

    def __init__(
        self,
        queue: Queue,
        policy: QueuePolicy,
        now: int,
        removed: dict[int, RemovedRecords],
        topic: str,
        frame_bytes: int = NO_FRAME,
    ) -> None:
        """`frame_bytes` as in `Dequeue`."""
        self._topic = topic
        self._frame_bytes = frame_bytes
        self.unsendable: RecordUnsendable | None = None  # skipped; then no other message is dequeued
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
        self.skipped = False
        self._bytes = 0  # of redelivered messages

    def add_redelivered(self, tag: int, slices: list[RecordSlice]) -> None:
        if not self._queue.attempt(tag) or self._bytes > READ_BYTES or self.unsendable is not None:
            return  # acknowledged meanwhile, or left for the next dequeue
        record = slices[0] if slices else None
        if record is None or is_removed(self._queue, tag, self._removed):
            self.dropped += 1
            self._settled.append(tag)
        elif self._policy.expired(self._now, record.timestamps()[0], record.expires()[0]):
            self.expired += 1
            self.skipped = True
            self._settled.append(tag)
        elif not self._fits(value := record.values()[0]):
            if self._pass_over(self._queue.locate(tag)[1], value):
                self._settled.append(tag)
        else:
            self.repeated.append(tag)
            self.messages.append(Message(tag, True, value))
            self._bytes += len(value)

    def _fits(self, value: bytes) -> bool:
        size = len(value)
        return size <= self._frame_bytes - MAX_NAME_BYTES or size <= self._largest

    @property
    def _largest(self) -> int:
        return self._frame_bytes - len(self._topic.encode())

    def _pass_over(self, offset: int, value: bytes) -> bool:
        """Skip a message that fits no frame. False if messages before it have to be delivered first, so that the reader
        learns of it in order.
        """
        if self.messages:
            return False
        self.unsendable = RecordUnsendable(offset, len(value), self._largest)
        return True

    def add_new(self, partition: int, slices: list[RecordSlice], limit: int) -> None:
        for part in slices:
            left = limit - len(self.messages)
            if left <= 0 or self.unsendable is not None:
                return
            offset = part.base_offset
            if offset > self._cursors[partition]:
                self.dropped += offset - self._cursors[partition]
            if self._is_uniform(part):
                self._add_uniform(partition, part, offset, left)
            else:
                self._cursors[partition] = offset
                if not self._add_one_by_one(partition, part, limit):
                    return

    def _is_uniform(self, part: RecordSlice) -> bool:
        """Whether none of its records has expired, was removed or is too large, and all are delivered in the
        same way.
        """
        batch, ttl = part.batch, self._policy.ttl
        if batch.flags & (HEADERS | EXPIRES) or self._removed:
            return False
        if batch.value_bytes > self._frame_bytes - MAX_NAME_BYTES:
            return False
        return not ttl or self._now - batch.min_timestamp < ttl

    def _add_uniform(self, partition: int, part: RecordSlice, offset: int, count: int) -> None:
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

    def _add_one_by_one(self, partition: int, part: RecordSlice, limit: int) -> bool:
        """False if no more is dequeued from this partition."""
        queue, policy, now = self._queue, self._policy, self._now
        removed = self._removed.get(partition)
        columns = zip(part.values(), part.timestamps(), part.expires(), part.headers(), strict=True)
        for offset, (value, stored, expires, headers) in enumerate(columns, part.base_offset):
            if len(self.messages) >= limit:
                return False
            self._cursors[partition] = offset + 1
            if removed is not None and removed.has(offset):
                self.dropped += 1
                self.skipped = True
                continue
            if policy.expired(now, stored, expires):
                self.expired += 1
                self.skipped = True
                continue
            if not self._fits(value):
                if not self._pass_over(offset, value):
                    self._cursors[partition] = offset
                return False
            tag = queue.tag(partition, offset)
            at_least_once = queue.at_least_once and AT_MOST_ONCE[0] not in headers
            if at_least_once:
                self._sent.append(tag)
            self.messages.append(Message(tag, at_least_once, value))
        return True

    def count(self, metrics: Metrics) -> None:
        if self.expired or self.dropped or self.repeated:
            metrics.queue_expired += self.expired
            metrics.queue_dropped += self.dropped
            metrics.queue_redelivered += len(self.repeated)
        metrics.dequeued(len(self.messages), sum([len(value) for _, _, value in self.messages]), metrics.caller)

    def event(self, settle: list[int]) -> QueueMoved | None:
        """The event that moves the queue; None if nothing changes. `settle`: tags to acknowledge with it."""
        settled = settle + self._settled if self._settled else settle
        if self._cursors == self._queue.cursors and not self.repeated and not settled:
            return None
        return QueueMoved(self._queue.id, self._now, self._cursors, self._sent, self.repeated, settled)


def policy_for(topic: Topic, policy: QueuePolicy) -> QueuePolicy:
    """The policy, with the topic's expiry if that is shorter."""
    expiry = visible_read.expiry(topic)
    return policy._replace(ttl=expiry) if expiry and not 0 < policy.ttl <= expiry else policy


def removed_of(state: State, queue: Queue) -> dict[int, RemovedRecords]:
    """The records removed from the queue's partitions, by partition."""
    if not state.removed:
        return {}
    ids = {number: partition_id(queue.topic, number) for number in range(len(queue.cursors))}
    return {number: state.removed[id_] for number, id_ in ids.items() if id_ in state.removed}


def is_removed(queue: Queue, tag: int, removed: dict[int, RemovedRecords]) -> bool:
    if not removed:
        return False
    partition, offset = queue.locate(tag)
    return partition in removed and removed[partition].has(offset)
