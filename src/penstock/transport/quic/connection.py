"""One QUIC connection, of either side, and its streams. Sockets and timers are `endpoint`'s.

A connection hands on what arrives, stream by stream, all of one turn in one piece. While it is paused it takes nothing,
and the peer may send only until its windows are used up. In the other direction nothing blocks: a sender looks at
`congested`, and `drained` is called when there is room again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from penstock.transport.quic.errors import ConnectionClosed, StreamsUsedUp
from penstock.transport.quic.state_machine import Address, Burst, Ending, QuicStateMachine, StreamRefused

logger = logging.getLogger(__name__)

BURST_BYTES: Final = 256 << 10  # at once; a pause acts after so many at the latest
STREAM_HIGH: Final = 256 << 10  # unsent bytes of a stream above which it is congested,
STREAM_LOW: Final = 16 << 10  # or of each of very many
CONNECTION_HIGH: Final = 4 << 20  # the same of all streams together, with those sent that the peer has not acknowledged
INTERNAL_ERROR: Final = 0x21  # to the peer, when something here went wrong


class StreamReceiver(Protocol):
    """The receiver of one stream."""

    def received(self, data: bytes, end: bool) -> None:
        """All that came for the stream in one turn. `end`: and nothing more will."""

    def reset(self, code: int) -> None:
        """The peer has given up sending."""

    def refused(self, code: int) -> None:
        """The peer wants nothing more; what is sent from now on is thrown away."""

    def drained(self) -> None:
        """The stream was found congested, and is not any more."""


class ConnectionHandler(Protocol):
    """The handler of one connection's events."""

    def connected(self, connection: QuicConnection) -> None: ...

    def accepted(self, stream: Stream) -> StreamReceiver:
        """The peer has opened a stream."""

    def closed(self, code: int, reason: str) -> None:
        """The connection is over, whoever closed it, and no receiver is called again. Called once, and not from inside
        `QuicConnection.close`."""


class Driver(Protocol):
    """The endpoint, as its connections see it."""

    def touch(self, connection: QuicConnection) -> None:
        """There may be something to send."""

    def continue_later(self, connection: QuicConnection) -> None:
        """There is something to take, in another turn."""

    def route(self, connection: QuicConnection, issued: list[bytes], retired: list[bytes]) -> None:
        """The peer may use other ids for this connection."""

    def ended(self, connection: QuicConnection) -> None: ...


