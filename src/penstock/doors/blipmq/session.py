"""One BlipMQ connection, of version 1 or 2: parses frames into requests of the pipeline.

Frames are executed strictly in order. As success is often silent in this protocol, clients rely on the order of
replies: every reply waits for the commits of all frames before it, so a PONG proves that all earlier frames are
settled. Adjacent frames of the same kind are executed together. The handler of each frame type is in `handlers/table`,
the states of a connection are in `states`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.doors.blipmq.errors import EXPECTED, request_refused
from penstock.doors.blipmq.handlers.publish import publish_single
from penstock.doors.blipmq.handlers.table import HANDLERS, HANDSHAKE, LOGIN
from penstock.doors.blipmq.request_context import BlipMqContext
from penstock.doors.blipmq.single_publish import SinglePublish, SinglePublishDecoder
from penstock.doors.blipmq.subscriptions import Pushes
from penstock.doors.handlers import Handler
from penstock.doors.login_allowance import login_allowance
from penstock.doors.pipeline import FLUSH_BYTES, RequestPipeline
from penstock.doors.reply import Outcome
from penstock.doors.session import Channel, Door
from penstock.log.engine import OPEN, CommitGroup
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f
from penstock.wire.blipmq.errors import INTERNAL_ERROR

_NEIGHBOURS: Final = {
    f.PUBLISH: bytes((f.PUBLISH, f.PING)),
    f.ACK: bytes((f.ACK, f.POLL)),
    f.POLL: bytes((f.ACK, f.POLL)),
}
"""For each frame type, the types that are executed together with it if they follow it."""
_TYPE: Final = itemgetter(0)
MAX_NEIGHBOURS: Final = 1024  # frames executed together; a few ms of work


class BlipMqSession(RequestPipeline):
    door: str = "blipmq"
    expected: tuple[type[Exception], ...] = EXPECTED

    def __init__(self, broker: Broker, channel: Channel, identity: Identity) -> None:
        super().__init__(broker, channel)
        self._pushes = Pushes(broker, channel, self.replies, self.work, self.guard)
        self._context = BlipMqContext(broker, identity, channel, self.replies, self._pushes)
        self._allowance = login_allowance(broker, identity)
        self._turn.unauthenticated = broker.access.enforced
        self._framer = f.Framer()
        self._single = SinglePublishDecoder(self._context)
        self._frames: list[f.Frame] = []  # not executed yet, from index `_next` on
        self._next = 0
        self._held = 0  # bytes of those frames

    @property
    def long_lived(self) -> bool:
        return self._context.handshake.ready

    # -- requests: neighbouring frames

    def _sole_request(self, data: bytes) -> SinglePublish | None:
        context = self._context
        if self._next != len(self._frames) or self._framer.buffered or context.paused is not None:
            return None
        if self._pushes.by_queue or not context.handshake.ready:
            return None
        return self._single.decode(data)

    def feed(self, data: bytes) -> None:
        frames = self._framer.feed(data)
        if self._framer.error is not None:
            self.end_input()
        if frames:
            if self._next == len(self._frames):
                self._frames = frames
            else:
                self._frames = self._frames[self._next :] + frames
            self._next = 0
            for _, _, payload in frames:
                self._held += len(payload)

    def _peek(self) -> list[f.Frame] | None:
        """The next frame, and the frames that are executed together with it."""
        frames, first = self._frames, self._next
        if first == len(frames):
            return None
        self._cost = count = self._adjacent(frames, first)
        return frames if count == len(frames) else frames[first : first + count]

    def _adjacent(self, frames: list[f.Frame], first: int) -> int:
        """The number of these frames, one or more."""
        count = len(frames) - first
        if count > 1:
            neighbours = _NEIGHBOURS.get(frames[first][0]) if self._context.handshake.ready else None
            if neighbours is None or frames[first + 1][0] not in neighbours:
                return 1
            if count > 2:
                count = min(count, MAX_NEIGHBOURS)
                types = bytes(map(_TYPE, frames[first : first + count]))
                count -= len(types.lstrip(neighbours))
        return count

    def _handler(self, request: list[f.Frame] | SinglePublish) -> Handler | None:
        if isinstance(request, SinglePublish):
            return HANDLERS[f.PUBLISH]
        kind = request[0][0]
        if self._context.handshake.ready:
            return HANDLERS[kind]
        return LOGIN if kind == f.AUTH else HANDSHAKE

    def _must_wait(self, handler: Handler | None) -> bool:
        """Whether to wait: a frame that reads from a topic, for the commit of what this connection published, so that
        it sees it; any frame, for a client that does not receive its replies."""
        if self.replies.held_bytes > FLUSH_BYTES:
            self.replies.flush()
            if self.channel.congested:
                return True
        written = self._context.written
        return written is not None and written.state is OPEN and handler is not None and handler.reads

    def _invoke(self, handler: Handler | None, request: list[f.Frame] | SinglePublish) -> Outcome | None:
        assert handler is not None
        if isinstance(request, SinglePublish):
            publish_single(self._context, request)
            if request.pong:
                self.figures.requests += 1
            return None
        self.figures.requests += len(request) - 1
        self._next += len(request)
        if self._next == len(self._frames):
            self._held = 0
        else:
            for _, _, payload in request:
                self._held -= len(payload)
        return handler.function(self._context, request)

    def dispatch(self) -> None:
        if (paused := self._context.paused) is not None:
            self._context.paused = None
            paused.resume()
        RequestPipeline.dispatch(self)  # cheaper than `super`
        if self._pushes.by_queue:
            self._pushes.work()

    def _logged_in(self) -> bool:
        return self._context.handshake.ready

    @property
    def _drained(self) -> bool:
        return self._next == len(self._frames)

    @property
    def _input_bytes(self) -> int:
        return self._framer.buffered + self._held

    def _discard_input(self) -> None:
        self._framer = f.Framer()
        self._frames.clear()
        self._next = self._held = 0
        self._context.paused = None

    def _release(self) -> None:
        self._pushes.stop()
        self._context.forget_connection()

    def stop(self) -> None:
        self._pushes.stop()
        super().stop()

    # -- replies

    def _encode(self, request: Any, message: Any) -> bytes:  # noqa: ARG002
        raise AssertionError("handlers reply with whole frames")

    def _encode_error(self, request: Sequence[f.Frame] | SinglePublish, error: Exception) -> bytes:
        nack = request_refused(error) if isinstance(error, EXPECTED) else INTERNAL_ERROR
        if isinstance(request, SinglePublish):
            return codec.encode_nack(request.correlation, *nack)
        return b"".join([codec.encode_nack(correlation, *nack) for _, correlation, _ in request])

    def _enqueue(self, request: Sequence[f.Frame] | SinglePublish, data: bytes, after: CommitGroup | None) -> None:
        self.replies.enqueue(data, after, None if after is None else partial(self._encode_error, request))

    def _refuse(self, request: Sequence[f.Frame] | SinglePublish, error: Exception) -> None:
        if not isinstance(request, SinglePublish) and len(request) > 1:
            request = [frame for frame in request if frame[0] != f.PING]
            if len(request) > 1:
                return  # some may already have been answered, or be stored
        self.replies.enqueue(self._encode_error(request, error))

    def _replied(self) -> None:
        if self._pushes.by_queue:
            self.progress()
        else:
            super()._replied()


DOOR: Final = Door("blipmq", BlipMqSession, f.MAX_FRAME + 4)
