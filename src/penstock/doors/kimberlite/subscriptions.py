"""The subscriptions of one connection: events are pushed as they are committed, within the client's credits.

`broker.subscriptions` assigns events to subscribers; this module encodes them as frames. Version 1 of the protocol has
no pushes: a subscription only returns the offset at which to begin, and the client uses ReadEvents.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.errors import AccessDenied, BrokerError, LimitReached, TopicNotFound
from penstock.broker.names import Scope
from penstock.broker.security.access import Identity
from penstock.broker.subscriptions.subscriptions import RecordChunk, SubscriberSlot
from penstock.doors.kimberlite.errors import RequestRefused
from penstock.doors.pipeline import FLUSH_BYTES
from penstock.doors.reply import Reply
from penstock.doors.reply_queue import ReplyQueue
from penstock.doors.session import Channel
from penstock.log.batch import RecordSlice
from penstock.log.engine import FAILED, CommitGroup
from penstock.log.errors import LogError
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ServerCodec
from penstock.wire.kimberlite.frames import MAX_EVENT

logger = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS: Final = 1_000  # of one connection
MAX_CREDITS: Final = 2**32 - 1
CHUNK_EVENTS: Final = 256  # of one chunk
CHUNK_BYTES: Final = 256 << 10  # the same; a larger event is sent alone
HELD_BYTES: Final = 1 << 20  # unsent bytes of replies above which nothing more is pushed
MAX_PER_TURN: Final = 4_096  # events before other connections have a turn
MAX_ID: Final = 2**63 - 1

_EXPECTED: Final = (BrokerError, LogError)
_STREAM: Final = struct.Struct(">QQ")


class Subscription:
    """One subscription; a `Subscriber`. It sends one chunk at a time."""

    __slots__ = ("_all", "_reading", "_since", "closed", "credits", "id", "scope", "slot", "stream", "topic")

    def __init__(
        self,
        subscriptions: Subscriptions,
        id: int,  # noqa: A002 - it is the subscription's id
        stream: int,
        topic: str,
        scope: Scope,
        credits: int,  # noqa: A002 - as the protocol calls them
    ) -> None:
        self.id = id
        self.stream = stream
        self.topic = topic
        self.scope = scope
        self.credits = credits
        self.slot: SubscriberSlot  # set after opening
        self.closed = False
        self._all = subscriptions
        self._reading = False
        self._since = 0  # events since other connections had a turn

    # -- called by the partition's dispatcher

    def wants_records(self) -> bool:
        return not self.closed and self.credits > 0 and not self._reading and self._all.has_room(self)

    def offer(self, limit: int) -> bool:
        """Offer records within the session's error boundary, since other subscribers wait for their turn."""
        offered: list[bool] = []
        self._all.guard(lambda: offered.append(self._offer(limit)))
        return offered == [True]

    def _offer(self, limit: int) -> bool:
        if not self._all.has_room(self):  # others have filled it after `wants_records`
            return False
        try:
            chunk = self.slot.plan_read(min(limit, self.credits, CHUNK_EVENTS), CHUNK_BYTES)
        except _EXPECTED as error:
            self._fail(error)
            return False
        if chunk is None:
            return False
        broker = self._all.broker
        if chunk.ready:
            chunk.run()
            if self._since < MAX_PER_TURN and not broker.turns.exhausted:
                return self._send(chunk)
            self._begin_read()
            broker.turns.later(partial(self._all.guard, partial(self._on_read, chunk)))
            return False
        self._begin_read()
        broker.executor(chunk.run, partial(self._all.guard, partial(self._on_read, chunk)))
        return False

    def flush(self) -> None:
        if not self.closed:
            self._all.guard(self._all.replies.flush)

    def topic_deleted(self) -> None:
        self._all.guard(partial(self._all.close, self, m.CloseReason.STREAM_DELETED))

    # -- sending

    def _begin_read(self) -> None:
        self._reading, self._since = True, 0
        self._all.reads += 1

    def _on_read(self, chunk: RecordChunk) -> None:
        """Continue after a read off the loop."""
        self._reading = False
        self._all.reads -= 1
        if not self.closed:
            if self._send(chunk):
                self._all.due[self.id] = self
            self.flush()
        self._all.work()

    def _send(self, chunk: RecordChunk) -> bool:
        """Send a chunk. Whether there may be more."""
        broker = self._all.broker
        began = broker.turns.timer()
        try:
            return self._send_some(chunk)
        finally:
            broker.turns.charge(broker.turns.timer() - began, self)

    def describe_work(self) -> dict[str, str]:
        return {"door": "kimberlite", "peer": self._all.channel.peer, "request": "events"}

    def _send_some(self, chunk: RecordChunk) -> bool:
        broker, replies = self._all.broker, self._all.replies
        started = broker.metrics.timer()
        try:
            found = chunk.finish(self.credits, MAX_EVENT)
        except _EXPECTED as error:
            self._fail(error)
            return False
        for record in chunk.unsendable:  # the client can tell from the offsets that they are missing
            broker.unsendable.note("kimberlite", self._all.channel.peer, self.topic, record)
        if not found:
            return chunk.further
        count, size = sum(map(len, found)), sum([part.byte_size() for part in found])
        replies.enqueue(self._frames(found), chunk.group, self._void)
        broker.metrics.fetched(count, size, started, self._all.figures)
        self._since += count
        return True

    def _frames(self, found: Sequence[RecordSlice]) -> bytes:
        """Pushes of these events: events in one frame have consecutive offsets."""
        push, per_frame = self._all.codec.push, self._all.push_events
        frames: list[bytes] = []
        left = self.credits
        for offset, values in _runs(found):
            for start in range(0, len(values), per_frame):
                events = values[start : start + per_frame]
                left -= len(events)
                frames.append(push(m.SubscriptionEvents(self.id, offset + start, events, left)))
        self.credits = left
        return b"".join(frames)

    def _void(self, _error: Exception) -> bytes:
        """The frames to send instead of a chunk whose commit failed: the end of the subscription. The client may
        subscribe again."""
        return self._all.drop(self, m.CloseReason.PROTOCOL_ERROR)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, AccessDenied | TopicNotFound):
            peer = self._all.channel.peer
            keys = {"peer": peer, "door": "kimberlite"}
            logger.warning("a subscription of %s to stream %d ends: %s", peer, self.stream, error, extra=keys)
        deleted = isinstance(error, TopicNotFound)
        self._all.close(self, m.CloseReason.STREAM_DELETED if deleted else m.CloseReason.PROTOCOL_ERROR)

    def began(self, group: CommitGroup) -> None:
        """The commit of the subscription is done. If it failed, the client got an error instead of a subscription."""
        if group.state is FAILED:
            self._all.guard(lambda: self._all.forget(self))


