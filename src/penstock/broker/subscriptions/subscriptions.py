"""Subscriptions to a partition's records as they arrive: individual subscribers, or several that share the records as a
group.

`cursor` has the rules of who holds what; this module connects them to the log, the access check and group offsets. A
group's position is an ordinary offset in `Groups`, so every door sees it and may move it. It is the first record that
is not settled by any member: what members hold is in memory only, and is delivered again after a crash.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Hashable, Iterator
from typing import Final, NamedTuple, Protocol

from penstock.broker.errors import BrokerError, RecordUnsendable, TopicNotFound
from penstock.broker.fetch import visible_read
from penstock.broker.fetch.visible_read import STEP_BYTES, VisibleRead
from penstock.broker.groups import group as rules
from penstock.broker.groups.group_membership import GroupMembership
from penstock.broker.limits import Limits
from penstock.broker.names import Scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.state import State, Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.subscriptions.cursor import Cursor, Holding, OffsetRange
from penstock.broker.topics import topic_rules
from penstock.log.batch import RecordSlice
from penstock.log.engine import FAILED, OPEN, CommitGroup, partition_id
from penstock.log.errors import LogError, OffsetOutOfRange

logger = logging.getLogger(__name__)

MAX_SKIPPED_PER_STEP: Final = 4_096  # expired or removed records skipped in one step


class Subscriber(Protocol):
    """A receiver of records. All methods are called on the broker's thread."""

    def wants_records(self) -> bool:
        """Whether it accepts records now. If not, it calls `SubscriberSlot.resume` later."""

    def offer(self, limit: int) -> bool:
        """Its share is about this many records: it may call `plan_read` once. Returns whether it made progress; if it
        has to read first, it calls `SubscriberSlot.resume` afterwards.
        """

    def flush(self) -> None:
        """There is no more for now: send what was read."""

    def topic_deleted(self) -> None:
        """The topic was deleted."""


class PartitionRef(NamedTuple):
    """A partition of a topic, including its id: a later topic with the same name is a different one."""

    scope: Scope
    topic: str
    id: int
    partition: int


class RecordChunk:
    """A span of records read for one subscriber. `run` reads it (from disk unless `ready`: any thread); `finish` limits
    it to the subscriber's credit and moves the cursor.
    """

    __slots__ = ("_error", "_found", "_read", "_slot", "_span", "further", "group", "ready", "unsendable")

    def __init__(
        self, slot: SubscriberSlot, span: OffsetRange, read: VisibleRead, group: CommitGroup | None, *, ready: bool
    ) -> None:
        self._slot = slot
        self._span = span
        self._read = read
        self._found: list[RecordSlice] = []
        self._error: Exception | None = None
        self.group = group  # the records may be sent once this is committed
        self.ready = ready
        self.further = False  # after `finish`: records were found or skipped
        self.unsendable: list[RecordUnsendable] = []  # after `finish`: skipped records that are too large

    def run(self) -> None:
        try:
            self._found = self._read.run()
        except Exception as error:  # noqa: BLE001 - raised again by `finish`, on the broker's thread
            self._error = error

    def finish(self, limit: int, max_value: int = 1 << 62) -> list[RecordSlice]:
        """At most `limit` of the records, in order; there may be gaps between the slices. Records with a value larger
        than `max_value` are skipped, like expired ones. Raises LogError.
        """
        if self._error is not None:
            self._slot.give([], self._span.start)
            raise self._error
        found, end = self._cut(limit)
        if any(part.batch.value_bytes > max_value for part in found):
            found = [part for whole in found for part in self._sendable(whole, max_value)]
        self.further = end > self._span.start
        self._slot.skip_expired = not found and self.further
        self._slot.give([OffsetRange(part.base_offset, part.end_offset) for part in found], end)
        return found

    def _sendable(self, part: RecordSlice, max_value: int) -> Iterator[RecordSlice]:
        """The runs of records between those that are too large."""
        at = part.base_offset
        for offset, value in enumerate(part.values(), at):
            if len(value) > max_value:
                self.unsendable.append(RecordUnsendable(offset, len(value), max_value))
                if offset > at:
                    yield part.between(at, offset)
                at = offset + 1
        if at < part.end_offset:
            yield part.between(at, part.end_offset)

    def _cut(self, limit: int) -> tuple[list[RecordSlice], int]:
        """The records within the span and the limit, and the offset to continue at."""
        found: list[RecordSlice] = []
        for part in self._found:
            end = min(part.end_offset, self._span.end, part.base_offset + limit)
            if end <= part.base_offset:
                return found, min(part.base_offset, self._span.end)
            if end < part.end_offset:
                return [*found, part.between(part.base_offset, end)], end
            found.append(part)
            limit -= len(part)
        return found, min(max(self._read.end, self._span.start), self._span.end)


