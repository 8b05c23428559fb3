"""Subscriptions: each is a stream to the client, on which events are sent as fast as the client receives them.

A subscription is a position in the log. A slow client lags, and loses nothing that the log retains, unless the
configuration lets slow subscriptions drop events. Frames are encoded once and shared by all subscriptions with the same
content; see `penstock.broker.subscriptions.fanout`.

An event that fits no frame, because another door or the other dialect allows larger ones, is skipped with a notice.

A stream ends normally when its topic is deleted or the broker shuts down. If events are missing for another reason, it
is reset with one of the codes of `Reset`, so that the client does not mistake this for the normal end.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.broker.errors import AccessDenied, BrokerError, RecordUnsendable, ShuttingDown, TopicNotFound
from penstock.broker.names import Scope
from penstock.broker.runtime.turns import Turn
from penstock.broker.subscriptions.fanout import FanoutCursor
from penstock.broker.subscriptions.fanout_chunk import ChunkLimits, EncodedChunk
from penstock.doors.felix.produce_batch import StreamNames
from penstock.doors.felix.request_context import FelixContext, FelixSettings
from penstock.doors.reply_queue import ReplyQueue
from penstock.doors.streams import StreamChannel
from penstock.log.errors import LogError, OffsetOutOfRange
from penstock.wire.felix.frames import HEADER_SIZE, OFFSETS, SKIPPED, TIMESTAMPS

logger = logging.getLogger(__name__)

MAX_PER_TURN: Final = 4_096  # events, or units of 256 bytes, before other connections have a turn
FLUSH_BYTES: Final = 64 << 10  # frames of this size are sent before more are collected
HELD_BYTES: Final = 256 << 10  # of frames that wait for a commit, above which reading pauses


class Reset(enum.IntEnum):
    """The reset codes of an event stream."""

    OVERTAKEN = 0x11  # retention removed events before the client received them
    DENIED = 0x12  # the client lost the permission to read the stream
    FAILED = 0x14  # the log could not be read, or the commit that events depended on failed


_RESETS: Final[tuple[tuple[type[Exception], Reset], ...]] = (
    (OffsetOutOfRange, Reset.OVERTAKEN),
    (AccessDenied, Reset.DENIED),
    (BrokerError, Reset.FAILED),
    (LogError, Reset.FAILED),
)
_EXPECTED: Final = (BrokerError, LogError)
_ORDERLY: Final = (TopicNotFound, ShuttingDown)


class NextRead(NamedTuple):
    """The next offset of a subscription, and the end of the events it still gets before it drops some."""

    position: int
    full: int | None = None  # the end of what was queued for it when it became too slow


def next_read(slow: str, position: int, head: int, queue: int, full: int | None) -> NextRead:
    """The next read of a subscription at `position` while the log ends at `head`. It may lag by `queue` events. If it
    lags more, it continues

    - with `keep` at its position;
    - with `drop_old` at the newest `queue` events;
    - with `drop_new` with the oldest `queue` events (up to `full`), and then at the end."""
    if slow == "drop_old":
        return NextRead(max(position, head - queue))
    if slow == "drop_new":
        if full is None and head - position > queue:
            full = position + queue
        if full is not None and position >= full:
            return NextRead(head)
        return NextRead(position, full)
    return NextRead(position)


class PartitionReader:
    """The state of one partition in a subscription; a `FanoutSubscriber`."""

    __slots__ = ("_subscription", "cursor", "due", "full", "passed", "replayed")

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.cursor: FanoutCursor  # set after opening
        self.replayed = 0  # events before this offset are not dropped: the client has subscribed to them
        self.full: int | None = None  # see `NextRead`
        self.due = False  # there may be more events
        self.passed = 0  # offsets without an event since the last event sent, or the start

    def take(self, settings: FelixSettings) -> EncodedChunk | None:
        """The next chunk for this client, or None. Raises the errors of `FanoutCursor.poll`."""
        cursor = self.cursor
        if settings.slow == "keep" or cursor.position < self.replayed:
            return cursor.poll()
        position, self.full = next_read(settings.slow, cursor.position, cursor.head, settings.queue_events, self.full)
        if position > cursor.position:
            cursor.skip(position)
            self.passed = 0  # dropped events must show as a gap in the offsets
        return cursor.poll(self.full)

    def wait_at_head(self) -> bool:
        """Whether there is nothing more for now; `wake` is called when there is."""
        return self.full is None and self.cursor.wait_at_head()

    def wake(self) -> None:
        self._subscription.wake(self)

    def topic_deleted(self) -> None:
        self._subscription.finish()


class Subscription:
    """An event stream; a `StreamSession`."""

    def __init__(self, context: FelixContext, names: StreamNames, number: int, *, offsets: bool) -> None:
        """`names`: of the stream, as the client sent them. `offsets`: whether events are sent with their offsets."""
        self._broker = context.broker
        self._metrics = context.broker.metrics
        self._turns = context.broker.turns
        self._figures = context.broker.metrics.door("felix")
        self._connection = context.connection
        self._settings = context.settings
        self._dialect = context.dialect
        self._flags = context.flags
        self._names = names
        self._number = number
        self._offsets = offsets
        flags = context.flags if context.original and context.flags is not None else 0
        self._tells_times = bool(flags & TIMESTAMPS)
        self._tells_skipped = offsets and flags & (OFFSETS | SKIPPED) == OFFSETS | SKIPPED
        self._key = context.dialect.events_key(names, number, context.flags, offsets=offsets)
        self._largest = context.dialect.largest_event(  # that a frame can carry, in bytes
            names, context.flags, context.settings.max_frame, offsets=offsets
        )
        self._channel: StreamChannel
        self._replies = ReplyQueue(self._send, self._progress, self._crash)
        self._readers: list[PartitionReader] = []
        self._due: deque[PartitionReader] = deque()
        self._working = False
        self._turn = Turn(self._broker.turns, self._progress)
        self._over = False  # nothing more is read
        self._stopping = False  # the broker is shutting down
        self._reset_code: Reset | None = None  # with which the stream will be reset shortly
        self._gap = False  # frames depended on a commit that failed
        self._closed = False  # nothing more is sent

    # -- start

    def follow(self, context: FelixContext, scope: Scope, topic: str, starts: Sequence[tuple[int, int | None]]) -> None:
        """Open a cursor at each of these partitions and offsets (None: at the end), and the stream. Only a hello is
        sent before earlier requests are answered. Raises StreamsUsedUp."""
        settings = self._settings
        limits = ChunkLimits(settings.batch_events, min(settings.batch_bytes, settings.max_frame // 2))
        try:
            for partition, offset in starts:
                reader = PartitionReader(self)
                reader.cursor = self._broker.fanout.open(
                    context.identity, scope, topic, partition, reader, limits, offset
                )
                reader.replayed = reader.cursor.head
                self._readers.append(reader)
            self._channel = self._connection.channel.open(self)
        except BaseException:
            self._leave()
            raise
        self._connection.subscriptions.add(self)
        self._replies.enqueue(self._dialect.hello(self._number), self._broker.pending_commit, self._failed)
        self._replies.flush()
        for reader in self._readers:
            reader.due = True
            self._due.append(reader)
        if any(reader.cursor.lag for reader in self._readers):
            self._turn.give_way()  # the reply is sent first
        else:
            self._go_on()  # nothing to send yet

    # -- called by the transport

    yielding = False  # there is no input that could be waiting

    def describe_work(self) -> dict[str, str]:
        return {"door": "felix", "peer": self._connection.channel.peer, "request": "events"}

    def receive(self, data: bytes) -> None:  # noqa: ARG002 - called without data, when the client can receive more
        self._go_on()

    def receive_pieces(self, pieces: list[bytes]) -> None:
        """Never called: the client sends nothing on this stream."""

    def end_of_input(self) -> None:
        """Ignored: the client sends nothing on this stream."""

    def stop(self) -> None:
        """Stop because the broker shuts down. The client must see a lost connection, after which it resumes at its
        position; the end of the stream would mean the end of the subscription, and the original's clients would not
        resume."""
        if not self._over:
            self._stopping = True
            self.finish()

    def refused(self, code: int) -> None:
        """The client stopped receiving."""
        if not self._closed:
            self.lost()
            self._channel.reset(code)

    def lost(self) -> None:
        self._closed = True
        self._leave()
        self._replies.discard()

    @property
    def long_lived(self) -> bool:
        return True

    @property
    def held_bytes(self) -> int:
        return self._replies.held_bytes

    @property
    def awaiting_commit(self) -> bool:
        return bool(self._replies.waiting)

    # -- called by its readers

    def wake(self, reader: PartitionReader) -> None:
        if not reader.due:
            reader.due = True
            self._due.append(reader)
        self._progress()

    def finish(self) -> None:
        """End the stream after everything that was sent, once that is committed."""
        if not self._over:
            self._leave()
            self._replies.enqueue(b"", self._broker.pending_commit, self._failed)
            self._go_on()

    # -- sending

    def _progress(self) -> None:
        """Continue after a wait, and charge the time, as no caller does."""
        if self._working or self._closed:
            return
        turns = self._turns
        began = turns.timer()
        self._go_on()
        turns.charge(turns.timer() - began, self)

    def _go_on(self) -> None:
        """Send as much as the client receives; then close if that was all."""
        if self._working or self._closed:
            return
        self._working = True
        self._turn.begun = False
        try:
            while not self._turn.yielding and not self._over and self._send_turn(self._turn):
                self._turn.give_way()
            self._replies.flush()
        except Exception as error:  # noqa: BLE001 - `_crash` logs it
            self._crash(error)
        finally:
            self._working = False
        if self._closed:
            return
        if self._gap:
            self._break(Reset.FAILED)
        elif self._over and self._reset_code is None and self._replies.empty:
            self._closed = True
            if self._stopping:
                self._channel.leave()
            else:
                self._channel.close()

    def _send_turn(self, turn: Turn) -> bool:
        """Send for one turn. Whether there may be more that the client can receive."""
        due, replies, left = self._due, self._replies, MAX_PER_TURN
        while due and not self._over:
            if replies.held_bytes >= FLUSH_BYTES:
                replies.flush()
            if self._closed or self._gap or self._channel.congested or replies.held_bytes >= HELD_BYTES:
                return False
            if left <= 0 or turn.over():
                return True
            reader = due.popleft()
            reader.due = False
            chunk = self._next(reader)
            if chunk is not None:
                left -= max(1, chunk.count, chunk.size >> 8)
                if not reader.due and not reader.wait_at_head():
                    reader.due = True
                    due.append(reader)
        return False

    def _next(self, reader: PartitionReader) -> EncodedChunk | None:
        """Enqueue the next chunk of this partition, if there is one."""
        metrics = self._metrics
        started = metrics.timer()
        try:
            chunk = reader.take(self._settings)
            if chunk is not None and chunk.count:
                # Usually it is encoded already, for another subscription, and no offsets were skipped.
                data = None if reader.passed else chunk.encodings.get(self._key)
                if data is None:
                    data = self._encoded(chunk, reader.passed)
                self._replies.enqueue(data, reader.cursor.group, self._failed)
                left_out = self._note_left_out(chunk) if chunk.size > self._largest else (0, 0)
                metrics.fetched(chunk.count - left_out[0], chunk.size - left_out[1], started, self._figures)
        except _EXPECTED as error:
            self._fail(error)
            return None
        if self._tells_skipped and chunk is not None:
            reader.passed = (
                chunk.end - _end_of_events(chunk) if chunk.count else reader.passed + chunk.end - chunk.start
            )
        return chunk

    def _encoded(self, chunk: EncodedChunk, passed: int) -> bytes:
        """The chunk as frames, shared by all subscriptions with the same content. `passed`: offsets without an event
        right before it."""
        if not self._tells_skipped or not passed:
            return chunk.encoded(self._key, self._frames)
        return chunk.encoded((self._key, passed), lambda same: self._frames(same, passed))

    def _frames(self, chunk: EncodedChunk, passed: int = 0) -> bytes:
        """The events as frames: events in one frame have consecutive offsets."""
        if self._tells_times or self._tells_skipped:
            return self._annotated_frames(chunk, chunk.start - passed)
        frames: list[bytes] = []
        for offset, values in chunk.runs:
            start = 0
            for record in self._unsendable(offset, values) if chunk.size > self._largest else ():
                at = record.offset - offset
                if at > start:
                    self._encode(frames, offset + start, values[start:at])
                frames.append(self._dialect.left_out(str(record)))
                start = at + 1
            if start < len(values):
                self._encode(frames, offset + start, values[start:] if start else values)
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def _annotated_frames(self, chunk: EncodedChunk, end: int) -> bytes:
        """As `_frames`, with times and the number of offsets without an event, as far as the client requested them.
        `end`: after the previous event. Unsendable events count as events, and are missing."""
        frames: list[bytes] = []
        times, at = chunk.timestamps() if self._tells_times else None, 0
        for offset, values in chunk.runs:
            skipped, start = offset - end, 0
            for cut in [record.offset - offset for record in self._unsendable(offset, values)] + [len(values)]:
                if cut > start:
                    stamps = None if times is None else times[at + start : at + cut]
                    self._encode(frames, offset + start, values[start:cut], skipped if start == 0 else 0, stamps)
                start = cut + 1
            end = offset + len(values)
            at += len(values)
        return b"".join(frames)

    def _unsendable(self, offset: int, values: Sequence[bytes]) -> list[RecordUnsendable]:
        """The events among these consecutive ones that fit no frame."""
        largest = self._largest
        sizes = enumerate(map(len, values), offset)
        return [RecordUnsendable(at, size, largest) for at, size in sizes if size > largest]

    def _note_left_out(self, chunk: EncodedChunk) -> tuple[int, int]:
        """Count the events of a chunk that this client does not get; returns their number and bytes."""
        left_out = [record for offset, values in chunk.runs for record in self._unsendable(offset, values)]
        for record in left_out:
            self._broker.unsendable.note("felix", self._channel.peer, "/".join(self._names), record)
        return len(left_out), sum([record.size for record in left_out])

    def _encode(
        self,
        frames: list[bytes],
        offset: int,
        values: Sequence[bytes],
        skipped: int = 0,
        times: memoryview[int] | None = None,
    ) -> None:
        base = offset if self._offsets else None
        frame = self._dialect.events(self._names, values, base, self._number, self._flags, skipped, times)
        if len(values) == 1 or len(frame) - HEADER_SIZE <= self._settings.max_frame:
            frames.append(frame)
        else:
            half = len(values) // 2
            first, second = (None, None) if times is None else (times[:half], times[half:])
            self._encode(frames, offset, values[:half], skipped, first)
            self._encode(frames, offset + half, values[half:], 0, second)

    def _failed(self, _error: Exception) -> bytes:
        self._gap = True
        return b""

    def _send(self, data: bytes) -> None:
        """Send nothing after a failed commit: there would be a gap before it."""
        if data and not self._gap:
            self._channel.send(data)

    # -- end

    def _fail(self, error: Exception) -> None:
        if isinstance(error, _ORDERLY):
            self.finish()
            return
        code = next(code for kind, code in _RESETS if isinstance(error, kind))
        if code is not Reset.DENIED:
            who, what = self._channel.peer, "/".join(self._names)
            self._connection.complain(f"{what} {code}", f"a subscription of {who} to '{what}' is broken off: {error}")
        # A reset may overtake data that was sent before it. A client that resumes after the last event it received
        # would never progress, so sent data gets a head start.
        self._leave()
        self._reset_code = code
        self._replies.flush()
        self._broker.scheduler.call_soon(self._break_off)

    def _crash(self, error: Exception) -> None:
        """Reset this stream only, after a bug."""
        self._broker.metrics.internal_errors += 1
        keys = {"peer": self._channel.peer, "door": "felix"}
        logger.error("a subscription of %s failed", self._channel.peer, exc_info=error, extra=keys)
        if not self._closed:
            self._break(Reset.FAILED)

    def _break_off(self) -> None:
        if not self._closed and self._reset_code is not None:
            self._break(self._reset_code)

    def _break(self, code: Reset) -> None:
        self.lost()
        self._channel.reset(code)

    def _leave(self) -> None:
        self._over = True
        self._connection.subscriptions.discard(self)
        for reader in self._readers:
            reader.cursor.leave()
        self._readers.clear()
        self._due.clear()


def _end_of_events(chunk: EncodedChunk) -> int:
    """The offset after the last event of a chunk with events."""
    offset, values = chunk.runs[-1]
    return offset + len(values)
