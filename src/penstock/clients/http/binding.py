"""HTTP for the client core: encoding of requests, and matching of replies, which h11 parses.

Requests are pipelined: replies arrive in the order of the requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import h11

from penstock.clients._core.binding import Binding
from penstock.clients._core.inflight import OrderedRequests
from penstock.clients._core.requests import RequestSpec
from penstock.clients.http.errors import FAMILY, BadReply, Unsendable, reply_error

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    target: str  # path and query, percent-encoded
    body: bytes = b""
    accept: str = JSON


class HttpReply(NamedTuple):
    status: int
    body: bytes


class HttpBinding(Binding):
    errors = FAMILY

    def __init__(self, host: str, authorization: str | None, timeout: float, scope: str = "") -> None:
        self._timeout = timeout
        self._scope = scope
        fixed = {"Host": host, "User-Agent": "penstock", "Content-Type": JSON, "X-Requested-With": "penstock"}
        if authorization is not None:
            fixed["Authorization"] = authorization
        self._headers = "".join([f"{name}: {value}\r\n" for name, value in fixed.items()])

    def encode(self, spec: RequestSpec[Any], _request_id: int) -> bytes:
        request: HttpRequest = spec.request
        target = request.target
        if self._scope:
            target += ("&" if "?" in target else "?") + self._scope
        head = (
            f"{request.method} {target} HTTP/1.1\r\n{self._headers}Accept: {request.accept}\r\n"
            f"Content-Length: {len(request.body)}\r\n\r\n"
        )
        try:
            return head.encode("ascii") + request.body
        except UnicodeEncodeError as error:
            raise Unsendable(str(error)) from error

    def in_flight(self) -> HttpRequests:
        return HttpRequests(self._timeout)


class HttpRequests(OrderedRequests[HttpReply]):
    def __init__(self, timeout: float) -> None:
        super().__init__(timeout, FAMILY)
        self._parser = _parser()
        self._status = 0
        self._body: list[bytes] = []

    @property
    def buffered(self) -> bool:
        return bool(self._status)

    def frames(self, data: bytes) -> Iterator[HttpReply]:
        try:
            self._parser.receive_data(data)
            while True:
                event = self._parser.next_event()
                if isinstance(event, h11.Response):
                    self._status = event.status_code
                elif isinstance(event, h11.Data):
                    self._body.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    yield self._finish()
                else:
                    return
        except h11.RemoteProtocolError as error:
            raise BadReply(f"The server sent no HTTP: {error}") from error

    def _finish(self) -> HttpReply:
        reply = HttpReply(self._status, b"".join(self._body))
        self._status = 0
        self._body.clear()
        if self._parser.their_state is h11.DONE:
            self._parser.start_next_cycle()
            _begin(self._parser)
        else:  # the server closes the connection
            self._parser = _parser()
        return reply

    def message(self, spec: RequestSpec[Any], frame: HttpReply) -> bytes:  # noqa: ARG002
        if frame.status >= 400:
            raise reply_error(frame.status, frame.body)
        return frame.body


def _parser() -> h11.Connection:
    parser = h11.Connection(h11.CLIENT)
    _begin(parser)
    return parser


def _begin(parser: h11.Connection) -> None:
    """Expect the reply to another request. For h11 all requests are alike, since none is a HEAD."""
    parser.send(h11.Request(method="GET", target="/", headers=[("Host", "")]))
    parser.send(h11.EndOfMessage())
