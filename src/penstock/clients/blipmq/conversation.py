"""The client's side of one connection, without the connection: which reply belongs to which request.

Deliveries carry no subscription id, and an empty POLL has no reply. So POLLs go out in rounds: all for the same
subscription, and a PING behind them. The server answers in order. Therefore a delivery belongs to the oldest round
whose PONG has not come, and when it comes, the POLLs of the round that had no delivery were empty. The PONG also says
that the server has dealt with every PUBLISH before the PING. In version 2 the topic tells whose delivery it is.

Correlation ids are from ranges of their own, because the NACK to an ACK has the tag as its id: tags count from 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final

from penstock.clients.blipmq.outcome import (
    BadReply,
    Message,
    OutcomeUnknown,
    PublishRefused,
    Refusal,
    ReplyError,
    Unsendable,
    check_qos,
    reply_error,
    topic_bytes,
)
from penstock.wire.blipmq.codec import (
    decode_deliver,
    decode_delivery,
    decode_nack,
    decode_subscription_id,
    encode_auth,
    encode_client_ack,
    encode_hello,
    encode_ping,
    encode_poll,
    encode_publishes,
    encode_subscribe,
)
from penstock.wire.blipmq.frames import ACK, DELIVER, NACK, PONG, PUBLISH, Framer
from penstock.wire.blipmq.messages import Delivered

MAX_REFUSALS: Final = 10_000  # that are kept until somebody asks for them

_REQUESTS: Final = 1 << 63  # the smallest id of a request
_POLLS: Final = 3 << 62  # the smallest id of a POLL


class Box:
    """A subscription as the client holds it. It outlives the connection, because the server's part of it does."""

    __slots__ = ("_ledger", "acks", "asked", "id", "messages", "qos", "topic")

    def __init__(self, ledger: Ledger, topic: str, qos: int) -> None:
        self._ledger = ledger
        self.id = 0  # until the server has given one
        self.topic = topic
        self.qos = qos
        self.messages: deque[Message] = deque()  # arrived, and not taken yet
        self.acks: list[int] = []  # tags to acknowledge with the next write
        self.asked = 0  # POLLs whose outcome is not known

    def put(self, delivered: Delivered) -> None:
        self.messages.append(Message(self.topic, delivered.value, delivered.qos, delivered.tag))
        self._ledger.held_bytes += len(delivered.value)

    def take(self) -> Message:
        message = self.messages.popleft()
        self._ledger.held_bytes -= len(message.value)
        return message


