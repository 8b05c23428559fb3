"""Messages on their way to a BlipMQ client: in answer to POLLs (version 1), or as they come (version 2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.core.errors import AccessDenied, BrokerError, QueueNotFound
from penstock.core.queues import Message, Taking
from penstock.log.engine import CommitGroup, GroupState
from penstock.log.errors import LogError
from penstock.protocols.blipmq import frames as f
from penstock.protocols.blipmq.errors import (
    INVALID_ACK,
    INVALID_POLL,
    UNKNOWN_DELIVERY,
    ZERO_SUBSCRIPTION,
    request_refused,
)

if TYPE_CHECKING:
    from penstock.protocols.blipmq.session import BlipMqSession

PUSH_MESSAGES: Final = 256  # taken at once for a client that does not poll
PUSH_WINDOW: Final = 1024  # sent and not acknowledged, if the broker sets no capacity
_EXPECTED: Final = (BrokerError, LogError)
_UNKNOWN: Final = (QueueNotFound, AccessDenied)


class PollRun:
    """Neighbouring ACK and POLL frames. All ACKs are settled before the first message is taken: a client cannot know
    the tag of a message that has not been sent. Replies go out in the order of the frames."""

    def __init__(self, session: BlipMqSession, frames: Sequence[f.Frame]) -> None:
        self._session = session
        self._frames = frames
        self._replies: list[bytes] = [b""] * len(frames)
        self._after: CommitGroup | None = None  # the last group that a reply depends on
        self._kept: list[int] = []  # places of the frames that are answered otherwise if it fails
        self._polls: dict[int, list[int]] = defaultdict(list)  # queue → places of its POLLs that have no message yet
        self._skim = False
        self._answered = 0  # how many frames

    def start(self) -> None:
        acks: dict[int, list[int]] = defaultdict(list)
        known: dict[bytes, int | None] = {}  # most frames of a run name the same subscription
        for place, (kind, correlation, payload) in enumerate(self._frames):
            subscription = known.get(payload)
            if subscription is None:
                subscription = known[payload] = f.decode_subscription_id(payload)
            if subscription is None:
                malformed = INVALID_ACK if kind == f.ACK else INVALID_POLL
                self._replies[place] = f.encode_nack(correlation, *malformed)
            elif subscription == 0:
                self._replies[place] = f.encode_nack(correlation, *ZERO_SUBSCRIPTION)
            elif kind == f.ACK:
                acks[subscription].append(place)
            else:
                self._polls[subscription].append(place)
        for subscription, places in acks.items():
            self._acknowledge(subscription, places)
        if self._session.version == 2:
            for subscription in self._polls:
                self._session.push(subscription)
            self._polls.clear()
        self.go_on()

    def _acknowledge(self, subscription: int, places: list[int]) -> None:
        session = self._session
        tags = [self._frames[place][1] for place in places]
        try:
            known, group = session.broker.acknowledge(session.identity, subscription, tags)
        except _UNKNOWN:
            known, group = [False] * len(tags), None
        except _EXPECTED as error:
            self._refuse(places, error)
            return
        self._after = group or self._after
        for place, tag, was_known in zip(places, tags, known, strict=True):
            if was_known:
                self._kept.append(place)
            else:
                self._replies[place] = f.encode_nack(tag, *UNKNOWN_DELIVERY)

    def go_on(self) -> None:
        """Take messages until every POLL has one or there are none. If the disk has to be asked, or the client has to
        take earlier replies first, go on after that; the session waits as long."""
        while self._polls:
            if self._session.must_pause(self):
                return
            takings = self._plan()
            if not all(taking.ready for _, taking in takings):
                self._session.wait_for_disk()
                self._session.broker.offload(partial(_read, takings), partial(self._came, takings))
                return
            _read(takings)
            self._finish(takings)
        self._answer(len(self._frames))

    def _came(self, takings: list[tuple[int, Taking]]) -> None:
        """The disk has answered."""
        session = self._session
        if session.closed:
            for _, taking in takings:
                taking.cancel()
            return
        session.disk_came()
        self._finish(takings)
        self.go_on()
        session.resume()

    def _plan(self) -> list[tuple[int, Taking]]:
        session = self._session
        takings: list[tuple[int, Taking]] = []
        for subscription, places in list(self._polls.items()):
            try:
                taking = session.broker.take(session.identity, subscription, len(places), skim=self._skim)
            except _UNKNOWN:
                taking = None  # a POLL of an unknown subscription is silent
            except _EXPECTED as error:
                self._refuse(places, error)
                taking = None
            if taking is None:
                del self._polls[subscription]
            else:
                takings.append((subscription, taking))
        return takings

    def _finish(self, takings: list[tuple[int, Taking]]) -> None:
        if self._after is not None and self._after.state is GroupState.FAILED:
            for subscription, taking in takings:
                taking.cancel()  # or a later group would answer for this one
                self._kept += self._polls.pop(subscription)
            return
        self._skim = False
        for subscription, taking in takings:
            places = self._polls.pop(subscription)
            try:
                messages, group = taking.finish()
            except _EXPECTED as error:
                self._refuse(places, error)
                continue
            self._after = group or self._after
            self._deliver(taking.topic.name.encode(), places, messages)
            self._skim |= taking.passed
            if taking.more:
                self._polls[subscription] = places[len(messages) :]
        self._answer(min([places[0] for places in self._polls.values()], default=0))

    def _deliver(self, topic: bytes, places: list[int], messages: list[Message]) -> None:
        self._kept += places[: len(messages)]
        for place, message in zip(places, messages, strict=False):
            correlation = message.tag if message.at_least_once else self._frames[place][1]
            self._replies[place] = f.encode_delivery(correlation, int(message.at_least_once), topic, message.value)

    def _refuse(self, places: Sequence[int], error: Exception) -> None:
        nack = request_refused(error)
        for place in places:
            self._replies[place] = f.encode_nack(self._frames[place][1], *nack)

    def _answer(self, end: int) -> None:
        """Reply to the frames up to here."""
        start = self._answered
        if start >= end:
            return
        self._answered = end
        data = b"".join(self._replies[start:end])
        kept = [place for place in self._kept if place < end]
        self._kept = [place for place in self._kept if place >= end]
        for place in kept:
            self._replies[place] = b""  # it is in the outbox now
        self._session.outbox.put_after(self._after, data, partial(self._failed, start, end, kept))

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
        self._stop_listening = session.broker.listen(session.identity, queue_id, self._wake)

    @property
    def is_current(self) -> bool:
        """Whether no other connection has asked for the messages since."""
        return self._session.broker.listens(self._queue_id, self._wake)

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._stop_listening()

    def _wake(self) -> None:
        self._session.work()

    def work(self) -> None:
        """Take what there is, one portion at a time: the next when the last one is committed and on its way."""
        while not self._stopped and not self._reading and not self._session.channel.congested:
            if self._waiting is not None and self._waiting.state is GroupState.OPEN:
                return
            try:
                taking = self._plan()
            except _EXPECTED:
                self._session.end_push(self._queue_id)
                return
            if taking is None:
                return
            if not taking.ready:
                self._reading = True
                self._session.broker.offload(taking.read, partial(self._read, taking))
                return
            taking.read()
            if not self._send(taking):
                return

    def _plan(self) -> Taking | None:
        session = self._session
        if not self.is_current:
            raise QueueNotFound(f"queue {self._queue_id} is pushed elsewhere")
        queue, topic = session.broker.queue(session.identity, self._queue_id)
        room = (session.broker.queue_policy.capacity or PUSH_WINDOW) - queue.in_flight
        if room <= 0:
            return None  # it goes on when something is acknowledged or falls due
        self._topic = topic.name.encode()
        return session.broker.take(session.identity, self._queue_id, min(room, PUSH_MESSAGES), skim=self._skim)

    def _read(self, taking: Taking) -> None:
        self._reading = False
        if self._stopped:
            taking.cancel()
        else:
            self._send(taking)
            self._session.work()

    def _send(self, taking: Taking) -> bool:
        """False if there is no more for now."""
        try:
            messages, group = taking.finish()
        except _EXPECTED:
            return False  # nothing was taken; the queue calls when it is worth another try
        self._waiting = group
        self._skim = taking.passed
        tags = [message.tag if message.at_least_once else 0 for message in messages]
        data = f.encode_delivers(tags, map(bool, tags), self._topic, [message.value for message in messages])
        if group is not None:  # also without a message: it is the outbox that calls when there is to go on
            self._session.outbox.put_after(group, data, lambda _: b"")
        return bool(messages) or taking.more


def _read(takings: list[tuple[int, Taking]]) -> None:
    for _, taking in takings:
        taking.read()
