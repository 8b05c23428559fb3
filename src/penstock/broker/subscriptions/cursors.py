"""Readers that get the records of a partition as they come: each by itself, or several as one group.

The rules of who holds what are in `cursor`; this module brings them together with the log, the access check and the
positions of groups. A group's position is an offset of `Groups` like any other, so every door sees it and may move it.
It is the first record that no member is done with: what members hold is in memory only, and after a crash is given out
once more.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Hashable
from typing import Final, NamedTuple, Protocol

from penstock.broker.errors import BrokerError, TopicNotFound
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
from penstock.broker.subscriptions.cursor import Cursor, Holding, Span
from penstock.broker.topics import topic_rules
from penstock.log.batch import RecordSlice
from penstock.log.engine import FAILED, OPEN, CommitGroup, partition_id
from penstock.log.errors import LogError, OffsetOutOfRange

logger = logging.getLogger(__name__)

SKIM_RECORDS: Final = 4_096  # looked at in one step to get past those that expired or were removed


class Reader(Protocol):
    """Whoever gets records. All is called on the broker's thread."""

    def wants(self) -> bool:
        """Whether it would take records now. If not, it says so later by `SubscriberSlot.ask`."""

    def offer(self, most: int) -> bool:
        """It wants some, and its share is about this many: it may `take` once. Whether it has got any further; if it
        has to read first, it calls `SubscriberSlot.ask` afterwards."""

    def flush(self) -> None:
        """There is no more for now: what it has taken may leave."""

    def gone(self) -> None:
        """The topic is no more."""


class PartitionRef(NamedTuple):
    """A partition of one topic: one that gets the same name later is another."""

    scope: Scope
    topic: str
    id: int
    partition: int


class RecordChunk:
    """Records on their way to a reader. If not `ready`, `run` takes its time, and may be called on any thread.
    `finish` comes last."""

    __slots__ = ("_error", "_found", "_read", "_seat", "_span", "further", "group", "ready")

    def __init__(
        self, seat: SubscriberSlot, span: Span, read: VisibleRead, group: CommitGroup | None, *, ready: bool
    ) -> None:
        self._seat = seat
        self._span = span
        self._read = read
        self._found: list[RecordSlice] = []
        self._error: LogError | None = None
        self.group = group  # what was found is true once this is committed
        self.ready = ready
        self.further = False  # after `finish`: records were found or passed over

    def run(self) -> None:
        try:
            self._found = self._read.run()
        except LogError as error:
            self._error = error

    def finish(self, most: int) -> list[RecordSlice]:
        """At most so many of the records, in order; there may be gaps between the slices. Raises LogError."""
        if self._error is not None:
            self._seat.give([], self._span.start)
            raise self._error
        found, end = self._cut(most)
        self.further = end > self._span.start
        self._seat.skim = not found and self.further
        self._seat.give([Span(part.base_offset, part.end_offset) for part in found], end)
        return found

    def _cut(self, most: int) -> tuple[list[RecordSlice], int]:
        """Without what is behind the span or too much; and where to go on."""
        found: list[RecordSlice] = []
        for part in self._found:
            end = min(part.end_offset, self._span.end, part.base_offset + most)
            if end <= part.base_offset:
                return found, min(part.base_offset, self._span.end)
            if end < part.end_offset:
                return [*found, part.between(part.base_offset, end)], end
            found.append(part)
            most -= len(part)
        return found, min(max(self._read.end, self._span.start), self._span.end)


class SubscriberSlot:
    """The place of one reader at a feed."""

    __slots__ = ("_feed", "_identity", "holding", "reader", "skim", "start")

    def __init__(self, feed: PartitionDispatcher, identity: Identity, reader: Reader, start: int) -> None:
        self._feed = feed
        self._identity = identity
        self.reader = reader
        self.holding = Holding()
        self.start = start  # where it begins, or its group is
        self.skim = False  # there was nothing live in what was read last

    def ask(self) -> None:
        """The reader may want records again."""
        self._feed.deal()

    def take(self, count: int, max_bytes: int) -> RecordChunk | None:
        """Plan to read up to so many records that are nobody else's, if there are any. Raises AccessDenied or
        TopicNotFound: what was allowed at first may not be any more."""
        return self._feed.take(self, self._identity, count, max_bytes)

    def give(self, spans: list[Span], end: int) -> None:
        self._feed.cursor.give(self.holding, spans, end)

    def settle(self, count: int) -> None:
        """The reader is done with the oldest `count` records that it was given. Raises AccessDenied."""
        self._feed.settle(self, self._identity, count)

    def leave(self, *, done: bool) -> None:
        """The reader gets no more. If it is not `done` with what it was given, others get it."""
        self._feed.leave(self, done=done)


