"""Readers that all get all records of a partition, each at its own pace: what is read for one serves every other that
comes by the same offset.

A follower asks for the next portion whenever it has room, and is woken when there is more; there is no task, timer or
queue of its own. Followers at the end of the log share each portion, and so does what a protocol made of it. One that
is further behind reads its own way through the log, off the loop where a disk is involved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from penstock.broker.errors import TopicNotFound
from penstock.broker.fetch import visible_read
from penstock.broker.fetch.removal import NOTHING
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.names import Scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.executor import Executor
from penstock.broker.runtime.metrics import BroadcastFigures, Metrics
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.state import State, Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.subscriptions.fanout_chunk import Budget, Cut, EncodedChunk, Fresh, Window, fresh
from penstock.broker.subscriptions.fanout_read import Basis, Reading
from penstock.broker.topics import topic_rules
from penstock.log.engine import COMMITTED, Bounds, CommitGroup, PartitionId, partition_id
from penstock.log.errors import LogError, OffsetOutOfRange

logger = logging.getLogger(__name__)

AHEAD: Final = 8  # portions that one read brings, at most
READ_BYTES: Final = 1 << 20  # the same, unless a single portion may be larger
IDLE_US: Final = 2_000_000  # after which nobody is expected to come by what is kept


class FanoutSubscriber(Protocol):
    """Whoever gets records. All is called on the broker's thread."""

    def wake(self) -> None:
        """There is more, or something to be told: `FanoutCursor.take` again. Called once per `take` that gave None."""

    def gone(self) -> None:
        """The topic is no more."""


class FanoutPartition(NamedTuple):
    """A partition of one topic, in portions of one size."""

    scope: Scope
    topic: str
    id: int
    partition: int
    cut: Cut


class FanoutCursor:
    """The place of one follower."""

    __slots__ = ("_at_hand", "_broadcast", "_error", "_identity", "_skim", "follower", "group", "position")

    def __init__(
        self, broadcast: PartitionFanout, identity: Identity, follower: FanoutSubscriber, position: int
    ) -> None:
        self._broadcast = broadcast
        self._identity = identity
        self.follower = follower
        self.position = position  # the offset to go on with
        self.group: CommitGroup | None = None  # what was taken last is true once this is committed
        self._at_hand: EncodedChunk | None = None  # that was read for it, off the loop
        self._error: LogError | None = None  # that such a read ended with
        self._skim = False  # nothing of what it passed last was live

    @property
    def head(self) -> int:
        """Behind the last record that is there."""
        return self._broadcast.bounds().high_watermark

    @property
    def lag(self) -> int:
        return max(0, self.head - self.position)

    def take(self, below: int | None = None) -> EncodedChunk | None:
        """The next portion, up to an offset if one is given; it may be empty. None if there is nothing now, or not yet:
        then the follower is woken when there is.

        Raises AccessDenied or TopicNotFound, for what was allowed at first may not be any more; OffsetOutOfRange if
        retention has overtaken it; and LogError."""
        broadcast = self._broadcast
        if self._error is not None:
            error, self._error = self._error, None
            broadcast.check(self._identity)  # of a topic that was deleted meanwhile this is what there is to tell
            raise error
        bounds = broadcast.bounds()
        if self.position >= bounds.high_watermark:  # most often: there is nothing behind what was taken just now
            broadcast.wait(self)
            return None
        topic = broadcast.check(self._identity)
        portion = broadcast.find(self, topic, bounds)
        if portion is None:
            return None
        if below is not None and portion.end > below:
            portion = portion.between(self.position, below)
        self.position = portion.end
        self.group = broadcast.pending_commit
        self._skim = not portion.count
        return portion

    def skip(self, position: int) -> None:
        """Go on there instead. What is between is counted as dropped."""
        self._broadcast.dropped(position - self.position)
        self.position = position

    def leave(self) -> None:
        """The follower gets no more."""
        self._broadcast.leave(self)

    # -- what the broadcast says

    @property
    def skims(self) -> bool:
        return self._skim

    def at_hand(self, now: int) -> EncodedChunk | None:
        """What was read for it, if it still is where that starts."""
        portion, self._at_hand = self._at_hand, None
        return portion if portion is not None and portion.start == self.position and portion.until > now else None

    def bring(self, portion: EncodedChunk | None, error: LogError | None) -> None:
        self._at_hand, self._error = portion, error


