"""Pushes: deliver the messages of version 2 subscriptions to the client as they are published."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.errors import AccessDenied, QueueNotFound, ShuttingDown
from penstock.broker.queues.dequeue import Dequeue
from penstock.broker.security.access import Identity
from penstock.doors.blipmq.errors import EXPECTED
from penstock.doors.reply_queue import ReplyQueue
from penstock.doors.session import Channel
from penstock.log.engine import OPEN, CommitGroup
from penstock.wire.blipmq import codec

PUSH_MESSAGES: Final = 256  # in one dequeue
PUSH_WINDOW: Final = 1024  # delivered and not acknowledged, if the broker sets no capacity


class Push:
    """Delivers the messages of one subscription as they are published, while the client receives them, and until
    another connection subscribes: when a client reconnects, its old connection may not yet be known to be dead."""

    def __init__(self, pushes: Pushes, identity: Identity, queue_id: int) -> None:
        self._pushes = pushes
        self._identity = identity
        self._queue_id = queue_id
        self._waiting: CommitGroup | None = None  # of the last messages
        self._reading = False
        self._skip_expired = False
        self._stopped = False
        self._stop_listening = pushes.broker.queues.watch(identity, queue_id, self._wake)

    @property
    def is_current(self) -> bool:
        """Whether no other connection has subscribed since."""
        return self._pushes.broker.queues.is_watching(self._queue_id, self._wake)

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._stop_listening()

    def _wake(self) -> None:
        self._pushes.wake()

    def work(self) -> None:
        """Send available messages, one chunk at a time: the next when the previous one is committed and sent."""
        while not self._stopped and not self._reading and not self._pushes.channel.congested:
            if self._waiting is not None and self._waiting.state is OPEN:
                return
            try:
                dequeue = self._plan()
            except EXPECTED:
                self._pushes.end(self._queue_id)
                return
            if dequeue is None:
                return
            if not dequeue.ready:
                self._reading = True
                self._pushes.broker.executor(dequeue.read, partial(self._read, dequeue))
                return
            dequeue.read()
            if not self._send(dequeue):
                return

    def _plan(self) -> Dequeue | None:
        broker = self._pushes.broker
        if not self.is_current:
            raise QueueNotFound(f"queue {self._queue_id} is pushed elsewhere")
        queue, topic = broker.queues.find(self._identity, self._queue_id)
        room = (broker.queues.policy.capacity or PUSH_WINDOW) - queue.in_flight
        if room <= 0:
            return None  # continues when a message is acknowledged or falls due
        self._topic = topic.name.encode()
        return broker.queues.dequeue(
            *(self._identity, self._queue_id, min(room, PUSH_MESSAGES)),
            skip_expired=self._skip_expired,
            frame_bytes=codec.DELIVERED_BYTES[2],
        )

    def _read(self, dequeue: Dequeue) -> None:
        self._reading = False
        if self._stopped:
            dequeue.cancel()
        else:
            self._pushes.guard(partial(self._send_read, dequeue))

    def _send_read(self, dequeue: Dequeue) -> None:
        self._send(dequeue)
        self._pushes.wake()

    def _send(self, dequeue: Dequeue) -> bool:
        """Send the dequeued messages. False if there are no more for now."""
        try:
            messages, group = dequeue.finish()
        except EXPECTED:
            return False  # nothing was dequeued; the queue calls `_wake` when a retry makes sense
        self._waiting = group
        self._skip_expired = dequeue.skipped
        if dequeue.unsendable is not None:
            pushes = self._pushes
            pushes.broker.unsendable.note("blipmq", pushes.channel.peer, dequeue.topic.name, dequeue.unsendable)
        tags = [message.tag if message.at_least_once else 0 for message in messages]
        data = codec.encode_delivers(tags, map(bool, tags), self._topic, [message.value for message in messages])
        if group is not None:  # also without a message: the reply queue then wakes the session after the commit
            self._pushes.replies.enqueue(data, group, lambda _: b"")
        return bool(messages) or dequeue.more


class Pushes:
    """All pushes of one connection, by subscription. `wake` makes the session run them again, `guard` is its error
    boundary."""

    def __init__(
        self,
        broker: Broker,
        channel: Channel,
        replies: ReplyQueue,
        wake: Callable[[], None],
        guard: Callable[[Callable[[], None]], None],
    ) -> None:
        self.broker = broker
        self.channel = channel
        self.replies = replies
        self.wake = wake
        self.guard = guard
        self.by_queue: dict[int, Push] = {}

    def start(self, identity: Identity, queue_id: int) -> None:
        """Deliver the messages of a subscription to this connection from now on."""
        existing = self.by_queue.get(queue_id)
        if existing is not None and existing.is_current:
            return
        self.end(queue_id)  # another connection had it meanwhile
        with contextlib.suppress(QueueNotFound, AccessDenied, ShuttingDown):
            self.by_queue[queue_id] = Push(self, identity, queue_id)

    def end(self, queue_id: int) -> None:
        if (push := self.by_queue.pop(queue_id, None)) is not None:
            push.stop()

    def work(self) -> None:
        for push in list(self.by_queue.values()):
            push.work()

    def stop(self) -> None:
        for push in self.by_queue.values():
            push.stop()
        self.by_queue.clear()
