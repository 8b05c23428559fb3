"""The other side of a BlipMQ session, in memory. Replies are read as plain text, so that a test can list them."""

from __future__ import annotations

from tests.broker.broker_fixture import BrokerFixture
from tests.doors.channel import Channel

from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.doors.blipmq.session import DOOR
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f

HELLO = codec.encode_hello(1, 1)
HELLO_2 = codec.encode_hello(1, 2)
AUTH = codec.encode_auth(2, "dev-key")


class Peer(Channel):
    """A client and the channel it came by."""

    def __init__(self, fixture: BrokerFixture, version: int = 1, identity: Identity = ANONYMOUS) -> None:
        """With a version the handshake is done already; with 0 nothing has been said."""
        super().__init__()
        self.fixture = fixture
        self.session = DOOR.open(fixture.broker, self, identity)
        if version:
            assert self.ask(codec.encode_hello(1, version), AUTH) == ["ACK 1 of 0", "ACK 2 of 0"]

    # -- the client

    def feed(self, *frames: bytes) -> None:
        self.session.receive(b"".join(frames))

    def frames(self) -> list[f.Frame]:
        """The replies since the last call, all of them whole frames."""
        framer = f.Framer(f.DELIVER)
        found = framer.feed(b"".join(self.sent[self._taken :]))
        assert framer.error is None and framer.buffered == 0
        self._taken = len(self.sent)
        return found

    def replies(self) -> list[str]:
        return [shown(frame) for frame in self.frames()]

    def ask(self, *frames: bytes) -> list[str]:
        """All replies to these frames, once everything is committed."""
        self.feed(*frames)
        self.fixture.commit()
        return self.replies()

    def subscribe(self, topic: bytes = b"t", qos: int = 1) -> int:
        self.feed(codec.encode_subscribe(77, topic, qos))
        self.fixture.commit()
        ((kind, correlation, payload),) = self.frames()
        assert (kind, correlation) == (f.ACK, 77)
        return int.from_bytes(payload, "big")


def shown(frame: f.Frame) -> str:
    """A frame in words: what it is, its correlation id, and what it carries."""
    kind, correlation, payload = frame
    match kind:
        case f.ACK:
            return f"ACK {correlation} of {int.from_bytes(payload, 'big')}"
        case f.NACK:
            code, text = codec.decode_nack(payload) or (0, "")
            return f"NACK {correlation} {code} {text}"
        case f.PONG:
            assert payload == b""
            return f"PONG {correlation}"
        case f.PUBLISH:
            delivered = codec.decode_delivery(correlation, payload)
            assert delivered is not None
            return f"PUBLISH {correlation} qos {delivered.qos} {delivered.topic.decode()}: {delivered.value.decode()}"
        case f.DELIVER:
            delivered = codec.decode_deliver(payload)
            assert delivered is not None and delivered.tag == correlation
            return f"DELIVER {correlation} qos {delivered.qos} {delivered.topic.decode()}: {delivered.value.decode()}"
    raise AssertionError(f"a server never sends {frame}")
