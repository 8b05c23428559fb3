"""A client of HTTP in memory: a session, a channel, and the replies parsed by h11."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.doors.http.errors import refusal
from penstock.doors.http.replies import HttpReply
from penstock.doors.http.request import Application
from penstock.doors.http.session import HttpSession


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


class Peer:
    """One connection."""

    peer = "127.0.0.1:5000"

    def __init__(
        self,
        fixture: BrokerFixture,
        application: Application,
        identity: Identity = ANONYMOUS,
        *,
        cookies: bool = False,
        refusal: Callable[[str, Exception], HttpReply] = refusal,
    ) -> None:
        self.fixture = fixture
        self.sent = b""
        self.closed = False
        self.congested = False
        self.progressed = 0
        self.session = HttpSession(fixture.broker, self, identity, application, cookies=cookies, refusal=refusal)

    def send(self, data: bytes) -> None:
        assert not self.closed
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def progress(self) -> None:
        self.progressed += 1

    def begin(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        self.session.receive(request(method, path, body, **headers))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """The reply to one request; whatever it brought about is carried out and committed."""
        self.sent = b""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.begin(method, path, data, **headers)
        self.settle()
        return self.answer(method)

    def settle(self) -> None:
        self.fixture.commit()

    def answer(self, method: str = "GET") -> Answer:
        """The first reply in what was sent since."""
        client = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(self.sent)
        if self.closed:
            client.receive_data(b"")
        head: h11.Response | None = None
        body = b""
        while True:
            try:
                event = client.next_event()
            except h11.RemoteProtocolError:
                event = h11.NEED_DATA
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) or event is h11.NEED_DATA:
                assert head is not None, f"there is no reply: {self.sent!r}"
                headers = {name.decode(): value.decode() for name, value in head.headers}
                return Answer(head.status_code, headers, body, isinstance(event, h11.EndOfMessage))


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Bytes of a request. In names of headers, `_` stands for `-`."""
    given = {"Host": "x", "Content-Type": "application/json", "Content-Length": str(len(body))}
    given |= {name.replace("_", "-").title(): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
