"""One QUIC connection, of either side, and its streams. `endpoint` has the sockets and timers.

A connection delivers what arrived, per stream, with all data of one turn in one piece. While paused it delivers
nothing, and the peer can only send until its flow-control windows are used up. Sending never blocks: a sender checks
`congested`, and `drained` is called when there is room again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from penstock.transport.quic.burst import Burst
from penstock.transport.quic.errors import ConnectionClosed, StreamsUsedUp
from penstock.transport.quic.state_machine import Address, Ending, QuicStateMachine, StreamRefused

logger = logging.getLogger(__name__)

BURST_BYTES: Final = 256 << 10  # delivered at once; a pause takes effect after at most this much
STREAM_HIGH: Final = 256 << 10  # a stream with more unsent bytes is congested,
STREAM_LOW: Final = 16 << 10  # or with this many, if there are very many streams
CONNECTION_HIGH: Final = 4 << 20  # limit for all streams together, including bytes sent but not acknowledged
EARLY_SECONDS: Final = 0.0002  # of delivering, after which the first replies are sent: the peer can go on meanwhile
INTERNAL_ERROR: Final = 0x21  # code sent to the peer after an internal error


class StreamReceiver(Protocol):
    """The receiver of one stream's events."""

    def received(self, data: bytes, end: bool) -> None:
        """All data that arrived for the stream in one turn. `end`: nothing more follows."""

    def reset(self, code: int) -> None:
        """The peer aborted sending."""

    # A receiver may have a method `received_pieces(pieces: list[bytes], end: bool)`, too: then data that arrived in
    # several pieces is not joined for it.

    def refused(self, code: int) -> None:
        """The peer wants no more data (STOP_SENDING); everything sent from now on is discarded."""

    def drained(self) -> None:
        """The stream was congested, and no longer is."""


class ConnectionHandler(Protocol):
    """The handler of one connection's events."""

    def connected(self, connection: QuicConnection) -> None: ...

    def accepted(self, stream: Stream) -> StreamReceiver:
        """The peer has opened a stream."""

    def closed(self, code: int, reason: str) -> None:
        """The connection is closed, by either side, and no receiver is called again. Called once, and never from within
        `QuicConnection.close`."""


class Driver(Protocol):
    """The endpoint, as seen by its connections."""

    def touch(self, connection: QuicConnection) -> None:
        """The connection may have something to send."""

    def send_early(self, connection: QuicConnection) -> None:
        """Send what the connection has to send so far, although it has more to deliver in this turn."""

    def continue_later(self, connection: QuicConnection) -> None:
        """The connection has more to deliver, in a later turn."""

    def route(self, connection: QuicConnection, issued: list[bytes], retired: list[bytes]) -> None:
        """The ids by which the peer may address this connection have changed."""

    def ended(self, connection: QuicConnection) -> None: ...


class Stream:
    """One stream of a connection. Data sent after the end of the stream or the connection is discarded."""

    __slots__ = (
        "_bound",
        "_connection",
        "_input_over",
        "_output_over",
        "_receive_pieces",
        "_receiver",
        "bidirectional",
        "id",
        "local",
    )

    def __init__(self, connection: QuicConnection, number: int, *, local: bool) -> None:
        self.id = number
        self.local = local
        self.bidirectional = not number & 2
        self._connection = connection
        self._receiver: StreamReceiver | None = None  # None: input is discarded
        self._receive_pieces: Callable[[list[bytes], bool], None] | None = None  # of the receiver, if it has this
        self._bound = 0  # upper bound of the unsent bytes
        self._input_over = local and not self.bidirectional
        self._output_over = not local and not self.bidirectional

    def send(self, data: bytes) -> None:
        if not self._output_over and self._connection.send_stream(self.id, data, False):
            self._bound += len(data)

    def finish(self) -> None:
        """End the stream: no data follows."""
        if not self._output_over:
            self._connection.send_stream(self.id, b"", True)
            self._end_output()

    def reset(self, code: int) -> None:
        """Abort sending, including data that is queued."""
        if not self._output_over and not self._connection.closed:
            self._connection.reset_stream(self.id, code)
            self._end_output()

    def refuse(self, code: int) -> None:
        """Tell the peer to stop sending (STOP_SENDING); data that still arrives is discarded."""
        if not self._input_over and not self._connection.closed:
            self._receiver = _InputDiscarded(self._receiver) if self._receiver is not None else None
            self._receive_pieces = None
            self._connection.refuse_stream(self.id, code)

    @property
    def unsent(self) -> int:
        if self._bound:
            self._bound = 0 if self._connection.closed else self._connection.stream_unsent(self.id)
        return self._bound

    @property
    def congested(self) -> bool:
        connection = self._connection
        if self._bound <= STREAM_LOW and connection.bound <= CONNECTION_HIGH:
            return False
        if self.unsent <= connection.stream_high and (
            connection.bound <= CONNECTION_HIGH or connection.unsent <= CONNECTION_HIGH
        ):
            return False
        connection.waiting[self] = None
        return True

    # -- called by the connection

    def attach(self, receiver: StreamReceiver) -> None:
        self._receiver = receiver
        self._receive_pieces = getattr(receiver, "received_pieces", None)

    def receive(self, pieces: list[bytes], end: bool) -> None:
        if end:
            self._end_input()
        if self._receiver is None:
            return
        if len(pieces) == 1:
            self._receiver.received(pieces[0], end)
        elif self._receive_pieces is not None:
            self._receive_pieces(pieces, end)
        else:
            self._receiver.received(b"".join(pieces), end)

    def receive_reset(self, code: int) -> None:
        if not self._input_over:
            self._end_input()
            if self._receiver is not None:
                self._receiver.reset(code)

    def receive_refusal(self, code: int) -> None:
        """The peer stopped the stream; the state machine has already answered with a reset."""
        if not self._output_over:
            self._end_output()
            if self._receiver is not None:
                self._receiver.refused(code)

    def notify_drained(self) -> None:
        """Notify the receiver if the stream is no longer congested."""
        if self.unsent <= self._connection.stream_high // 2:
            self._connection.waiting.pop(self, None)  # before the call, which may congest it again
            if self._receiver is not None and not self._output_over:
                self._receiver.drained()

    # -- internal

    def _end_input(self) -> None:
        self._input_over = True
        if self._output_over:
            self._connection.discard(self)

    def _end_output(self) -> None:
        self._output_over = True
        self._connection.waiting.pop(self, None)
        if self._input_over:
            self._connection.discard(self)


