"""Fan-out: all subscribers of a partition get all of its records, each at its own pace; a chunk that is read for one is
reused for all others that reach the same offset.

A subscriber polls for the next chunk whenever it has room, and is woken when there is more; there is no task, timer or
queue per subscriber. Subscribers at the end of the log share each chunk and its encoded bytes. One that is further
behind reads the log separately, off the loop if a disk is involved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from penstock.broker.errors import TopicNotFound
from penstock.broker.fetch import visible_read
from penstock.broker.fetch.removal import NOTHING_REMOVED
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.names import Scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.executor import Executor
from penstock.broker.runtime.metrics import FanoutFigures, Metrics
from penstock.broker.security.access import READ, Access, Identity
from penstock.broker.state.state import State, Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.subscriptions.fanout_chunk import (
    AppendedChunks,
    ChunkLimits,
    ChunkWindow,
    EncodedChunk,
    MemoryBudget,
    appended_chunks,
)
from penstock.broker.subscriptions.fanout_read import FanoutRead, Visibility
from penstock.broker.topics import topic_rules
from penstock.log.engine import COMMITTED, Appended, Bounds, CommitGroup, PartitionId, partition_id
from penstock.log.errors import LogError, OffsetOutOfRange

logger = logging.getLogger(__name__)

MAX_CHUNKS_PER_READ: Final = 8  # most chunks of one read
READ_BYTES: Final = 1 << 20  # most bytes of one read, unless a single chunk may be larger
IDLE_US: Final = 2_000_000  # after which chunks that nobody polled are dropped


class FanoutSubscriber(Protocol):
    """A receiver of records. All methods are called on the broker's thread."""

    def wake(self) -> None:
        """There is more, or an error: call `FanoutCursor.poll` again. Called once per `poll` that returned None."""

    def topic_deleted(self) -> None:
        """The topic was deleted."""


class FanoutRef(NamedTuple):
    """A partition of a topic, with a chunk size."""

    scope: Scope
    topic: str
    id: int
    partition: int
    limits: ChunkLimits


class FanoutCursor:
    """The position of one subscriber."""

    __slots__ = ("_error", "_fanout", "_identity", "_prefetched", "_skip_expired", "group", "position", "subscriber")

    def __init__(
        self, fanout: PartitionFanout, identity: Identity, subscriber: FanoutSubscriber, position: int
    ) -> None:
        self._fanout = fanout
        self._identity = identity
        self.subscriber = subscriber
        self.position = position  # the offset of the next record
        self.group: CommitGroup | None = None  # the last chunk may be sent once this is committed
        self._prefetched: EncodedChunk | None = None  # a chunk read for it off the loop
        self._error: LogError | None = None  # the error of such a read
        self._skip_expired = False  # no record of the last chunk was visible

    @property
    def head(self) -> int:
        """The offset after the last record."""
        return self._fanout.bounds().high_watermark

    @property
    def lag(self) -> int:
        return max(0, self.head - self.position)

    def poll(self, below: int | None = None) -> EncodedChunk | None:
        """The next chunk, up to offset `below` if given; it may be empty. None if there is nothing yet: then the
        subscriber is woken when there is.

        Raises AccessDenied or TopicNotFound, as permissions may have been revoked meanwhile; OffsetOutOfRange if
        retention has overtaken the cursor; and LogError.
        """
        fanout = self._fanout
        if self._error is not None:
            error, self._error = self._error, None
            fanout.check(self._identity)  # TopicNotFound is more specific than the read error
            raise error
        bounds = fanout.bounds()
        if self.position >= bounds.high_watermark:  # the usual case: the last chunk ended at the head
            fanout.wait(self)
            return None
        topic = fanout.check(self._identity)
        chunk = fanout.find(self, topic, bounds)
        if chunk is None:
            return None
        if below is not None and chunk.end > below:
            chunk = chunk.between(self.position, below)
        self.position = chunk.end
        fanout.passed(chunk)
        self.group = fanout.state_log.pending_commit
        self._skip_expired = not chunk.count
        return chunk

    def wait_at_head(self) -> bool:
        """Whether there is nothing yet; then the subscriber is woken when there is, as after a `poll` that returned
        None.
        """
        if self.position < self._fanout.bounds().high_watermark:
            return False
        self._fanout.wait(self)
        return True

    def skip(self, position: int) -> None:
        """Move to this position. The records in between are counted as dropped."""
        self._fanout.dropped(position - self.position)
        self.position = position

    def leave(self) -> None:
        """Unsubscribe."""
        self._fanout.leave(self)

    # -- for PartitionFanout

    @property
    def skips_expired(self) -> bool:
        return self._skip_expired

    def prefetched(self, now: int) -> EncodedChunk | None:
        """The chunk that was read for it, if it has not expired and the cursor is still at its start."""
        chunk, self._prefetched = self._prefetched, None
        return chunk if chunk is not None and chunk.start == self.position and chunk.until > now else None

    def deliver(self, chunk: EncodedChunk | None, error: LogError | None) -> None:
        self._prefetched, self._error = chunk, error


