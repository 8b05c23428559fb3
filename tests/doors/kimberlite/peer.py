"""The other side of a Kimberlite session, in memory."""

from __future__ import annotations

from tests.broker.broker_fixture import BrokerFixture
from tests.doors.channel import Channel

from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.doors.kimberlite.session import kimberlite_door
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ClientCodec

TENANT = 42


class Peer(Channel):
    """A client and the channel it came by. It greets at once, unless it is told not to."""

    def __init__(
        self,
        fixture: BrokerFixture,
        dialect: str = "5b",
        *,
        tenant: int = TENANT,
        token: str | None = None,
        greets: bool = True,
        castagnoli: bool = False,
        settings: KimberliteSettings | None = None,
        identity: Identity = ANONYMOUS,
        port: int = 50000,
    ) -> None:
        super().__init__(port)
        self.fixture = fixture
        self.tenant = tenant
        self.wire = ClientCodec(dialect, castagnoli=castagnoli)
        self.pushed: list[m.Message] = []
        self._id = 0
        door = kimberlite_door(KimberliteSettings() if settings is None else settings)
        self.session = door.open(fixture.broker, self, identity._replace(peer=self.peer))
        if greets:
            reply = self.greet(token)
            assert isinstance(reply, m.HandshakeResponse), reply

    # -- the client

    def greet(self, token: str | None = None) -> m.Message:
        return self.ask(m.Handshake(self.wire.version, token))

    def frame(self, payload: m.Message, tenant: int | None = None, audit: m.AuditMetadata | None = None) -> bytes:
        self._id += 1
        return self.wire.request(self._id, self.tenant if tenant is None else tenant, payload, audit)

    def feed(self, *data: bytes | m.Message) -> None:
        parts = [part if isinstance(part, bytes) else self.frame(part) for part in data]
        self.session.receive(b"".join(parts))

    def raw(self) -> bytes:
        """The messages sent since the last call."""
        data = b"".join(self.sent[self._taken :])
        self._taken = len(self.sent)
        return data

    def responses(self) -> list[m.Response]:
        """The replies since the last call. Pushes are put aside, in `pushed`."""
        self.wire.feed(self.raw())
        found = []
        while (message := self.wire.next()) is not None:
            if isinstance(message, m.Push):
                self.pushed.append(message.payload)
            else:
                found.append(message)
        return found

    def all(self, *data: bytes | m.Message) -> list[m.Message]:
        """All answers to these requests, once everything is committed."""
        self.feed(*data)
        self.fixture.commit()
        return [response.payload for response in self.responses()]

    def ask(self, payload: m.Message, tenant: int | None = None, audit: m.AuditMetadata | None = None) -> m.Message:
        data = self.frame(payload, tenant, audit)
        self.feed(data)
        self.fixture.commit()
        (response,) = self.responses()
        assert response.request_id == self._id
        return response.payload

    def refused(self, payload: m.Message, tenant: int | None = None) -> m.ErrorResponse:
        reply = self.ask(payload, tenant)
        assert isinstance(reply, m.ErrorResponse), reply
        return reply

    # -- what tests do all the time

    def create(self, name: str = "events", data_class: m.DataClass = m.DataClass.PUBLIC) -> int:
        if self.wire.version == 1 and data_class is m.DataClass.PUBLIC:
            data_class = m.DataClass.DEIDENTIFIED  # which all generations have
        reply = self.ask(m.CreateStream(name, data_class, m.Everywhere()))
        assert isinstance(reply, m.CreateStreamResponse), reply
        return reply.stream_id

    def append(self, stream: int, *events: bytes, expected: int | None = None) -> m.AppendEventsResponse:
        reply = self.ask(m.AppendEvents(stream, list(events), self.length(stream) if expected is None else expected))
        assert isinstance(reply, m.AppendEventsResponse), reply
        return reply

    def length(self, stream: int) -> int:
        """The end of a stream, in every version of the client."""
        for topic in self.fixture.broker.state_log.state.topics_by_id.values():
            if topic.id == stream:
                return self.fixture.engine.bounds(stream << 32).high_watermark  # type: ignore[arg-type]
        raise AssertionError(stream)

    def read(self, stream: int, offset: int = 0, most: int = 1 << 20) -> m.ReadEventsResponse:
        reply = self.ask(m.ReadEvents(stream, offset, most))
        assert isinstance(reply, m.ReadEventsResponse), reply
        return reply
