"""One Kimberlite connection: frames in, operations, frames out.

Requests have ids, and the protocol would allow answers in any order; they go out in the order of the requests, because
the original's clients want it so. Appends do not wait for each other's commits: their replies do. What each request
does is in `operations`; which bytes a message is, for this client, is known by its `ServerCodec`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.doors.kimberlite.errors import EXPECTED, RequestRefused, error_response
from penstock.doors.kimberlite.handlers.table import OPERATIONS, Operation
from penstock.doors.kimberlite.request_context import KimberliteSettings, RequestContext
from penstock.doors.kimberlite.subscriptions import Subscriptions
from penstock.doors.pipeline import RequestPipeline
from penstock.doors.reply import PendingReply, Reply
from penstock.doors.session import Channel, Door
from penstock.log.errors import OffsetMismatch
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import Refused, ServerCodec
from penstock.wire.kimberlite.frames import HEADER_SIZE, MAX_PAYLOAD

logger = logging.getLogger(__name__)

STRETCH: Final = 256  # requests; some 10 ms, if nothing is to be done for them


class KimberliteSession(RequestPipeline):
    def __init__(self, broker: Broker, channel: Channel, identity: Identity, settings: KimberliteSettings) -> None:
        super().__init__(broker, channel, identity)
        self._wire = ServerCodec(settings.assume)
        self._call = RequestContext(broker, channel, identity, self.replies, self._wire, settings)
        self._call.subscriptions = Subscriptions(self._call)
        self._request: m.Request | None = None  # taken and not carried out yet
        self._size = 0  # bytes of the request that was taken last
        self._drained = True  # there is no whole request left in the wire
        self._resting = False  # others have their turn
        self._later: PendingReply | None = None  # the answer to the last request that was carried out is still to come

    # -- what `RequestPipeline` asks

    def _take(self, data: bytes) -> None:
        self._wire.feed(data)
        self._drained = False

    @property
    def _idle(self) -> bool:
        return self._drained and self._request is None and self._later is None

    @property
    def _held_input(self) -> int:
        return self._wire.buffered + (0 if self._request is None else self._size)

    def _forget(self) -> None:
        self._request = None
        self._drained = True
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._call.forget()

    def work(self) -> None:
        super().work()
        if not self._closed and not self._working:
            self._call.subscriptions.work()  # behind the replies to what was asked before

    def _replied(self) -> None:
        if self._call.subscriptions.waiting:
            self.progress()
        else:
            super()._replied()

    def stop(self) -> None:
        if not self._closed:
            self._call.subscriptions.stop()
        super().stop()

    # -- one request after the other

    def _carry_out(self) -> None:
        """Up to `STRETCH` requests, and then everybody else has a turn: small ones come by the thousand at once."""
        while not self._resting:
            for _ in range(STRETCH):
                if self._later is not None or (request := self._next()) is None:
                    return
                operation = OPERATIONS[type(request.payload)]
                if self._must_wait(reads=operation.reads):
                    return
                self._request = None
                self._carry_out_one(request, operation)
            self._resting = True
            self.broker.scheduler.call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        if not self._closed and not self._working:
            self.progress()

    def _next(self) -> m.Request | None:
        if self._request is None and not self._drained:
            before = self._wire.buffered
            try:
                self._request = self._wire.next()
            except Refused as refused:
                if refused.reply:
                    self.replies.put_after(self.broker.pending_commit, refused.reply, None)
                self._finish()
                return None
            self._size = before - self._wire.buffered
            self._drained = self._request is None
        return self._request

    def _carry_out_one(self, request: m.Request, operation: Operation) -> None:
        payload = request.payload
        try:
            self._admit(request)
            outcome = operation.carry_out(self._call, payload)
        except Exception as error:  # noqa: BLE001 - `_refuse` logs what was not expected
            self._refuse(error, request)
            return
        if isinstance(outcome, Reply):
            self._answer(request, self._size, outcome)
        else:
            self._later = outcome
            outcome.start(partial(self._came, request, self._size))

    def _admit(self, request: m.Request) -> None:
        """Whether the client may ask anything of this tenant now. What it may do there is looked at by `core`.

        Nothing that exists or does not exist in a tenant is looked at here, so nothing can be told of it."""
        call, broker = self._call, self.broker
        call.enter(request.tenant_id, request.audit)
        if isinstance(request.payload, m.Handshake):
            return  # says who it is
        if call.greeted is None:
            if broker.access.enforced:
                raise RequestRefused(m.ErrorCode.AUTHENTICATION_FAILED, "authentication required")
            raise RequestRefused(m.ErrorCode.INVALID_REQUEST, "handshake required")
        call.check_tenant(call.identity)
        broker.rate_limits.admit(call.scope.tenant, broker.now())

    def _came(self, request: m.Request, size: int, outcome: Reply | Exception) -> None:
        """The answer of a `PendingReply` is there."""
        if self._closed:
            return
        self._later = None
        if isinstance(outcome, Reply):
            self._answer(request, size, outcome)
        else:
            self._refuse(outcome, request)
        if not self._working:
            self.progress()

    # -- replies

    def _answer(self, request: m.Request, size: int, answer: Reply) -> None:
        reply, group = answer
        try:
            data = self._wire.response(request.id, reply)
        except Exception as error:  # noqa: BLE001 - an answer that cannot be written; `_refuse` logs it
            self._refuse(error, request)
            return
        after = self.broker.pending_commit if group is None else group
        self.replies.put_after(after, data, self._failure(request), size)

    def _refuse(self, error: Exception, request: m.Request) -> None:
        if not isinstance(error, EXPECTED):
            logger.error("a request of %s failed", self.channel.peer, exc_info=error)
        data = self._wire.response(request.id, error_response(error, request.payload))
        after = error.group if isinstance(error, OffsetMismatch) else self.broker.pending_commit
        self.replies.put_after(after, data, self._failure(request))
        error.__traceback__ = None  # frames that know the error: together they would keep a request of up to 16 MiB
        if not isinstance(error, EXPECTED):
            self._finish()

    def _failure(self, request: m.Request) -> Callable[[Exception], bytes]:
        """What is said instead if what the answer depends on could not be kept."""
        number, kind = request.id, type(request.payload)
        return lambda error: self._wire.response(number, error_response(error, kind))


def kimberlite_door(settings: KimberliteSettings) -> Door:
    def opened(broker: Broker, channel: Channel, identity: Identity) -> KimberliteSession:
        return KimberliteSession(broker, channel, identity, settings)

    return Door("kimberlite", opened, MAX_PAYLOAD + HEADER_SIZE)
