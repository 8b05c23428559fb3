"""An event stream: what the server sends of a subscription, until the reader takes it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from penstock.clients.felix.errors import BadReply, FelixError
from penstock.clients.felix.results import Batch
from penstock.wire.felix import messages as m
from penstock.wire.felix.codec.binary import Malformed, decode_events
from penstock.wire.felix.frames import EVENTS, SHARED, BadFrame, Frame, Framer

if TYPE_CHECKING:
    from penstock.transport.quic.connection import Stream

EVENT_OVERHEAD = 64  # bytes that an event takes beside its own


class Keeper(Protocol):
    """The connection, as its feeds see it."""

    def greeted(self, feed: Feed) -> None:
        """The server has said whose events these will be."""

    def overfull(self, feed: Feed) -> None:
        """Nobody takes them. Something has to be done, or memory fills up."""

    def relieved(self, feed: Feed) -> None: ...

    def forget(self, feed: Feed) -> None: ...


class Feed:
    """The reader of an event stream. What came is taken also after the stream is over."""

    def __init__(self, keeper: Keeper, stream: Stream, max_frame: int, limit: int) -> None:
        self._keeper = keeper
        self._stream = stream
        self._frames = Framer(max_frame)
        self._batches: deque[Batch] = deque()
        self._limit = limit
        self._held = 0
        self.full = False  # more than is good is held
        self.id: int | str | None = None
        self.resumable = True  # another event stream can go on where this one stops: all events came with offsets
        self.over: FelixError | None = None  # nothing more comes, and why
        self.ended = False  # in an orderly way
        self.reset_code: int | None = None
        self.on_change = _nothing

    # -- called by the link

    def received(self, data: bytes, end: bool) -> None:
        if self.over is not None:
            return
        try:
            self._frames.feed(data)
            while (frame := self._frames.next()) is not None:
                self._take(frame)
        except (BadFrame, Malformed, BadReply) as error:
            self.let_go(BadReply(f"the server sent what cannot be read: {error}"))
            return
        if end:
            self.ended = True
            self.lose(FelixError("the server ended the event stream"))
        elif self._held >= self._limit and not self.full:
            self.full = True
            self._keeper.overfull(self)
        self.on_change()

    def reset(self, code: int) -> None:
        self.reset_code = code
        self.lose(FelixError(f"the server gave the event stream up with code 0x{code:x}"))

    def refused(self, code: int) -> None: ...  # we never send here

    def drained(self) -> None: ...

    # -- called by the connection and by the subscription

    def take(self) -> Batch | None:
        if not self._batches:
            return None
        batch = self._batches.popleft()
        self._held -= _weight(batch.payloads)
        if self.full and self._held <= self._limit // 2:
            self.full = False
            self._keeper.relieved(self)
        return batch

    def let_go(self, reason: FelixError) -> None:
        """Want nothing more of the server."""
        if self.over is None:
            self.lose(reason)
            self._stream.refuse(0)

    def lose(self, reason: FelixError) -> None:
        if self.over is None:
            self.over = reason
            self._keeper.forget(self)
            self.on_change()

    # -- inside

    def _take(self, frame: Frame) -> None:
        if self.id is None:
            hello = m.decode_reply(frame.payload)
            if not isinstance(hello, m.EventStreamHello):
                raise BadReply("an event stream that does not begin with a hello")
            self.id = hello.subscription_id
            self._keeper.greeted(self)
        elif frame.flags & (EVENTS | SHARED):
            events = decode_events(frame.flags, frame.payload)
            self._add(events.payloads, events.base_offset)
        else:
            self._take_json(m.decode_reply(frame.payload))

    def _take_json(self, message: m.Reply) -> None:
        match message:
            case m.Event():
                self._add([message.payload], message.offset)
            case m.EventBatch():
                self._add(message.payloads, message.base_offset)
            case _:
                raise BadReply(f"{type(message).__name__} on an event stream")

    def _add(self, payloads: list[bytes], offset: int | None) -> None:
        if not payloads:
            return
        self.resumable &= offset is not None
        self._batches.append(Batch(payloads, offset))
        self._held += _weight(payloads)


def _weight(payloads: list[bytes]) -> int:
    return sum(map(len, payloads)) + EVENT_OVERHEAD * len(payloads)


def _nothing() -> None: ...