class _InputDiscarded:
    """Replaces a receiver that accepts no more input but still sends."""

    __slots__ = ("_receiver",)

    def __init__(self, receiver: StreamReceiver) -> None:
        self._receiver = receiver

    def received(self, data: bytes, end: bool) -> None: ...

    def reset(self, code: int) -> None: ...

    def refused(self, code: int) -> None:
        self._receiver.refused(code)

    def drained(self) -> None:
        self._receiver.drained()


class QuicConnection:
    """`handler_factory` makes the handler once the handshake is complete; `failed` is called if it fails."""

    def __init__(
        self,
        machine: QuicStateMachine,
        driver: Driver,
        address: Address,
        handler_factory: Callable[[QuicConnection], ConnectionHandler],
        failed: Callable[[Ending], None],
        now: float,
    ) -> None:
        self.machine = machine
        self.address = address
        self.peer = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
        self.closed = False  # nothing is sent or delivered any more
        self.bound = 0  # upper bound of `unsent`
        self.waiting: dict[Stream, None] = {}  # congested streams, in order
        self.started = self.last_received = self.last_ping = now
        self.routes: set[bytes] = set()  # used by the endpoint
        self.inbox: list[tuple[bytes, int]] = []  # used by the endpoint
        self.timer_at = 0.0  # used by the endpoint
        self._driver = driver
        self._handler_factory = handler_factory
        self._failed = failed
        self._handler: ConnectionHandler | None = None
        self._streams: dict[int, Stream] = {}
        self._ours = 0 if machine.configuration.is_client else 1  # lowest bit of the ids of streams that we open
        self._paused = False
        self._undelivered: Burst | None = None  # taken from the machine but not delivered, because of a pause
        self._ending: Ending | None = None  # not reported to the handler yet
        self._closing_with: Ending | None = None  # close with this once everything is acknowledged
        self._finished = False  # the handler was told

    # -- called by its handler

    def open(self, receiver: StreamReceiver, *, bidirectional: bool) -> Stream:
        """Open a stream. Raises StreamsUsedUp or ConnectionClosed."""
        if self.closed:
            raise ConnectionClosed("the connection is closed")
        try:
            number = self.machine.open(bidirectional=bidirectional)
        except StreamRefused as error:
            if self.machine.over:
                raise ConnectionClosed("the connection is closed") from None
            raise StreamsUsedUp(str(error)) from None
        stream = Stream(self, number, local=True)
        stream.attach(receiver)
        self._streams[number] = stream
        return stream

    def close(self, code: int = 0, reason: str = "") -> None:
        """Close now; unsent data is lost."""
        if not self.closed:
            self.closed = True
            self._ending = Ending(code, reason)
            try:
                self.machine.close(code, None, reason)
            except Exception as error:  # noqa: BLE001 - the machine is broken; the handler is told anyway
                logger.debug("%s: %s: %s", self.peer, type(error).__name__, error)
            self._driver.touch(self)

    def close_when_delivered(self, code: int = 0, reason: str = "") -> None:
        """Close once the peer has acknowledged everything that was sent."""
        self._closing_with = Ending(code, reason)
        self._driver.touch(self)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if not self.closed:
                self._driver.continue_later(self)

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def stream_high(self) -> int:
        """Unsent bytes above which a stream is congested. A stream keeps the memory that it once needed, so with many
        streams each gets less."""
        return max(STREAM_LOW, min(STREAM_HIGH, CONNECTION_HIGH // 2 // max(len(self._streams), 1)))

    @property
    def unsent(self) -> int:
        """Bytes kept for the peer: unsent or unacknowledged. Without counting the latter, a peer that was fast once
        could make us keep any amount."""
        if self.bound:
            self.bound = 0 if self.closed else self.machine.unsent + self.machine.unacknowledged
        return self.bound

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    # -- called by its streams

    def send_stream(self, number: int, data: bytes, end: bool) -> bool:
        """False if the connection is closed, or the stream accepts no more data: the peer has stopped it, and the
        receiver is about to be told."""
        if self.closed:
            return False
        try:
            self.machine.send(number, data, end)
        except StreamRefused:
            return False
        self.bound += len(data)
        self._driver.touch(self)
        return True

    def stream_unsent(self, number: int) -> int:
        return self.machine.stream_unsent(number)

    def reset_stream(self, number: int, code: int) -> None:
        try:
            self.machine.reset(number, code)
        except StreamRefused:
            return  # everything is already delivered
        self._driver.touch(self)

    def refuse_stream(self, number: int, code: int) -> None:
        try:
            self.machine.refuse(number, code)
        except StreamRefused:
            return  # the peer has already sent everything
        self._driver.touch(self)

    def discard(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)
        self.waiting.pop(stream, None)

    # -- called by the endpoint

    @property
    def established(self) -> bool:
        return self._handler is not None

    def work(self, until: float) -> None:
        """Deliver what has arrived, until this time."""
        machine = self.machine
        if self._handler is None:
            if not machine.established:
                burst = machine.take_events(BURST_BYTES)  # connection ids only; there is no data yet
                self._driver.route(self, burst.issued, burst.retired)
                self._look_for_end()
                return
            if self.closed:
                return
            self._handler = self._handler_factory(self)
            self._handler.connected(self)
        while not self._paused and not self.closed:
            burst, self._undelivered = self._undelivered or machine.take_events(BURST_BYTES), None
            if not self._deliver(burst, self._handler, until):
                self._undelivered = burst
                if self._paused:
                    break
                self._driver.continue_later(self)
                return
            if not burst.more:
                break
            if time.monotonic() >= until:
                self._driver.continue_later(self)
                return
        self._look_for_end()

    def _deliver(self, burst: Burst, handler: ConnectionHandler, until: float) -> bool:
        """Deliver a burst. False if a pause or the time limit stopped it: the rest is still in the burst. The time
        limit matters because data for a thousand streams may be a thousand small requests with large replies."""
        if burst.issued or burst.retired:
            self._driver.route(self, burst.issued, burst.retired)
        data = burst.data
        early = min(time.monotonic() + EARLY_SECONDS, until)
        for number in list(data):
            if self._paused:
                return False
            pieces = data.pop(number)
            stream = self._streams.get(number) or self._accept(number, handler)
            stream.receive(pieces, number in burst.ends)
            if self.closed:
                return True
            if data and (now := time.monotonic()) >= early:
                if now >= until:
                    return False
                self._driver.send_early(self)
                early = min(now + EARLY_SECONDS, until)
        for events, deliver in ((burst.resets, Stream.receive_reset), (burst.refusals, Stream.receive_refusal)):
            for number, code in events:
                known = self._streams.get(number)
                if known is not None:
                    deliver(known, code)
                    if self.closed:
                        return True
                elif deliver is Stream.receive_reset and not number & 2 and number & 1 != self._ours:
                    self.reset_stream(number, 0)  # reset before any data arrived; our side is still open
        return True

    def _accept(self, number: int, handler: ConnectionHandler) -> Stream:
        stream = Stream(self, number, local=False)
        self._streams[number] = stream
        stream.attach(handler.accepted(stream))
        return stream

    def _look_for_end(self) -> None:
        machine = self.machine
        if self.closed:
            return
        if machine.ending is None and machine.over:
            while machine.take_events(BURST_BYTES).more:
                pass  # no longer wanted; the reason for the end follows behind it
        if machine.ending is not None or machine.over:
            self.closed = True
            self._ending = machine.ending or Ending(0, "the connection is closed")
            self._driver.touch(self)  # the peer may have to be told

    def flushed(self) -> None:
        """Called after everything that can be sent has been sent."""
        if self._ending is not None:
            ending, self._ending = self._ending, None
            self._finish(ending)
            return
        if self.closed:
            return
        if self.waiting and self.unsent <= CONNECTION_HIGH // 2:
            for stream in list(self.waiting):
                if self.bound > CONNECTION_HIGH:
                    break  # the first streams have filled it again; the others are first next time
                stream.notify_drained()
        if self._closing_with is not None and self.machine.quiet:
            self.close(*self._closing_with)

    def fail(self, reason: str) -> None:
        """Close the connection because of an error on our side."""
        self.close(INTERNAL_ERROR, reason)

    def give_up(self) -> None:
        """Abandon a broken state machine: only the handler is told, not the peer."""
        self.closed = True
        self._ending = None
        self._finish(Ending(INTERNAL_ERROR, "internal error"))

    def _finish(self, ending: Ending) -> None:
        if self._finished:
            return
        self._finished = True
        self._streams.clear()
        self.waiting.clear()
        self._driver.ended(self)
        if self._handler is not None:
            self._handler.closed(*ending)
        else:
            self._failed(ending)
