"""The other side of a FlyMQ session, in memory."""

from __future__ import annotations

from itertools import chain, repeat

from tests.broker.broker_fixture import BrokerFixture
from tests.doors.channel import Channel

from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.doors.flymq.session import flymq_door
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec import replies, requests
from penstock.wire.flymq.frames import Frame, Framer
from penstock.wire.flymq.opcodes import Op


class Peer(Channel):
    """A client and the channel it came by."""

    def __init__(
        self,
        fixture: BrokerFixture,
        identity: Identity = ANONYMOUS,
        settings: FlyMqSettings | None = None,
        port: int = 50000,
    ) -> None:
        super().__init__(port)
        self.fixture = fixture
        door = flymq_door(FlyMqSettings() if settings is None else settings)
        self.session = door.open(fixture.broker, self, identity)

    # -- the client

    def feed(self, *data: bytes | m.Request) -> None:
        parts = [part if isinstance(part, bytes) else requests.encode(part) for part in data]
        self.session.receive(b"".join(parts))

    def raw(self) -> bytes:
        """The replies since the last call."""
        data = b"".join(self.sent[self._taken :])
        self._taken = len(self.sent)
        return data

    def frames(self) -> list[Frame]:
        framer = Framer(stray=False)
        found = framer.feed(self.raw())
        assert framer.error is None and framer.buffered == 0
        return found

    def replies(self, *asked: bytes | m.Request) -> list[m.Reply]:
        """The replies, to these requests if that matters: the order of a FETCH's reply depends on the request."""
        ordered = [isinstance(request, m.Fetch) and request.code_order for request in asked]
        orders = chain(ordered, repeat(False))
        return [
            replies.decode(frame.opcode, frame.payload, order)
            for frame, order in zip(self.frames(), orders, strict=False)
        ]

    def all(self, *data: bytes | m.Request) -> list[m.Reply]:
        """All replies to these requests, once everything is committed."""
        self.feed(*data)
        self.fixture.commit()
        return self.replies(*data)

    def ask(self, request: bytes | m.Request) -> m.Reply:
        (reply,) = self.all(request)
        return reply

    def refused(self, request: bytes | m.Request) -> str:
        """The text of the error that this request is answered with."""
        self.feed(request)
        self.fixture.commit()
        (frame,) = self.frames()
        assert frame.opcode == Op.ERROR, frame
        reply = replies.decode(frame.opcode, frame.payload)
        assert isinstance(reply, m.Failure)
        return reply.message
