"""POLL and ACK: adjacent frames are executed together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from penstock.broker.errors import AccessDenied, QueueNotFound, RecordUnsendable
from penstock.broker.queues.dequeue import Dequeue, Message
from penstock.doors.blipmq.errors import EXPECTED, request_refused
from penstock.doors.blipmq.request_context import BlipMqContext
from penstock.doors.reply import Completion
from penstock.log.engine import COMMITTED, FAILED, CommitGroup
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f
from penstock.wire.blipmq.errors import INVALID_ACK, INVALID_POLL, UNKNOWN_DELIVERY, ZERO_SUBSCRIPTION

HELD_BYTES: Final = 1 << 20  # unsent bytes of replies above which no more messages are dequeued for a client
_UNKNOWN: Final = (QueueNotFound, AccessDenied)


def poll(context: BlipMqContext, frames: Sequence[f.Frame]) -> PollTask | None:
    task = PollTask(context, frames)
    task.run()
    return None if task.finished else task


class PollTask:
    """Adjacent ACK and POLL frames. All ACKs are settled before the first message is dequeued: a client cannot know the
    tag of a message that was not sent. If that message is in memory, one log event records both. Replies keep the order
    of the frames."""

    __slots__ = (
        "_acks", "_after", "_answered", "_cancelled", "_context", "_earlier", "_frames", "_kept", "_on_complete",
        "_polls", "_replies", "_skip_expired", "finished",
    )  # fmt: skip

    def __init__(self, context: BlipMqContext, frames: Sequence[f.Frame]) -> None:
        self._context = context
        self._frames = frames
        self._replies: list[bytes] = [b""] * len(frames)
        self._after: CommitGroup | None = None  # the last group that a reply depends on
        self._kept: list[int] = []  # indexes of the frames that get an error instead if it fails
        self._earlier: list[tuple[CommitGroup, list[int]]] = []  # groups before it, and what was kept for them
        self._acks: dict[int, list[int]] = {}  # queue → indexes of its ACKs that are settled with the next dequeue
        self._polls: dict[int, list[int]] = {}  # queue → indexes of its POLLs that have no message yet
        self._skip_expired = False
        self._answered = 0  # number of frames
        self.finished = False
        self._cancelled = False
        self._on_complete: Completion | None = None

    def run(self) -> None:
        """Execute everything that needs no disk read and no pause."""
        last, subscription = b"", None  # most adjacent frames name the same subscription
        for index, (kind, correlation, payload) in enumerate(self._frames):
            if payload != last:
                last, subscription = payload, codec.decode_subscription_id(payload)
            if not subscription:
                malformed = INVALID_ACK if kind == f.ACK else INVALID_POLL
                nack = malformed if subscription is None else ZERO_SUBSCRIPTION
                self._replies[index] = codec.encode_nack(correlation, *nack)
                continue
            indexes = self._acks if kind == f.ACK else self._polls
            if subscription in indexes:
                indexes[subscription].append(index)
            else:
                indexes[subscription] = [index]
        if self._context.version == 2:
            self._acknowledge(list(self._acks))
            for subscription in self._polls:
                self._context.pushes.start(self._context.identity, subscription)
            self._polls.clear()
        elif not self._acks.keys() <= self._polls.keys():
            self._acknowledge([subscription for subscription in self._acks if subscription not in self._polls])
        self.resume()

    # -- called by the pipeline if `run` did not finish

    def start(self, on_complete: Completion) -> None:
        self._on_complete = on_complete

    def cancel(self) -> None:
        self._cancelled = True

    # -- acknowledgements

    def _acknowledge(self, subscriptions: Sequence[int]) -> None:
        """Settle the ACKs of these subscriptions, in an event each."""
        context = self._context
        for subscription in subscriptions:
            indexes = self._acks.pop(subscription)
            try:
                known, group = context.broker.queues.acknowledge(context.identity, subscription, self._tags(indexes))
            except _UNKNOWN:
                self._known(indexes, [False] * len(indexes))
            except EXPECTED as error:
                self._refuse(indexes, error)
            else:
                self._wait_for(group)
                self._kept += self._known(indexes, known)

    def _wait_for(self, group: CommitGroup | None) -> None:
        """Replies from here on depend on this group. An earlier one may be committed although this one fails."""
        if group is None or group is self._after:
            return
        if self._after is not None and self._kept:
            self._earlier.append((self._after, self._kept.copy()))
        self._after = group

    def _tags(self, indexes: Sequence[int]) -> list[int]:
        return [self._frames[index][1] for index in indexes]

    def _known(self, indexes: list[int], known: list[bool]) -> list[int]:
        """The indexes of the ACKs of messages in flight. The others are refused."""
        if all(known):
            return indexes
        for index, was_known in zip(indexes, known, strict=True):
            if not was_known:
                self._replies[index] = codec.encode_nack(self._frames[index][1], *UNKNOWN_DELIVERY)
        return [index for index, was_known in zip(indexes, known, strict=True) if was_known]

    # -- messages

    def resume(self) -> None:
        """Dequeue messages until every POLL has one or the queues are empty. If messages must be read from disk, or the
        client must receive earlier replies first, this continues afterwards; later frames wait until then."""
        while self._polls:
            if self._must_pause():
                self._acknowledge(list(self._acks))
                self._context.paused = self
                return
            dequeues = self._plan()
            ready = True
            for _, dequeue in dequeues:
                ready = ready and dequeue.ready
            if not ready:
                for _, dequeue in dequeues:
                    dequeue.settle = []
                self._acknowledge(list(self._acks))
                self._context.broker.executor(partial(_read, dequeues), partial(self._on_read, dequeues))
                return
            try:
                _read(dequeues)
                self._finish(dequeues)
            except Exception:
                _cancel(dequeues)  # otherwise these queues could never be read again
                raise
        self._answer(len(self._frames))
        self.finished = True
        if self._on_complete is not None:
            self._on_complete(None)

    def _must_pause(self) -> bool:
        """Whether earlier replies must be sent before more messages are dequeued."""
        context = self._context
        if context.replies.held_bytes > HELD_BYTES:
            context.replies.flush()
        return context.replies.held_bytes > HELD_BYTES or context.channel.congested

    def _on_read(self, dequeues: list[tuple[int, Dequeue]]) -> None:
        if self._cancelled:
            _cancel(dequeues)
            return
        try:
            self._finish(dequeues)
            self.resume()
        except Exception as error:  # noqa: BLE001 - the error boundary is the pipeline's
            _cancel(dequeues)
            if self._on_complete is not None:
                self._on_complete(error)

    def _plan(self) -> list[tuple[int, Dequeue]]:
        context = self._context
        dequeues: list[tuple[int, Dequeue]] = []
        for subscription, indexes in list(self._polls.items()):
            acks = self._acks.get(subscription, ())
            settle = self._tags(acks) if acks else ()
            try:
                dequeue = context.broker.queues.dequeue(
                    context.identity,
                    subscription,
                    len(indexes),
                    skip_expired=self._skip_expired,
                    settle=settle,
                    frame_bytes=codec.DELIVERED_BYTES[1],
                )
            except _UNKNOWN:
                dequeue = None  # a POLL of an unknown subscription is silent
            except EXPECTED as error:
                self._refuse(indexes, error)
                dequeue = None
            if dequeue is not None:
                dequeues.append((subscription, dequeue))
                continue
            del self._polls[subscription]
            if acks:
                self._acknowledge((subscription,))
        return dequeues

    def _finish(self, dequeues: list[tuple[int, Dequeue]]) -> None:
        if self._after is not None and self._after.state is FAILED:
            for subscription, dequeue in dequeues:
                dequeue.cancel()  # otherwise a later group in `_after` would hide the failure of this one
                self._kept += self._polls.pop(subscription) + self._acks.pop(subscription, [])
            return
        self._skip_expired = False
        for subscription, dequeue in dequeues:
            indexes, acks = self._polls.pop(subscription), self._acks.pop(subscription, [])
            try:
                messages, group = dequeue.finish()
            except EXPECTED as error:
                self._refuse(indexes + acks, error)
                continue
            self._wait_for(group)
            if acks:
                self._kept += self._known(acks, dequeue.acknowledged)
            if dequeue.unsendable is not None:
                indexes = self._pass_over(dequeue.topic.name, indexes, dequeue.unsendable)
            self._deliver(dequeue.topic.name.encode(), indexes, messages)
            self._skip_expired |= dequeue.skipped
            if dequeue.more and len(messages) < len(indexes):
                self._polls[subscription] = indexes[len(messages) :]
        if self._polls:
            self._answer(min([indexes[0] for indexes in self._polls.values()]))

    def _pass_over(self, topic: str, indexes: list[int], record: RecordUnsendable) -> list[int]:
        """Answer the first POLL with the error for a skipped message that fits no frame; returns the other POLLs."""
        context = self._context
        context.broker.unsendable.note("blipmq", context.peer, topic, record)
        self._kept.append(indexes[0])
        self._refuse(indexes[:1], record)
        return indexes[1:]

    def _deliver(self, topic: bytes, indexes: list[int], messages: list[Message]) -> None:
        if not messages:
            return
        if len(messages) < len(indexes):
            indexes = indexes[: len(messages)]
        self._kept += indexes
        if len(messages) == 1:
            tag, qos, value = messages[0]
            self._replies[indexes[0]] = codec.encode_delivery(
                tag if qos else self._frames[indexes[0]][1], qos, topic, value
            )
            return
        tags, at_least_once, values = zip(*messages, strict=True)
        ids = tags if all(at_least_once) else self._ids(indexes, messages)
        if indexes[-1] - indexes[0] == len(indexes) - 1:
            # No other reply comes between them: encode them together, at the index of the first.
            self._replies[indexes[0]] = codec.encode_deliveries(ids, at_least_once, topic, values)
            return
        for index, id, qos, value in zip(indexes, ids, at_least_once, values, strict=True):  # noqa: A001 - it is one
            self._replies[index] = codec.encode_delivery(id, qos, topic, value)

    def _ids(self, indexes: list[int], messages: list[Message]) -> list[int]:
        """The tags of messages that require an acknowledgement, and for the others the correlation ids of their
        POLLs."""
        pairs = zip(indexes, messages, strict=True)
        return [message.tag if message.at_least_once else self._frames[index][1] for index, message in pairs]

    def _refuse(self, indexes: Sequence[int], error: Exception) -> None:
        nack = request_refused(error)
        for index in indexes:
            self._replies[index] = codec.encode_nack(self._frames[index][1], *nack)

    def _answer(self, end: int) -> None:
        """Reply to the frames up to here."""
        start = self._answered
        if start >= end:
            return
        self._answered = end
        if end == len(self._frames):
            data = b"".join(self._replies[start:] if start else self._replies)
            kept, self._kept = self._kept, []
        else:
            data = b"".join(self._replies[start:end])
            kept = [index for index in self._kept if index < end]
            self._kept = [index for index in self._kept if index >= end]
        for index in kept:
            self._replies[index] = b""  # it is in the reply queue now: free it
        self._context.replies.enqueue(data, self._after, partial(self._failed, start, end, kept))

    def _failed(self, start: int, end: int, kept: list[int], error: Exception) -> bytes:
        """The replies if the commit fails: the dequeued messages remain in the queue, and those whose ACKs are not in
        an earlier group that was committed."""
        if self._earlier:
            settled = {
                index
                for group, indexes in self._earlier
                if group.state is COMMITTED
                for index in indexes
                if self._frames[index][0] == f.ACK
            }
            kept = [index for index in kept if index not in settled]
        self._refuse(kept, error)
        return b"".join(self._replies[start:end])


def _cancel(dequeues: list[tuple[int, Dequeue]]) -> None:
    for _, dequeue in dequeues:
        dequeue.cancel()


def _read(dequeues: list[tuple[int, Dequeue]]) -> None:
    for _, dequeue in dequeues:
        dequeue.read()
