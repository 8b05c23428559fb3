"""A stream that this client has opened: requests go out, replies come back in the same order.

Which reply belongs to which request is decided here; what was asked, and whether to ask it again, is the caller's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.clients.felix.errors import BadReply, CursorError, FelixError, TimedOut, Unsendable, refusal
from penstock.clients.felix.options import Options
from penstock.wire.felix import messages as m
from penstock.wire.felix.codec.binary import Malformed, decode_ack
from penstock.wire.felix.frames import ACK, HEADER_SIZE, KNOWN, BadFrame, Frame, Framer

if TYPE_CHECKING:
    from penstock.transport.quic.connection import Stream

_log = logging.getLogger(__name__)

SILENT: Final = 0x0007  # what a server is presumed to read that does not say what it reads


class Lost(FelixError):
    """The stream broke before the reply came. Never raised to the caller of a client: it becomes OutcomeUnknown, or the
    request is asked again."""


_ACKNOWLEDGED: Final = m.Ok()

Outcome: TypeAlias = "m.Reply | FelixError"


class Call:
    """A request whose reply is due. The future gets its outcome, also if that is an error: nobody may be there to
    retrieve an exception."""

    __slots__ = ("due", "future", "id", "size")

    def __init__(self, id: m.RequestId, size: int, due: float, future: asyncio.Future[Outcome]) -> None:  # noqa: A002
        self.id = id
        self.size = size
        self.due = due
        self.future = future


class Exchange:
    """The reader of its stream. `flags` is which frames the server reads, known after `greet`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._frames = Framer(options.limits.frame)
        self._calls: deque[Call] = deque()  # in the order in which they were sent
        self._in_flight = 0  # bytes of them
        self._ids = 0
        self._waiting: deque[asyncio.Future[None]] = deque()  # for room, in the order in which they came
        self._turn: asyncio.Future[None] | None = None  # of them, the one that is let in and has not sent yet
        self._watch: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._told = False  # something that is not acknowledged
        self.flags = SILENT
        self.lost: FelixError | None = None  # nothing can be asked any more, and why
        self.over = False  # and nothing is answered any more
        self.stream: Stream

    # -- called by the link

    def received(self, data: bytes, end: bool) -> None:
        if self.over:
            return
        try:
            self._frames.feed(data)
            while (frame := self._frames.next()) is not None:
                self._take(frame)
        except (BadFrame, Malformed, BadReply) as error:
            self.give_up(BadReply(f"the server sent what cannot be read: {error}"))
            return
        if end:
            self.lose(Lost("the server ended the stream"))
        else:
            self._admit()

    def reset(self, code: int) -> None:
        self.lose(Lost(f"the server gave the stream up with code {code}"))

    def refused(self, code: int) -> None:
        """Replies, and why, may still be on their way."""
        self._stop(Lost(f"the server takes no more on the stream, code {code}"))

    def drained(self) -> None:
        self._admit()

    # -- asking

    async def greet(self) -> None:
        """Say who we are, where the dialect has that. Raises ReplyError or Lost."""
        own = self._options
        if not own.original:
            return
        auth = m.Auth(tenant_id=own.tenant, token=own.credentials(), client_flags=KNOWN)
        reply = result_of(await self.ask(None, m.encode(auth)))
        self.flags = reply.server_flags if isinstance(reply, m.AuthOk) else SILENT

    def next_id(self) -> int | str:
        self._ids += 1
        return self._ids if self._options.original else str(self._ids)

    @property
    def full(self) -> bool:
        """Whether a request has to wait for `room`."""
        return bool(self._waiting) or self._turn is not None or self._crowded

    async def room(self) -> None:
        """Wait until this one may send, which it then has to do at once. Those who wait are let in as they came.
        Raises TimedOut, with nothing sent; returns as well if the stream is lost."""
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self._options.timeout):
                await waiter
        except TimeoutError:
            self._leave(waiter)
            seconds = self._options.timeout
            raise TimedOut(f"no room to send in {seconds:g} seconds, nothing was sent") from None
        except asyncio.CancelledError:
            self._leave(waiter)
            raise

    def ask(self, id: m.RequestId, data: bytes) -> asyncio.Future[Outcome]:  # noqa: A002
        """Send a request of this id; the future gets its outcome. Raises Unsendable, before anything is sent."""
        self._begin(data)
        future: asyncio.Future[Outcome] = self._loop.create_future()
        if self.lost is not None:
            future.set_result(self.lost)
            return future
        call = Call(id, len(data), self._loop.time() + self._options.timeout, future)
        self._calls.append(call)
        self._in_flight += call.size
        self._send(data)
        if self._watch is None:
            self._watch = self._loop.call_at(call.due, self._look)
        return future

    def tell(self, data: bytes) -> None:
        """Send what gets no reply."""
        self._begin(data)
        self._told = True
        if self.lost is None:
            self._send(data)

    async def finish(self, seconds: float) -> None:
        """Say that nothing more will come, and wait until the server says the same: then it has dealt with all."""
        if not self.over:
            self.leave()
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.shield(self._ended)
            except TimeoutError:
                self.give_up(Lost("the client was closed"))

    def leave(self) -> None:
        """Say that nothing more will come, and forget about it."""
        self._stop(Lost("the client was closed"))
        self.stream.finish()

    def give_up(self, reason: FelixError) -> None:
        if not self.over:
            self.lose(reason)
            self.stream.reset(0)
            self.stream.refuse(0)

    def lose(self, reason: FelixError) -> None:
        """The stream is over: so is all that waits for it."""
        if self.over:
            return
        self.over = True
        self._stop(reason)
        if self._watch is not None:
            self._watch.cancel()
        calls, self._calls = self._calls, deque()
        for call in calls:
            self._end(call, reason)
        self._ended.set_result(None)

    # -- inside

    def _stop(self, reason: FelixError) -> None:
        """Nothing more is asked. Those who wait for room find that out."""
        if self.lost is None:
            self.lost = reason
            waiting, self._waiting = self._waiting, deque()
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    @property
    def _crowded(self) -> bool:
        return self._in_flight >= self._options.limits.window or self.stream.congested

    def _begin(self, data: bytes) -> None:
        self._turn = None
        if len(data) - HEADER_SIZE > self._options.limits.frame:
            self._admit()
            raise Unsendable(f"{len(data)} bytes do not fit a frame of {self._options.limits.frame}: send less at once")

    def _send(self, data: bytes) -> None:
        self.stream.send(data)
        self._admit()

    def _admit(self) -> None:
        """Let in the one who has waited longest. The next one follows when that one has sent."""
        while self._waiting and self._turn is None and not self._crowded:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._turn = waiter
                waiter.set_result(None)

    def _leave(self, waiter: asyncio.Future[None]) -> None:
        """One that waited for room has given up, perhaps after it was let in."""
        if self._turn is waiter:
            self._turn = None
        elif waiter in self._waiting:
            self._waiting.remove(waiter)
        self._admit()

    def _take(self, frame: Frame) -> None:
        if frame.flags & ACK:
            ack = decode_ack(frame.payload)
            self._answer(ack.request_id, None if ack.error is None else refusal(ack.error), _ACKNOWLEDGED)
            return
        reply = m.decode_reply(frame.payload)
        request_id: m.RequestId = getattr(reply, "request_id", None)
        match reply:
            case m.Error(message=message) | m.PublishError(message=message):
                if request_id is None and self._told and not self._options.original:
                    _log.warning("Felix: a publish without acknowledgement was refused: %s", message)
                    return
                self._answer(request_id, refusal(message), reply)
            case m.SubscribeCursorError(reason=reason, requested=requested, available=available):
                self._answer(request_id, CursorError(reason, requested, available), reply)
            case _:
                self._answer(request_id, None, reply)

    def _answer(self, request_id: m.RequestId, error: FelixError | None, reply: m.Reply) -> None:
        """Of the request with this id; of the oldest, if the reply has none."""
        calls = self._calls
        if not calls:
            if error is not None:  # why the server is about to end the stream
                self.lose(error)
                return
            raise BadReply("a reply that nothing was asked for")
        if request_id is None or calls[0].id == request_id:
            call = calls.popleft()
        else:
            call = self._called(request_id)
            calls.remove(call)
        self._in_flight -= call.size
        self._end(call, reply if error is None else error)

    def _called(self, request_id: m.RequestId) -> Call:
        """Servers of others may answer in another order."""
        for call in self._calls:
            if call.id == request_id:
                return call
        raise BadReply(f"a reply to request {request_id}, which was not asked")

    @staticmethod
    def _end(call: Call, outcome: Outcome) -> None:
        if not call.future.done():  # its caller may have been cancelled
            call.future.set_result(outcome)

    def _look(self) -> None:
        """Whether the oldest reply is overdue. Those behind it come after it, so the stream is given up."""
        self._watch = None
        if not self._calls:
            return
        due = self._calls[0].due
        if due > self._loop.time():
            self._watch = self._loop.call_at(due, self._look)
        else:
            self.give_up(TimedOut(f"no reply in {self._options.timeout:g} seconds"))


def result_of(outcome: Outcome) -> m.Reply:
    """The reply, or the exception that stands for it."""
    if isinstance(outcome, FelixError):
        raise outcome
    return outcome
