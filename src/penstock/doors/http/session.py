"""The session of one HTTP connection, on h11: one request after another, replies in order, keep-alive.

A request is admitted by its head (`Application.open`), so that refused or unauthenticated clients have not sent a body
yet. A streamed reply is pulled from its source as fast as the client receives it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import h11

from penstock.broker.broker import Broker
from penstock.broker.runtime.executor import Deferred
from penstock.broker.runtime.turns import Turn
from penstock.broker.security.access import Identity
from penstock.doors.http.errors import EXPECTED_ERRORS, problem, refusal
from penstock.doors.http.login import Login
from penstock.doors.http.replies import (
    WAITING,
    HttpReply,
    Outcome,
    PendingHttpReply,
    Piece,
    ReplySource,
    StreamedReply,
)
from penstock.doors.http.request import AcceptedRequest, Admission, Application, RequestHead
from penstock.doors.session import Channel
from penstock.log.engine import CommitGroup, GroupState

logger = logging.getLogger(__name__)

MAX_HEAD: Final = 16 << 10
MAX_REFUSED_BODY: Final = 64 << 10  # bytes read after a refused request to keep its connection open
SAFE: Final = (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"))


def _safe(headers: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """`SAFE`, without headers that the reply sets itself."""
    given = {name for name, _ in headers}
    return [header for header in SAFE if header[0] not in given]


class HttpSession:
    def __init__(
        self,
        broker: Broker,
        channel: Channel,
        identity: Identity,
        application: Application,
        *,
        cookies: bool = False,
        refusal: Callable[[str, Exception], HttpReply] = refusal,
    ) -> None:
        """`identity`: of requests without credentials. `cookies`: whether those of login sessions are accepted.
        `refusal` formats one of `EXPECTED_ERRORS` for a path."""
        self._broker = broker
        self._channel = channel
        self._application = application
        self._refusal = refusal
        self._path = ""  # of the latest request
        encrypted = bool(getattr(channel, "encrypted", False))
        self._login = Login(broker, identity, channel.peer, cookies=cookies, encrypted=encrypted)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._figures = broker.metrics.door("http")
        self._figures.sessions += 1
        self._figures.sessions_opened += 1
        self._turn = Turn(broker.turns, self._resume)
        self._request: h11.Request | None = None
        self._latest: h11.Request | None = None  # for `describe_work`
        self._arrivals = 0  # chunks of input so far
        self._accepted: AcceptedRequest | HttpReply | None = None  # for the body being received
        self._body_bytes = 0
        self._body: list[bytes] = []
        self._stream: ReplySource | None = None  # of the reply being sent
        self._pulling = False  # a piece is being produced
        self._woken = False  # and there is more after it
        self._advancing = False
        self._waiting = False  # for a commit or for work; further requests wait too
        self._last = False  # close after the pending reply
        self._closed = False
        self._traced: tuple[int, str] | None = None  # time of arrival and trace context of the request

    # -- Session

    @property
    def long_lived(self) -> bool:
        """True while an endless reply is sent. Otherwise False: an idle client can reconnect."""
        return self._stream is not None and self._stream.endless

    def receive(self, data: bytes) -> None:
        if self._closed:
            return
        if data:
            self._http.receive_data(data)
            self._arrivals += 1
        self._advance()

    def end_of_input(self) -> None:
        if self._closed:
            return
        self._http.receive_data(b"")
        self._advance()
        later = self._turn.yielding or self._channel.congested  # then the end of the connection is the last event
        if not later or self._stream is not None:
            self._finish()

    def stop(self) -> None:
        self._finish()

    def lost(self) -> None:
        self._end()
        self._close_stream()

    @property
    def yielding(self) -> bool:
        return self._turn.yielding

    def describe_work(self) -> dict[str, str]:
        request = self._latest
        kind = "" if request is None else f"{request.method.decode()} {request.target.decode()}"
        return {"door": "http", "peer": self._channel.peer, "request": kind[:100], "identity": self._login.name}

    @property
    def held_bytes(self) -> int:
        return 0 if self._closed else len(self._http.trailing_data[0]) + self._body_bytes

    @property
    def awaiting_commit(self) -> bool:
        return False  # a reply may also take longer than that

    # -- requests

    def _resume(self) -> None:
        """Continue in the next turn."""
        if self._advancing or self._closed:
            return
        turns = self._broker.turns
        began = turns.timer()
        self._guard(self._advance)
        turns.charge(turns.timer() - began, self)
        if not self._closed:
            self._channel.progress()

    def _advance(self) -> None:
        """Handle the input, within the connection's share of the turn."""
        if self._advancing:
            return
        turn = self._turn
        turn.begun = False
        turn.unauthenticated = self._login.unauthenticated
        self._advancing = True
        try:
            while not (self._closed or turn.yielding):
                if turn.over():
                    turn.give_way()
                elif self._stream is not None:
                    if not self._pump(self._stream):
                        break
                elif self._waiting or self._channel.congested or not self._step():
                    break
                turn.requests -= 1
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint or 400
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self._send(problem(status, "invalid_request", str(error)), keep=False)
            self._close()
        finally:
            self._advancing = False

    def _step(self) -> bool:
        """Handle one event; False if the next one needs more input."""
        event = self._http.next_event()
        if isinstance(event, h11.Request):
            self._request = self._latest = event
            self._accepted, self._body_bytes, self._body = None, 0, []
            self._open(event)
        elif isinstance(event, h11.Data):
            self._take(event.data)
        elif isinstance(event, h11.EndOfMessage):
            self._follow(self._outcome())
        elif isinstance(event, h11.ConnectionClosed):
            self._close()
        else:
            return False
        return True

    def _open(self, request: h11.Request) -> None:
        self._figures.requests += 1
        path, _, query = request.target.partition(b"?")
        self._path = path.decode("latin-1")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        if self._broker.tracing is not None:
            self._traced = (self._broker.turns.timer(), headers.get("traceparent", ""))
        head = RequestHead(
            request.method.decode(),
            self._path,
            query.decode("latin-1"),
            headers,
            self._login,
            self._arrivals,
        )
        try:
            admission = self._application.open(head)
        except EXPECTED_ERRORS as error:
            admission = self._refuse(error)
        self._admit(admission)

    def _admit(self, admission: Admission) -> None:
        if isinstance(admission, Deferred):
            self._await(admission, self._admit)
            return
        self._accepted = admission
        if self._http.they_are_waiting_for_100_continue:
            if isinstance(admission, HttpReply):
                self._last = True
                self._send_reply(admission)
            else:
                self._channel.send(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")

    def _take(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if isinstance(self._accepted, AcceptedRequest):
            self._body.append(data)
            limit = self._accepted.max_body
        else:
            limit = MAX_REFUSED_BODY
        if self._body_bytes > limit:
            self._send(problem(413, "body_too_large", f"the body has more than {limit} bytes"), keep=False)
            self._close()

    def _outcome(self) -> Outcome:
        call, body = self._accepted, b"".join(self._body)
        self._accepted, self._body, self._body_bytes = None, [], 0
        assert call is not None
        if isinstance(call, HttpReply):
            return call
        metrics = self._broker.metrics
        before, metrics.caller = metrics.caller, self._figures
        try:
            return call.run(body)
        except EXPECTED_ERRORS as error:
            return self._refuse(error)
        finally:
            metrics.caller = before

    def _refuse(self, error: Exception) -> HttpReply:
        self._figures.failed(error)
        return self._refusal(self._path, error)

    # -- replies

    def _follow(self, outcome: Outcome) -> None:
        if isinstance(outcome, HttpReply):
            self._send_reply(outcome)
        elif isinstance(outcome, PendingHttpReply):
            self._waiting = True
            outcome.group.on_done(lambda group: self._guard(lambda: self._committed(group, outcome.reply)))
        elif isinstance(outcome, StreamedReply):
            self._begin_stream(outcome)
        else:
            self._await(outcome, self._follow)

    def _await(self, work: Deferred[Any, Any], then: Callable[[Any], None]) -> None:
        """Pause the connection until the work is done. It completes even if the client disconnects: the request was
        accepted."""
        self._waiting = True

        def finish() -> None:
            metrics = self._broker.metrics
            before, metrics.caller = metrics.caller, self._figures
            try:
                found = work.finish()
            except EXPECTED_ERRORS as error:
                found = self._refuse(error)
            finally:
                metrics.caller = before
            self._waiting = False
            if not self._closed:
                then(found)
                self._go_on()

        work.start(self._broker.executor, lambda: self._guard(finish))

    def _committed(self, group: CommitGroup, reply: HttpReply) -> None:
        self._waiting = False
        if self._closed:
            return
        if group.state is GroupState.FAILED:
            assert group.error is not None
            reply = self._refuse(group.error)
        self._send_reply(reply)
        self._go_on()  # the next request may have arrived already

    def _go_on(self) -> None:
        if not (self._closed or self._advancing):
            self._advance()
            if not self._closed:
                self._channel.progress()

    def _guard(self, step: Callable[[], None]) -> None:
        """Run a continuation. An unexpected error is counted, logged and answered, and closes this connection."""
        try:
            step()
        except Exception:
            self._broker.metrics.internal_errors += 1
            logger.exception("a request of %s failed", self._channel.peer, extra={"peer": self._channel.peer})
            if not self._closed:
                self._fail()

    def _fail(self) -> None:
        with contextlib.suppress(Exception):  # part of a reply may have been sent
            if self._http.our_state is h11.SEND_RESPONSE:
                text = "internal error; the broker's log tells more"
                self._send(problem(500, "internal_error", text), keep=False)
        self._close()

    def _finish(self) -> None:
        """Close, after the pending reply if there is one."""
        if self._stream is not None and self._stream.endless:
            self._last = True
            self._end_stream()
        elif self._waiting or self._stream is not None:
            self._last = True
        else:
            self._close()

    def _send_reply(self, reply: HttpReply) -> None:
        self._send(reply, keep=not self._last)
        self._next_cycle()

    def _next_cycle(self) -> None:
        if self._last or self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self._close()
        else:
            self._http.start_next_cycle()
            self._request = None

    def _head(self, status: int, headers: list[tuple[str, str]], *, keep: bool) -> bytes:
        if self._traced is not None:
            self._trace(status, *self._traced)
        if not keep and ("Connection", "close") not in headers:
            headers.append(("Connection", "close"))
        reason = HTTPStatus(status).phrase
        return self._http.send(h11.Response(status_code=status, headers=headers, reason=reason)) or b""

    def _trace(self, status: int, started: int, context: str) -> None:
        self._traced = None
        tracing, request = self._broker.tracing, self._request
        if tracing is not None and request is not None:
            path = request.target.partition(b"?")[0].decode("latin-1")[:200]
            tracing.request(request.method.decode(), path, status, started, context)

    def _send(self, reply: HttpReply, *, keep: bool) -> None:
        headers = [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body)))]
        if reply.status == HTTPStatus.NOT_MODIFIED:
            headers = []  # they would describe the body that is not sent
        parts = [self._head(reply.status, [*headers, *_safe(reply.headers), *reply.headers], keep=keep)]
        if self._request is None or self._request.method != b"HEAD":
            parts.append(self._http.send(h11.Data(data=reply.body)) or b"")
        parts.append(self._http.send(h11.EndOfMessage()) or b"")
        self._channel.send(b"".join(parts))

    # -- streamed replies

    def _begin_stream(self, reply: StreamedReply) -> None:
        headers = [("Content-Type", reply.content_type), *_safe(reply.headers), *reply.headers]
        self._channel.send(self._head(reply.status, headers, keep=not self._last))
        self._stream = reply.source
        if self._request is not None and self._request.method == b"HEAD":
            self._end_stream()
        else:
            reply.source.open(self._wake)

    def _pump(self, source: ReplySource) -> bool:
        """Send one piece; False if there is none now, or the client has not received the earlier ones."""
        if self._pulling or self._channel.congested:
            return False
        self._woken = False
        try:
            piece: Piece = source.pull()
        except EXPECTED_ERRORS as error:
            self._break_stream(error)
            return False
        if isinstance(piece, Deferred):
            self._pulling = True
            piece.start(self._broker.executor, lambda: self._guard(lambda: self._pulled(piece)))
            return not self._pulling
        if piece is WAITING:
            return self._woken
        self._send_piece(piece)  # type: ignore[arg-type]
        return True

    def _pulled(self, work: Deferred[Any, bytes | None]) -> None:
        self._pulling = False
        if self._closed or self._stream is None:
            return
        try:
            piece = work.finish()
        except EXPECTED_ERRORS as error:
            self._break_stream(error)
            return
        self._send_piece(piece)
        self._go_on()

    def _send_piece(self, piece: bytes | None) -> None:
        if piece is None:
            self._end_stream()
        elif piece:
            self._channel.send(self._http.send(h11.Data(data=piece)) or b"")

    def _wake(self) -> None:
        """The source has more. As it calls this from within other work, the piece is sent in a separate turn."""
        if not self._woken:
            self._woken = True
            self._broker.turns.later(self._resume, little=True)

    def _end_stream(self) -> None:
        self._close_stream()
        self._channel.send(self._http.send(h11.EndOfMessage()) or b"")
        self._next_cycle()

    def _break_stream(self, error: Exception) -> None:
        logger.info("%s: a reply ends early: %s", self._channel.peer, error, extra={"peer": self._channel.peer})
        self._close()

    def _close_stream(self) -> None:
        source, self._stream = self._stream, None
        if source is not None:
            source.close()

    def _close(self) -> None:
        self._close_stream()
        if self._end():
            self._channel.close()

    def _end(self) -> bool:
        """Mark as closed; True the first time."""
        if self._closed:
            return False
        self._closed = True
        self._figures.sessions -= 1
        return True
