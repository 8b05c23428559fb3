"""A request stream: one QUIC stream opened by this client, with requests and their replies in the same order.

It matches replies to requests, and delays requests while too much is in flight. Callers interpret replies and decide
about retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.clients.felix.errors import (
    BadReply,
    CursorError,
    FelixError,
    StreamLost,
    TimedOut,
    Unsendable,
    error_from_text,
)
from penstock.clients.felix.frame_reader import read_frames
from penstock.clients.felix.options import Options
from penstock.wire.felix import messages as m
from penstock.wire.felix.codec.binary import Ack, decode_ack
from penstock.wire.felix.errors import Advice, advice_from_names
from penstock.wire.felix.features import ERROR_CODES
from penstock.wire.felix.frames import ACK, HEADER_SIZE, KNOWN, TIMESTAMPS, Frame, Framer

if TYPE_CHECKING:
    from penstock.transport.quic.connection import Stream

_log = logging.getLogger(__name__)

OFFERED: Final = KNOWN & ~TIMESTAMPS  # frame types that this client reads and wants
DEFAULT_FLAGS: Final = 0x0007  # assumed for servers that do not announce which frame types they read

_ACKNOWLEDGED: Final = m.Ok()

Outcome: TypeAlias = "m.Reply | FelixError"


class InFlightRequest:
    """An unanswered request. The future gets the outcome as its result, even if that is an error: asyncio would warn
    about an exception that nobody retrieves."""

    __slots__ = ("deadline", "future", "id", "size")

    def __init__(self, id: m.RequestId, size: int, deadline: float, future: asyncio.Future[Outcome]) -> None:  # noqa: A002
        self.id = id
        self.size = size
        self.deadline = deadline
        self.future = future


class RequestStream:
    """The reader of its QUIC stream. `flags`: the frame types that the server reads, known after `authenticate`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._framer = Framer(options.limits.frame)
        self._in_flight: deque[InFlightRequest] = deque()  # in the order of sending
        self._in_flight_bytes = 0
        self._last_id = 0
        self._waiters: deque[asyncio.Future[None]] = deque()  # for room; first come, first served
        self._admitted: asyncio.Future[None] | None = None  # the waiter that may send but has not done so yet
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._sent_unacknowledged = False
        self.flags = DEFAULT_FLAGS
        self.lost: FelixError | None = None  # why nothing can be sent any more
        self.ended = False  # and no replies will arrive any more
        self.stream: Stream

    # -- called by the QUIC connection

    def received(self, data: bytes, end: bool) -> None:
        if self.ended:
            return
        error = read_frames(self._framer, data, self._on_frame)
        if error is not None:
            self.abort(error)
        elif end:
            self.fail(StreamLost("the server ended the stream"))
        else:
            self._admit()

    def reset(self, code: int) -> None:
        self.fail(StreamLost(f"the server gave the stream up with code {code}"))

    def refused(self, code: int) -> None:
        """The server accepts no more data; replies, and the reason, may still follow."""
        self._stop_sending(StreamLost(f"the server takes no more on the stream, code {code}"))

    def drained(self) -> None:
        self._admit()

    # -- called by the client

    async def authenticate(self) -> None:
        """Send the credentials, if the dialect has them. Raises ReplyError or StreamLost."""
        options = self._options
        if not options.original:
            return
        auth = m.Auth(
            tenant_id=options.tenant, token=options.credentials(), client_flags=OFFERED, client_features=ERROR_CODES
        )
        reply = result_of(await self.send(None, m.encode(auth)))
        self.flags = reply.server_flags if isinstance(reply, m.AuthOk) else DEFAULT_FLAGS

    def next_id(self) -> int | str:
        self._last_id += 1
        return self._last_id if self._options.original else str(self._last_id)

    @property
    def full(self) -> bool:
        """Whether a request must `wait_for_room`."""
        return bool(self._waiters) or self._admitted is not None or self._over_limit

    async def wait_for_room(self) -> None:
        """Wait until the caller may send, which it must then do at once. First come, first served. Raises TimedOut,
        with nothing sent; also returns if the stream is lost."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(self._options.timeout):
                await waiter
        except TimeoutError:
            self._remove_waiter(waiter)
            seconds = self._options.timeout
            raise TimedOut(f"no room to send in {seconds:g} seconds, nothing was sent") from None
        except asyncio.CancelledError:
            self._remove_waiter(waiter)
            raise

    def send(self, id: m.RequestId, data: bytes) -> asyncio.Future[Outcome]:  # noqa: A002
        """Send a request with this id; the future gets its outcome. Raises Unsendable before anything is sent."""
        self._check_size(data)
        future: asyncio.Future[Outcome] = self._loop.create_future()
        if self.lost is not None:
            future.set_result(self.lost)
            return future
        request = InFlightRequest(id, len(data), self._loop.time() + self._options.timeout, future)
        self._in_flight.append(request)
        self._in_flight_bytes += request.size
        self.stream.send(data)
        self._admit()
        if self._timer is None:
            self._timer = self._loop.call_at(request.deadline, self._on_timer)
        return future

    def send_unacknowledged(self, data: bytes) -> None:
        """Send data that gets no reply."""
        self._check_size(data)
        self._sent_unacknowledged = True
        if self.lost is None:
            self.stream.send(data)
            self._admit()

    async def close(self, seconds: float) -> None:
        """End our side, and wait until the server ends its own: then it has processed all requests."""
        if not self.ended:
            self.finish()
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.shield(self._ended)
            except TimeoutError:
                self.abort(StreamLost("the client was closed"))

    def finish(self) -> None:
        """End our side without waiting."""
        self._stop_sending(StreamLost("the client was closed"))
        self.stream.finish()

    def abort(self, reason: FelixError) -> None:
        if not self.ended:
            self.fail(reason)
            self.stream.reset(0)
            self.stream.refuse(0)

    def fail(self, reason: FelixError) -> None:
        """End the stream, and fail all requests in flight."""
        if self.ended:
            return
        self.ended = True
        self._stop_sending(reason)
        if self._timer is not None:
            self._timer.cancel()
        requests, self._in_flight = self._in_flight, deque()
        for request in requests:
            _complete(request, reason)
        self._ended.set_result(None)

    # -- internal

    def _stop_sending(self, reason: FelixError) -> None:
        """Send nothing more. Callers waiting for room wake up and check `lost`."""
        if self.lost is None:
            self.lost = reason
            waiters, self._waiters = self._waiters, deque()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    @property
    def _over_limit(self) -> bool:
        return self._in_flight_bytes >= self._options.limits.window or self.stream.congested

    def _check_size(self, data: bytes) -> None:
        self._admitted = None
        if len(data) - HEADER_SIZE > self._options.limits.frame:
            self._admit()
            raise Unsendable(f"{len(data)} bytes do not fit a frame of {self._options.limits.frame}: send less at once")

    def _admit(self) -> None:
        """Let the longest waiter send. The next one follows after it has sent."""
        while self._waiters and self._admitted is None and not self._over_limit:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._admitted = waiter
                waiter.set_result(None)

    def _remove_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Remove a waiter that has given up, perhaps after it was admitted."""
        if self._admitted is waiter:
            self._admitted = None
        elif waiter in self._waiters:
            self._waiters.remove(waiter)
        self._admit()

    def _on_frame(self, frame: Frame) -> None:
        if frame.flags & ACK:
            ack = decode_ack(frame.payload, frame.flags)
            self._on_reply(ack.request_id, _outcome_of(ack))
            return
        reply = m.decode_reply(frame.payload)
        request_id: m.RequestId = getattr(reply, "request_id", None)
        match reply:
            case m.Error(message=message) | m.PublishError(message=message):
                if request_id is None and self._sent_unacknowledged and not self._options.original:
                    _log.warning("Felix: a publish without acknowledgement was refused: %s", message)
                    return
                self._on_reply(request_id, error_from_text(message, _advice_of(reply)))
            case m.SubscribeCursorError(reason=reason, requested=requested, available=available):
                self._on_reply(request_id, CursorError(reason, requested, available))
            case _:
                self._on_reply(request_id, reply)

    def _on_reply(self, request_id: m.RequestId, outcome: Outcome) -> None:
        """Complete the request with this id, or the oldest one if the reply has no id."""
        in_flight = self._in_flight
        if not in_flight:
            if isinstance(outcome, FelixError):  # the reason why the server is about to end the stream
                self.fail(outcome)
                return
            raise BadReply("a reply to no request")
        if request_id is None or in_flight[0].id == request_id:
            request = in_flight.popleft()
        else:
            request = self._find(request_id)
            in_flight.remove(request)
        self._in_flight_bytes -= request.size
        _complete(request, outcome)

    def _find(self, request_id: m.RequestId) -> InFlightRequest:
        """The request of an out-of-order reply, which other servers may send."""
        for request in self._in_flight:
            if request.id == request_id:
                return request
        raise BadReply(f"a reply to request {request_id}, which nobody made")

    def _on_timer(self) -> None:
        """Check whether the oldest reply is overdue. If so, close the stream, since all later replies are behind it."""
        self._timer = None
        if not self._in_flight:
            return
        deadline = self._in_flight[0].deadline
        if deadline > self._loop.time():
            self._timer = self._loop.call_at(deadline, self._on_timer)
        else:
            self.abort(TimedOut(f"no reply in {self._options.timeout:g} seconds"))


def _outcome_of(ack: Ack) -> Outcome:
    if ack.error is not None:
        return error_from_text(ack.error, ack.advice)
    return _ACKNOWLEDGED if ack.offset is None else m.PublishOk(ack.request_id, ack.offset)


def _advice_of(error: m.Error | m.PublishError) -> Advice | None:
    if error.code is None:
        return None
    return advice_from_names(error.code, error.retry, None if error.detail is None else error.detail.retry_after_ms)


def _complete(request: InFlightRequest, outcome: Outcome) -> None:
    if not request.future.done():  # its caller may have been cancelled
        request.future.set_result(outcome)


def result_of(outcome: Outcome) -> m.Reply:
    """The reply. Raises the outcome if it is an error."""
    if isinstance(outcome, FelixError):
        raise outcome
    return outcome
