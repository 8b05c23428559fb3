"""Kimberlite for the client core: encoding of requests, handling of received frames, and the handshake."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.clients._core import requests as core
from penstock.clients._core.binding import Binding
from penstock.clients._core.connection import Connection
from penstock.clients._core.inflight import NumberedRequests
from penstock.clients._core.procedure import Procedure, exchange
from penstock.clients.kimberlite import requests as r
from penstock.clients.kimberlite.errors import FAMILY, BadReply, Unsendable, reply_error
from penstock.clients.kimberlite.event_buffer import EventBuffer
from penstock.clients.kimberlite.options import Token
from penstock.clients.kimberlite.version import Version
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.errors import MalformedPayload

KEEPALIVE: Final = 30.0  # seconds of silence after which the server is probed, if it may push something


class KimberliteRequests(NumberedRequests[m.Response | m.Push]):
    """Requests in flight on one connection, and the event buffers of its subscriptions."""

    def __init__(self, binding: KimberliteBinding) -> None:
        super().__init__(binding.timeout, FAMILY, binding.encode, KEEPALIVE)
        self.version = binding.version
        self._binding = binding
        self._codec = self.version.codec()
        self._buffers: dict[int, EventBuffer] = {}

    @property
    def listening(self) -> bool:
        return bool(self._buffers)

    def frames(self, data: bytes) -> Iterator[m.Response | m.Push]:
        codec = self._codec
        codec.feed(data)
        try:
            while (message := codec.next()) is not None:
                yield message
        except MalformedPayload as error:
            raise BadReply(f"The server sent what cannot be read: {error}") from error

    def request_id(self, frame: m.Response | m.Push) -> int | None:
        return frame.request_id if type(frame) is m.Response else None

    def message(self, spec: core.RequestSpec[Any], frame: m.Response | m.Push) -> m.Message:
        payload = frame.payload
        if type(payload) is spec.reply:
            if isinstance(payload, m.SubscribeResponse) and isinstance(spec, r.RequestSpec) and spec.buffer is not None:
                if self.version.pushes:
                    self._buffers[payload.subscription_id] = spec.buffer
                spec.buffer.on_subscribed(payload)
            return payload
        if isinstance(payload, m.ErrorResponse):
            raise reply_error(payload.code, payload.message)
        raise BadReply(f"The server sent {type(payload).__name__} as the reply to a {spec.name}")

    def pushed(self, frame: m.Response | m.Push) -> None:
        payload = frame.payload
        if isinstance(payload, m.SubscriptionEvents):
            buffer = self._buffers.get(payload.subscription_id)
            if buffer is not None:  # else it was forgotten, and the server did not know yet
                buffer.on_events(payload)
        elif isinstance(payload, m.SubscriptionClosed):
            buffer = self._buffers.pop(payload.subscription_id, None)
            if buffer is not None:
                buffer.on_closed(payload.reason)
        else:
            raise BadReply(f"The server pushed {type(payload).__name__}")

    def unexpected(self, request_id: int, frame: m.Response | m.Push) -> Exception:
        payload = frame.payload
        if isinstance(payload, m.ErrorResponse):  # about the connection as a whole
            return reply_error(payload.code, payload.message)
        return super().unexpected(request_id, frame)

    def late(self, spec: core.RequestSpec[Any], frame: m.Response | m.Push) -> None:
        if isinstance(spec, r.RequestSpec) and spec.buffer is not None and isinstance(frame.payload, spec.reply):
            raise BadReply("The server made a subscription when nobody waited for it any more")

    def probe(self) -> r.RequestSpec[Any]:
        return self._binding.probe()

    def forget(self, buffer: EventBuffer) -> None:
        """Discard events pushed to this buffer from now on."""
        number = buffer.subscription_id
        if number is not None and self._buffers.get(number) is buffer:
            del self._buffers[number]

    def lose(self, reason: Exception) -> None:
        super().lose(reason)
        buffers, self._buffers = self._buffers, {}
        for buffer in buffers.values():
            buffer.on_lost()


@dataclass(eq=False)
class KimberliteBinding(Binding):
    version: Version
    tenant: int
    token: Token = field(repr=False)
    timeout: float  # seconds to wait for a reply

    errors = FAMILY
    numbered = True

    def __post_init__(self) -> None:
        if not 0 <= self.tenant < 2**64:
            raise ValueError("tenant must be from 0 to 2**64 - 1")
        self._encoder = self.version.codec()  # shared by all connections: only decoding has state

    def encode(self, spec: core.RequestSpec[Any], request_id: int) -> bytes:
        assert isinstance(spec, r.RequestSpec)
        version = self.version
        tenant = self.tenant if spec.tenant is None else spec.tenant
        request = version.adapt(spec.request, spec.audit)
        try:
            return self._encoder.request(request_id, tenant, request, spec.audit)
        except (ValueError, TypeError, LookupError, struct.error) as error:  # number too large, text for bytes, …
            raise Unsendable(f"{spec.name} cannot be sent in version {version.name}: {error}") from error

    def in_flight(self) -> KimberliteRequests:
        return KimberliteRequests(self)

    def login(self, connection: Connection) -> Procedure[None]:
        yield from exchange(connection, self.batch([self._handshake()]))

    def probe(self) -> r.RequestSpec[Any]:
        """A request that any server answers at once, to check that it is alive."""
        return r.server_info() if self.version.pushes else self._handshake()

    def _handshake(self) -> r.RequestSpec[None]:
        return r.handshake(self.version.number, self.token() if callable(self.token) else self.token)
