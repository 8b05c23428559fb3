"""One stream opened by a client: parses frames into requests of the pipeline, and encodes replies as frames.

Requests are executed and answered strictly in order. Publications do not wait for the commits of earlier ones; their
acknowledgements do. The handler of each request is in `handlers/table`, the states of a stream are in `states`.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.errors import AccessDenied
from penstock.broker.runtime.turns import MAX_PER_TURN
from penstock.doors.felix.connection import FelixConnection
from penstock.doors.felix.errors import (
    EXPECTED,
    UNAUTHENTICATED,
    RequestRefused,
    Unreadable,
    Violation,
    failure,
    refusal,
    unreadable_reply,
)
from penstock.doors.felix.handlers.table import HANDLERS
from penstock.doors.felix.produce_batch import PUBLICATIONS, ProduceBatch
from penstock.doors.felix.request_context import FelixContext, FelixSettings
from penstock.doors.felix.states import FIRST_FRAME, TABLE, Action, Input, State
from penstock.doors.handlers import Handler
from penstock.doors.login_allowance import LoginAllowance
from penstock.doors.pipeline import NO_SLICES, RequestPipeline
from penstock.doors.reply import Outcome
from penstock.doors.session import OPEN
from penstock.doors.streams import StreamChannel
from penstock.log.engine import COMMITTED, CommitGroup
from penstock.wire.felix.codec.binary import decode_batch
from penstock.wire.felix.codec.dialects import ORIGINAL
from penstock.wire.felix.codec.requests import UnknownRequest, decode_request
from penstock.wire.felix.errors import Malformed
from penstock.wire.felix.frames import ACKED, BATCH, HEADER_SIZE, KEYED, BadFrame, Code, Frame, Framer, is_whole
from penstock.wire.felix.messages import Auth

JSON_UNIT: Final = 12  # as a power of two: bytes that count as one more request of a turn
BINARY_UNIT: Final = 14
SHORT: Final = 1 << JSON_UNIT  # bytes of a request that counts as one
_CACHE: Final = b'{"type":"cache_'  # as most clients begin requests that need not wait for anything
_SERVE: Final = Action.SERVE
_PUBLICATION: Final = BATCH | ACKED | KEYED  # flags of batches to publish


class RequestStream(RequestPipeline):
    """A stream with replies; a `StreamSession`."""

    door: str = "felix"
    feed_bytes: int = NO_SLICES
    expected: tuple[type[Exception], ...] = EXPECTED

    def __init__(self, connection: FelixConnection, channel: StreamChannel, settings: FelixSettings) -> None:
        super().__init__(connection.broker, channel)
        self._connection = connection
        self._stream = channel
        self._allowance = connection.allowance
        self._turn.unauthenticated = connection.broker.access.enforced
        self._frames = Framer(settings.max_frame)
        self._short = min(SHORT, settings.max_frame)
        self._context = FelixContext(connection, channel, self.replies, settings)
        self._ended = False  # the client has ended the stream
        self._exhausted = True  # no whole frame is left
        self._next: Any = None  # decoded and not executed yet: a request, a batch, or an object that represents one
        self._ahead: Any = None  # the one after it
        self._read_bytes = 0  # of both
        self._frame_bytes = 0  # of the last frame
        self._units = 0  # of what was decoded, not yet counted for the turn
        self._over = False  # an error has ended the stream: no more requests are executed

    # -- called by the transport, besides the methods of every pipeline

    def receive_pieces(self, pieces: list[bytes]) -> None:
        if self.state is not OPEN or self._inbox or self._turn.yielding or self._allowance is not None:
            self.receive(b"".join(pieces))
            return
        for piece in pieces:
            self.feed(piece)
        self.work()

    def end_of_input(self) -> None:
        self._ended = True
        self._exhausted = False  # the rest may be an incomplete frame
        super().end_of_input()

    def refused(self, code: int) -> None:  # noqa: ARG002 - no reply is possible, whatever the code
        if not self.closed:
            self.lost()
            self._stream.refuse(0)
            self._stream.close()

    # -- requests

    def _sole_request(self, data: bytes) -> Any:
        """A short request about a cache, which needs neither a framer nor a turn of its own."""
        if (
            len(data) > self._short
            or not (self._drained and self._frames.empty)
            or not data.startswith(_CACHE, HEADER_SIZE)
            or not is_whole(data)
            or self._context.state is State.NEW
            or self._turns.exhausted
            or self._congested
        ):
            return None
        return self._decode(Frame(0, data[HEADER_SIZE:]))

    def feed(self, data: bytes) -> None:
        self._frames.feed(data)
        self._exhausted = False

    def dispatch(self) -> None:
        if not self._congested:  # bounds the work for a client that sends small requests and does not receive replies
            RequestPipeline.dispatch(self)  # cheaper than `super`

    @property
    def _congested(self) -> bool:
        return self.channel.congested

    def _peek(self) -> Any:
        """The next request; adjacent publications to the same stream are one."""
        if self._next is None:
            first, self._ahead = self._ahead, None
            if first is None:
                first = self._read()
            make = PUBLICATIONS.get(type(first))
            if make is None:
                self._next, count = first, 1
            else:
                self._next = batch = self._collect(ProduceBatch(make(first)))
                count = len(batch.publications)
            self._cost = self._units + count
        return self._next

    def _collect(self, batch: ProduceBatch) -> ProduceBatch:
        while len(batch.publications) < MAX_PER_TURN and (following := self._read()) is not None:
            make = PUBLICATIONS.get(type(following))
            if make is None or not batch.add(make(following)):
                self._ahead = following
                break
        return batch

    def _handler(self, request: Any) -> Handler | None:
        return HANDLERS.get(type(request))

    def _invoke(self, handler: Handler | None, request: Any) -> Outcome | None:
        if request is self._next:  # otherwise it is one of several that were refused together
            self._units = 0
            self._next = None
            self._read_bytes = 0 if self._ahead is None else self._frame_bytes
        if handler is None:
            self._reject(request)
            return None
        self._admit(request)
        return handler.function(self._context, request)

    def _reject(self, request: Unreadable | Violation) -> None:
        if isinstance(request, Violation):
            self.lost()
            self._connection.violated(request.code, request.text)
        else:
            self._refuse_unreadable(request)

    def _admit(self, request: Any) -> None:
        """Check that the stream's state allows the request. The broker checks permissions."""
        context = self._context
        action = TABLE[context.state][Input.AUTH if isinstance(request, Auth) else Input.REQUEST]
        if action is _SERVE:
            return
        if action is Action.REFUSE_LATE:
            raise RequestRefused("auth must be the first frame of a stream", ends=True)
        if action is Action.REFUSE_AGAIN:
            raise RequestRefused("auth already established", ends=True)
        if action is Action.SERVE_UNLESS_REQUIRED and context.settings.require_auth:
            raise RequestRefused("auth required", ends=True, advice=UNAUTHENTICATED)

    def _logged_in(self) -> bool:
        return self._context.state is State.AUTHENTICATED

    def _shut_out(self, allowance: LoginAllowance) -> None:
        """Close the connection: all its streams share the allowance."""
        self.lost()
        self._connection.violated(Code.LOGIN_NEEDED, str(allowance.refusal()))

    @property
    def _drained(self) -> bool:
        return self._exhausted and self._next is None and self._ahead is None

    @property
    def _input_bytes(self) -> int:
        return self._frames.buffered + self._read_bytes

    def _discard_input(self) -> None:
        self._frames.clear()
        self._next = self._ahead = None
        self._read_bytes = 0
        self._ended, self._exhausted = False, True

    # -- reading

    def _read(self) -> Any:
        """The next request, or an object that represents it. None: more bytes must arrive first."""
        if self._exhausted:
            return None
        try:
            frame = self._frames.next()
        except BadFrame as bad:
            self._exhausted = True
            return Violation(bad.code, bad.text)
        if frame is not None:
            self._frame_bytes = self._frames.frame_bytes
            self._read_bytes += self._frame_bytes
            self._units += self._frame_bytes >> (BINARY_UNIT if frame.flags & BATCH else JSON_UNIT)
            self._exhausted = self._frames.empty and not self._ended
            return self._decode(frame)
        self._exhausted = True
        if self._ended and self._frames.in_payload and not self._inbox:
            self._ended = False
            return Unreadable("the stream has ended in the midst of a frame")
        return None

    def _decode(self, frame: Frame) -> Any:
        flags, payload = frame
        context = self._context
        original = context.original
        request: Any
        try:
            if original and flags & ~BATCH:
                if flags & ~_PUBLICATION or not flags & BATCH or flags & ~BATCH & ~(context.flags or 0):
                    request = _unknown_flags(flags, payload, context.flags or 0)
                else:
                    request = decode_batch(payload, acked=bool(flags & ACKED), keyed=bool(flags & KEYED))
            elif flags & BATCH:  # by the document other flags have no meaning yet, and are ignored
                request = decode_batch(payload, acked=False)
            else:
                request = decode_request(payload, original=original)
        except UnknownRequest as unknown:
            request = Unreadable(unknown.text, unknown.request_id, request_type=unknown.request_type)
        except Malformed as malformed:
            request = _unreadable(flags, malformed)
        if context.state is State.NEW:
            context.state = FIRST_FRAME[Input.AUTH if isinstance(request, Auth) else Input.REQUEST]
            if context.state is State.ORIGINAL:
                context.dialect = ORIGINAL
        return request

    # -- replies

    def _encode(self, request: Any, message: Any) -> bytes:  # noqa: ARG002
        raise AssertionError("handlers reply with whole frames")

    def _encode_error(self, request: Any, error: Exception) -> bytes:
        return failure(self._context.dialect, request, error)

    def _enqueue(self, request: Any, data: bytes, after: CommitGroup | None) -> None:
        if after is None or after.state is COMMITTED:  # as for most caches
            self.replies.enqueue(data, after)
        else:
            self.replies.enqueue(data, after, self._on_failure(request), _size(request))

    def _refuse(self, request: Any, error: Exception) -> None:
        if isinstance(request, ProduceBatch) and len(request.publications) > 1 and isinstance(error, EXPECTED):
            self._execute_each(request)
        else:
            self._reply_with_error(request, error)

    def _execute_each(self, batch: ProduceBatch) -> None:
        """Execute publications that were refused together one by one: each gets its own reply."""
        for each in batch.split():
            if self._over:
                return
            self._execute(HANDLERS[ProduceBatch], each)

    def _reply_with_error(self, request: Any, error: Exception) -> None:
        reply, ends = refusal(self._context.dialect, request, error)
        if reply:
            self.replies.enqueue(reply, self.broker.pending_commit)
        if ends:
            self._end()

    def _refuse_unreadable(self, what: Unreadable) -> None:
        reply = unreadable_reply(self._context.dialect, what)
        if reply:
            self.replies.enqueue(reply, self.broker.pending_commit)
        else:  # the client must learn that something is lost, without taking it for another reply
            self._end()

    def _end(self) -> None:
        """Execute no more requests; the stream is closed when all replies are sent."""
        self._over = True
        self.reject_input()