class PartitionFanout:
    """One partition and all its subscribers with the same chunk size."""

    def __init__(self, log: FanoutLog, ref: FanoutRef) -> None:
        self._log = log
        self.state_log = log.state_log
        self.ref = ref
        self._partition = partition_id(ref.id, ref.partition)
        self.bounds: Callable[[], Bounds] = partial(log.state_log.engine.bounds, self._partition)
        self._window = ChunkWindow(log.budget)
        self._appended = AppendedChunks(log.budget)
        self._cursors: dict[FanoutCursor, None] = {}
        self._waiting: dict[FanoutCursor, None] = {}  # waiting for the log to grow
        self._reads: dict[int, FanoutRead] = {}  # in progress off the loop, by start offset
        self._readers: dict[int, dict[FanoutCursor, None]] = {}  # cursors waiting for these reads
        self._visibility = Visibility()  # of all chunks in the window
        self._used = True  # since the last call of `drop_if_unused`

    # -- subscribers

    def join(self, identity: Identity, subscriber: FanoutSubscriber, position: int) -> FanoutCursor:
        if not self._cursors:
            self._log.state_log.engine.watch(self._partition, self._grown)
            self._log.subscribed.setdefault(self._partition, []).append(self)
        cursor = FanoutCursor(self, identity, subscriber, position)
        self._cursors[cursor] = None
        return cursor

    def leave(self, cursor: FanoutCursor) -> None:
        if cursor not in self._cursors:
            return
        del self._cursors[cursor]
        self._waiting.pop(cursor, None)
        if not self._cursors:
            self._drop_chunks()
            self._log.state_log.engine.unwatch(self._partition, self._grown)
            self._log.unsubscribed(self._partition, self)
            self._log.left(self)

    def end(self) -> None:
        """The topic was deleted."""
        for cursor in list(self._cursors):
            if cursor in self._cursors:
                _notify(cursor.subscriber.topic_deleted)

    def wait(self, cursor: FanoutCursor) -> None:
        """Wake its subscriber when the log has grown."""
        self._waiting[cursor] = None

    def _grown(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._wake(waiting)

    def _wake(self, cursors: Iterable[FanoutCursor]) -> None:
        for cursor in cursors:
            if cursor in self._cursors:
                _notify(cursor.subscriber.wake)

    # -- chunks

    def offer(self, appended: Appended, values: Sequence[bytes]) -> None:
        """Values that are being appended and never expire. Waiting subscribers get them from here, without a read, when
        their group is committed: this callback runs before subscribers are woken.
        """
        if (self._waiting or self._appended.wanted) and self._visibility.expiry is None:
            appended.group.on_done(partial(self._offered, appended, values, self._visibility))

    def _offered(self, appended: Appended, values: Sequence[bytes], visibility: Visibility, group: CommitGroup) -> None:
        if group.state is COMMITTED and visibility is self._visibility and self._cursors:
            self._appended.put(appended_chunks(appended.base_offsets[0], values, self.ref.limits, appended.timestamp))

    def _drop_chunks(self) -> None:
        self._window.clear()
        self._appended.clear()

    def check(self, identity: Identity) -> Topic:
        """The topic, if this identity may read it now. Raises AccessDenied or TopicNotFound."""
        shared, ref = self._log, self.ref
        shared.access.require(identity, READ, ref.scope, ref.topic)
        state = shared.state_log.current()
        topic = state.topics_by_id.get(ref.id)
        if topic is None:
            raise TopicNotFound(ref.topic)
        self._follow(state, topic)
        return topic

    def _follow(self, state: State, topic: Topic) -> None:
        """Drop cached chunks if removed records or the topic's expiry have changed."""
        visibility, expiry = self._visibility, topic.settings.expiry_seconds
        removed = state.removed.get(self._partition, NOTHING_REMOVED) if state.removed else NOTHING_REMOVED
        if removed is not visibility.removed or expiry != visibility.expiry:
            self._visibility = Visibility(visibility.rebuilds, removed, expiry)
            self._drop_chunks()

    def find(self, cursor: FanoutCursor, topic: Topic, bounds: Bounds) -> EncodedChunk | None:
        """The chunk that starts at the cursor: cached, or read now. None: the cursor will be woken."""
        position = cursor.position
        if position < bounds.start:
            self.dropped(bounds.start - position)
            raise OffsetOutOfRange(position, *bounds)
        self._used = True
        window, now = self._window, self._log.clock()
        chunk = self._appended.get(position) or cursor.prefetched(now) or window.get(position, now)
        if chunk is not None:
            return chunk
        around = self._appended.around(position) or window.around(position, now)
        if around is None:
            return self._read(cursor, topic, bounds, now)
        chunk = around.between(position, around.end)
        window.put(chunk)
        return chunk

    def passed(self, chunk: EncodedChunk) -> None:
        """A cursor has gone past this chunk. If it is the only one, a new chunk is forgotten: nobody waits for it, and
        memory that is used again soon is still in the processor's caches."""
        if chunk.kept is self._appended and len(self._cursors) == 1:
            self._appended.release(chunk)

    def _read(self, cursor: FanoutCursor, topic: Topic, bounds: Bounds, now: int) -> EncodedChunk | None:
        start = cursor.position
        read = self._reads.get(start)
        if read is None:
            read = self._plan(topic, start, bounds, now, skip_expired=cursor.skips_expired)
            if read.ready:
                read.run()
                if read.error is not None:
                    raise read.error
                return self._cache(read.found)
            self._reads[start] = read
            self._readers[start] = {cursor: None}
            self._log.executor(read.run, partial(self._on_read, read))
        else:
            self._readers[start][cursor] = None
        return None

    def _plan(self, topic: Topic, start: int, bounds: Bounds, now: int, *, skip_expired: bool) -> FanoutRead:
        ref, limits, end = self.ref, self.ref.limits, bounds.high_watermark
        view = visible_read.view(self._log.state_log.state, topic, ref.partition, now)
        length = min(end, self._window.next_start(start) or end, self._appended.next_start(start) or end) - start
        size, count = (
            max(limits.bytes, min(limits.bytes * MAX_CHUNKS_PER_READ, READ_BYTES)),
            min(length, limits.events * MAX_CHUNKS_PER_READ),
        )
        read = VisibleRead(self._log.state_log.engine, self._partition, start, size, count, view, int(skip_expired))
        return FanoutRead(read, start, start + length, limits, visible_read.expiry(topic), self._visibility)

    def _cache(self, found: Sequence[EncodedChunk]) -> EncodedChunk:
        """Cache the chunks; returns the first."""
        for chunk in reversed(found):  # so that the first is evicted last
            self._window.put(chunk)
        return found[0]

    def _on_read(self, read: FanoutRead) -> None:
        """A read off the loop has ended."""
        del self._reads[read.start]
        waiting = self._readers.pop(read.start)
        if not self._cursors:
            return
        first: EncodedChunk | None = None
        if read.found and read.visibility is self._visibility:
            first = self._cache(read.found)
        elif read.found and read.visibility.rebuilds == self._visibility.rebuilds:
            first = read.found[0]  # waiters get what was visible then; after a rebuild it may be invalid
        for cursor in waiting:
            if cursor.position == read.start:  # else it has moved meanwhile
                cursor.deliver(first, read.error)
        self._wake(waiting)
        for cursor in waiting:
            cursor.deliver(None, None)  # cursors that did not poll will read again later

    def dropped(self, count: int) -> None:
        self._log.metrics.broadcast_dropped += count

    # -- maintenance

    def rebuilt(self) -> None:
        self._visibility = self._visibility._replace(rebuilds=self._visibility.rebuilds + 1)
        self._drop_chunks()

    def drop_if_unused(self) -> None:
        """Drop cached chunks if nobody has polled since the last call."""
        if not self._used:
            self._drop_chunks()
        self._used = False

    def figures(self) -> FanoutFigures:
        head = self.bounds().high_watermark
        lag = max([head - cursor.position for cursor in self._cursors], default=0)
        return FanoutFigures(len(self._cursors), max(0, lag))


class FanoutLog:
    """The fan-out of all partitions of a broker."""

    def __init__(self, state_log: StateLog, access: Access, metrics: Metrics, clock: Clock, executor: Executor) -> None:
        self.state_log = state_log
        self.access = access
        self.metrics = metrics
        self.clock = clock
        self.executor = executor
        self.budget = MemoryBudget()
        self.subscribed: dict[PartitionId, list[PartitionFanout]] = {}
        self._partitions: dict[FanoutRef, PartitionFanout] = {}
        self._swept_at = 0  # µs: time of the last removal of unused chunks

    def open(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        partition: int,
        subscriber: FanoutSubscriber,
        limits: ChunkLimits,
        offset: int | None = None,
    ) -> FanoutCursor:
        """A cursor for a subscriber, starting at `offset`, or else at the end. It is valid once the group that is
        `pending_commit` now is committed; the subscriber is not woken before its first poll.

        Raises OffsetOutOfRange below the log start and beyond the end.
        """
        self.access.require(identity, READ, scope, topic)
        found = topic_rules.find_partition(self.state_log.current(), scope, topic, partition)
        bounds = self.state_log.engine.bounds(partition_id(found.id, partition))
        if offset is None:
            offset = bounds.high_watermark
        elif not bounds.start <= offset <= bounds.high_watermark:
            raise OffsetOutOfRange(offset, *bounds)
        ref = FanoutRef(scope, topic, found.id, partition, limits)
        fanout = self._partitions.get(ref)
        if fanout is None:
            fanout = self._partitions[ref] = PartitionFanout(self, ref)
        return fanout.join(identity, subscriber, offset)

    def offer(self, partition: PartitionId, appended: Appended, values: Sequence[bytes]) -> None:
        """Values that are being appended and never expire: see `PartitionFanout.offer`. Calling this is optional:
        values that are not offered are read from the log.
        """
        for fanout in self.subscribed.get(partition, ()):
            fanout.offer(appended, values)

    def unsubscribed(self, partition: PartitionId, fanout: PartitionFanout) -> None:
        self.subscribed[partition].remove(fanout)
        if not self.subscribed[partition]:
            del self.subscribed[partition]

    def left(self, fanout: PartitionFanout) -> None:
        """The partition has no subscribers any more."""
        if self._partitions.get(fanout.ref) is fanout:
            del self._partitions[fanout.ref]

    def sweep(self, now: int) -> None:
        """Notify subscribers of deleted topics (valid once `pending_commit` is committed), and drop unused chunks.
        Called a few times a second.
        """
        if not self._partitions:
            return
        known = self.state_log.current().topics_by_id
        for fanout in [each for each in self._partitions.values() if each.ref.id not in known]:
            fanout.end()
        if not 0 <= now - self._swept_at < IDLE_US:
            self._swept_at = now
            for fanout in self._partitions.values():
                fanout.drop_if_unused()

    def figures(self) -> FanoutFigures:
        """The number of subscribers, and the largest lag."""
        figures = [fanout.figures() for fanout in self._partitions.values()]
        return FanoutFigures(sum(each.subscribers for each in figures), max((each.lag for each in figures), default=0))

    def rebuilt(self) -> None:
        for fanout in self._partitions.values():
            fanout.rebuilt()


def _notify(call: Callable[[], None]) -> None:
    """Call a subscriber; its errors must not affect others."""
    try:
        call()
    except Exception:
        logger.exception("a subscriber of a partition failed")
