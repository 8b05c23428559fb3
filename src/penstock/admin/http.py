"""The HTTP door: `GET /health`, `/health/live`, `/health/ready` and `/metrics`, for operators and monitoring.

A session like that of any protocol, on h11, so that it answers on every port. It is no way to produce or consume. Who
opens one may add resources of their own: `socket` does.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias

import h11
import msgspec

from penstock import __version__
from penstock.broker.broker import Broker
from penstock.broker.errors import (
    AccessDenied,
    AuditOff,
    BrokerError,
    InvalidArgument,
    InvalidName,
    KeyNotFound,
    LimitReached,
    QueriesOff,
    QueryError,
    RoleNotFound,
    SchemaIncompatible,
    SchemaInvalid,
    SchemaNotFound,
    TenantExists,
    TenantNotFound,
    TooFast,
    TopicNotFound,
    UserExists,
    UserNotFound,
    WrongPassword,
)
from penstock.broker.runtime.executor import Deferred
from penstock.broker.runtime.readiness import Phase
from penstock.broker.runtime.turns import Turn
from penstock.broker.security.access import ADMINISTRATOR, Identity
from penstock.doors.session import Channel, Door
from penstock.log.engine import CommitGroup, Durability, GroupState
from penstock.log.errors import CommitFailed, LogError

logger = logging.getLogger(__name__)

MAX_HEAD: Final = 16 << 10
MAX_BODY: Final = 64 << 10
JSON: Final = "application/json"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"

STATUS: Final = (
    (AccessDenied, 403),
    (WrongPassword, 403),
    (AuditOff, 404),
    (KeyNotFound, 404),
    (UserNotFound, 404),
    (RoleNotFound, 404),
    (SchemaNotFound, 404),
    (TenantNotFound, 404),
    (TopicNotFound, 404),
    (SchemaIncompatible, 409),
    (SchemaInvalid, 400),
    (TenantExists, 409),
    (UserExists, 409),
    (LimitReached, 409),
    (InvalidArgument, 400),
    (InvalidName, 400),
    (TooFast, 429),
    (QueriesOff, 503),
    (QueryError, 400),
    (BrokerError, 503),
    (CommitFailed, 500),  # 503 would say that it was not done: the outcome is unknown
    (LogError, 503),
    (msgspec.MsgspecError, 400),
    (UnicodeDecodeError, 400),  # of a body, by msgspec
)
"""The first line that fits an error gives the status."""

EXPECTED_ERRORS: Final = (BrokerError, LogError, msgspec.MsgspecError, UnicodeDecodeError)
"""The errors that a resource may raise instead of a reply."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


class PendingHttpReply(NamedTuple):
    """A reply that holds once the group is committed, and is not given before."""

    group: CommitGroup
    reply: HttpReply


Outcome: TypeAlias = HttpReply | PendingHttpReply | Deferred[Any, HttpReply | PendingHttpReply]
"""A reply, or what leads to one: a commit to wait for, or work that takes its time."""

Resource: TypeAlias = Callable[[bytes, bytes, bytes], Outcome | None]
"""(method, path, body) → what comes of it; None for a path that is not its own. May raise one of `EXPECTED_ERRORS`."""


def after_commit(group: CommitGroup | None, reply: HttpReply) -> HttpReply | PendingHttpReply:
    """The reply, once the group is committed that it depends on."""
    return reply if group is None else PendingHttpReply(group, reply)


def error_reply(error: Exception) -> HttpReply:
    """One of `EXPECTED_ERRORS` as a reply."""
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    return HttpReply(status, f"{error}\n".encode())