class Subscriptions:
    """All subscriptions of one connection. The session calls `work` whenever a request was executed or the client has
    received data, so that pushes follow the replies to earlier requests."""

    def __init__(
        self,
        broker: Broker,
        channel: Channel,
        replies: ReplyQueue,
        codec: ServerCodec,
        push_events: int,
        guard: Callable[[Callable[[], None]], None],
    ) -> None:
        """`push_events`: in one frame. `guard` is the session's error boundary."""
        self.guard = guard
        self.broker = broker
        self.figures = broker.metrics.door("kimberlite")
        self.channel = channel
        self.replies = replies
        self.codec = codec
        self.push_events = push_events
        self._open: dict[int, Subscription] = {}
        self.due: dict[int, Subscription] = {}  # may continue with the next `work`, in this order
        self.reads = 0  # reads of chunks in progress
        self._made: dict[int, int] = {}  # number of subscriptions so far, by first id of the stream; most recent last

    # -- requests

    def open(
        self, identity: Identity, scope: Scope, tenant: int, topic: str, partition: int, request: m.Subscribe
    ) -> Reply:
        if len(self._open) >= MAX_SUBSCRIPTIONS:
            raise LimitReached(f"The connection has {MAX_SUBSCRIPTIONS} subscriptions, which is the limit")
        number = self._number(tenant, request.stream_id)
        subscription = Subscription(self, number, request.stream_id, topic, scope, request.initial_credits)
        subscription.slot, group = self.broker.subscriptions.open(
            identity,
            scope,
            topic,
            partition,
            request.from_offset,
            subscription,
            request.consumer_group,
            self.channel.peer,
        )
        self._open[number] = self.due[number] = subscription
        if group is not None:
            group.on_done(subscription.began)
        return Reply(m.SubscribeResponse(number, subscription.slot.start, subscription.credits), group)

    def credit(self, scope: Scope, request: m.SubscribeCredit) -> Reply:
        """Returned credits acknowledge the same number of events."""
        subscription = self._find(scope, request.subscription_id)
        subscription.slot.settle(request.additional_credits)
        subscription.credits = min(subscription.credits + request.additional_credits, MAX_CREDITS)
        self.due[subscription.id] = subscription
        return Reply(m.SubscriptionAck(subscription.id, subscription.credits))

    def unsubscribe(self, scope: Scope, request: m.Unsubscribe) -> Reply:
        subscription = self._find(scope, request.subscription_id)
        self.replies.enqueue(self.drop(subscription, m.CloseReason.CLIENT_CANCELLED, done=True))
        return Reply(m.SubscriptionAck(subscription.id, 0))

    def _find(self, scope: Scope, id: int) -> Subscription:  # noqa: A002 - it is the subscription's id
        subscription = self._open.get(id)
        if subscription is None or subscription.scope != scope:
            raise RequestRefused(m.ErrorCode.SUBSCRIPTION_NOT_FOUND, f"subscription {id} not found")
        return subscription

    def _number(self, tenant: int, stream: int) -> int:
        """The id derived from the stream, or the next free one after it: the original's clients store the end of a
        subscription by its id, and would apply it to a later subscription with the same one."""
        first_id = subscription_id(tenant, stream)
        made = self._made.pop(first_id, 0)
        while len(self._made) >= MAX_SUBSCRIPTIONS:
            del self._made[next(iter(self._made))]
        self._made[first_id] = made + 1
        number = first_id + made & MAX_ID
        while number in self._open:
            number = number + 1 & MAX_ID
        return number

    # -- called by the session

    def work(self) -> None:
        """Resume subscriptions that had to wait, while the client receives more."""
        for number in list(self.due):
            if not self._room:
                return
            subscription = self.due.pop(number, None)
            if subscription is not None and not subscription.closed:
                subscription.slot.resume()

    def stop(self) -> None:
        """Close all subscriptions because the broker shuts down."""
        for subscription in list(self._open.values()):
            self.close(subscription, m.CloseReason.SERVER_SHUTDOWN)

    def release(self) -> None:
        """Release the subscriptions of a closed connection: other members of their groups get the events they held."""
        for subscription in list(self._open.values()):
            self._remove(subscription, done=False)

    # -- called by a subscription

    def has_room(self, subscription: Subscription) -> bool:
        """Whether the client receives more; otherwise the subscription resumes when it does."""
        if self._room:
            return True
        self.due[subscription.id] = subscription
        return False

    @property
    def _room(self) -> bool:
        """Whether there is room, counting reads in progress as complete: all subscriptions may start one at the same
        time."""
        replies = self.replies
        if replies.held_bytes > FLUSH_BYTES:
            replies.flush()
        return not self.channel.congested and replies.held_bytes + self.reads * CHUNK_BYTES <= HELD_BYTES

    def close(self, subscription: Subscription, reason: m.CloseReason) -> None:
        """Close a subscription, and tell the client once the reason is committed."""
        if not subscription.closed:
            replies, data = self.replies, self.drop(subscription, reason)
            replies.enqueue(data, self.broker.pending_commit, lambda _: data)
            replies.flush()

    def forget(self, subscription: Subscription) -> None:
        """Remove a subscription without telling the client, which knows."""
        if not subscription.closed:
            self._remove(subscription, done=False)

    def drop(self, subscription: Subscription, reason: m.CloseReason, *, done: bool = False) -> bytes:
        """Remove a subscription. Returns the frame for the client, empty if it was already sent."""
        if subscription.closed:
            return b""
        self._remove(subscription, done=done)
        return self.codec.push(m.SubscriptionClosed(subscription.id, reason))

    def _remove(self, subscription: Subscription, *, done: bool) -> None:
        subscription.closed = True
        del self._open[subscription.id]
        self.due.pop(subscription.id, None)
        subscription.slot.leave(done=done)


def _runs(found: Sequence[RecordSlice]) -> list[tuple[int, list[bytes]]]:
    """Runs of events with consecutive offsets, each with its first offset."""
    runs: list[tuple[int, list[bytes]]] = []
    end = -1
    for part in found:
        if part.base_offset == end:
            runs[-1][1].extend(part.values())
        else:
            runs.append((part.base_offset, part.values()))
        end = part.end_offset
    return runs


def subscription_id(tenant: int, stream: int) -> int:
    """A stable id for a stream, so that a reconnecting client gets the same one."""
    return int.from_bytes(blake2b(_STREAM.pack(tenant, stream), digest_size=8).digest(), "big") & MAX_ID
