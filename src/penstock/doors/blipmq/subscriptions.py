"""Messages on their way to a BlipMQ client: in answer to POLLs (version 1), or as they come (version 2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker.errors import AccessDenied, QueueNotFound
from penstock.broker.queues.dequeue import Dequeue, Message
from penstock.doors.blipmq.errors import EXPECTED, request_refused
from penstock.log.engine import FAILED, OPEN, CommitGroup
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f
from penstock.wire.blipmq.errors import INVALID_ACK, INVALID_POLL, UNKNOWN_DELIVERY, ZERO_SUBSCRIPTION

if TYPE_CHECKING:
    from penstock.doors.blipmq.session import BlipMqSession

PUSH_MESSAGES: Final = 256  # taken at once for a client that does not poll
PUSH_WINDOW: Final = 1024  # sent and not acknowledged, if the broker sets no capacity
_UNKNOWN: Final = (QueueNotFound, AccessDenied)


class PollTask:
    """Neighbouring ACK and POLL frames. All ACKs are settled before the first message is taken: a client cannot know
    the tag of a message that has not been sent. Where that message is at hand, one event of the log says both. Replies
    go out in the order of the frames."""

    __slots__ = ("_acks", "_after", "_answered", "_frames", "_kept", "_polls", "_replies", "_session", "_skim")

    def __init__(self, session: BlipMqSession, frames: Sequence[f.Frame]) -> None:
        self._session = session
        self._frames = frames
        self._replies: list[bytes] = [b""] * len(frames)
        self._after: CommitGroup | None = None  # the last group that a reply depends on
        self._kept: list[int] = []  # places of the frames that are answered otherwise if it fails
        self._acks: dict[int, list[int]] = {}  # queue → places of its ACKs that are settled with the next dequeue
        self._polls: dict[int, list[int]] = {}  # queue → places of its POLLs that have no message yet
        self._skim = False
        self._answered = 0  # how many frames

    def start(self) -> None:
        last, subscription = b"", None  # most frames of a run name the same subscription
        for place, (kind, correlation, payload) in enumerate(self._frames):
            if payload != last:
                last, subscription = payload, codec.decode_subscription_id(payload)
            if not subscription:
                malformed = INVALID_ACK if kind == f.ACK else INVALID_POLL
                nack = malformed if subscription is None else ZERO_SUBSCRIPTION
                self._replies[place] = codec.encode_nack(correlation, *nack)
                continue
            places = self._acks if kind == f.ACK else self._polls
            if subscription in places:
                places[subscription].append(place)
            else:
                places[subscription] = [place]
        if self._session.version == 2:
            self._acknowledge(list(self._acks))
            for subscription in self._polls:
                self._session.push(subscription)
            self._polls.clear()
        elif self._acks.keys() - self._polls.keys():
            self._acknowledge([subscription for subscription in self._acks if subscription not in self._polls])
        self.go_on()

    def _acknowledge(self, subscriptions: Sequence[int]) -> None:
        """Settle the ACKs of these by events of their own."""
        session = self._session
        for subscription in subscriptions:
            places = self._acks.pop(subscription)
            try:
                known, group = session.broker.queues.acknowledge(session.identity, subscription, self._tags(places))
            except _UNKNOWN:
                self._known(places, [False] * len(places))
            except EXPECTED as error:
                self._refuse(places, error)
            else:
                self._after = group or self._after
                self._kept += self._known(places, known)

    def _tags(self, places: Sequence[int]) -> list[int]:
        return [self._frames[place][1] for place in places]

    def _known(self, places: list[int], known: list[bool]) -> list[int]:
        """The places of the ACKs of what was in flight. The others are refused."""
        if all(known):
            return places
        for place, was_known in zip(places, known, strict=True):
            if not was_known:
                self._replies[place] = codec.encode_nack(self._frames[place][1], *UNKNOWN_DELIVERY)
        return [place for place, was_known in zip(places, known, strict=True) if was_known]

    def go_on(self) -> None:
        """Take messages until every POLL has one or there are none. If the disk has to be asked, or the client has to
        take earlier replies first, go on after that; the session waits as long."""
        while self._polls:
            if self._session.must_pause(self):
                self._acknowledge(list(self._acks))
                return
            takings = self._plan()
            if not all(dequeue.ready for _, dequeue in takings):
                for _, dequeue in takings:
                    dequeue.settle = []
                self._acknowledge(list(self._acks))
                self._session.wait_for_disk()
                self._session.broker.executor(partial(_read, takings), partial(self._came, takings))
                return
            _read(takings)
            self._finish(takings)
        self._answer(len(self._frames))

    def _came(self, takings: list[tuple[int, Dequeue]]) -> None:
        """The disk has answered."""
        session = self._session
        if session.closed:
            for _, dequeue in takings:
                dequeue.cancel()
            return
        session.disk_came()
        self._finish(takings)
        self.go_on()
        session.resume()

    def _plan(self) -> list[tuple[int, Dequeue]]:
        session = self._session
        takings: list[tuple[int, Dequeue]] = []
        for subscription, places in list(self._polls.items()):
            acks = self._acks.get(subscription, ())
            settle = self._tags(acks) if acks else ()
            try:
                dequeue = session.broker.queues.dequeue(
                    session.identity, subscription, len(places), skip_expired=self._skim, settle=settle
                )
            except _UNKNOWN:
                dequeue = None  # a POLL of an unknown subscription is silent
            except EXPECTED as error:
                self._refuse(places, error)
                dequeue = None
            if dequeue is not None:
                takings.append((subscription, dequeue))
                continue
            del self._polls[subscription]
            if acks:
                self._acknowledge((subscription,))
        return takings

    def _finish(self, takings: list[tuple[int, Dequeue]]) -> None:
        if self._after is not None and self._after.state is FAILED:
            for subscription, dequeue in takings:
                dequeue.cancel()  # or a later group would answer for this one
                self._kept += self._polls.pop(subscription) + self._acks.pop(subscription, [])
            return
        self._skim = False
        for subscription, dequeue in takings:
            places, acks = self._polls.pop(subscription), self._acks.pop(subscription, [])
            try:
                messages, group = dequeue.finish()
            except EXPECTED as error:
                self._refuse(places + acks, error)
                continue
            self._after = group or self._after
            if acks:
                self._kept += self._known(acks, dequeue.acknowledged)
            self._deliver(dequeue.topic.name.encode(), places, messages)
            self._skim |= dequeue.skipped
            if dequeue.more:
                self._polls[subscription] = places[len(messages) :]
        if self._polls:
            self._answer(min([places[0] for places in self._polls.values()]))

    def _deliver(self, topic: bytes, places: list[int], messages: list[Message]) -> None:
        if not messages:
            return
        if len(messages) < len(places):
            places = places[: len(messages)]
        self._kept += places
        if len(messages) == 1:
            tag, qos, value = messages[0]
            self._replies[places[0]] = codec.encode_delivery(
                tag if qos else self._frames[places[0]][1], qos, topic, value
            )
            return
        tags, at_least_once, values = zip(*messages, strict=True)
        ids = tags if all(at_least_once) else self._ids(places, messages)
        if places[-1] - places[0] == len(places) - 1:
            # Nobody else is answered between them: they are encoded together, and take the place of the first.
            self._replies[places[0]] = codec.encode_deliveries(ids, at_least_once, topic, values)
            return
        for place, id, qos, value in zip(places, ids, at_least_once, values, strict=True):  # noqa: A001 - it is one
            self._replies[place] = codec.encode_delivery(id, qos, topic, value)

    def _ids(self, places: list[int], messages: list[Message]) -> list[int]:
        """The tags of messages that have to be acknowledged; for the others the correlation ids of their POLLs."""
        pairs = zip(places, messages, strict=True)
        return [message.tag if message.at_least_once else self._frames[place][1] for place, message in pairs]

    def _refuse(self, places: Sequence[int], error: Exception) -> None:
        nack = request_refused(error)
        for place in places:
            self._replies[place] = codec.encode_nack(self._frames[place][1], *nack)

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
            kept = [place for place in self._kept if place < end]
            self._kept = [place for place in self._kept if place >= end]
        for place in kept:
            self._replies[place] = b""  # it is in the outbox now
        self._session.replies.put_after(self._after, data, partial(self._failed, start, end, kept))

    def _failed(self, start: int, end: int, kept: list[int], error: Exception) -> bytes:
        """What was acknowledged is not, and what was taken is still there."""
        self._refuse(kept, error)
        return b"".join(self._replies[start:end])


class Push:
    """Sends the messages of one subscription as they come, as long as the client takes them and nobody else has asked
    for them: the connection of a client that came back may not be known to be dead yet."""

    def __init__(self, session: BlipMqSession, queue_id: int) -> None:
        self._session = session
        self._queue_id = queue_id
        self._waiting: CommitGroup | None = None  # of what was taken last
        self._reading = False
        self._skim = False
        self._stopped = False
        self._stop_listening = session.broker.queues.watch(session.identity, queue_id, self._wake)

    @property
    def is_current(self) -> bool:
        """Whether no other connection has asked for the messages since."""
        return self._session.broker.queues.is_watching(self._queue_id, self._wake)

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._stop_listening()

    def _wake(self) -> None:
        self._session.work()

    def work(self) -> None:
        """Take what there is, one portion at a time: the next when the last one is committed and on its way."""
        while not self._stopped and not self._reading and not self._session.channel.congested:
            if self._waiting is not None and self._waiting.state is OPEN:
                return
            try:
                dequeue = self._plan()
            except EXPECTED:
                self._session.end_push(self._queue_id)
                return
            if dequeue is None:
                return
            if not dequeue.ready:
                self._reading = True
                self._session.broker.executor(dequeue.read, partial(self._read, dequeue))
                return
            dequeue.read()
            if not self._send(dequeue):
                return

    def _plan(self) -> Dequeue | None:
        session = self._session
        if not self.is_current:
            raise QueueNotFound(f"queue {self._queue_id} is pushed elsewhere")
        queue, topic = session.broker.queues.find(session.identity, self._queue_id)
        room = (session.broker.queues.policy.capacity or PUSH_WINDOW) - queue.in_flight
        if room <= 0:
            return None  # it goes on when something is acknowledged or falls due
        self._topic = topic.name.encode()
        return session.broker.queues.dequeue(
            session.identity, self._queue_id, min(room, PUSH_MESSAGES), skip_expired=self._skim
        )

    def _read(self, dequeue: Dequeue) -> None:
        self._reading = False
        if self._stopped:
            dequeue.cancel()
        else:
            self._send(dequeue)
            self._session.work()

    def _send(self, dequeue: Dequeue) -> bool:
        """False if there is no more for now."""
        try:
            messages, group = dequeue.finish()
        except EXPECTED:
            return False  # nothing was taken; the queue calls when it is worth another try
        self._waiting = group
        self._skim = dequeue.skipped
        tags = [message.tag if message.at_least_once else 0 for message in messages]
        data = codec.encode_delivers(tags, map(bool, tags), self._topic, [message.value for message in messages])
        if group is not None:  # also without a message: it is the outbox that calls when there is to go on
            self._session.replies.put_after(group, data, lambda _: b"")
        return bool(messages) or dequeue.more


def _read(takings: list[tuple[int, Dequeue]]) -> None:
    for _, dequeue in takings:
        dequeue.read()