class PartitionFanout:
    """One partition and all who follow it in portions of the same size."""

    def __init__(self, fanout: FanoutLog, place: FanoutPartition) -> None:
        self._all = fanout
        self.place = place
        self._partition = partition_id(place.id, place.partition)
        self._window = Window(fanout.budget)
        self._fresh = Fresh(fanout.budget)
        self._seats: dict[FanoutCursor, None] = {}
        self._waiting: dict[FanoutCursor, None] = {}  # for the log to grow
        self._readings: dict[int, Reading] = {}  # under way, by where they start
        self._basis = Basis()  # of all that is in the window
        self._used = True  # since `idle` was asked

    # -- followers

    def join(self, identity: Identity, follower: FanoutSubscriber, position: int) -> FanoutCursor:
        if not self._seats:
            self._all.state_log.engine.watch(self._partition, self._grown)
            self._all.followed.setdefault(self._partition, []).append(self)
        seat = FanoutCursor(self, identity, follower, position)
        self._seats[seat] = None
        return seat

    def leave(self, seat: FanoutCursor) -> None:
        if seat not in self._seats:
            return
        del self._seats[seat]
        self._waiting.pop(seat, None)
        if not self._seats:
            self._forget()
            self._all.state_log.engine.unwatch(self._partition, self._grown)
            self._all.unfollowed(self._partition, self)
            self._all.left(self)

    def end(self) -> None:
        """The topic is gone."""
        for seat in list(self._seats):
            if seat in self._seats:
                _tell(seat.follower.gone)

    def wait(self, seat: FanoutCursor) -> None:
        """Wake its follower when the log has grown."""
        self._waiting[seat] = None

    def _grown(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._wake(waiting)

    def _wake(self, seats: Iterable[FanoutCursor]) -> None:
        for seat in seats:
            if seat in self._seats:
                _tell(seat.follower.wake)

    # -- portions

    def offer(self, base: int, values: Sequence[bytes], group: CommitGroup) -> None:
        """These values have been appended, and never expire. Whoever waits for them gets them from here when their
        group is committed: that is told here before anybody is woken."""
        if (self._waiting or self._fresh.wanted) and self._basis.expiry is None:
            group.on_done(partial(self._offered, base, values, self._basis))

    def _offered(self, base: int, values: Sequence[bytes], basis: Basis, group: CommitGroup) -> None:
        if group.state is COMMITTED and basis is self._basis and self._seats:
            self._fresh.put(fresh(base, values, self.place.cut))

    def _forget(self) -> None:
        self._window.clear()
        self._fresh.clear()

    def bounds(self) -> Bounds:
        return self._all.state_log.engine.bounds(self._partition)

    @property
    def pending_commit(self) -> CommitGroup | None:
        return self._all.state_log.pending_commit

    def check(self, identity: Identity) -> Topic:
        """The topic, if this identity may read it now."""
        shared, place = self._all, self.place
        shared.access.require(identity, Permission.READ, place.scope, place.topic)
        state = shared.state_log.current()
        topic = state.topics_by_id.get(place.id)
        if topic is None:
            raise TopicNotFound(place.topic)
        self._follow(state, topic)
        return topic

    def _follow(self, state: State, topic: Topic) -> None:
        """What is kept was read when less was removed, or records lived longer."""
        basis, expiry = self._basis, topic.settings.expiry_seconds
        gone = state.removed.get(self._partition, NOTHING) if state.removed else NOTHING
        if gone is not basis.gone or expiry != basis.expiry:
            self._basis = Basis(basis.rebuilds, gone, expiry)
            self._forget()

    def find(self, seat: FanoutCursor, topic: Topic, bounds: Bounds) -> EncodedChunk | None:
        """The portion that starts where the seat is: as it is kept, or read now. None: the seat is woken."""
        position = seat.position
        if position < bounds.start:
            self.dropped(bounds.start - position)
            raise OffsetOutOfRange(position, *bounds)
        self._used = True
        window, now = self._window, self._all.clock()
        portion = self._fresh.get(position) or seat.at_hand(now) or window.get(position, now)
        if portion is not None:
            return portion
        around = window.around(position, now)
        if around is None:
            return self._read(seat, topic, bounds, now)
        portion = around.between(position, around.end)
        window.put(portion)
        return portion

    def _read(self, seat: FanoutCursor, topic: Topic, bounds: Bounds, now: int) -> EncodedChunk | None:
        start = seat.position
        reading = self._readings.get(start)
        if reading is None:
            reading = self._plan(topic, start, bounds, now, skim=seat.skims)
            if reading.ready:
                reading.run()
                if reading.error is not None:
                    raise reading.error
                return self._keep(reading.found)
            self._readings[start] = reading
            reading.waiting[seat] = None
            self._all.executor(reading.run, partial(self._came, reading))
        else:
            reading.waiting[seat] = None
        return None

    def _plan(self, topic: Topic, start: int, bounds: Bounds, now: int, *, skim: bool) -> Reading:
        place, cut, end = self.place, self.place.cut, bounds.high_watermark
        view = visible_read.view(self._all.state_log.state, topic, place.partition, now)
        most = min(end, self._window.next_start(start) or end) - start
        size, count = max(cut.bytes, min(cut.bytes * AHEAD, READ_BYTES)), min(most, cut.events * AHEAD)
        read = VisibleRead(self._all.state_log.engine, self._partition, start, size, count, view, int(skim))
        return Reading(read, start, start + most, cut, visible_read.expiry(topic), self._basis)

    def _keep(self, found: Sequence[EncodedChunk]) -> EncodedChunk:
        """What was read; the answer is the first of it."""
        for portion in reversed(found):  # so that the first stays longest
            self._window.put(portion)
        return found[0]

    def _came(self, reading: Reading) -> None:
        """A read that was made off the loop is over."""
        del self._readings[reading.start]
        if not self._seats:
            return
        first: EncodedChunk | None = None
        if reading.found and reading.basis is self._basis:
            first = self._keep(reading.found)
        elif reading.found and reading.basis.rebuilds == self._basis.rebuilds:
            first = reading.found[0]  # who waited for it gets what was live then; else what it was planned by is void
        for seat in reading.waiting:
            if seat.position == reading.start:  # else it has gone on elsewhere
                seat.bring(first, reading.error)
        self._wake(reading.waiting)
        for seat in reading.waiting:
            seat.bring(None, None)  # who did not take it reads what is live later

    def dropped(self, count: int) -> None:
        self._all.metrics.broadcast_dropped += count

    # -- care

    def rebuilt(self) -> None:
        self._basis = self._basis._replace(rebuilds=self._basis.rebuilds + 1)
        self._forget()

    def rest(self) -> None:
        """Forget what is kept if nobody came by since this was called last."""
        if not self._used:
            self._forget()
        self._used = False

    def figures(self) -> BroadcastFigures:
        head = self.bounds().high_watermark
        lag = max([head - seat.position for seat in self._seats], default=0)
        return BroadcastFigures(len(self._seats), max(0, lag))


class FanoutLog:
    """All of a broker's."""

    def __init__(self, state_log: StateLog, access: Access, metrics: Metrics, clock: Clock, executor: Executor) -> None:
        self.state_log = state_log
        self.access = access
        self.metrics = metrics
        self.clock = clock
        self.executor = executor
        self.budget = Budget()
        self.followed: dict[PartitionId, list[PartitionFanout]] = {}
        self._fanout: dict[FanoutPartition, PartitionFanout] = {}
        self._rested = 0  # µs: when what nobody uses was looked for last

    def open(
        self, identity: Identity, scope: Scope, topic: str, partition: int, follower: FanoutSubscriber, cut: Cut,
        offset: int | None = None,
    ) -> FanoutCursor:  # fmt: skip
        """A seat for one that wants what is there from `offset` on, or else what comes from now on. It is true once
        what is `pending_commit` now is committed, and the follower is not woken before it has asked.

        Raises OffsetOutOfRange below the log start and beyond the end."""
        self.access.require(identity, Permission.READ, scope, topic)
        found = topic_rules.find_partition(self.state_log.current(), scope, topic, partition)
        bounds = self.state_log.engine.bounds(partition_id(found.id, partition))
        if offset is None:
            offset = bounds.high_watermark
        elif not bounds.start <= offset <= bounds.high_watermark:
            raise OffsetOutOfRange(offset, *bounds)
        place = FanoutPartition(scope, topic, found.id, partition, cut)
        broadcast = self._fanout.get(place)
        if broadcast is None:
            broadcast = self._fanout[place] = PartitionFanout(self, place)
        return broadcast.join(identity, follower, offset)

    def offer(self, partition: PartitionId, base: int, values: Sequence[bytes], group: CommitGroup) -> None:
        """Values that are being appended and never expire: see `PartitionFanout.offer`. Whoever appends otherwise need
        not say so; then they are read."""
        for broadcast in self.followed.get(partition, ()):
            broadcast.offer(base, values, group)

    def unfollowed(self, partition: PartitionId, broadcast: PartitionFanout) -> None:
        self.followed[partition].remove(broadcast)
        if not self.followed[partition]:
            del self.followed[partition]

    def left(self, broadcast: PartitionFanout) -> None:
        """Nobody follows it any more."""
        if self._fanout.get(broadcast.place) is broadcast:
            del self._fanout[broadcast.place]

    def sweep(self, now: int) -> None:
        """Tell the followers of topics that are no more, which is true once `pending_commit` is committed; and
        forget what nobody uses. A few times a second."""
        if not self._fanout:
            return
        known = self.state_log.current().topics_by_id
        for broadcast in [each for each in self._fanout.values() if each.place.id not in known]:
            broadcast.end()
        if not 0 <= now - self._rested < IDLE_US:
            self._rested = now
            for broadcast in self._fanout.values():
                broadcast.rest()

    def figures(self) -> BroadcastFigures:
        """How many follow, and how far the last of them is behind."""
        figures = [broadcast.figures() for broadcast in self._fanout.values()]
        return BroadcastFigures(sum(each.followers for each in figures), max((each.lag for each in figures), default=0))

    def rebuilt(self) -> None:
        for broadcast in self._fanout.values():
            broadcast.rebuilt()


def _tell(call: Callable[[], None]) -> None:
    """What goes wrong with one follower is no other's business."""
    try:
        call()
    except Exception:
        logger.exception("a follower of a partition failed")
