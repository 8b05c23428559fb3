"""One RustLog connection: parses frames into requests of the pipeline, and encodes replies and errors as frames.

Requests are executed strictly in order. Writes do not wait for the commits of earlier ones; their replies do. A read
waits for the commits of earlier writes on this connection, so that a client that pipelines requests reads its own
writes. The handler of each request is in `handlers/table`. The dialects encode messages, and every frame may have its
own dialect. RustLog has no handshake: a connection has only the common states (`doors/session`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.errors import BrokerError, TopicNotFound
from penstock.broker.security.access import Identity
from penstock.doors.handlers import Handler
from penstock.doors.pipeline import UNAUTHENTICATED_FEED_BYTES, RequestPipeline
from penstock.doors.reply import Outcome, Reply
from penstock.doors.rustlog.errors import EXPECTED, MAX_LISTED_TOPICS, error_reply
from penstock.doors.rustlog.handlers.records import EmptyProduce, check_sizes, produce
from penstock.doors.rustlog.handlers.table import HANDLERS
from penstock.doors.rustlog.request_context import SCOPE, RustLogContext
from penstock.doors.session import Channel, Door
from penstock.log.engine import CommitGroup
from penstock.log.errors import LogError
from penstock.wire.rustlog.codec.dialect import BINARY, JSON, Dialect, detect
from penstock.wire.rustlog.codec.json_dialect import MAX_RECORD
from penstock.wire.rustlog.codec.single_produce import SingleProduce, SingleProduceDecoder, encode_single_produced
from penstock.wire.rustlog.errors import ProtocolError, closes_connection
from penstock.wire.rustlog.frames import HEADER_SIZE, MAX_FRAME, Framer, frame
from penstock.wire.rustlog.messages import Produce, Request

BATCH_BYTES: Final = 1 << 20  # of Produces that are appended together
_PRODUCE: Final = HANDLERS[Produce]


class RustLogRequest:
    """A request in the pipeline, with its dialect."""

    __slots__ = ("body", "count", "dialect", "error", "size")

    def __init__(self, dialect: Dialect, body: Request | None, size: int, error: ProtocolError | None = None) -> None:
        self.dialect = dialect
        self.body = body  # None if it could not be decoded,
        self.error = error  # because of this
        self.size = size  # bytes of its payload, and of those appended together with it
        self.count = 1  # number of requests that it represents


class RustLogSession(RequestPipeline):
    door: str = "rustlog"
    expected: tuple[type[Exception], ...] = EXPECTED

    def __init__(self, broker: Broker, channel: Channel, identity: Identity) -> None:
        super().__init__(broker, channel)
        if broker.access.enforced:  # RustLog has no login
            self._turn.unauthenticated = True
            self.feed_bytes = UNAUTHENTICATED_FEED_BYTES
        self._context = RustLogContext(broker, identity, channel.peer)
        self._framer = Framer()
        self._single = SingleProduceDecoder()
        self._backlog: deque[bytes] = deque()  # payloads not decoded yet
        self._backlog_bytes = 0  # of these, and of `_next`
        self._next: RustLogRequest | None = None  # decoded and not executed yet
        self._dialect = JSON  # of the last frame; used for errors about bad frames
        self._appended_alone = 0  # number of following Produces that are to be appended one by one

    # -- requests

    def _sole_request(self, data: bytes) -> SingleProduce | None:
        if self._backlog_bytes or self._framer.buffered or self._framer.error is not None:
            return None
        return self._single.decode(data)

    def feed(self, data: bytes) -> None:
        payloads = self._framer.feed(data)
        if self._framer.error is not None:
            self.end_input()
        self._backlog.extend(payloads)
        self._backlog_bytes += sum(map(len, payloads))

    def _peek(self) -> RustLogRequest | None:
        """The next request, including one that cannot be decoded: it costs as much as any other."""
        if self._next is not None:
            return self._next
        if self._backlog:
            payload = self._backlog.popleft()
            self._dialect = dialect = detect(payload)
            try:
                self._next = RustLogRequest(dialect, dialect.decode_request(payload), len(payload))
            except ProtocolError as error:
                self._next = RustLogRequest(dialect, None, len(payload), error)
            return self._next
        if (frame_error := self._framer.error) is not None:
            self._framer.error = None
            self._refuse(RustLogRequest(self._dialect, None, 0), frame_error)
        return None

    def _handler(self, request: RustLogRequest | SingleProduce) -> Handler | None:
        if isinstance(request, SingleProduce):
            return _PRODUCE
        body = request.body
        if body is None:
            return None
        if isinstance(body, Produce) and not body.records:
            return HANDLERS[EmptyProduce]
        return HANDLERS[type(body)]

    def _invoke(self, handler: Handler | None, request: RustLogRequest | SingleProduce) -> Outcome | None:
        if isinstance(request, SingleProduce):
            return self._append_single(request)
        self._next = None
        self._backlog_bytes -= request.size
        if request.error is not None:
            raise request.error
        assert handler is not None
        self._context.dialect = request.dialect
        body = request.body
        if isinstance(body, Produce) and body.records:
            if request.size > MAX_RECORD:  # the smaller of both dialects' limits
                check_sizes(body, request.dialect.max_record)
            if self._appended_alone:
                self._appended_alone -= 1
            elif self._backlog and (reply := self._append_with_following(request, body)) is not None:
                return reply
        return handler.function(self._context, body)

    def _append_single(self, request: SingleProduce) -> Reply | None:
        """Append the record of a frame that arrived alone. A topic with a schema takes the same way as other
        requests."""
        self._dialect = BINARY
        context, topic = self._context, request.topic
        group, _, offset, _ = context.broker.produce.append_record(
            context.identity, SCOPE, topic, request.value, request.partition
        )
        if group is None:
            context.dialect = BINARY
            return produce(context, Produce(topic, request.partition, [request.value]))
        on_failure = partial(self._encode_error, request)
        self.replies.enqueue(encode_single_produced(offset), group, on_failure, request.byte_size)
        return None

    def _append_with_following(self, request: RustLogRequest, first: Produce) -> Reply | None:
        """Append the records of this request together with those of the following requests to the same partition: a
        client that pipelines costs one append for many requests. None if there are none, or if they are refused
        together."""
        following = request.dialect.more_produces(first, self._backlog, BATCH_BYTES - request.size)
        if not following:
            return None
        size = sum([len(self._backlog[number]) for number in range(len(following))])
        try:
            reply = produce(self._context, first, following)
        except EXPECTED:
            self._appended_alone = len(following)  # at least one is invalid: each gets its own reply
            return None
        self._backlog_bytes -= size
        for _ in following:
            self._backlog.popleft()
        request.size += size
        request.count += len(following)
        return reply

    @property
    def _drained(self) -> bool:
        return not self._backlog_bytes and self._framer.error is None

    @property
    def _input_bytes(self) -> int:
        return self._framer.buffered + self._backlog_bytes

    def _discard_input(self) -> None:
        self._framer = Framer()
        self._backlog.clear()
        self._backlog_bytes = 0
        self._next = None

    # -- replies

    def _encode(self, request: RustLogRequest | SingleProduce, message: Any) -> bytes:
        dialect = BINARY if isinstance(request, SingleProduce) else request.dialect
        return frame(dialect.encode_response(message))

    def _encode_error(self, request: RustLogRequest | SingleProduce, error: Exception) -> bytes:
        if isinstance(request, SingleProduce):
            body = Produce(request.topic, request.partition, [request.value])
            request = RustLogRequest(BINARY, body, request.byte_size)
        topics = self._visible_topics() if isinstance(error, TopicNotFound) else ()
        return frame(request.dialect.encode_error(error_reply(error, request.body, topics))) * request.count

    def _enqueue(self, request: RustLogRequest | SingleProduce, data: bytes, after: CommitGroup | None) -> None:
        on_failure = None if after is None else partial(self._encode_error, request)
        size = request.byte_size if isinstance(request, SingleProduce) else request.size
        self.replies.enqueue(data, after, on_failure, size)

    def _refuse(self, request: RustLogRequest | SingleProduce, error: Exception) -> None:
        super()._refuse(request, error)
        if closes_connection(error):
            self.reject_input()

    def _visible_topics(self) -> Sequence[str]:
        try:
            return self.broker.topics.first_names(self._context.identity, SCOPE, MAX_LISTED_TOPICS)
        except (BrokerError, LogError):
            return ()


DOOR: Final = Door("rustlog", RustLogSession, MAX_FRAME + HEADER_SIZE)
