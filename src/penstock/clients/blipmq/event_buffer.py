"""State of a client over all its connections: messages of its subscriptions that were not taken yet, refusals, and how
many messages have an unknown outcome.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock.clients._core.requests import RequestBatch
from penstock.clients._core.signal import Signal
from penstock.clients.blipmq.errors import LOST, OutcomeUnknown, PublishRefused, ReplyError, Unsendable
from penstock.clients.blipmq.results import Message, Refusal
from penstock.wire.blipmq.errors import OUTCOME_UNKNOWN
from penstock.wire.blipmq.messages import Delivered

MAX_REFUSALS: Final = 10_000  # that are kept until somebody asks for them
MAX_BUFFERED: Final = 16 * 1024 * 1024  # bytes of messages that are received before anybody asks for them

FIRST_REQUEST: Final = 1 << 63  # the smallest id of a request
FIRST_POLL: Final = 3 << 62  # the smallest id of a POLL


class EventBuffer:
    """Messages of one subscription. It outlives the connection, because the server's subscription does. `arrived` is
    set with every message and every PONG behind POLLs; `awaited_by` are requests that the next message answers."""

    __slots__ = ("_state", "acks", "arrived", "awaited_by", "id", "last_round", "messages", "polls", "qos", "topic")

    def __init__(self, state: ClientState, topic: str, qos: int) -> None:
        self._state = state
        self.id = 0  # until the server has given one
        self.topic = topic
        self.qos = qos
        self.messages: deque[Message] = deque()  # arrived, and not taken yet
        self.acks: list[int] = []  # tags to acknowledge with the next write
        self.polls = 0  # POLLs whose outcome is not known
        self.arrived = Signal()
        self.awaited_by: list[RequestBatch] = []
        self.last_round: Round | None = None  # the last POLLs that were sent

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
    """POLLs of one subscription, perhaps none, and the PING behind them."""

    __slots__ = ("acks", "batch", "buffer", "done", "error", "lost", "ping", "polls", "published")

    def __init__(self, ping: int, buffer: EventBuffer | None, polls: int, acks: list[int], published: int) -> None:
        self.ping = ping
        self.buffer = buffer
        self.polls = polls  # without an answer so far
        self.acks = acks  # that went out with it
        self.published = published  # messages sent on this connection before it
        self.batch: RequestBatch | None = None  # that a message completes before the PONG
        self.done = False
        self.error: ReplyError | None = None  # a POLL was refused
        self.lost: Exception | None = None  # why the connection was lost before the PONG


class ClientState:
    """State of one client over all its connections."""

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
        self.buffers: dict[bytes, EventBuffer] = {}  # by topic; only version 2 has to find them
        self.refused = 0  # messages, since they were reported
        self.unknown = 0  # messages that were under way when a connection was lost, or the server's disk failed
        self._unknown_because = LOST
        self.buffered_bytes = 0  # of messages that were not taken yet
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
        """Raise for messages that were not stored, or may not be; once."""
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
        """Messages may come in the same read as the id of their subscription: add its buffer before it is asked for."""
        if self.version == 2:
            topic = buffer.topic.encode()
            if topic in self.buffers:
                raise Unsendable("Version 2 cannot tell apart two subscriptions of one client to the same topic")
            self.buffers[topic] = buffer

    def discard(self, buffer: EventBuffer) -> None:
        """The subscription was not made."""
        self.buffers.pop(buffer.topic.encode(), None)
