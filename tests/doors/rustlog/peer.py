"""The other side of a RustLog session, in memory."""

from __future__ import annotations

from tests.broker.broker_fixture import BrokerFixture
from tests.doors.channel import Channel

from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.doors.rustlog.session import DOOR
from penstock.wire.rustlog.codec.dialect import JSON, Dialect, detect
from penstock.wire.rustlog.frames import Framer, frame
from penstock.wire.rustlog.messages import Request, Response


class Peer(Channel):
    """A client and the channel it came by. It understands the replies of both dialects."""

    def __init__(self, fixture: BrokerFixture, dialect: Dialect = JSON, identity: Identity = ANONYMOUS) -> None:
        super().__init__()
        self.fixture = fixture
        self.dialect = dialect
        self.session = DOOR.open(fixture.broker, self, identity)

    # -- the client

    def encode(self, *requests: Request) -> bytes:
        return b"".join(frame(self.dialect.encode_request(request)) for request in requests)

    def send_requests(self, *requests: Request) -> None:
        self.session.receive(self.encode(*requests))

    def payloads(self) -> list[bytes]:
        """The replies since the last call, all of them whole frames."""
        framer = Framer()
        found = framer.feed(b"".join(self.sent[self._taken :]))
        assert framer.error is None and framer.buffered == 0
        self._taken = len(self.sent)
        return found

    def replies(self) -> list[Response]:
        return [detect(payload).decode_response(payload) for payload in self.payloads()]

    def ask(self, *requests: Request) -> Response:
        """The last reply to these requests, once everything is committed."""
        return self.ask_all(*requests)[-1]

    def ask_all(self, *requests: Request) -> list[Response]:
        self.send_requests(*requests)
        self.fixture.commit()
        replies = self.replies()
        assert len(replies) == len(requests)
        return replies
