"""The other side of a Felix connection, in memory: a line, its streams, and what comes back, as plain data.

    peer = Peer(BrokerFixture())                                   # a connection to a real broker on a simulated disk
    stream = peer.stream()                                 # the client opens a stream; `uni=True`: one without replies
    stream.send({"type": "publish", ...}, binary_frame)    # dicts become JSON frames; bytes go as they are
    peer.world.commit()
    stream.replies()                                       # what was answered since the last time: dicts and `Binary`
    stream.ask({...})                                      # all three; exactly one reply
    original(peer)                                         # a stream that has said `auth`
    peer.line.opened                                       # the streams that the broker opened, with their sessions

`stream.end()` is the client's FIN, `stream.finished` ours; `stream.limit = n` makes it congested after n bytes, and
`stream.drain()` takes all that was sent. Frames are put together and taken apart here without the codec under test.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, NamedTuple

from tests.broker.broker_fixture import BrokerFixture
from tests.doors.channel import Channel

from penstock.broker.names import Scope
from penstock.broker.security.access import ADMINISTRATOR, ANONYMOUS, Identity
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.felix.session import felix_door
from penstock.doors.streams import StreamSession, StreamsUsedUp

TENANT = "t1"
NAMES = {"tenant_id": TENANT, "namespace": "default", "stream": "orders"}


class Binary(NamedTuple):
    """A frame that is not JSON."""

    flags: int
    payload: bytes


def frame(payload: bytes | dict[str, Any], flags: int = 0) -> bytes:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return struct.pack(">4sHHI", b"FLX1", 1, flags, len(data)) + data


def frames(data: bytes) -> list[dict[str, Any] | Binary]:
    found: list[dict[str, Any] | Binary] = []
    at = 0
    while at < len(data):
        magic, version, flags, length = struct.unpack_from(">4sHHI", data, at)
        assert (magic, version) == (b"FLX1", 1)
        payload = data[at + 12 : at + 12 + length]
        assert len(payload) == length
        found.append(Binary(flags, payload) if flags else json.loads(payload))
        at += 12 + length
    return found


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def publish(payload: bytes, request_id: object = None, **fields: object) -> dict[str, Any]:
    message = {"type": "publish", **NAMES, "payload": b64(payload), **fields}
    return message if request_id is None else {**message, "request_id": request_id}


def publish_batch(payloads: list[bytes], request_id: object = None, **fields: object) -> dict[str, Any]:
    message = {"type": "publish_batch", **NAMES, "payloads": [b64(each) for each in payloads], **fields}
    return message if request_id is None else {**message, "request_id": request_id}


def batch(
    *payloads: bytes, request_id: int | None = None, stream: str = "orders", tenant: str = TENANT, extra: int = 0,
    key: bytes | None = None,
) -> bytes:  # fmt: skip
    """A binary batch; with an id it is one that wants an acknowledgement. `extra`: flags besides."""
    body = b"" if request_id is None else struct.pack(">QB", request_id, 2)
    if key is not None:
        body += struct.pack(">H", len(key)) + key
        extra |= 0x0040
    for name in (tenant, "default", stream):
        body += struct.pack(">H", len(name.encode())) + name.encode()
    body += struct.pack(">I", len(payloads)) + b"".join(struct.pack(">I", len(each)) + each for each in payloads)
    return frame(body, extra | (0x0001 if request_id is None else 0x0009))


def ack(request_id: int, error: str | None = None) -> Binary:
    text = (error or "").encode()
    return Binary(0x0010, struct.pack(">BQH", error is not None, request_id, len(text)) + text)


class Stream(Channel):
    """One stream, seen by the client and by its session alike."""

    def __init__(self, line: MemoryLine, *, uni: bool = False) -> None:
        super().__init__(line.port)
        self.line = line
        self.uni = uni
        self.session: StreamSession
        self.refused_with: int | None = None  # STOP_SENDING to the client
        self.reset_with: int | None = None
        self.left = False  # without an end

    # -- what the session calls

    def send(self, data: bytes) -> None:
        assert not self.line.dead
        assert not self.uni, "nobody can send on this stream"
        assert self.reset_with is None
        assert data
        super().send(data)

    def close(self) -> None:
        assert not self.line.dead
        super().close()

    def progress(self) -> None:
        assert not self.line.dead
        super().progress()

    def reset(self, code: int) -> None:
        assert not self.line.dead
        assert not self.closed
        self.reset_with = code

    def refuse(self, code: int) -> None:
        assert not self.line.dead
        assert not self.closed
        self.refused_with = code

    def leave(self) -> None:
        assert not self.line.dead
        assert not self.closed
        self.left = True

    # -- the client

    def send_all(self, data: bytes) -> None:
        if not self.closed and not self.line.dead and self.refused_with is None:
            self.session.receive(data)

    def feed(self, *parts: bytes | dict[str, Any]) -> None:
        self.send_all(b"".join(part if isinstance(part, bytes) else frame(part) for part in parts))

    def end(self) -> None:
        if not self.closed and not self.line.dead:
            self.session.end_of_input()

    @property
    def finished(self) -> bool:
        """The FIN of the broker."""
        return self.closed

    def replies(self) -> list[dict[str, Any] | Binary]:
        data = b"".join(self.sent[self._taken :])
        self._taken = len(self.sent)
        return frames(data)

    def drain(self) -> list[dict[str, Any] | Binary]:
        """The client takes all that was sent; the session hears of it."""
        found = self.replies()
        self.sent.clear()
        self._taken = 0
        if not self.closed:
            self.session.receive(b"")
        return found

    def all(self, *parts: bytes | dict[str, Any]) -> list[dict[str, Any] | Binary]:
        """All replies to these, once everything is committed."""
        self.feed(*parts)
        self.line.fixture.commit()
        return self.replies()

    def ask(self, part: bytes | dict[str, Any]) -> Any:
        (reply,) = self.all(part)
        return reply


class MemoryLine:
    """A `MultiplexedChannel`. `most`: streams that the client lets the broker open."""

    def __init__(self, fixture: BrokerFixture, port: int, most: int) -> None:
        self.fixture = fixture
        self.port = port
        self.most = most
        self.aborted: tuple[int, str] | None = None
        self.dead = False
        self.streams: list[Stream] = []  # that the client opened
        self.opened: list[Stream] = []  # that the broker opened
        self.host: Any = None

    @property
    def peer(self) -> str:
        return f"127.0.0.1:{self.port}"

    def open(self, session: StreamSession) -> Stream:
        assert not self.dead
        if len(self.opened) >= self.most:
            raise StreamsUsedUp
        stream = Stream(self)
        stream.session = session
        self.opened.append(stream)
        return stream

    def abort(self, code: int, reason: str) -> None:
        assert not self.dead
        self.aborted = (code, reason)
        self.lose()

    def lose(self) -> None:
        """The connection is gone."""
        self.dead = True
        for stream in [*self.streams, *self.opened]:
            if not stream.closed:
                stream.session.lost()
        self.host.lost()


class Peer:
    """A client's connection. Peers of one broker that share `door` are as those of one running broker."""

    def __init__(
        self, fixture: BrokerFixture, settings: FelixSettings | None = None, *, identity: Identity = ANONYMOUS,
        port: int = 50000, streams: int = 1000, door: Any = None,
    ) -> None:  # fmt: skip
        self.fixture = fixture
        self.line = MemoryLine(fixture, port, streams)
        self.door = door or felix_door(FelixSettings() if settings is None else settings)
        self.host: Any = self.door.open(fixture.broker, self.line, identity._replace(peer=self.line.peer))
        self.line.host = self.host

    def stream(self, *, uni: bool = False) -> Stream:
        stream = Stream(self.line, uni=uni)
        stream.session = self.host.accept(stream, replies=not uni)
        self.line.streams.append(stream)
        return stream

    def stop(self) -> None:
        self.host.stop()
        for stream in [*self.line.streams, *self.line.opened]:
            if not stream.closed:
                stream.session.stop()


def auth(tenant: str = TENANT, token: str = "", client_flags: int | None = 63) -> dict[str, Any]:
    message: dict[str, Any] = {"type": "auth", "tenant_id": tenant, "token": token}
    return message if client_flags is None else {**message, "client_flags": client_flags}


def original(peer: Peer, tenant: str = TENANT, token: str = "", client_flags: int | None = 63) -> Stream:
    """A stream on which `auth` was said and taken."""
    stream = peer.stream()
    reply = stream.ask(auth(tenant, token, client_flags))
    served = None if client_flags is None else {"type": "auth_ok", "server_flags": client_flags & 0x5E7F}
    assert reply == ({"type": "ok"} if served is None else served), reply
    return stream


def values(fixture: BrokerFixture, topic: str = "orders", tenant: str = TENANT, partition: int = 0) -> list[bytes]:
    """The records of a stream in the log."""
    read = fixture.broker.fetch.plan(ADMINISTRATOR, Scope(tenant, "default"), topic, partition, 0, 1 << 30, 1 << 30)
    return [value for part in read.run() for value in part.values()]
