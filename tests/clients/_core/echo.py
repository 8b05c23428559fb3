"""A protocol for the tests of the client core: a request is a line, and so is a reply.

Without numbers, replies come in the order of the requests. With numbers, every line begins with the id of its request,
and the server may push lines that begin with `*`. `!text` is an error reply, `?` is no reply to anything.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.clients import scripted_server

from penstock.clients._core.address import Address
from penstock.clients._core.addresses import Addresses
from penstock.clients._core.aio import AsyncClientCore, AsyncDriver
from penstock.clients._core.binding import Binding
from penstock.clients._core.blocking import BlockingClient, BlockingDriver
from penstock.clients._core.channel import ConnectOptions
from penstock.clients._core.connection import Connection
from penstock.clients._core.errors import BadReply, ErrorFamily, ReplyError, Unsendable
from penstock.clients._core.inflight import InFlightRequests, NumberedRequests, OrderedRequests
from penstock.clients._core.methods import procedure_method, request_method
from penstock.clients._core.procedure import CONNECTED, Procedure, Wait, exchange
from penstock.clients._core.requests import RequestSpec, results_of, whole
from penstock.clients._core.signal import Signal
from penstock.retry import RetryPolicy

ERRORS = ErrorFamily()


class Refused(ReplyError):
    @property
    def not_leader(self) -> bool:
        return str(self).startswith("leader")

    @property
    def not_executed(self) -> bool:
        return self.not_leader

    @property
    def leader(self) -> str | None:
        return str(self).partition(" ")[2] or None


# -- requests


def echo(text: str, *, timeout: float | None = None) -> RequestSpec[str]:
    """The same text."""
    return RequestSpec(text, whole, idempotent=True, timeout=timeout)


def store(text: str) -> RequestSpec[str]:
    """Something that must not be carried out twice."""
    return RequestSpec(text, whole)


class _Lines:
    def __init__(self) -> None:
        self.rest = b""

    def cut(self, data: bytes) -> list[str]:
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [line.decode() for line in lines]


def _message(line: str) -> str:
    if line.startswith("!"):
        raise Refused(line[1:])
    if line.startswith("?"):
        raise BadReply("no reply to anything")
    return line


class Ordered(OrderedRequests[str]):
    def __init__(self, timeout: float) -> None:
        super().__init__(timeout, ERRORS)
        self._lines = _Lines()

    @property
    def buffered(self) -> bool:
        return bool(self._lines.rest)

    def frames(self, data: bytes) -> Iterable[str]:
        return self._lines.cut(data)

    def message(self, spec: RequestSpec[Any], frame: str) -> str:  # noqa: ARG002
        return _message(frame)


class Numbered(NumberedRequests[str]):
    def __init__(self, timeout: float, keepalive: float | None = None) -> None:
        super().__init__(timeout, ERRORS, encode, keepalive)
        self._lines = _Lines()
        self.events: list[str] = []
        self.arrived = Signal()
        self.subscribed = False
        self.given_up: list[str] = []

    @property
    def listening(self) -> bool:
        return self.subscribed

    @property
    def accepting(self) -> bool:
        return len(self.events) < 100

    def frames(self, data: bytes) -> Iterable[str]:
        return self._lines.cut(data)

    def request_id(self, frame: str) -> int | None:
        return None if frame.startswith("*") else int(frame.partition(" ")[0])

    def message(self, spec: RequestSpec[Any], frame: str) -> str:  # noqa: ARG002
        return _message(frame.partition(" ")[2])

    def pushed(self, frame: str) -> None:
        self.events.append(frame[1:])
        self.arrived.set()

    def late(self, spec: RequestSpec[Any], frame: str) -> None:
        self.given_up.append(f"{spec.request}: {frame}")

    def probe(self) -> RequestSpec[Any]:
        return echo("probe")


def encode(spec: RequestSpec[Any], request_id: int) -> bytes:
    if "\n" in spec.request:
        raise Unsendable("more than one line")
    return f"{request_id} {spec.request}\n".encode() if request_id else f"{spec.request}\n".encode()


class EchoBinding(Binding):
    errors = ERRORS

    def __init__(self, numbered: bool, user: str | None, timeout: float, keepalive: float | None = None) -> None:
        self.numbered = numbered
        self._user = user
        self._timeout = timeout
        self._keepalive = keepalive

    def encode(self, spec: RequestSpec[Any], request_id: int) -> bytes:
        return encode(spec, request_id)

    def in_flight(self) -> InFlightRequests[Any]:
        return Numbered(self._timeout, self._keepalive) if self.numbered else Ordered(self._timeout)

    def login(self, connection: Connection) -> Procedure[None]:
        if self._user is not None:
            yield from exchange(connection, self.batch([echo(f"user {self._user}")]))


# -- clients


def next_event(client: Client | AsyncClient, until: float | None = None) -> Procedure[str | None]:
    """The next push of the server."""
    connection: Connection = client._driver.ready or (yield CONNECTED)
    requests = connection.requests
    assert isinstance(requests, Numbered)
    requests.subscribed = True
    if not requests.events:
        requests.arrived.clear()
        yield Wait(connection, requests.arrived, until)
    return requests.events.pop(0) if requests.events else None


class EchoMethods:
    echo = request_method(echo)
    store = request_method(store)

    @procedure_method
    def echo_all(self, texts: Sequence[str], pause: float) -> Procedure[list[str]]:
        """Several texts together, and again after a pause."""
        first = results_of((yield [echo(text) for text in texts]))
        yield pause
        return [*first, *results_of((yield [echo(text) for text in texts]))]

    next_event = procedure_method(next_event)

    @procedure_method
    def broken_off(self, cleaned_up: list[str]) -> Procedure[None]:
        try:
            yield [store("first")]
            raise KeyError("the caller's own")
        finally:
            cleaned_up.append("yes")


def _parts(
    ports: Sequence[int], numbered: bool, user: str | None, timeout: float, retry: RetryPolicy | None,
    tls: ssl.SSLContext | None, busy_poll: float, keepalive: float | None,
) -> tuple[EchoBinding, ConnectOptions]:  # fmt: skip
    addresses = Addresses([Address("127.0.0.1", port) for port in ports])
    options = ConnectOptions(addresses, tls, timeout, retry or RetryPolicy(), busy_poll)
    return EchoBinding(numbered, user, timeout, keepalive), options


class Client(EchoMethods, BlockingClient):
    def __init__(
        self, *ports: int, sleep: Callable[[float], None], numbered: bool = False, user: str | None = None,
        timeout: float = 30.0, retry: RetryPolicy | None = None, tls: ssl.SSLContext | None = None,
        busy_poll: float = 0.0, keepalive: float | None = None,
    ) -> None:  # fmt: skip
        parts = _parts(ports, numbered, user, timeout, retry, tls, busy_poll, keepalive)
        super().__init__(BlockingDriver(*parts, sleep))


class AsyncClient(EchoMethods, AsyncClientCore):
    def __init__(
        self, *ports: int, sleep: Any = asyncio.sleep, numbered: bool = False, user: str | None = None,
        timeout: float = 30.0, retry: RetryPolicy | None = None, tls: ssl.SSLContext | None = None,
        busy_poll: float = 0.0, keepalive: float | None = None,
    ) -> None:  # fmt: skip
        parts = _parts(ports, numbered, user, timeout, retry, tls, busy_poll, keepalive)
        super().__init__(AsyncDriver(*parts, sleep))


# -- the server


class EchoServer(scripted_server.ScriptedServer["_Peer"]):
    """Sends every line back, unless `replies` says otherwise: another line, None for silence, or an exception class
    for the end of the connection."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.lines: list[str] = []  # without their numbers
        self.replies: deque[str | type[Exception] | None] = deque()  # for the requests to come
        self.login = ""  # the reply to those who log in
        self.reads: list[int] = []  # lines that came together
        self.hold = 1  # replies are sent when so many have gathered, the last first if they have numbers

    def peer(self, writer: asyncio.StreamWriter) -> _Peer:
        return _Peer(self, writer)

    def push(self, *texts: str) -> None:
        def job() -> None:
            for peer in self.peers:
                peer.writer.write(b"".join(f"*{text}\n".encode() for text in texts))

        self.call(job)


class _Peer(scripted_server.Peer):
    def __init__(self, server: EchoServer, writer: asyncio.StreamWriter) -> None:
        super().__init__(writer)
        self._server = server
        self._lines = _Lines()
        self._held: list[bytes] = []

    def received(self, data: bytes) -> bool:
        lines = self._lines.cut(data)
        self._server.reads.append(len(lines))
        return all(map(self._answer, lines))

    def _answer(self, line: str) -> bool:
        server = self._server
        number, space, text = line.partition(" ")
        numbered = number.isdecimal() and bool(space)
        text = text if numbered else line
        server.lines.append(text)
        reply: str | type[Exception] | None = text
        if text.startswith("user "):
            reply = server.login or text
        elif server.replies:
            reply = server.replies.popleft()
        if isinstance(reply, str):
            self._held.append(f"{number} {reply}\n".encode() if numbered else f"{reply}\n".encode())
            if len(self._held) >= server.hold:
                self.writer.write(b"".join(reversed(self._held) if numbered else self._held))
                self._held.clear()
        return not isinstance(reply, type)
