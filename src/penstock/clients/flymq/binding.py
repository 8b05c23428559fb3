"""FlyMQ for the client core: encoding of requests, matching of replies, and the login."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.clients._core.binding import Binding
from penstock.clients._core.connection import Connection
from penstock.clients._core.inflight import OrderedRequests
from penstock.clients._core.procedure import Procedure, exchange
from penstock.clients._core.requests import RequestSpec
from penstock.clients.flymq.errors import FAMILY, BadReply, ReplyError, Unsendable, reply_error
from penstock.clients.flymq.requests import authenticate, use_scope
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import replies, requests
from penstock.wire.flymq.errors import ProtocolError
from penstock.wire.flymq.frames import Frame, Framer, content
from penstock.wire.flymq.opcodes import Op


class FlyMqBinding(Binding):
    """`credentials` are those of the last accepted login, or to be tried first; `scope` is a tenant and a namespace,
    for brokers with our extension."""

    errors = FAMILY

    def __init__(
        self, credentials: tuple[str, str] | None, timeout: float, scope: tuple[str, str] | None = None
    ) -> None:
        self.credentials = credentials
        self.scope = scope
        self._timeout = timeout

    def encode(self, spec: RequestSpec[Any], _request_id: int) -> bytes:
        try:
            return requests.encode(spec.request)
        except (ValueError, ProtocolError) as error:
            raise Unsendable(str(error)) from error

    def in_flight(self) -> FlyMqRequests:
        return FlyMqRequests(self._timeout)

    def login(self, connection: Connection) -> Procedure[None]:
        if self.scope is not None:
            yield from exchange(connection, self.batch([use_scope(*self.scope)]))
        if self.credentials is not None:
            yield from exchange(connection, self.batch([authenticate(*self.credentials)]))


class FlyMqRequests(OrderedRequests[Frame]):
    """Requests in flight: replies have no ids and arrive in the order of the requests."""

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout, FAMILY)
        self._framer = Framer(stray=False)

    @property
    def buffered(self) -> bool:
        return bool(self._framer.buffered)

    def frames(self, data: bytes) -> Iterator[Frame]:
        yield from self._framer.feed(data)
        if self._framer.error is not None:
            raise BadReply(f"The server sent a bad frame: {self._framer.error}")

    def message(self, spec: RequestSpec[Any], frame: Frame) -> Any:
        if frame.opcode == Op.ERROR:
            raise refusal(frame)
        opcode = requests.OPCODES[type(spec.request)]
        if frame.opcode != replies.reply_opcode(opcode):
            raise BadReply(f"The server sent opcode 0x{frame.opcode:02X} as the reply to {opcode.name}")
        try:
            return replies.decode(frame.opcode, content(frame), getattr(spec.request, "code_order", False))
        except ProtocolError as error:
            raise BadReply(f"The server sent an unreadable reply to {opcode.name}: {error}") from error


def refusal(frame: Frame) -> ReplyError:
    """The exception for an ERROR frame. Raises BadReply if it cannot be decoded."""
    try:
        reply = replies.decode(Op.ERROR, content(frame))
    except ProtocolError as error:
        raise BadReply(f"The server sent an unreadable error: {error}") from error
    assert isinstance(reply, m.Failure)
    return reply_error(reply.message)