class SubscriberSlot:
    """One subscriber of a dispatcher, and the records that it holds."""

    __slots__ = ("_dispatcher", "_identity", "holding", "skip_expired", "start", "subscriber")

    def __init__(self, dispatcher: PartitionDispatcher, identity: Identity, subscriber: Subscriber, start: int) -> None:
        self._dispatcher = dispatcher
        self._identity = identity
        self.subscriber = subscriber
        self.holding = Holding()
        self.start = start  # its first offset, or its group's position
        self.skip_expired = False  # no record of the last read was visible

    def resume(self) -> None:
        """The subscriber may accept records again."""
        self._dispatcher.dispatch()

    def plan_read(self, count: int, max_bytes: int) -> RecordChunk | None:
        """Plan to read at most `count` records that no other subscriber holds; None if there are none. Raises
        AccessDenied or TopicNotFound, as permissions may have been revoked meanwhile.
        """
        return self._dispatcher.plan_read(self, self._identity, count, max_bytes)

    def give(self, spans: list[OffsetRange], end: int) -> None:
        self._dispatcher.cursor.give(self.holding, spans, end)

    def settle(self, count: int) -> None:
        """Settle the oldest `count` records that the subscriber was given. Raises AccessDenied."""
        self._dispatcher.settle(self, self._identity, count)

    def leave(self, *, done: bool) -> None:
        """Unsubscribe. Unless `done`, the records that it was given and has not settled go to others."""
        self._dispatcher.leave(self, done=done)


