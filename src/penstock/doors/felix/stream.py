"""One stream that a client has opened: frames in, operations, frames out.

Requests are carried out and answered strictly in order. Publications do not wait for each other's commits: their
acknowledgements do. What each request does is in `operations`, how a refusal is worded in `refusals`. The first frame
says how the client speaks: `auth` as the original's do, anything else as the document says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.errors import AccessDenied
from penstock.doors.felix.errors import (
    EXPECTED,
    RequestRefused,
    Unreadable,
    Violation,
    failure,
    refusal,
    unreadable_reply,
)
from penstock.doors.felix.handlers.table import OPERATIONS
from penstock.doors.felix.produce_batch import PUBLICATIONS, ProduceBatch
from penstock.doors.felix.request_context import RequestContext
from penstock.doors.pipeline import FLUSH_BYTES, RequestPipeline
from penstock.doors.reply import PendingReply, Reply
from penstock.doors.streams import StreamChannel
from penstock.log.engine import CommitGroup
from penstock.wire.felix.codec.binary import Malformed, decode_batch
from penstock.wire.felix.codec.dialects import DOCUMENT, ORIGINAL
from penstock.wire.felix.frames import ACKED, BATCH, BadFrame, Frame, Framer
from penstock.wire.felix.messages import Auth, decode_request

if TYPE_CHECKING:
    from penstock.doors.felix.session import FelixHost

logger = logging.getLogger(__name__)

STRETCH: Final = 256  # requests, or so many of their units; then everybody else has a turn
JSON_UNIT: Final = 12  # as a power of two, bytes that count as one more request
BINARY_UNIT: Final = 14


class RequestStream(RequestPipeline):
    """A stream that is answered; a `StreamSession`."""

    def __init__(self, host: FelixHost, channel: StreamChannel) -> None:
        super().__init__(host.broker, channel, host.identity)
        self._host = host
        self._stream = channel
        self._frames = Framer(host.settings.max_frame)
        self._call = RequestContext(host.broker, host, channel, host.identity, self.replies, host.settings, DOCUMENT)
        self._begun = False  # the first frame has come
        self._ended = False  # the client will send no more
        self._drained = True  # there is no whole frame left
        self._next: Any = None  # taken and not carried out yet: a request, a run, or what stands for one
        self._ahead: Any = None  # the one behind it
        self._taken = 0  # bytes of both
        self._size = 0  # bytes of the frame that was read last
        self._units = 0  # of what was read, and is still to be counted
        self._over = False  # nothing more is carried out
        self._resting = False  # others have their turn
        self._later: PendingReply | None = None  # the answer to the last request that was carried out is still to come

    # -- what `net` calls, besides what `RequestPipeline` has

    def end_of_input(self) -> None:
        self._ended = True
        self._drained = False  # what is left may be part of a frame
        super().end_of_input()

    def stop(self) -> None:
        self._listening = False
        self.work()

    def refused(self, code: int) -> None:  # noqa: ARG002 - whatever it says, there is nobody to answer to
        if not self._closed:
            self.lost()
            self._stream.refuse(0)
            self._stream.close()

    # -- what `RequestPipeline` asks

    def _take(self, data: bytes) -> None:
        self._frames.feed(data)
        self._drained = False

    @property
    def _idle(self) -> bool:
        return self._drained and self._next is None and self._ahead is None and self._later is None

    @property
    def _held_input(self) -> int:
        return self._frames.buffered + self._taken

    def _forget(self) -> None:
        self._frames.clear()
        self._next = self._ahead = None
        self._taken = 0
        self._ended, self._drained = False, True
        if self._later is not None:
            self._later.cancel()
            self._later = None

    # -- one request after the other

    def _carry_out(self) -> None:
        if self._congested:
            return  # nor is anything done for one who asks in small pieces and takes no answers
        while not self._resting:
            left = STRETCH
            while left > 0:
                if self._later is not None or (request := self._upcoming()) is None:
                    return
                operation = OPERATIONS.get(type(request))
                if self._must_wait(reads=operation is not None and operation.reads):
                    return
                if operation is not None and operation.large and self.replies.held_bytes > FLUSH_BYTES:
                    return  # it was flushed just now: what is left waits for a commit, after which this goes on
                left -= self._units + (len(request.publications) if isinstance(request, ProduceBatch) else 1)
                self._units = 0
                self._next = None
                self._taken = 0 if self._ahead is None else self._size
                self._carry_out_one(request)
            self._resting = True
            self.broker.scheduler.call_soon(self._rested)

    @property
    def _congested(self) -> bool:
        return self.channel.congested

    def _rested(self) -> None:
        self._resting = False
        if not self._closed and not self._working:
            self.progress()

    def _upcoming(self) -> Any:
        """What is to be carried out next; publications to the same stream that follow each other are one."""
        if self._next is None:
            first, self._ahead = self._ahead, None
            if first is None:
                first = self._read()
            make = PUBLICATIONS.get(type(first))
            self._next = first if make is None else self._run(ProduceBatch(make(first)))
        return self._next

    def _run(self, run: ProduceBatch) -> ProduceBatch:
        while len(run.publications) < STRETCH and (following := self._read()) is not None:
            make = PUBLICATIONS.get(type(following))
            if make is None or not run.add(make(following)):
                self._ahead = following
                break
        return run

    def _carry_out_one(self, request: Any) -> None:
        if isinstance(request, Violation):
            self.lost()
            self._host.violated(request.code, request.text)
            return
        if isinstance(request, Unreadable):
            self._not_understood(request)
            return
        try:
            self._admit(request)
            outcome = OPERATIONS[type(request)].carry_out(self._call, request)
        except Exception as error:  # noqa: BLE001 - `_refuse` logs what was not expected
            self._refuse(error, request)
            return
        if isinstance(outcome, Reply):
            self._answer(request, outcome)
        else:
            self._later = outcome
            outcome.start(partial(self._came, request))

    def _admit(self, request: Any) -> None:
        """Whether it may be asked at all by now. What the client may do is looked at by `core`."""
        call = self._call
        if isinstance(request, Auth):
            if not call.original:
                raise RequestRefused("auth must be the first frame of a stream", ends=True)
        elif call.tenant is None and call.settings.require_auth:
            raise RequestRefused("auth required", ends=True)

    def _came(self, request: Any, outcome: Reply | Exception) -> None:
        """The answer of a `PendingReply` is there."""
        if self._closed:
            return
        self._later = None
        if isinstance(outcome, Reply):
            self._answer(request, outcome)
        else:
            self._refuse(outcome, request)
        if not self._working:
            self.progress()

    # -- reading

    def _read(self) -> Any:
        """The next request, or what stands for it. None: more has to come first."""
        if self._drained:
            return None
        before = self._frames.buffered
        try:
            frame = self._frames.next()
        except BadFrame as bad:
            self._drained = True
            return Violation(bad.code, bad.text)
        if frame is not None:
            self._size = before - self._frames.buffered
            self._taken += self._size
            self._units += self._size >> (BINARY_UNIT if frame.flags & BATCH else JSON_UNIT)
            return self._understand(frame)
        self._drained = True
        if self._ended and self._frames.in_payload:
            self._ended = False
            return Unreadable("the stream has ended in the midst of a frame")
        return None

    def _understand(self, frame: Frame) -> Any:
        flags, payload = frame
        call = self._call
        try:
            if not call.original:
                if flags & BATCH:  # by the document no other flag means anything yet, and what means nothing is ignored
                    self._begun = True
                    return decode_batch(payload, acked=False)
                request = decode_request(payload, original=False)
                if not self._begun:
                    self._begun = True
                    if isinstance(request, Auth):
                        call.dialect = ORIGINAL
                return request
            if flags == BATCH:
                return decode_batch(payload, acked=False)
            if flags == BATCH | ACKED and call.flags is not None and call.flags & ACKED:
                return decode_batch(payload, acked=True)
            if flags:
                return Unreadable("unsupported frame flags")
            return decode_request(payload, original=True)
        except Malformed as malformed:
            self._begun = True
            return Unreadable(malformed.text, malformed.request_id, binary=bool(flags & BATCH))

    # -- replies

    def _answer(self, request: Any, answer: Reply) -> None:
        reply, group = answer
        holds = request.size if isinstance(request, ProduceBatch) else len(getattr(request, "value", b""))
        self._put(self.broker.pending_commit if group is None else group, reply, request, holds)

    def _put(self, after: CommitGroup | None, reply: bytes, request: Any, holds: int) -> None:
        """A reply that is true once `after` is committed."""
        self.replies.put_after(after, reply, self._failure(request), holds)

    def _failure(self, request: Any) -> Callable[[Exception], bytes]:
        """What is said instead if what the answer depends on could not be kept."""
        return partial(failure, self._call.dialect, request)

    def _refuse(self, error: Exception, request: Any) -> None:
        expected = isinstance(error, EXPECTED)
        if not expected:
            logger.error("a request of %s failed", self.channel.peer, exc_info=error)
        error.__traceback__ = None  # frames that know the error: together they would keep a request of up to 16 MiB
        if expected and isinstance(request, ProduceBatch) and len(request.publications) > 1:
            self._one_by_one(request)
            return
        self._tell(error, request)

    def _one_by_one(self, run: ProduceBatch) -> None:
        """They were refused together: each gets its own verdict."""
        for each in run.split():
            if self._over:
                return
            self._carry_out_one(each)

    def _tell(self, error: Exception, request: Any) -> None:
        """Something was not done."""
        reply, ends = refusal(self._call.dialect, request, error)
        if reply:
            self.replies.put_after(self.broker.pending_commit, reply, None)
        if ends:
            self._end()

    def _not_understood(self, what: Unreadable) -> None:
        self.replies.put_after(self.broker.pending_commit, unreadable_reply(self._call.dialect, what), None)

    def _end(self) -> None:
        """Nothing more is carried out here; the stream is closed when all that was said has left."""
        self._over = True
        self._finish()


class PublishStream(RequestStream):
    """A stream on which only the client sends: publications, and nobody can be told what became of them. One that
    cannot be stored is dropped; what has no business here ends the stream."""

    @property
    def _congested(self) -> bool:
        return False  # nothing is sent here

    def _must_wait(self, *, reads: bool) -> bool:  # noqa: ARG002
        return False

    def _admit(self, request: Any) -> None:
        super()._admit(request)
        if not isinstance(request, ProduceBatch | Auth):
            raise RequestRefused("unexpected message type", ends=True)

    def _put(self, after: CommitGroup | None, reply: bytes, request: Any, holds: int) -> None:  # noqa: ARG002
        if holds:
            self.replies.put_after(after, b"", None, holds)

    def _tell(self, error: Exception, request: Any) -> None:  # noqa: ARG002
        if isinstance(error, AccessDenied | RequestRefused) or not isinstance(error, EXPECTED):
            self._end()

    def _not_understood(self, what: Unreadable) -> None:  # noqa: ARG002
        self._end()

    def _end(self) -> None:
        if self._listening:
            self._stream.refuse(0)
        super()._end()
