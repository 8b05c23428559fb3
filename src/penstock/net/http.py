"""The HTTP door: `GET /health` and `GET /metrics`, for those who watch over the broker.

A session like that of any protocol, on h11, so that it answers on every port. It is no way to produce or consume. Who
opens one may add resources of their own: `penstock.net.admin` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

import h11
import msgspec

from penstock import __version__
from penstock.core.access import Identity
from penstock.core.broker import Broker
from penstock.core.errors import AccessDenied
from penstock.log.engine import CommitGroup, Durability, GroupState
from penstock.protocols.session import Channel, Door

MAX_HEAD: Final = 16 << 10
MAX_BODY: Final = 64 << 10
JSON: Final = "application/json"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


class Later(NamedTuple):
    """An answer that holds once the group is committed, and is not given before."""

    group: CommitGroup
    answer: Answer


Resource: TypeAlias = Callable[[bytes, bytes, bytes], Answer | Later | None]
"""(method, path, body) → the answer; None for a path that is not its own."""


class HttpSession:
    def __init__(
        self,
        broker: Broker,
        channel: Channel,
        identity: Identity,
        durability: Durability,
        resource: Resource | None = None,
    ) -> None:
        self._broker = broker
        self._channel = channel
        self._identity = identity
        self._durability = durability
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._request: h11.Request | None = None
        self._resource = resource
        self._body_bytes = 0
        self._body: list[bytes] = []  # kept only for a resource that may want it
        self._waiting = False  # for a commit; further requests wait too
        self._last = False  # close after the answer that is waited for
        self._over = False
        self._routes: dict[bytes, Callable[[], Answer]] = {b"/health": self._health, b"/metrics": self._metrics}

    # -- Session

    def receive(self, data: bytes) -> None:
        if self._over:
            return
        self._http.receive_data(data)
        self._advance()

    def end_of_input(self) -> None:
        if not self._over:
            self._http.receive_data(b"")
            self._advance()
            self._finish()

    def stop(self) -> None:
        self._finish()

    def lost(self) -> None:
        self._over = True

    @property
    def held_bytes(self) -> int:
        return len(self._http.trailing_data[0])

    # -- inside

    def _advance(self) -> None:
        try:
            while not self._over and not self._waiting and self._step():
                pass
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint or 400
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self._send(Answer(status, f"{error}\n".encode()), keep=False)
            self._close()

    def _step(self) -> bool:
        """Handle one event; False if the next one takes more input."""
        event = self._http.next_event()
        if isinstance(event, h11.Request):
            self._request, self._body_bytes, self._body = event, 0, []
            if self._http.they_are_waiting_for_100_continue:
                self._send(Answer(417, b"this broker takes no request bodies\n"), keep=False)
                self._close()
        elif isinstance(event, h11.Data):
            self._body_bytes += len(event.data)
            if self._body_bytes > MAX_BODY:
                self._send(Answer(413, b"the request body is too large\n"), keep=False)
                self._close()
            elif self._resource is not None:
                self._body.append(event.data)
        elif isinstance(event, h11.EndOfMessage):
            answer = self._answer()
            if isinstance(answer, Answer):
                self._reply(answer)
            else:
                self._waiting = True
                answer.group.on_done(lambda group: self._committed(group, answer.answer))
        elif isinstance(event, h11.ConnectionClosed):
            self._close()
        else:
            return False
        return True

    def _reply(self, answer: Answer) -> None:
        self._send(answer, keep=not self._last)
        if self._last or self._http.our_state is h11.MUST_CLOSE or self._http.our_state is h11.CLOSED:
            self._close()
        else:
            self._http.start_next_cycle()

    def _committed(self, group: CommitGroup, answer: Answer) -> None:
        self._waiting = False
        if self._over:
            return
        if group.state is GroupState.FAILED:
            answer = Answer(503, f"{group.error}\n".encode())
        self._reply(answer)
        self._advance()  # the next request may be here already

    def _finish(self) -> None:
        """Close; if an answer is still owed, after it."""
        if self._waiting:
            self._last = True
        else:
            self._close()

    def _answer(self) -> Answer | Later:
        assert self._request is not None
        path = self._request.target.partition(b"?")[0]
        if self._resource is not None:
            answer = self._resource(self._request.method, path, b"".join(self._body))
            if answer is not None:
                return answer
        route = self._routes.get(path)
        if route is None:
            return Answer(404, b"there are /health and /metrics\n")
        if self._request.method not in (b"GET", b"HEAD"):
            return Answer(405, b"only GET and HEAD\n", headers=(("Allow", "GET, HEAD"),))
        try:
            return route()
        except AccessDenied as error:
            return Answer(403, f"{error}\n".encode())

    def _health(self) -> Answer:
        health = self._broker.health()
        body = {
            "status": "ok" if health.writable else "read-only",
            "writable": health.writable,
            "reason": health.reason,
            "durability": str(self._durability),
            "position": self._broker.position,
            "version": __version__,
        }
        return Answer(200 if health.writable else 503, msgspec.json.encode(body) + b"\n", JSON)

    def _metrics(self) -> Answer:
        return Answer(200, self._broker.metrics_text(self._identity).encode(), PROMETHEUS)

    def _send(self, answer: Answer, *, keep: bool) -> None:
        headers = [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body))), *answer.headers]
        if not keep:
            headers.append(("Connection", "close"))
        response = h11.Response(status_code=answer.status, headers=headers, reason=HTTPStatus(answer.status).phrase)
        parts = [self._http.send(response)]
        if self._request is None or self._request.method != b"HEAD":
            parts.append(self._http.send(h11.Data(data=answer.body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        self._channel.send(b"".join(part for part in parts if part))

    def _close(self) -> None:
        if not self._over:
            self._over = True
            self._channel.close()


def http_door(durability: Durability) -> Door:
    def open_session(broker: Broker, channel: Channel, identity: Identity) -> HttpSession:
        return HttpSession(broker, channel, identity, durability)

    return Door("http", open_session, MAX_HEAD + MAX_BODY)
