"""State of a client across its connections: unread messages of its subscriptions, refusals, and the number of messages
with an unknown outcome."""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock.clients._core.requests import RequestBatch
from penstock.clients._core.signal import Signal
from penstock.clients.blipmq.errors import LOST, OutcomeUnknown, PublishRefused, ReplyError, Unsendable
from penstock.clients.blipmq.results import Message, Refusal
from penstock.wire.blipmq.errors import OUTCOME_UNKNOWN
from penstock.wire.blipmq.messages import Delivered

MAX_REFUSALS: Final = 10_000  # kept until the caller asks for them
MAX_BUFFERED: Final = 16 * 1024 * 1024  # bytes of messages received before the caller asks for them

FIRST_REQUEST: Final = 1 << 63  # the smallest id of a request
FIRST_POLL: Final = 3 << 62  # the smallest id of a POLL


class EventBuffer:
    """Messages of one subscription. It outlives the connection, as the server's subscription does. `arrived` is set
    with every message and every PONG that follows POLLs; `awaited_by` are requests that the next message answers."""

    __slots__ = ("_state", "acks", "arrived", "awaited_by", "id", "last_round", "messages", "polls", "qos", "topic")

    def __init__(self, state: ClientState, topic: str, qos: int) -> None:
        self._state = state
        self.id = 0  # until the server assigns one
        self.topic = topic
        self.qos = qos
        self.messages: deque[Message] = deque()  # received but not read
        self.acks: list[int] = []  # tags to acknowledge with the next write
        self.polls = 0  # POLLs with a pending outcome
        self.arrived = Signal()
        self.awaited_by: list[RequestBatch] = []
        self.last_round: Round | None = None  # the POLLs sent last

    def put(self, delivered: Delivered) -> None:
        self.messages.append(Message(self.topic, delivered.value, delivered.qos, delivered.tag))
        self._state.buffered_bytes += len(delivered.value)
        self.arrived.set()
        if self.awaited_by:
            batches, self.awaited_by = self.awaited_by, []
            for batch in batches:
                if not batch.is_set:
                    batch.settle(0, None)

    def take(self) -> Message:
        message = self.messages.popleft()
        self._state.buffered_bytes -= len(message.value)
        return message


class Round:
    """POLLs of one subscription, perhaps none, and the PING that follows them."""

    __slots__ = ("acks", "batch", "buffer", "done", "error", "lost", "ping", "polls", "published")

    def __init__(self, ping: int, buffer: EventBuffer | None, polls: int, acks: list[int], published: int) -> None:
        self.ping = ping
        self.buffer = buffer
        self.polls = polls  # unanswered so far
        self.acks = acks  # sent with it
        self.published = published  # messages sent on this connection before it
        self.batch: RequestBatch | None = None  # completed by a message before the PONG
        self.done = False
        self.error: ReplyError | None = None  # a POLL was refused
        self.lost: Exception | None = None  # why the connection was lost before the PONG


class ClientState:
    """State of one client across all its connections."""

    __slots__ = (
        "_next_id",
        "_next_poll_id",
        "_refusals",
        "_unknown_because",
        "buffered_bytes",
        "buffers",
        "refused",
        "unknown",
        "version",
    )

    def __init__(self, version: int) -> None:
        self.version = version
        self.buffers: dict[bytes, EventBuffer] = {}  # by topic; only version 2 looks them up
        self.refused = 0  # messages, since the last report
        self.unknown = 0  # messages in flight when a connection was lost, or when the server's disk failed
        self._unknown_because = LOST
        self.buffered_bytes = 0  # of unread messages
        self._refusals: deque[Refusal] = deque(maxlen=MAX_REFUSALS)
        self._next_id = FIRST_REQUEST
        self._next_poll_id = FIRST_POLL

    def next_ids(self, count: int) -> range:
        first = self._next_id
        self._next_id += count
        return range(first, self._next_id)

    def next_poll_ids(self, count: int) -> range:
        first = self._next_poll_id
        self._next_poll_id += count
        return range(first, self._next_poll_id)

    def refuse(self, refusal: Refusal) -> None:
        if refusal.request == "publish" and refusal.text.endswith(OUTCOME_UNKNOWN):
            self.unknown += 1
            self._unknown_because = "The server's disk failed"
            return
        self._refusals.append(refusal)
        self.refused += refusal.request == "publish"

    def take_refusals(self) -> list[Refusal]:
        refusals = list(self._refusals)
        self._refusals.clear()
        self.refused = 0
        return refusals

    def report(self) -> None:
        """Raise an error for messages that were not stored, or may not be; once."""
        if self.refused:
            count = self.refused
            refusals = self.take_refusals()
            self._refusals.extend(refusal for refusal in refusals if refusal.request != "publish")
            raise PublishRefused([refusal for refusal in refusals if refusal.request == "publish"], count)
        if self.unknown:
            raise self.take_unknown()

    def take_unknown(self) -> OutcomeUnknown:
        count, self.unknown = self.unknown, 0
        reason, self._unknown_because = self._unknown_because, LOST
        return OutcomeUnknown(count, reason)

    def add(self, buffer: EventBuffer) -> None:
        """Register the buffer before the request: messages may arrive in the same read as the subscription's id. Raises
        Unsendable for a second one with the same topic in version 2."""
        if self.version == 2:
            topic = buffer.topic.encode()
            if topic in self.buffers:
                raise Unsendable("Version 2 cannot tell apart two subscriptions of one client to the same topic")
            self.buffers[topic] = buffer

    def discard(self, buffer: EventBuffer) -> None:
        """Remove the buffer of a subscription that was not created."""
        self.buffers.pop(buffer.topic.encode(), None)