class PartitionDispatcher:
    """One cursor and its readers, who are dealt what comes in turn."""

    def __init__(self, cursors: Subscriptions, place: PartitionRef, group: str | None, start: int) -> None:
        self._cursors = cursors
        self.place = place
        self.group = group
        self.cursor = Cursor(start, remembers=group is not None)
        self.known: int | None = start if group is not None else None  # the group's position as far as we know
        self._partition = partition_id(place.id, place.partition)
        self._seats: list[SubscriberSlot] = []  # whose turn it is first
        self._dealing = False
        self._again = False
        self._keeping: CommitGroup | None = None  # of the position that was kept last
        self._late = False  # the position has moved since

    # -- readers

    def join(self, identity: Identity, reader: Reader, start: int) -> SubscriberSlot:
        if not self._seats:
            self._cursors.state_log.engine.watch(self._partition, self.deal)
        seat = SubscriberSlot(self, identity, reader, start)
        self._seats.append(seat)
        self.cursor.holdings.append(seat.holding)
        return seat

    def leave(self, seat: SubscriberSlot, *, done: bool) -> None:
        if seat not in self._seats:
            return
        if done:
            seat.holding.given.clear()
        self.cursor.release(seat.holding)
        self.cursor.holdings.remove(seat.holding)
        self._seats.remove(seat)
        self._cursors.left(self, seat, last=not self._seats)
        if done or self.known is not None:  # else the group could not begin, or was deleted
            with contextlib.suppress(BrokerError, LogError):  # then it is given out once more
                self._keep(now=not self._seats)
        if self._seats:
            self.deal()
        else:
            self._cursors.state_log.engine.unwatch(self._partition, self.deal)

    def end(self) -> None:
        """The topic is gone."""
        for seat in list(self._seats):
            seat.reader.gone()

    # -- records

    def deal(self) -> None:
        """Offer what there is to all who want some, in turn and in equal parts, until there is no more or nobody
        wants it."""
        if self._dealing:
            self._again = True
            return
        self._dealing, dealt = True, set[SubscriberSlot]()
        try:
            while True:
                self._again = False
                if not self._deal_once(dealt) and not self._again:
                    break
        finally:
            self._dealing = False
        for seat in dealt:
            seat.reader.flush()

    def _deal_once(self, dealt: set[SubscriberSlot]) -> bool:
        there = self.cursor.there(self._cursors.state_log.engine.bounds(self._partition))
        if not there:
            return False
        willing = [seat for seat in self._seats if not seat.holding.full and seat.reader.wants()]
        further = False
        for seat in willing:
            if seat in self._seats and seat.reader.offer(-(-there // len(willing))):
                further = True
                dealt.add(seat)
                if len(self._seats) > 1 and seat in self._seats:
                    self._seats.remove(seat)
                    self._seats.append(seat)
        return further

    def take(self, seat: SubscriberSlot, identity: Identity, count: int, max_bytes: int) -> RecordChunk | None:
        cursors, place = self._cursors, self.place
        cursors.access.require(identity, Permission.READ, place.scope, place.topic)
        state = cursors.state_log.current()
        topic = _find(state, place)
        self._follow(state)
        engine = cursors.state_log.engine
        ready = not seat.skim
        if seat.skim:
            count, max_bytes = max(count, SKIM_RECORDS), max(max_bytes, STEP_BYTES)
        span = self.cursor.claim(seat.holding, count, engine.bounds(self._partition))
        if span is None:
            return None
        view = visible_read.view(state, topic, place.partition, cursors.clock())
        read = VisibleRead(engine, self._partition, span.start, max_bytes, span.end - span.start, view)
        return RecordChunk(seat, span, read, cursors.state_log.pending_commit, ready=ready and read.ready)

    # -- the position of a group

    def settle(self, seat: SubscriberSlot, identity: Identity, count: int) -> None:
        if self.group is None:
            return
        place = self.place
        self._cursors.access.require(identity, Permission.COMMIT, place.scope, place.topic)
        if seat.holding.settle(count):
            with contextlib.suppress(BrokerError, LogError):  # the next one that settles tries again
                self._keep()

    def _follow(self, state: State) -> None:
        """Go where somebody else has moved the group meanwhile."""
        if self.group is None:
            return
        place = self.place
        position = rules.committed(state, place.scope, self.group, place.topic, place.partition)
        if position != self.known:
            self.known = position
            if position is not None:  # else it was deleted, and its members begin anew from where they are
                self.cursor.move(position)

    def _keep(self, *, now: bool = False) -> None:
        """Keep the position if it has moved; unless `now`, one after the other: what moves while one is being committed
        is kept with the next."""
        if self.group is None or self.cursor.lowest == self.known:
            return
        if self._keeping is not None and self._keeping.state is OPEN and not now:
            self._late = True
            return
        place, cursors = self.place, self._cursors
        state = cursors.state_log.current()
        _find(state, place)
        self._follow(state)
        position = self.cursor.lowest
        if position == self.known:
            return
        event = rules.commit(state, cursors.limits, place.scope, self.group, place.topic, place.partition, position)
        self._late = False
        self._keeping = cursors.state_log.commit((event,))
        self.known = position
        self._keeping.on_done(self._kept)

    def _kept(self, group: CommitGroup) -> None:
        if self._late and group is self._keeping and group.state is not FAILED:
            with contextlib.suppress(BrokerError, LogError):  # the next one that settles tries again
                self._keep()

    def rebuilt(self, state: State) -> None:
        """What was kept last has failed: the position is an older one, and nobody has moved it."""
        place = self.place
        if self.group is not None:
            self.known = rules.committed(state, place.scope, self.group, place.topic, place.partition)


class Subscriptions:
    def __init__(
        self, state_log: StateLog, access: Access, members: GroupMembership, limits: Limits, clock: Clock
    ) -> None:
        self.state_log = state_log
        self.access = access
        self.limits = limits
        self.clock = clock
        self._members = members
        self._feeds: set[PartitionDispatcher] = set()
        self._shared: dict[tuple[PartitionRef, str], PartitionDispatcher] = {}

    def open(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        partition: int,
        offset: int,
        reader: Reader,
        group: str | None = None,
        member: str = "",
    ) -> tuple[SubscriberSlot, CommitGroup | None]:
        """A seat for a reader that wants what is there from `offset` on and what will come, or its part of that as a
        member of a group. A group that has a position goes on there; the first `offset` becomes the position of one
        that has none. The reader is offered nothing before it asks. True once the group in the answer is committed.

        Raises OffsetOutOfRange below the log start; beyond the end is what is still to come."""
        self.access.require(identity, Permission.READ, scope, topic)
        if group is not None:
            self.access.require(identity, Permission.COMMIT, scope, topic)
        state = self.state_log.current()
        found = topic_rules.find_partition(state, scope, topic, partition)
        place = PartitionRef(scope, topic, found.id, partition)
        start = None if group is None else rules.committed(state, scope, group, topic, partition)
        bounds = self.state_log.engine.bounds(partition_id(found.id, partition))
        if start is None and offset < bounds.start:
            raise OffsetOutOfRange(offset, *bounds)
        if group is None:
            return self._feed(PartitionDispatcher(self, place, None, offset)).join(identity, reader, offset), None
        return self._join(identity, place, group, start, offset, reader, member)

    def _join(
        self,
        identity: Identity,
        place: PartitionRef,
        group: str,
        start: int | None,
        offset: int,
        reader: Reader,
        member: str,
    ) -> tuple[SubscriberSlot, CommitGroup | None]:
        event, kept = None, None
        feed = self._shared.get((place, group))
        if start is None:
            start = offset if feed is None else feed.cursor.lowest
            scope, topic, _, partition = place
            event = rules.commit(self.state_log.current(), self.limits, scope, group, topic, partition, start)
        if feed is None:
            feed = PartitionDispatcher(self, place, group, start)
        seat = feed.join(identity, reader, start)
        try:
            self._members.join(place.scope, group, place.topic, member, seat)
            if event is not None:
                kept = self.state_log.commit((event,))
        except BaseException:
            seat.leave(done=False)
            raise
        if event is not None:
            feed.known = start
        self._feed(feed)
        self._shared[place, group] = feed
        return seat, kept

    def _feed(self, feed: PartitionDispatcher) -> PartitionDispatcher:
        self._feeds.add(feed)
        return feed

    def left(self, feed: PartitionDispatcher, seat: Hashable, *, last: bool) -> None:
        """A reader has left its feed."""
        if feed.group is not None:
            self._members.leave(seat)
        if last:
            self._feeds.discard(feed)
            if feed.group is not None and self._shared.get((feed.place, feed.group)) is feed:
                del self._shared[feed.place, feed.group]

    def sweep(self) -> None:
        """Tell the readers of topics that are no more; a few times a second. True once what is `pending_commit` now is
        committed."""
        if self._feeds:
            known = self.state_log.current().topics_by_id
            for feed in [feed for feed in self._feeds if feed.place.id not in known]:
                feed.end()

    def __len__(self) -> int:
        """How many cursors are followed."""
        return len(self._feeds)

    def rebuilt(self) -> None:
        for feed in self._shared.values():
            feed.rebuilt(self.state_log.state)


def _find(state: State, place: PartitionRef) -> Topic:
    topic = state.topics_by_id.get(place.id)
    if topic is None:
        raise TopicNotFound(place.topic)
    return topic