class Stream:
    """One stream of a connection. What is sent after its end, or the connection's, is thrown away."""

    __slots__ = ("_bound", "_connection", "_input_over", "_output_over", "_receiver", "bidirectional", "id", "local")

    def __init__(self, connection: QuicConnection, number: int, *, local: bool) -> None:
        self.id = number
        self.local = local
        self.bidirectional = not number & 2
        self._connection = connection
        self._receiver: StreamReceiver | None = None  # None: input is thrown away
        self._bound = 0  # no more than this is unsent
        self._input_over = local and not self.bidirectional
        self._output_over = not local and not self.bidirectional

    def send(self, data: bytes) -> None:
        self._send(data, end=False)

    def finish(self) -> None:
        """Nothing follows what was sent."""
        if not self._output_over:
            self._send(b"", end=True)
            self._end_output()

    def reset(self, code: int) -> None:
        """Send nothing more, not even what is queued."""
        if not self._output_over and not self._connection.closed:
            self._connection.reset_stream(self.id, code)
            self._end_output()

    def refuse(self, code: int) -> None:
        """Want nothing more of the peer: what it sends is thrown away from now on."""
        if not self._input_over and not self._connection.closed:
            self._receiver = _InputDiscarded(self._receiver) if self._receiver is not None else None
            self._connection.refuse_stream(self.id, code)

    @property
    def unsent(self) -> int:
        if self._bound:
            self._bound = 0 if self._connection.closed else self._connection.stream_unsent(self.id)
        return self._bound

    @property
    def congested(self) -> bool:
        connection = self._connection
        high = connection.stream_high
        if self._bound <= high and connection.bound <= CONNECTION_HIGH:
            return False
        if self.unsent <= high and connection.unsent <= CONNECTION_HIGH:
            return False
        connection.waiting[self] = None
        return True

    # -- what the connection calls

    def attach(self, receiver: StreamReceiver) -> None:
        self._receiver = receiver

    def receive(self, data: bytes, end: bool) -> None:
        if end:
            self._end_input()
        if self._receiver is not None:
            self._receiver.received(data, end)

    def receive_reset(self, code: int) -> None:
        if not self._input_over:
            self._end_input()
            if self._receiver is not None:
                self._receiver.reset(code)

    def receive_refusal(self, code: int) -> None:
        """The machine has answered it with a reset already."""
        if not self._output_over:
            self._end_output()
            if self._receiver is not None:
                self._receiver.refused(code)

    def notify_drained(self) -> None:
        """Tell its receiver if it is not congested any more."""
        if self.unsent <= self._connection.stream_high // 2:
            self._connection.waiting.pop(self, None)  # before the call, in which it may be congested again
            if self._receiver is not None and not self._output_over:
                self._receiver.drained()

    # -- inside

    def _send(self, data: bytes, *, end: bool) -> None:
        if self._output_over or self._connection.closed:
            return
        if self._connection.send_stream(self.id, data, end):
            self._bound += len(data)

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
    """In place of a receiver that wants no more input, but still sends."""

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
    """`handler_factory` makes the handler when the handshake is done; if it fails, `failed` is called."""

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
        self.closed = False  # nothing is sent or handed on any more
        self.bound = 0  # no more than this is unsent
        self.waiting: dict[Stream, None] = {}  # streams that were found congested, in this order
        self.started = self.last_received = self.last_ping = now
        self.routes: set[bytes] = set()  # the endpoint's
        self.inbox: list[bytes] = []  # the same
        self.timer_at = 0.0  # the same
        self._driver = driver
        self._handler_factory = handler_factory
        self._failed = failed
        self._handler: ConnectionHandler | None = None
        self._streams: dict[int, Stream] = {}
        self._ours = 0 if machine.configuration.is_client else 1  # the lowest bit of our streams' numbers
        self._paused = False
        self._undelivered: Burst | None = None  # taken, and not handed on because of the pause
        self._ending: Ending | None = None  # ours, or one that the handler does not know yet
        self._closing_with: Ending | None = None  # to close with when all was delivered
        self._finished = False  # its handler knows

    # -- what its handler calls

    def open(self, receiver: StreamReceiver, *, bidirectional: bool) -> Stream:
        """Raises StreamsUsedUp or ConnectionClosed."""
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
        """Now; what was not sent yet is lost."""
        if not self.closed:
            self.closed = True
            self._ending = Ending(code, reason)
            try:
                self.machine.close(code, None, reason)
            except Exception as error:  # noqa: BLE001 - its machine is broken; the handler learns of the end all the same
                logger.debug("%s: %s: %s", self.peer, type(error).__name__, error)
            self._driver.touch(self)

    def close_when_delivered(self, code: int = 0, reason: str = "") -> None:
        """Close when the peer has got all that was sent."""
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
        """Unsent bytes of each stream above which it is congested. A stream keeps the memory that it once needed, so
        with many of them each is to need less."""
        return max(STREAM_LOW, min(STREAM_HIGH, CONNECTION_HIGH // 2 // max(len(self._streams), 1)))

    @property
    def unsent(self) -> int:
        """Bytes that are kept for the peer: not sent yet, or not acknowledged. How much of the latter there may be is
        up to the peer otherwise: it need only have been quick once."""
        if self.bound:
            self.bound = 0 if self.closed else self.machine.unsent + self.machine.unacknowledged
        return self.bound

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    # -- what its streams call

    def send_stream(self, number: int, data: bytes, end: bool) -> bool:
        """False if nothing can be sent there any more: the peer has refused it, as the receiver is about to hear."""
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
            return  # all of it is there already
        self._driver.touch(self)

    def refuse_stream(self, number: int, code: int) -> None:
        try:
            self.machine.refuse(number, code)
        except StreamRefused:
            return  # it has sent everything
        self._driver.touch(self)

    def discard(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)
        self.waiting.pop(stream, None)

    # -- what the endpoint calls

    @property
    def established(self) -> bool:
        return self._handler is not None

    def work(self, until: float) -> None:
        """Hand on what has arrived, up to this time."""
        machine = self.machine
        if self._handler is None:
            if not machine.established:
                burst = machine.take_events(BURST_BYTES)  # connection ids; there is no data yet
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
        """False if it was paused, or the time was over, before the end: the rest is still in the burst. What comes at
        once for a thousand streams may be a thousand small requests with large replies."""
        if burst.issued or burst.retired:
            self._driver.route(self, burst.issued, burst.retired)
        data = burst.data
        for number in list(data):
            if self._paused:
                return False
            pieces = data.pop(number)
            stream = self._streams.get(number) or self._accept(number, handler)
            stream.receive(pieces[0] if len(pieces) == 1 else b"".join(pieces), number in burst.ends)
            if self.closed:
                return True
            if data and time.monotonic() >= until:
                return False
        for events, deliver in ((burst.resets, Stream.receive_reset), (burst.refusals, Stream.receive_refusal)):
            for number, code in events:
                known = self._streams.get(number)
                if known is not None:
                    deliver(known, code)
                    if self.closed:
                        return True
                elif deliver is Stream.receive_reset and not number & 2 and number & 1 != self._ours:
                    self.reset_stream(number, 0)  # given up before anything came of it; our side is open all the same
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
                pass  # nobody wants it any more; behind it is how the connection ended
        if machine.ending is not None or machine.over:
            self.closed = True
            self._ending = machine.ending or Ending(0, "the connection is closed")
            self._driver.touch(self)  # the peer may have to know

    def flushed(self) -> None:
        """Called after everything that could be sent was sent."""
        if self._ending is not None:
            ending, self._ending = self._ending, None
            self._finish(ending)
            return
        if self.closed:
            return
        if self.waiting and self.unsent <= CONNECTION_HIGH // 2:
            for stream in list(self.waiting):
                if self.bound > CONNECTION_HIGH:
                    break  # the first ones have filled it again; the others are the first next time
                stream.notify_drained()
        if self._closing_with is not None and self.machine.quiet:
            self.close(*self._closing_with)

    def fail(self, reason: str) -> None:
        """Something that is not the peer's business went wrong."""
        self.close(INTERNAL_ERROR, reason)

    def give_up(self) -> None:
        """Its machine is of no use any more: only the handler learns of the end, not the peer."""
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