class Ledger:
    """What a client remembers from one connection to the next."""

    __slots__ = ("_next_id", "_next_poll_id", "_refusals", "boxes", "doubtful", "held_bytes", "refused", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.boxes: dict[bytes, Box] = {}  # by topic; only version 2 has to find them
        self.refused = 0  # messages, since somebody was told
        self.doubtful = 0  # messages that were under way when a connection was lost
        self.held_bytes = 0  # of messages that were not taken yet
        self._refusals: deque[Refusal] = deque(maxlen=MAX_REFUSALS)
        self._next_id = _REQUESTS
        self._next_poll_id = _POLLS

    def next_ids(self, count: int) -> range:
        first = self._next_id
        self._next_id += count
        return range(first, self._next_id)

    def next_poll_ids(self, count: int) -> range:
        first = self._next_poll_id
        self._next_poll_id += count
        return range(first, self._next_poll_id)

    def refuse(self, refusal: Refusal) -> None:
        self._refusals.append(refusal)
        self.refused += refusal.request == "publish"

    def take_refusals(self) -> list[Refusal]:
        taken = list(self._refusals)
        self._refusals.clear()
        self.refused = 0
        return taken

    def settle(self) -> None:
        """Tell of messages that were not stored, or may not be; once."""
        if self.refused:
            count = self.refused
            taken = self.take_refusals()
            self._refusals.extend(refusal for refusal in taken if refusal.request != "publish")
            raise PublishRefused([refusal for refusal in taken if refusal.request == "publish"], count)
        if self.doubtful:
            raise OutcomeUnknown(self.take_doubtful())

    def take_doubtful(self) -> int:
        count, self.doubtful = self.doubtful, 0
        return count

    def open(self, topic: str, qos: int) -> Box:
        """A box for a subscription that is about to be asked for: messages may come in the same read as its id."""
        check_qos(qos)
        data = topic_bytes(topic)
        box = Box(self, topic, qos)
        if self.version == 2:
            if data in self.boxes:
                raise Unsendable("Version 2 cannot tell apart two subscriptions of one client to the same topic")
            self.boxes[data] = box
        return box

    def discard(self, box: Box) -> None:
        """The subscription was not made."""
        self.boxes.pop(box.topic.encode(), None)


class Reply:
    """A request whose reply is waited for: ACK or NACK."""

    __slots__ = ("_box", "error", "ready")

    def __init__(self, box: Box | None) -> None:
        self._box = box
        self.ready = False
        self.error: ReplyError | None = None

    def accept(self, subscription: int) -> None:
        if self._box is not None:
            self._box.id = subscription
        self.ready = True

    def refuse(self, error: ReplyError) -> None:
        self.error = error
        self.ready = True

    def check(self) -> None:
        if self.error is not None:
            raise self.error


class Round:
    """POLLs of one subscription, perhaps none, and the PING behind them."""

    __slots__ = ("acks", "box", "done", "eager", "error", "lost", "ping", "polls", "published")

    def __init__(
        self, ping: int, box: Box | None, polls: int, acks: Sequence[int], published: int, eager: bool
    ) -> None:
        self.ping = ping
        self.box = box
        self.polls = polls  # without an answer so far
        self.acks = acks  # that went out with it
        self.published = published  # messages sent on this connection before it
        self.eager = eager
        self.done = False
        self.lost = False  # with its connection
        self.error: ReplyError | None = None  # a POLL was refused

    @property
    def ready(self) -> bool:
        """Whether there is nothing more to wait for. Who is eager waits for one message at most."""
        return self.done or (self.eager and self.box is not None and bool(self.box.messages))


class Conversation:
    """All that is under way on one connection. The methods give the bytes to send, and what to wait for."""

    __slots__ = ("_framer", "_handlers", "_ledger", "_published", "_replies", "_rounds", "_settled")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._framer = Framer(last_type=DELIVER)
        self._replies: dict[int, Reply] = {}
        self._rounds: deque[Round] = deque()
        self._published = 0  # messages sent
        self._settled = 0  # those of them that the server has dealt with
        self._handlers: dict[int, Callable[[int, bytes], None]] = {
            ACK: self._acked,
            NACK: self._nacked,
            PONG: self._ponged,
            PUBLISH: self._delivery,
            DELIVER: self._deliver,
        }

    # -- to be sent

    def greet(self, key: str) -> tuple[bytes, Reply, Reply]:
        """HELLO and AUTH at once, and what becomes of each."""
        hello_id, hello = self._request(None)
        auth_id, auth = self._request(None)
        return encode_hello(hello_id, self._ledger.version) + encode_auth(auth_id, key), hello, auth

    def resume(self) -> bytes:
        """What has to be said after the handshake so that old subscriptions go on: in version 2, a POLL for each. In
        version 1 the next POLL does it."""
        if self._ledger.version == 1:
            return b""
        return b"".join(self.attach(box) for box in self._ledger.boxes.values() if box.id)

    def attach(self, box: Box) -> bytes:
        """Version 2: ask for the messages of an old subscription on this connection."""
        (correlation,) = self._ledger.next_poll_ids(1)
        return encode_poll(correlation, box.id)

    def subscribe(self, box: Box) -> tuple[bytes, Reply]:
        correlation, reply = self._request(box)
        return encode_subscribe(correlation, box.topic.encode(), box.qos), reply

    def publish(self, prefix: bytes, values: Sequence[bytes]) -> tuple[bytes, range]:
        """PUBLISH frames, and their correlation ids."""
        ids = self._ledger.next_ids(len(values))
        self._published += len(values)
        return encode_publishes(ids, prefix, values), ids

    def acknowledge(self, box: Box) -> bytes:
        """The ACKs that have gathered."""
        tags, box.acks = box.acks, []
        return b"".join(encode_client_ack(tag, box.id) for tag in tags)

    def barrier(self) -> tuple[bytes, Round]:
        """A PING: its PONG comes when the server has dealt with everything before it."""
        return self._round(b"", None, 0, (), eager=False)

    def poll(self, box: Box, count: int, *, eager: bool) -> tuple[bytes, Round]:
        """In one write: the ACKs that have gathered, `count` POLLs, and a PING. Version 2 needs no POLL."""
        tags = tuple(box.acks)
        data = self.acknowledge(box)
        polls = count if self._ledger.version == 1 else 0
        data += b"".join(map(encode_poll, self._ledger.next_poll_ids(polls), repeat(box.id)))
        box.asked += polls
        return self._round(data, box, polls, tags, eager)

    def _round(
        self, data: bytes, box: Box | None, polls: int, tags: tuple[int, ...], eager: bool
    ) -> tuple[bytes, Round]:
        (ping,) = self._ledger.next_ids(1)
        new = Round(ping, box, polls, tags, self._published, eager)
        self._rounds.append(new)
        return data + encode_ping(ping), new

    def _request(self, box: Box | None) -> tuple[int, Reply]:
        (correlation,) = self._ledger.next_ids(1)
        reply = self._replies[correlation] = Reply(box)
        return correlation, reply

    # -- received

    def feed(self, data: bytes) -> None:
        """Take what the server sent. BadReply if it makes no sense; then the connection is of no more use."""
        handlers = self._handlers
        for kind, correlation, payload in self._framer.feed(data):
            handler = handlers.get(kind)
            if handler is None:
                raise BadReply(f"The server sent a frame of type 0x{kind:02X}")
            handler(correlation, payload)
        if self._framer.error is not None:
            raise BadReply(f"The server sent {self._framer.error}")

    def lose(self) -> None:
        """The connection is gone. What was acknowledged on it without certainty will be acknowledged again."""
        self._ledger.doubtful += self._published - self._settled
        self._published = self._settled = 0
        for unanswered in self._rounds:
            unanswered.lost = True
            if unanswered.box is not None:
                unanswered.box.asked = 0
                unanswered.box.acks[:0] = unanswered.acks
        self._rounds.clear()

    def _acked(self, correlation: int, payload: bytes) -> None:
        reply = self._replies.pop(correlation, None)
        subscription = decode_subscription_id(payload)
        if reply is None or subscription is None:
            raise BadReply("The server sent an ACK that nobody asked for, or without a subscription id")
        reply.accept(subscription)

    def _nacked(self, correlation: int, payload: bytes) -> None:
        nack = decode_nack(payload)
        if nack is None:
            raise BadReply("The server sent an unreadable NACK")
        code, text = nack
        if correlation < _REQUESTS:
            self._ledger.refuse(Refusal("ack", correlation, code, text))
        elif correlation >= _POLLS:
            self._poll_refused(correlation, code, text)
        elif (reply := self._replies.pop(correlation, None)) is not None:
            reply.refuse(reply_error(code, text))
        else:
            self._ledger.refuse(Refusal("publish", correlation, code, text))

    def _poll_refused(self, correlation: int, code: int, text: str) -> None:
        if self._ledger.version == 2:
            self._ledger.refuse(Refusal("poll", correlation, code, text))
        elif not self._rounds:
            raise BadReply("The server refused a POLL that it was not sent")
        else:
            self._answered(self._rounds[0])
            self._rounds[0].error = reply_error(code, text)

    def _ponged(self, correlation: int, _payload: bytes) -> None:
        if not self._rounds or self._rounds[0].ping != correlation:
            raise BadReply("The server sent a PONG out of turn")
        ended = self._rounds.popleft()
        ended.done = True
        self._settled = ended.published
        if ended.box is not None:
            ended.box.asked -= ended.polls

    def _delivery(self, correlation: int, payload: bytes) -> None:
        delivered = decode_delivery(correlation, payload)
        if self._ledger.version == 2:
            self._file(delivered)
        elif delivered is None or not self._rounds or (box := self._rounds[0].box) is None:
            raise BadReply("The server sent a message that nobody asked for, or that is unreadable")
        else:
            self._answered(self._rounds[0])
            box.put(delivered)

    def _deliver(self, _correlation: int, payload: bytes) -> None:
        self._file(decode_deliver(payload))

    def _file(self, delivered: Delivered | None) -> None:
        """Put a message that came by itself where its topic belongs."""
        box = None if delivered is None else self._ledger.boxes.get(delivered.topic)
        if delivered is None or box is None:
            raise BadReply("The server sent a message that nobody asked for, or that is unreadable")
        box.put(delivered)

    def _answered(self, current: Round) -> None:
        if current.polls == 0 or current.box is None:
            raise BadReply("The server answered more POLLs than there were")
        current.polls -= 1
        current.box.asked -= 1
