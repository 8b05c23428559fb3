"""An event stream: the buffer between a QUIC stream of events and the reader of a subscription."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from penstock.clients.felix.errors import BadReply, FelixError
from penstock.clients.felix.frame_reader import read_frames
from penstock.clients.felix.results import Batch
from penstock.wire.felix import messages as m
from penstock.wire.felix.codec.binary import decode_events
from penstock.wire.felix.frames import EVENTS, SHARED, Frame, Framer

if TYPE_CHECKING:
    from penstock.transport.quic.connection import Stream

logger = logging.getLogger(__name__)

EVENT_OVERHEAD: Final = 64  # bytes per event besides its payload


class BufferOwner(Protocol):
    """The connection, as seen by its event buffers."""

    def on_hello(self, buffer: EventBuffer) -> None:
        """The server has identified the subscription of the events."""

    def on_full(self, buffer: EventBuffer) -> None:
        """The reader does not keep up: stop the flow before memory fills up."""

    def on_drained(self, buffer: EventBuffer) -> None: ...

    def forget(self, buffer: EventBuffer) -> None: ...


class EventBuffer:
    """The reader of an event stream. Received batches can be taken even after the stream has ended."""

    def __init__(self, owner: BufferOwner, stream: Stream, max_frame: int, limit: int) -> None:
        self._owner = owner
        self._stream = stream
        self._framer = Framer(max_frame)
        self._batches: deque[Batch] = deque()
        self._limit = limit
        self._size = 0
        self.full = False
        self.id: int | str | None = None
        self.resumable = True  # all events had offsets, so another event stream can continue at this position
        self.over: FelixError | None = None  # why no more events will arrive
        self.ended = False  # gracefully
        self.reset_code: int | None = None
        self._on_change: Callable[[], object] = _ignore

    # -- called by the subscription

    def watch(self, on_change: Callable[[], object]) -> None:
        """Call back when there are more batches, or the stream has ended."""
        self._on_change = on_change

    def unwatch(self) -> None:
        self._on_change = _ignore

    # -- called by the QUIC connection

    def received(self, data: bytes, end: bool) -> None:
        if self.over is not None:
            return
        error = read_frames(self._framer, data, self._on_frame)
        if error is not None:
            self.cancel(error)
            return
        if end:
            self.ended = True
            self.fail(FelixError("the server ended the event stream"))
        elif self._size >= self._limit and not self.full:
            self.full = True
            self._owner.on_full(self)
        self._on_change()

    def reset(self, code: int) -> None:
        self.reset_code = code
        self.fail(FelixError(f"the server gave the event stream up with code 0x{code:x}"))

    def refused(self, code: int) -> None: ...  # we never send here

    def drained(self) -> None: ...

    # -- called by the connection and by the subscription

    def pop(self) -> Batch | None:
        if not self._batches:
            return None
        batch = self._batches.popleft()
        self._size -= _memory(batch.payloads)
        if self.full and self._size <= self._limit // 2:
            self.full = False
            self._owner.on_drained(self)
        return batch

    def cancel(self, reason: FelixError) -> None:
        """Tell the server to stop sending."""
        if self.over is None:
            self.fail(reason)
            self._stream.refuse(0)

    def fail(self, reason: FelixError) -> None:
        if self.over is None:
            self.over = reason
            self._owner.forget(self)
            self._on_change()

    # -- internal

    def _on_frame(self, frame: Frame) -> None:
        if self.id is None:
            hello = m.decode_reply(frame.payload)
            if not isinstance(hello, m.EventStreamHello):
                raise BadReply("an event stream that does not begin with a hello")
            self.id = hello.subscription_id
            self._owner.on_hello(self)
        elif frame.flags & (EVENTS | SHARED):
            events = decode_events(frame.flags, frame.payload)
            self._append(events.payloads, events.base_offset)
        else:
            self._on_message(m.decode_reply(frame.payload))

    def _on_message(self, message: m.Reply) -> None:
        match message:
            case m.Event():
                self._append([message.payload], message.offset)
            case m.EventBatch():
                self._append(message.payloads, message.base_offset)
            case m.Error():  # an event too large for any frame: the server continues behind it
                logger.warning("an event is missing: %s", message.message)
            case _:
                raise BadReply(f"{type(message).__name__} on an event stream")

    def _append(self, payloads: list[bytes], offset: int | None) -> None:
        if not payloads:
            return
        self.resumable &= offset is not None
        self._batches.append(Batch(payloads, offset))
        self._size += _memory(payloads)


def _memory(payloads: list[bytes]) -> int:
    return sum(map(len, payloads)) + EVENT_OVERHEAD * len(payloads)


def _ignore() -> None: ...
