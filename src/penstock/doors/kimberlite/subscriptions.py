"""The subscriptions of one connection: events that are pushed as they come, as many as the client has given credit for.

Who gets which event is decided by `Cursors`; here they become frames. Version 1 of the protocol has no pushes: there a
subscription is an acknowledgement that says where to begin, and the client reads by ReadEvents.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import Final

from penstock.broker.errors import AccessDenied, BrokerError, LimitReached, TopicNotFound
from penstock.broker.names import Scope, check_group
from penstock.broker.security.access import Permission
from penstock.broker.state.state import Topic
from penstock.broker.subscriptions.subscriptions import RecordChunk, SubscriberSlot
from penstock.doors.kimberlite.errors import RequestRefused
from penstock.doors.kimberlite.request_context import RequestContext
from penstock.doors.pipeline import FLUSH_BYTES
from penstock.doors.reply import Reply
from penstock.log.batch import RecordSlice
from penstock.log.engine import FAILED, CommitGroup
from penstock.log.errors import LogError, OffsetOutOfRange
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.frames import MAX_PAYLOAD

logger = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS: Final = 1_000  # of one connection
MAX_CREDITS: Final = 2**32 - 1
CHUNK_EVENTS: Final = 256  # taken at once
CHUNK_BYTES: Final = 256 << 10  # the same; a larger event goes alone
HELD_BYTES: Final = 1 << 20  # of replies that have not left, above which nothing more is pushed
STRETCH: Final = 4_096  # events after which everybody else has a turn, however many are at hand
MAX_EVENT: Final = MAX_PAYLOAD - 64  # bytes, besides which a push has its few numbers
MAX_ID: Final = 2**63 - 1

_EXPECTED: Final = (BrokerError, LogError)
_PLACE: Final = struct.Struct(">QQ")


class Subscription:
    """One of them; a `Subscriber`. It sends a chunk at a time."""

    __slots__ = ("_line", "_reading", "_since", "closed", "credits", "id", "scope", "slot", "stream")

    def __init__(self, line: Subscriptions, id: int, stream: int, scope: Scope, credits: int) -> None:  # noqa: A002
        self.id = id
        self.stream = stream
        self.scope = scope
        self.credits = credits
        self.slot: SubscriberSlot  # set once there is one
        self.closed = False
        self._line = line
        self._reading = False
        self._since = 0  # events since everybody else had a turn

    # -- what `Cursors` asks

    def wants_records(self) -> bool:
        return not self.closed and self.credits > 0 and not self._reading and self._line.has_room(self)

    def offer(self, limit: int) -> bool:
        try:
            chunk = self.slot.plan_read(min(limit, self.credits, CHUNK_EVENTS), CHUNK_BYTES)
        except _EXPECTED as error:
            self._fail(error)
            return False
        if chunk is None:
            return False
        broker = self._line.call.broker
        if chunk.ready:
            chunk.run()
            if self._since < STRETCH:
                return self._send(chunk)
            self._reading, self._since = True, 0
            broker.scheduler.call_soon(partial(self._came, chunk))
            return False
        self._reading, self._since = True, 0
        broker.executor(chunk.run, partial(self._came, chunk))
        return False

    def flush(self) -> None:
        if not self.closed:
            self._line.call.replies.flush()

    def topic_deleted(self) -> None:
        self._line.close(self, m.CloseReason.STREAM_DELETED)

    # -- sending

    def _came(self, chunk: RecordChunk) -> None:
        """The read that was made off the loop is over."""
        self._reading = False
        if self.closed:
            return
        further = self._send(chunk)
        self.flush()
        if further:
            self.slot.resume()

    def _send(self, chunk: RecordChunk) -> bool:
        """Whether there may be more."""
        broker, replies = self._line.call.broker, self._line.call.replies
        started = broker.metrics.timer()
        try:
            found = chunk.finish(self.credits)
        except _EXPECTED as error:
            self._fail(error)
            return False
        if not found:
            return chunk.further
        count, size = sum(map(len, found)), sum([part.byte_size() for part in found])
        if size > MAX_EVENT:
            self._fail(RecordUnsendable(found[0].base_offset, size))
            return False
        replies.put_after(chunk.group, self._frames(found), self._void)
        broker.metrics.fetched(count, size, started)
        self._since += count
        return True

    def _frames(self, found: Sequence[RecordSlice]) -> bytes:
        """Pushes of these events: those in one follow each other without a gap."""
        push, per_frame = self._line.call.wire.push, self._line.call.settings.push_events
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
        """What was to be sent depended on a change that could not be kept. The client goes on by subscribing again."""
        return self._line.drop(self, m.CloseReason.PROTOCOL_ERROR)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, AccessDenied | TopicNotFound):
            logger.warning("a subscription of %s to stream %d ends: %s", self._line.call.peer, self.stream, error)
        deleted = isinstance(error, TopicNotFound)
        self._line.close(self, m.CloseReason.STREAM_DELETED if deleted else m.CloseReason.PROTOCOL_ERROR)

    def began(self, group: CommitGroup) -> None:
        """What it began with is kept, or is not: then the client was told that it has no subscription."""
        if group.state is FAILED:
            self._line.drop(self, m.CloseReason.PROTOCOL_ERROR)


class RecordUnsendable(BrokerError):
    """An event that no frame can hold; it came in through another door."""

    def __init__(self, offset: int, size: int) -> None:
        super().__init__(f"event {offset} has {size} bytes, more than a frame holds; subscribe behind it")


class Subscriptions:
    """All of one connection. The session calls `work` whenever something was carried out or the client has taken what
    was sent, so that pushes are behind the replies to what was asked before."""

    def __init__(self, call: RequestContext) -> None:
        self.call = call
        self._open: dict[int, Subscription] = {}
        self._due: dict[int, Subscription] = {}  # may go on with the next `work`
        self._made = 0

    # -- requests

    def subscribe(self, call: RequestContext, request: m.Subscribe) -> Reply:
        topic, partition = call.broker.topics.stream(call.identity, call.scope, request.stream_id)
        if not call.wire.pushes:
            return _acknowledge(call, request, topic, partition)
        if len(self._open) >= MAX_SUBSCRIPTIONS:
            raise LimitReached(f"The connection has {MAX_SUBSCRIPTIONS} subscriptions, which is the limit")
        number = self._number(call.tenant, request.stream_id)
        subscription = Subscription(self, number, request.stream_id, call.scope, request.initial_credits)
        subscription.slot, kept = call.broker.subscriptions.open(
            call.identity,
            call.scope,
            topic.name,
            partition,
            request.from_offset,
            subscription,
            request.consumer_group,
            call.peer,
        )
        self._open[number] = self._due[number] = subscription
        if kept is not None:
            kept.on_done(subscription.began)
        return Reply(m.SubscribeResponse(number, subscription.slot.start, subscription.credits), kept)

    def credit(self, call: RequestContext, request: m.SubscribeCredit) -> Reply:
        """A credit that is given back is an event that is done with."""
        subscription = self._find(call, request.subscription_id)
        subscription.slot.settle(request.additional_credits)
        subscription.credits = min(subscription.credits + request.additional_credits, MAX_CREDITS)
        self._due[subscription.id] = subscription
        return Reply(m.SubscriptionAck(subscription.id, subscription.credits))

    def unsubscribe(self, call: RequestContext, request: m.Unsubscribe) -> Reply:
        subscription = self._find(call, request.subscription_id)
        call.replies.put(self.drop(subscription, m.CloseReason.CLIENT_CANCELLED, done=True))
        return Reply(m.SubscriptionAck(subscription.id, 0))

    def _find(self, call: RequestContext, id: int) -> Subscription:  # noqa: A002 - it is the subscription's id
        subscription = self._open.get(id)
        if subscription is None or subscription.scope != call.scope:
            raise RequestRefused(m.ErrorCode.SUBSCRIPTION_NOT_FOUND, f"subscription {id} not found")
        return subscription

    def _number(self, tenant: int, stream: int) -> int:
        """One that this connection has not used yet."""
        number = subscription_id(tenant, stream) + self._made & MAX_ID
        while number in self._open:
            number = number + 1 & MAX_ID
        self._made += 1
        return number

    # -- what the session says

    @property
    def waiting(self) -> bool:
        """Whether some wait for replies to leave first."""
        return bool(self._due)

    def work(self) -> None:
        """Go on with those that could not before."""
        if self._due:
            due = list(self._due.values())
            self._due.clear()
            for subscription in due:
                if not subscription.closed:
                    subscription.slot.resume()

    def stop(self) -> None:
        """The broker shuts down: tell everyone."""
        for subscription in list(self._open.values()):
            self.close(subscription, m.CloseReason.SERVER_SHUTDOWN)

    def forget(self) -> None:
        """The connection is gone: what its subscriptions held goes to the other members of their groups."""
        for subscription in list(self._open.values()):
            self._remove(subscription, done=False)

    # -- what a subscription says

    def has_room(self, subscription: Subscription) -> bool:
        """Whether the client takes more; else the subscription goes on when it does."""
        replies = self.call.replies
        if replies.held_bytes > FLUSH_BYTES:
            replies.flush()
        if self.call.channel.congested or replies.held_bytes > HELD_BYTES:
            self._due[subscription.id] = subscription
            return False
        return True

    def close(self, subscription: Subscription, reason: m.CloseReason) -> None:
        """Tell the client that nothing more comes, once it is certain why."""
        if not subscription.closed:
            replies, data = self.call.replies, self.drop(subscription, reason)
            replies.put_after(self.call.broker.pending_commit, data, lambda _: data)
            replies.flush()

    def drop(self, subscription: Subscription, reason: m.CloseReason, *, done: bool = False) -> bytes:
        """Forget it. The answer is what to tell the client, if it has not been told."""
        if subscription.closed:
            return b""
        self._remove(subscription, done=done)
        return self.call.wire.push(m.SubscriptionClosed(subscription.id, reason))

    def _remove(self, subscription: Subscription, *, done: bool) -> None:
        subscription.closed = True
        del self._open[subscription.id]
        self._due.pop(subscription.id, None)
        subscription.slot.leave(done=done)


def _runs(found: Sequence[RecordSlice]) -> list[tuple[int, list[bytes]]]:
    """Events without gaps between them, and where they begin."""
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
    """The same for the same stream, so that a client that comes back knows its subscription again."""
    return int.from_bytes(blake2b(_PLACE.pack(tenant, stream), digest_size=8).digest(), "big") & MAX_ID


def _acknowledge(call: RequestContext, request: m.Subscribe, topic: Topic, partition: int) -> Reply:
    """For a client that reads by itself: where it, or its group, begins. Nothing is kept of it."""
    broker, identity, scope = call.broker, call.identity, call.scope
    broker.access.require(identity, Permission.READ, scope, topic.name)  # where it begins is also told to others
    start: int | None = None
    if request.consumer_group is not None:
        check_group(request.consumer_group)
        start = broker.groups.committed(identity, scope, request.consumer_group, topic.name, partition)
    bounds = broker.topics.bounds(identity, scope, [topic.name])[topic.name][partition]
    if start is None and request.from_offset < bounds.start:
        raise OffsetOutOfRange(request.from_offset, *bounds)
    number = subscription_id(call.tenant, request.stream_id)
    offset = request.from_offset if start is None else max(start, bounds.start)
    return Reply(m.SubscribeResponse(number, offset, request.initial_credits))