class HttpSession:
    def __init__(
        self,
        broker: Broker,
        channel: Channel,
        identity: Identity,
        durability: Durability,
        resource: Resource | None = None,
        max_body: int = MAX_BODY,
    ) -> None:
        self._broker = broker
        self._channel = channel
        self._identity = identity
        self._durability = durability
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._turn = Turn(broker.turns, self._resume)
        self._turn.stranger = broker.access.enforced and identity is not ADMINISTRATOR
        self._request: h11.Request | None = None
        self._latest: h11.Request | None = None  # for `describe_work`
        self._resource = resource
        self._max_body = max_body
        self._body_bytes = 0
        self._body: list[bytes] = []  # kept only for a resource that may want it
        self._advancing = False
        self._waiting = False  # for a commit or for work; further requests wait too
        self._last = False  # close after the reply that is waited for
        self._closed = False
        self._routes: dict[bytes, Callable[[], HttpReply]] = {
            b"/health": self._health,
            b"/health/live": self._live,
            b"/health/ready": self._ready,
            b"/metrics": self._metrics,
        }

    # -- Session

    @property
    def long_lived(self) -> bool:
        """False: a client that has another question connects again."""
        return False

    def receive(self, data: bytes) -> None:
        if self._closed:
            return
        self._http.receive_data(data)
        self._advance()

    def end_of_input(self) -> None:
        if not self._closed:
            self._http.receive_data(b"")
            self._advance()
            if not self._turn.yielding:  # else the end of the connection is the last event
                self._finish()

    def stop(self) -> None:
        self._finish()

    def lost(self) -> None:
        self._closed = True

    @property
    def yielding(self) -> bool:
        return self._turn.yielding

    def describe_work(self) -> dict[str, str]:
        request = self._latest
        kind = "" if request is None else f"{request.method.decode()} {request.target.decode()}"
        return {"door": "http", "peer": self._channel.peer, "request": kind[:100]}

    @property
    def held_bytes(self) -> int:
        return 0 if self._closed else len(self._http.trailing_data[0])

    # -- inside

    def _resume(self) -> None:
        """Others have had their turn."""
        if self._advancing or self._closed:
            return
        turns = self._broker.turns
        began = turns.timer()
        self._advance()
        turns.charge(turns.timer() - began, self)
        if not self._closed:
            self._channel.progress()

    def _advance(self) -> None:
        """Handle what has arrived, as long as the connection's share of the turn lasts."""
        turn = self._turn
        turn.begin()
        self._advancing = True
        try:
            while not (self._closed or self._waiting or turn.yielding):
                if turn.over():
                    turn.give_way()
                elif not self._step():
                    break
                turn.requests -= 1
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint or 400
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self._send(HttpReply(status, f"{error}\n".encode()), keep=False)
            self._close()
        finally:
            self._advancing = False

    def _step(self) -> bool:
        """Handle one event; False if the next one takes more input."""
        event = self._http.next_event()
        if isinstance(event, h11.Request):
            self._request, self._body_bytes, self._body = event, 0, []
            self._latest = event
            if self._http.they_are_waiting_for_100_continue:
                self._send(HttpReply(417, b"this broker takes no request bodies\n"), keep=False)
                self._close()
        elif isinstance(event, h11.Data):
            self._body_bytes += len(event.data)
            if self._body_bytes > self._max_body:
                self._send(HttpReply(413, b"the request body is too large\n"), keep=False)
                self._close()
            elif self._resource is not None:
                self._body.append(event.data)
        elif isinstance(event, h11.EndOfMessage):
            self._follow(self._outcome())
        elif isinstance(event, h11.ConnectionClosed):
            self._close()
        else:
            return False
        return True

    def _send_reply(self, reply: HttpReply) -> None:
        self._send(reply, keep=not self._last)
        if self._last or self._http.our_state is h11.MUST_CLOSE or self._http.our_state is h11.CLOSED:
            self._close()
        else:
            self._http.start_next_cycle()
            self._request = None

    def _follow(self, outcome: Outcome) -> None:
        if isinstance(outcome, HttpReply):
            self._send_reply(outcome)
        elif isinstance(outcome, PendingHttpReply):
            self._waiting = True
            outcome.group.on_done(lambda group: self._guard(lambda: self._committed(group, outcome.reply)))
        else:
            self._waiting = True
            outcome.start(self._broker.executor, lambda: self._guard(lambda: self._deferred_done(outcome)))

    def _guard(self, step: Callable[[], None]) -> None:
        """Take a step that was waited for. An error that nobody expected is counted, logged, answered, and the end of
        this connection."""
        try:
            step()
        except Exception:
            self._broker.metrics.internal_errors += 1
            logger.exception("a request of %s failed", self._channel.peer, extra={"peer": self._channel.peer})
            if not self._closed:
                self._fail()

    def _fail(self) -> None:
        with contextlib.suppress(Exception):  # half a reply may have been sent
            if self._http.our_state is h11.SEND_RESPONSE:
                self._send(HttpReply(500, b"internal error; the broker's log tells more\n"), keep=False)
        self._close()

    def _deferred_done(self, work: Deferred[Any, HttpReply | PendingHttpReply]) -> None:
        """Finished even if nobody waits for the reply any more: the request was accepted."""
        try:
            outcome = work.finish()
        except EXPECTED_ERRORS as error:
            outcome = error_reply(error)
        self._waiting = False
        if not self._closed:
            self._follow(outcome)
            self._advance()

    def _committed(self, group: CommitGroup, reply: HttpReply) -> None:
        self._waiting = False
        if self._closed:
            return
        if group.state is GroupState.FAILED:
            assert group.error is not None
            reply = error_reply(group.error)
        self._send_reply(reply)
        self._advance()  # the next request may be here already

    def _finish(self) -> None:
        """Close; if a reply is still owed, after it."""
        if self._waiting:
            self._last = True
        else:
            self._close()

    def _outcome(self) -> Outcome:
        assert self._request is not None
        path = self._request.target.partition(b"?")[0]
        try:
            if self._resource is not None:
                outcome = self._resource(self._request.method, path, b"".join(self._body))
                if outcome is not None:
                    return outcome
            route = self._routes.get(path)
            if route is None:
                return HttpReply(404, b"there are /health, /health/live, /health/ready and /metrics\n")
            if self._request.method not in (b"GET", b"HEAD"):
                return HttpReply(405, b"only GET and HEAD\n", headers=(("Allow", "GET, HEAD"),))
            return route()
        except EXPECTED_ERRORS as error:
            return error_reply(error)

    def _health(self) -> HttpReply:
        health = self._broker.health()
        body = {
            "status": "ok" if health.writable else "read-only",
            "writable": health.writable,
            "reason": health.reason,
            "durability": str(self._durability),
            "position": self._broker.position,
            "tables": self._broker.tables.trouble() or "ok",
            "version": __version__,
        }
        return HttpReply(200 if health.writable else 503, msgspec.json.encode(body) + b"\n", JSON)

    def _live(self) -> HttpReply:
        """Liveness: the process answers, and nothing else. One that is read-only, or stops, is better left alone."""
        return HttpReply(200, b'{"status":"live"}\n', JSON)

    def _ready(self) -> HttpReply:
        """Readiness: clients may be sent here, for every open door answers and takes writes."""
        readiness, health = self._broker.readiness, self._broker.health()
        missing = readiness.missing()
        if readiness.phase is not Phase.SERVING:
            status, reason = str(readiness.phase), f"the broker is {readiness.phase}"
        elif not health.writable:
            status, reason = "read-only", health.reason
        elif missing:
            status, reason = "incomplete", f"not there at the moment: {', '.join(missing)}"
        else:
            status, reason = "ready", ""
        body = msgspec.json.encode({"status": status, "ready": not reason, "reason": reason})
        return HttpReply(503 if reason else 200, body + b"\n", JSON)

    def _metrics(self) -> HttpReply:
        return HttpReply(200, self._broker.metrics_text(self._identity).encode(), PROMETHEUS)

    def _send(self, reply: HttpReply, *, keep: bool) -> None:
        headers = [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body))), *reply.headers]
        if not keep:
            headers.append(("Connection", "close"))
        response = h11.Response(status_code=reply.status, headers=headers, reason=HTTPStatus(reply.status).phrase)
        parts = [self._http.send(response)]
        if self._request is None or self._request.method != b"HEAD":
            parts.append(self._http.send(h11.Data(data=reply.body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        self._channel.send(b"".join(part for part in parts if part))

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._channel.close()


def http_door(durability: Durability) -> Door:
    def open_session(broker: Broker, channel: Channel, identity: Identity) -> HttpSession:
        return HttpSession(broker, channel, identity, durability)

    return Door("http", open_session, MAX_HEAD + MAX_BODY)
