"""One Kimberlite connection: parses frames into requests of the pipeline, and encodes replies and errors as frames.

Requests have ids, and the protocol allows replies in any order; they are sent in the order of the requests, because the
original's clients rely on that. Appends do not wait for the commits of earlier ones; their replies do. The handler of
each request is in `handlers/table`, the states of a connection are in `states`; `ServerCodec` encodes messages for this
client.
"""

from __future__ import annotations

from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.doors.handlers import Handler
from penstock.doors.kimberlite.errors import EXPECTED, RequestRefused, error_response
from penstock.doors.kimberlite.handlers.table import HANDLERS
from penstock.doors.kimberlite.request_context import KimberliteContext, KimberliteSettings
from penstock.doors.kimberlite.states import TABLE, Action, Input, State
from penstock.doors.kimberlite.subscriptions import Subscriptions
from penstock.doors.login_allowance import login_allowance
from penstock.doors.pipeline import NO_SLICES, RequestPipeline
from penstock.doors.reply import Outcome
from penstock.doors.reply_queue import OnFailure
from penstock.doors.session import Channel, Door
from penstock.log.engine import CommitGroup
from penstock.log.errors import OffsetMismatch
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import Refused, ServerCodec
from penstock.wire.kimberlite.frames import HEADER_SIZE, MAX_PAYLOAD


class KimberliteSession(RequestPipeline):
    door: str = "kimberlite"
    feed_bytes: int = NO_SLICES
    expected: tuple[type[Exception], ...] = EXPECTED

    def __init__(self, broker: Broker, channel: Channel, identity: Identity, settings: KimberliteSettings) -> None:
        super().__init__(broker, channel)
        self._codec = codec = ServerCodec(settings.assume)
        self._framer = codec.framer
        self._subscriptions = Subscriptions(broker, channel, self.replies, codec, settings.push_events, self.guard)
        self._context = KimberliteContext(broker, identity, channel.peer, codec, settings, self._subscriptions)
        self._allowance = login_allowance(broker, identity)
        self._turn.unauthenticated = broker.access.enforced
        self._request: m.Request | None = None  # decoded and not executed yet
        self._exhausted = True  # the codec has no complete request left

    @property
    def long_lived(self) -> bool:
        return self._context.greeted is not None

    # -- requests

    def feed(self, data: bytes) -> None:
        self._codec.feed(data)
        self._exhausted = False

    def _peek(self) -> m.Request | None:
        if self._request is None and not self._exhausted:
            try:
                self._request = self._codec.next()
            except Refused as refused:
                if refused.reply:
                    self.replies.enqueue(refused.reply, self.broker.pending_commit)
                self.reject_input()
                return None
            self._exhausted = self._request is None or self._framer.empty
        return self._request

    def _handler(self, request: m.Request) -> Handler:
        return HANDLERS[type(request.payload)]

    def _invoke(self, handler: Handler | None, request: m.Request) -> Outcome | None:
        """Check that the client may send requests to this tenant now; the broker checks permissions there.

        No existence check happens here, so that errors reveal nothing about a tenant."""
        assert handler is not None
        self._request = None
        context, broker, payload = self._context, self.broker, request.payload
        context.enter(request.tenant_id, request.audit)
        action = TABLE[context.state][Input.HANDSHAKE if type(payload) is m.Handshake else Input.REQUEST]
        if action is Action.SERVE:
            context.check_tenant(context.identity)
            if broker.limits.tenant_requests:
                broker.rate_limits.admit(context.scope.tenant, broker.now())
        elif action is Action.REFUSE:
            if broker.access.enforced:
                raise RequestRefused(m.ErrorCode.AUTHENTICATION_FAILED, "authentication required")
            raise RequestRefused(m.ErrorCode.INVALID_REQUEST, "handshake required")
        return handler.function(context, payload)

    def _logged_in(self) -> bool:
        return self._context.state is State.GREETED

    @property
    def _drained(self) -> bool:
        return self._exhausted and self._request is None

    @property
    def _input_bytes(self) -> int:
        return self._framer.buffered + (0 if self._request is None else self._framer.frame_bytes)

    def _discard_input(self) -> None:
        self._codec.discard()
        self._request = None
        self._exhausted = True

    def _release(self) -> None:
        self._context.release()

    # -- subscriptions

    def dispatch(self) -> None:
        super().dispatch()
        if self._subscriptions.due:
            self._subscriptions.work()  # after the replies to earlier requests

    def _replied(self) -> None:
        if self._subscriptions.due:
            self.progress()
        else:
            super()._replied()

    def stop(self) -> None:
        if not self.closed:
            self._subscriptions.stop()
        super().stop()

    # -- replies

    def _encode(self, request: m.Request, message: Any) -> bytes:
        return self._codec.response(request.id, message)

    def _encode_error(self, request: m.Request, error: Exception) -> bytes:
        return self._codec.response(request.id, error_response(error, request.payload))

    def _on_failure(self, request: m.Request) -> OnFailure:
        number, kind = request.id, type(request.payload)  # not the whole request, which may have 16 MiB
        return lambda error: self._codec.response(number, error_response(error, kind))

    def _enqueue(self, request: m.Request, data: bytes, after: CommitGroup | None) -> None:
        """Queue a reply. The last frame is this request's, as none is decoded before the last one is answered."""
        on_failure = None if after is None else self._on_failure(request)
        self.replies.enqueue(data, after, on_failure, self._framer.frame_bytes)

    def _refuse(self, request: m.Request, error: Exception) -> None:
        after = error.group if isinstance(error, OffsetMismatch) else self.broker.pending_commit
        self.replies.enqueue(self._encode_error(request, error), after, self._on_failure(request))


def kimberlite_door(settings: KimberliteSettings) -> Door:
    def opened(broker: Broker, channel: Channel, identity: Identity) -> KimberliteSession:
        return KimberliteSession(broker, channel, identity, settings)

    return Door("kimberlite", opened, MAX_PAYLOAD + HEADER_SIZE)