class PartitionDispatcher:
    """One cursor and its subscribers, served round-robin."""

    def __init__(self, subscriptions: Subscriptions, ref: PartitionRef, group: str | None, start: int) -> None:
        self._subscriptions = subscriptions
        self.ref = ref
        self.group = group
        self.cursor = Cursor(start, remembers=group is not None)
        self.known: int | None = start if group is not None else None  # the group's last known position
        self._partition = partition_id(ref.id, ref.partition)
        self._slots: list[SubscriberSlot] = []  # in round-robin order
        self._dispatching = False
        self._dispatch_again = False
        self._committing: CommitGroup | None = None  # of the last committed position
        self._moved = False  # the position has moved since

    # -- subscribers

    def join(self, identity: Identity, subscriber: Subscriber, start: int) -> SubscriberSlot:
        if not self._slots:
            self._subscriptions.state_log.engine.watch(self._partition, self.dispatch)
        slot = SubscriberSlot(self, identity, subscriber, start)
        self._slots.append(slot)
        self.cursor.holdings.append(slot.holding)
        return slot

    def leave(self, slot: SubscriberSlot, *, done: bool) -> None:
        if slot not in self._slots:
            return
        if done:
            slot.holding.given.clear()
        self.cursor.release(slot.holding)
        self.cursor.holdings.remove(slot.holding)
        self._slots.remove(slot)
        self._subscriptions.left(self, slot, last=not self._slots)
        if done or self.known is not None:  # else the group could not be created, or was deleted
            with contextlib.suppress(BrokerError, LogError):  # then the records are delivered again
                self._commit_position(now=not self._slots)
        if self._slots:
            self.dispatch()
        else:
            self._subscriptions.state_log.engine.unwatch(self._partition, self.dispatch)

    def end(self) -> None:
        """The topic was deleted."""
        for slot in list(self._slots):
            slot.subscriber.topic_deleted()

    # -- records

    def dispatch(self) -> None:
        """Offer records to all subscribers that accept some, round-robin and in equal shares, until there are no more
        or nobody accepts them.
        """
        if self._dispatching:
            self._dispatch_again = True
            return
        self._dispatching, served = True, set[SubscriberSlot]()
        try:
            while True:
                self._dispatch_again = False
                if not self._dispatch_once(served) and not self._dispatch_again:
                    break
        finally:
            self._dispatching = False
        for slot in served:
            slot.subscriber.flush()

    def _dispatch_once(self, served: set[SubscriberSlot]) -> bool:
        available = self.cursor.available(self._subscriptions.state_log.engine.bounds(self._partition))
        if not available:
            return False
        wanting = [slot for slot in self._slots if not slot.holding.full and slot.subscriber.wants_records()]
        further = False
        for slot in wanting:
            if slot in self._slots and slot.subscriber.offer(-(-available // len(wanting))):
                further = True
                served.add(slot)
                if len(self._slots) > 1 and slot in self._slots:
                    self._slots.remove(slot)
                    self._slots.append(slot)
        return further

    def plan_read(self, slot: SubscriberSlot, identity: Identity, count: int, max_bytes: int) -> RecordChunk | None:
        subscriptions, ref = self._subscriptions, self.ref
        subscriptions.access.require(identity, Permission.READ, ref.scope, ref.topic)
        state = subscriptions.state_log.current()
        topic = _find(state, ref)
        self._follow(state)
        engine = subscriptions.state_log.engine
        ready = not slot.skip_expired
        if slot.skip_expired:
            count, max_bytes = max(count, MAX_SKIPPED_PER_STEP), max(max_bytes, STEP_BYTES)
        span = self.cursor.claim(slot.holding, count, engine.bounds(self._partition))
        if span is None:
            return None
        view = visible_read.view(state, topic, ref.partition, subscriptions.clock())
        read = VisibleRead(engine, self._partition, span.start, max_bytes, span.end - span.start, view)
        return RecordChunk(slot, span, read, subscriptions.state_log.pending_commit, ready=ready and read.ready)

    # -- the position of a group

    def settle(self, slot: SubscriberSlot, identity: Identity, count: int) -> None:
        if self.group is None:
            return
        ref = self.ref
        self._subscriptions.access.require(identity, Permission.COMMIT, ref.scope, ref.topic)
        if slot.holding.settle(count):
            with contextlib.suppress(BrokerError, LogError):  # retried at the next settle
                self._commit_position()

    def _follow(self, state: State) -> None:
        """Follow a position of the group that was committed by another client meanwhile."""
        if self.group is None:
            return
        ref = self.ref
        position = rules.committed(state, ref.scope, self.group, ref.topic, ref.partition)
        if position != self.known:
            self.known = position
            if position is not None:  # else it was deleted, and its members continue from where they are
                self.cursor.move(position)

    def _commit_position(self, *, now: bool = False) -> None:
        """Commit the position if it has moved. Unless `now`, there is one commit at a time: moves during a commit are
        combined into the next.
        """
        if self.group is None or self.cursor.lowest == self.known:
            return
        if self._committing is not None and self._committing.state is OPEN and not now:
            self._moved = True
            return
        ref, subscriptions = self.ref, self._subscriptions
        state = subscriptions.state_log.current()
        _find(state, ref)
        self._follow(state)
        position = self.cursor.lowest
        if position == self.known:
            return
        event = rules.commit(state, subscriptions.limits, ref.scope, self.group, ref.topic, ref.partition, position)
        self._moved = False
        self._committing = subscriptions.state_log.commit((event,))
        self.known = position
        self._committing.on_done(self._on_committed)

    def _on_committed(self, group: CommitGroup) -> None:
        if self._moved and group is self._committing and group.state is not FAILED:
            with contextlib.suppress(BrokerError, LogError):  # retried at the next settle
                self._commit_position()

    def rebuilt(self, state: State) -> None:
        """The last commit failed: the committed position is older, without having been moved by another client."""
        ref = self.ref
        if self.group is not None:
            self.known = rules.committed(state, ref.scope, self.group, ref.topic, ref.partition)


class Subscriptions:
    def __init__(
        self, state_log: StateLog, access: Access, members: GroupMembership, limits: Limits, clock: Clock
    ) -> None:
        self.state_log = state_log
        self.access = access
        self.limits = limits
        self.clock = clock
        self._members = members
        self._dispatchers: set[PartitionDispatcher] = set()
        self._shared: dict[tuple[PartitionRef, str], PartitionDispatcher] = {}

    def open(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        partition: int,
        offset: int,
        subscriber: Subscriber,
        group: str | None = None,
        member: str = "",
    ) -> tuple[SubscriberSlot, CommitGroup | None]:
        """A slot for a subscriber to the records from `offset` on, or, as a member of a group, to its share of them. A
        group with a position continues there; otherwise `offset` becomes its position. The subscriber is offered
        nothing before it calls `resume`. Valid once the returned commit group is committed.

        Raises OffsetOutOfRange below the log start; beyond the end it waits for future records.
        """
        self.access.require(identity, Permission.READ, scope, topic)
        if group is not None:
            self.access.require(identity, Permission.COMMIT, scope, topic)
        state = self.state_log.current()
        found = topic_rules.find_partition(state, scope, topic, partition)
        ref = PartitionRef(scope, topic, found.id, partition)
        start = None if group is None else rules.committed(state, scope, group, topic, partition)
        bounds = self.state_log.engine.bounds(partition_id(found.id, partition))
        if start is None and offset < bounds.start:
            raise OffsetOutOfRange(offset, *bounds)
        if group is None:
            dispatcher = PartitionDispatcher(self, ref, None, offset)
            self._dispatchers.add(dispatcher)
            return dispatcher.join(identity, subscriber, offset), None
        return self._join(identity, ref, group, start, offset, subscriber, member)

    def _join(
        self,
        identity: Identity,
        ref: PartitionRef,
        group: str,
        start: int | None,
        offset: int,
        subscriber: Subscriber,
        member: str,
    ) -> tuple[SubscriberSlot, CommitGroup | None]:
        event, kept = None, None
        dispatcher = self._shared.get((ref, group))
        if start is None:
            start = offset if dispatcher is None else dispatcher.cursor.lowest
            scope, topic, _, partition = ref
            event = rules.commit(self.state_log.current(), self.limits, scope, group, topic, partition, start)
        if dispatcher is None:
            dispatcher = PartitionDispatcher(self, ref, group, start)
        slot = dispatcher.join(identity, subscriber, start)
        try:
            self._members.join(ref.scope, group, ref.topic, member, slot)
            if event is not None:
                kept = self.state_log.commit((event,))
        except BaseException:
            slot.leave(done=False)
            raise
        if event is not None:
            dispatcher.known = start
        self._dispatchers.add(dispatcher)
        self._shared[ref, group] = dispatcher
        return slot, kept

    def left(self, dispatcher: PartitionDispatcher, slot: Hashable, *, last: bool) -> None:
        """A subscriber has left its dispatcher; `last`: it was the last one."""
        if dispatcher.group is not None:
            self._members.leave(slot)
        if last:
            self._dispatchers.discard(dispatcher)
            if dispatcher.group is not None and self._shared.get((dispatcher.ref, dispatcher.group)) is dispatcher:
                del self._shared[dispatcher.ref, dispatcher.group]

    def sweep(self) -> None:
        """Notify subscribers of deleted topics; called a few times a second. Valid once the group that is
        `pending_commit` now is committed.
        """
        if self._dispatchers:
            known = self.state_log.current().topics_by_id
            for dispatcher in [dispatcher for dispatcher in self._dispatchers if dispatcher.ref.id not in known]:
                dispatcher.end()

    def __len__(self) -> int:
        """The number of dispatchers."""
        return len(self._dispatchers)

    def rebuilt(self) -> None:
        for dispatcher in self._shared.values():
            dispatcher.rebuilt(self.state_log.state)


def _find(state: State, ref: PartitionRef) -> Topic:
    topic = state.topics_by_id.get(ref.id)
    if topic is None:
        raise TopicNotFound(ref.topic)
    return topic
