"""BlipMQ for the client core: encoding of requests, matching of replies, and the login.

Deliveries carry no subscription id, and an empty POLL has no reply. So POLLs are sent in rounds: all for the same
subscription, followed by a PING. The server answers in order. Therefore a delivery belongs to the oldest round without
a PONG, and when the PONG arrives, the POLLs of the round that got no delivery were empty. The PONG also confirms that
the server has processed every PUBLISH before the PING. In version 2 the topic identifies the subscription of a
delivery.

Correlation ids have separate ranges, because a NACK to an ACK has the delivery tag as its id: tags count from 1.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from penstock.clients._core.binding import Binding
from penstock.clients._core.connection import Connection
from penstock.clients._core.inflight import NumberedRequests
from penstock.clients._core.procedure import Procedure, exchange
from penstock.clients._core.requests import RequestBatch, RequestSpec, nothing
from penstock.clients.blipmq.errors import FAMILY, BadReply, reply_error
from penstock.clients.blipmq.event_buffer import (
    FIRST_POLL,
    FIRST_REQUEST,
    MAX_BUFFERED,
    ClientState,
    EventBuffer,
    Round,
)
from penstock.clients.blipmq.requests import Auth, Hello, Ping, Poll, Request, Subscribe, check_key
from penstock.clients.blipmq.results import Refusal
from penstock.wire.blipmq import codec
from penstock.wire.blipmq.errors import UNSENDABLE
from penstock.wire.blipmq.frames import ACK, DELIVER, NACK, PONG, PUBLISH, Frame, Framer
from penstock.wire.blipmq.messages import Delivered

logger = logging.getLogger(__name__)


class BlipMQBinding(Binding):
    errors = FAMILY
    numbered = True

    def __init__(self, key: str, version: int, timeout: float) -> None:
        if version not in (1, 2):
            raise ValueError(f"version must be 1 or 2, not {version}")
        self.state = ClientState(version)
        self._key = check_key(key)
        self._timeout = timeout

    def in_flight(self) -> BlipMQRequests:
        return BlipMQRequests(self.state, self._timeout)

    def login(self, connection: Connection) -> Procedure[None]:
        """Send HELLO and AUTH together. Subscriptions of an earlier connection continue."""
        hello = RequestSpec(Hello(self.state.version), nothing, idempotent=True)
        auth = RequestSpec(Auth(self._key), nothing, idempotent=True)
        yield from exchange(connection, self.batch([hello, auth]))
        requests = connection.requests
        assert isinstance(requests, BlipMQRequests)
        if self.state.version == 2:
            connection.write(requests.attach_all())


class BlipMQRequests(NumberedRequests[Frame]):
    """Requests in flight on one connection. A missing reply ends the connection, since replies are in order."""

    def __init__(self, state: ClientState, timeout: float) -> None:
        super().__init__(timeout, FAMILY, self._encode_request)
        self._state = state
        self._framer = Framer(last_type=DELIVER)
        self._rounds: deque[Round] = deque()
        self._published = 0  # messages sent
        self._settled = 0  # those that the server has processed
        self._handlers: dict[int, Callable[[Frame], None]] = {
            ACK: self._acked,
            NACK: self._nacked,
            PONG: self._ponged,
            PUBLISH: self._delivery,
            DELIVER: self._deliver,
        }

    @property
    def accepting(self) -> bool:
        return self._state.buffered_bytes < MAX_BUFFERED

    # -- sending

    def allocate(self, count: int) -> int:
        return self._state.next_ids(count).start

    def begin(self, batch: RequestBatch, now: float) -> bytes:
        if not self._waiting:
            self.heard = now  # nothing was due before
        data = super().begin(batch, now)
        request = batch.specs[0].request
        if type(request) is Poll and request.eager:
            self._rounds[-1].batch = batch
            if request.buffer.messages:  # one was pushed since the caller looked: during the login, for example
                batch.settle(0, None)
            else:
                request.buffer.awaited_by.append(batch)
        return data

    def _encode_request(self, spec: RequestSpec[Any], request_id: int) -> bytes:
        request: Request = spec.request
        match request:
            case Poll():
                return self._begin_round(request, request_id)
            case Hello():
                return codec.encode_hello(request_id, request.version)
            case Auth():
                return codec.encode_auth(request_id, request.key)
            case Subscribe():
                topic, qos, queue = request.buffer.topic.encode(), request.buffer.qos, request.queue
                if queue is None:
                    return codec.encode_subscribe(request_id, topic, qos)
                return codec.encode_named_subscribe(
                    request_id, topic, qos, queue.name.encode(), queue.lease_ms, queue.attempts
                )
            case Ping():
                self._rounds.append(Round(request_id, None, 0, [], self._published))
                return codec.encode_ping(request_id)

    def _begin_round(self, request: Poll, request_id: int) -> bytes:
        buffer = request.buffer
        count = request.count if self._state.version == 1 else 0
        buffer.last_round = Round(request_id, buffer, count, buffer.acks, self._published)
        self._rounds.append(buffer.last_round)
        buffer.polls += count
        polls = map(codec.encode_poll, self._state.next_poll_ids(count), repeat(buffer.id))
        return b"".join((self.acknowledge(buffer), *polls, codec.encode_ping(request_id)))

    def publish(self, prefix: bytes, values: Sequence[bytes]) -> tuple[bytes, range]:
        """PUBLISH frames to send, and their correlation ids."""
        ids = self._state.next_ids(len(values))
        self._published += len(values)
        return codec.encode_publishes(ids, prefix, values), ids

    def acknowledge(self, buffer: EventBuffer) -> bytes:
        """The encoded ACKs collected so far."""
        tags, buffer.acks = buffer.acks, []
        return b"".join([codec.encode_client_ack(tag, buffer.id) for tag in tags])

    def release(self, buffer: EventBuffer, tags: Sequence[int]) -> bytes:
        """Encoded NACKs, which request redelivery."""
        return b"".join([codec.encode_client_nack(tag, buffer.id) for tag in tags])

    def attach(self, buffer: EventBuffer) -> bytes:
        """Version 2: request the messages of an old subscription on this connection."""
        (correlation,) = self._state.next_poll_ids(1)
        return codec.encode_poll(correlation, buffer.id)

    def attach_all(self) -> bytes:
        """Requests to send after the login so that old subscriptions continue. In version 1 the next POLL does that."""
        return b"".join([self.attach(buffer) for buffer in self._state.buffers.values() if buffer.id])

    # -- receiving

    def feed(self, data: bytes, now: float) -> None:
        self.heard = now
        handlers = self._handlers
        for frame in self._framer.feed(data):
            handler = handlers.get(frame[0])
            if handler is None:
                raise BadReply(f"The server sent a frame of type 0x{frame[0]:02X}")
            handler(frame)
        if self._framer.error is not None:
            raise BadReply(f"The server sent {self._framer.error}")

    def message(self, spec: RequestSpec[Any], frame: Frame) -> Any:  # noqa: ARG002
        kind, correlation, payload = frame
        if kind == NACK:
            raise reply_error(*_nack(payload))
        if kind == PONG:
            ended = self._end_round(correlation)
            if ended.error is not None:
                raise ended.error
            return None
        subscription = codec.decode_subscription_id(payload)
        if subscription is None:
            raise BadReply("The server sent an ACK without a subscription id")
        return subscription

    def late(self, spec: RequestSpec[Any], frame: Frame) -> None:  # noqa: ARG002
        """The PONG of an eager round whose message arrived before it."""
        if frame[0] == PONG:
            self._end_round(frame[1])

    def _acked(self, frame: Frame) -> None:
        if frame[1] not in self._waiting:
            raise BadReply("The server sent an ACK that nobody asked for")
        self.answer(frame[1], frame)

    def _ponged(self, frame: Frame) -> None:
        if not self._rounds or self._rounds[0].ping != frame[1]:
            raise BadReply("The server sent a PONG out of turn")
        self.answer(frame[1], frame)

    def _end_round(self, correlation: int) -> Round:
        ended = self._rounds.popleft()
        assert ended.ping == correlation
        self._settled = ended.published
        ended.done = True
        if ended.buffer is not None:
            ended.buffer.polls -= ended.polls
            if ended.batch in ended.buffer.awaited_by:
                ended.buffer.awaited_by.remove(ended.batch)
            ended.buffer.arrived.set()
        return ended

    def _nacked(self, frame: Frame) -> None:
        _, correlation, payload = frame
        code, text = _nack(payload)
        if correlation < FIRST_REQUEST:
            self._state.refuse(Refusal("ack", correlation, code, text))
        elif correlation >= FIRST_POLL:
            self._poll_refused(correlation, code, text)
        elif correlation in self._waiting:
            self.answer(correlation, frame)
        else:
            self._state.refuse(Refusal("publish", correlation, code, text))

    def _poll_refused(self, correlation: int, code: int, text: str) -> None:
        if self._state.version == 2:
            self._state.refuse(Refusal("poll", correlation, code, text))
        elif not self._rounds:
            raise BadReply("The server refused a POLL that it was not sent")
        else:
            self._poll_answered(self._rounds[0])
            if code == UNSENDABLE:  # the server continues behind it, and so do we
                logger.warning("a message is missing: %s", text)
            else:
                self._rounds[0].error = reply_error(code, text)

    def _delivery(self, frame: Frame) -> None:
        delivered = codec.decode_delivery(frame[1], frame[2])
        if self._state.version == 2:
            self._dispatch(delivered)
        elif delivered is None or not self._rounds or (buffer := self._rounds[0].buffer) is None:
            raise BadReply("The server sent a message that nobody asked for, or that is unreadable")
        else:
            self._poll_answered(self._rounds[0])
            buffer.put(delivered)

    def _deliver(self, frame: Frame) -> None:
        self._dispatch(codec.decode_deliver(frame[2]))

    def _dispatch(self, delivered: Delivered | None) -> None:
        """Put a pushed message into the buffer of its topic. Raises BadReply if there is none."""
        buffer = None if delivered is None else self._state.buffers.get(delivered.topic)
        if delivered is None or buffer is None:
            raise BadReply("The server sent a message that nobody asked for, or that is unreadable")
        buffer.put(delivered)

    def _poll_answered(self, current: Round) -> None:
        if current.polls == 0 or current.buffer is None:
            raise BadReply("The server answered more POLLs than there were")
        current.polls -= 1
        current.buffer.polls -= 1

    # -- end of the connection

    def deadline(self) -> float | None:
        return self.heard + self.timeout if self._waiting and self.accepting else None

    def expire(self, now: float) -> RequestBatch | None:
        deadline = self.deadline()
        if deadline is not None and deadline <= now:
            raise TimeoutError(f"no reply in {self.timeout:g} seconds")
        return None

    def lose(self, reason: Exception) -> None:
        """Keep unconfirmed acknowledgements: they are sent again on the next connection."""
        self._state.unknown += self._published - self._settled
        self._published = self._settled = 0
        for unanswered in self._rounds:
            unanswered.done = True
            unanswered.lost = reason
            if unanswered.buffer is not None:
                unanswered.buffer.polls = 0
                unanswered.buffer.awaited_by.clear()
                unanswered.buffer.acks[:0] = unanswered.acks
        self._rounds.clear()
        super().lose(reason)


def _nack(payload: bytes) -> tuple[int, str]:
    nack = codec.decode_nack(payload)
    if nack is None:
        raise BadReply("The server sent an unreadable NACK")
    return nack