class PublishStream(RequestStream):
    """A stream without replies, only for publications. Those that cannot be stored are dropped; any other request ends
    the stream."""

    @property
    def _congested(self) -> bool:
        return False  # nothing is sent on it

    def _must_wait(self, handler: Handler | None) -> bool:  # noqa: ARG002
        return False

    def _admit(self, request: Any) -> None:
        super()._admit(request)
        if not isinstance(request, ProduceBatch | Auth):
            raise RequestRefused("unexpected message type", ends=True)

    def _enqueue(self, request: Any, data: bytes, after: CommitGroup | None) -> None:  # noqa: ARG002
        if size := _size(request):
            self.replies.enqueue(b"", after, None, size)

    def _reply_with_error(self, request: Any, error: Exception) -> None:  # noqa: ARG002
        if isinstance(error, AccessDenied | RequestRefused) or not isinstance(error, EXPECTED):
            self._end()

    def _refuse_unreadable(self, what: Unreadable) -> None:  # noqa: ARG002
        self._end()

    def _end(self) -> None:
        if self.state is OPEN:
            self._stream.refuse(0)
        super()._end()


def _unknown_flags(flags: int, payload: bytes, offered: int) -> Unreadable:
    """Represents a frame with flags that the client should not send. The id of one that requests an acknowledgement
    comes first, whatever the other flags."""
    text = "unsupported frame flags"
    if not flags & BATCH:
        return Unreadable(text)
    if flags & ACKED and offered & ACKED and len(payload) >= 8:
        return Unreadable(text, int.from_bytes(payload[:8]), binary=True, publication=True)
    return Unreadable(text, awaited=bool(flags & ACKED))


def _unreadable(flags: int, malformed: Malformed) -> Unreadable:
    text, request_id = malformed.text, malformed.request_id
    if flags & BATCH:
        return Unreadable(text, request_id, binary=True, publication=True, awaited=bool(flags & ACKED))
    return Unreadable(text, request_id, publication=malformed.publication, awaited=malformed.awaited)


def _size(request: Any) -> int:
    """Bytes of the request that stay in memory until its reply is sent."""
    return request.size if isinstance(request, ProduceBatch) else len(getattr(request, "value", b""))
