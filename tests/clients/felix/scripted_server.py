"""A small Felix server for the client's tests, without a network: streams in memory, both dialects, faults on demand.

`ScriptedServer.connect` is given to a client as its connector. What the client sends on a stream arrives at once;
what the server sends arrives in the next turn of the event loop, or later if the client has paused the connection.

    server = ScriptedServer()
    client = AsyncFelixClient("broker:1", connector=server.connect)

`server.held` keeps replies back (`release` sends them), `server.mute` drops them, `server.refusals` says what to
refuse, `server.failures` are raised by the next connects, `connection.cut()` loses a connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

from penstock.clients.felix.connection import Connection
from penstock.clients.felix.options import Options
from penstock.transport.quic.connection import QuicConnection, StreamReceiver
from penstock.transport.quic.errors import ConnectionClosed, StreamsUsedUp
from penstock.wire.felix import messages as m
from penstock.wire.felix.codec.binary import decode_batch, encode_ack, encode_events
from penstock.wire.felix.codec.requests import decode_request
from penstock.wire.felix.frames import ACKED, BATCH, KEYED, KNOWN, OFFSETS, Frame, Framer


def run(work: Coroutine[Any, Any, None]) -> None:
    """A whole test, which fails also if something goes wrong that nobody waits for."""
    problems: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        await asyncio.wait_for(work, 10)

    asyncio.run(main())
    assert problems == []


class ScriptedStream:
    """Both ends of a stream: the client's `Stream`, and what the server does with it."""

    def __init__(self, connection: ScriptedConnection, *, bidirectional: bool, local: bool) -> None:
        self.connection = connection
        self.bidirectional = bidirectional
        self.local = local
        self.reader: StreamReceiver
        self.congested = False
        self.unsent = 0
        self.frames = Framer()
        self.original = False
        self.client_flags: int | None = None
        self.finished = False  # by the client
        self.ended = False  # by the server
        self.codes: dict[str, int] = {}  # how the client gave it up

    # -- the client's

    def send(self, data: bytes) -> None:
        assert not self.finished and not self.codes, "the client sends on a stream that it has given up"
        self.frames.feed(data)
        while not self.connection.closed and (frame := self.frames.next()) is not None:
            self.connection.server.take(self, frame)

    def finish(self) -> None:
        if not self.finished:
            self.finished = True
            if self.connection.server.answers_ends and not self.connection.closed:
                self.end()

    def reset(self, code: int) -> None:
        self.codes["reset"] = code

    def refuse(self, code: int) -> None:
        self.codes["refused"] = code

    # -- the server's

    def say(self, data: bytes) -> None:
        self.connection.later(lambda: None if "refused" in self.codes else self.reader.received(data, False))

    def end(self) -> None:
        self.ended = True
        self.connection.later(lambda: None if "refused" in self.codes else self.reader.received(b"", True))

    def give_up(self, code: int) -> None:
        self.connection.later(lambda: self.reader.reset(code))


class ScriptedConnection:
    """The client's `QuicConnection`."""

    def __init__(self, server: ScriptedServer, owner: Connection) -> None:
        self.server = server
        self.owner = owner
        self.peer = "broker:1"
        self.closed = False
        self.paused = False
        self.streams: list[ScriptedStream] = []  # that the client has opened
        self.events: list[ScriptedStream] = []  # that the server has opened
        self.unsent = 0
        self._inbox: deque[Callable[[], None]] = deque()

    def open(self, reader: StreamReceiver, *, bidirectional: bool) -> ScriptedStream:
        if self.closed:
            raise ConnectionClosed("the connection is closed")
        if len(self.streams) >= self.server.streams:
            raise StreamsUsedUp("no more")
        stream = ScriptedStream(self, bidirectional=bidirectional, local=True)
        stream.reader = reader
        self.streams.append(stream)
        return stream

    def close(self, code: int = 0, reason: str = "") -> None:
        if not self.closed:
            self.closed = True
            self._inbox.clear()
            asyncio.get_running_loop().call_soon(self.owner.closed, code, reason)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        asyncio.get_running_loop().call_soon(self._deliver)

    def cut(self, reason: str = "cut") -> None:
        """The connection is lost, with all that was under way."""
        self.closed = True
        self._inbox.clear()
        self.owner.closed(0, reason)

    def later(self, what: Callable[[], None]) -> None:
        self._inbox.append(what)
        asyncio.get_running_loop().call_soon(self._deliver)

    def push(self) -> ScriptedStream:
        """A stream to the client."""
        stream = ScriptedStream(self, bidirectional=False, local=False)
        self.events.append(stream)

        def accept() -> None:
            stream.reader = self.owner.accepted(cast(Any, stream))

        self.later(accept)
        return stream

    def _deliver(self) -> None:
        while self._inbox and not self.paused and not self.closed:
            self._inbox.popleft()()


class Subscriber:
    """A subscription, as the server sees it."""

    def __init__(self, stream: ScriptedStream, topic: str, at: int, number: int, flags: int | None) -> None:
        self.stream = stream
        self.topic = topic
        self.at = at
        self.number = number
        self.flags = flags

    @property
    def alive(self) -> bool:
        return not self.stream.codes and not self.stream.ended and not self.stream.connection.closed


class ScriptedServer:
    def __init__(self) -> None:
        self.connections: list[ScriptedConnection] = []
        self.requests: list[Any] = []  # messages and batches, in the order in which they came
        self.streams_used: dict[
            str, set[int]
        ] = {}  # name of a stream → by which QUIC streams binary batches came to it
        self.logs: dict[str, list[bytes]] = {}
        self.oldest = 0  # offset that is still kept
        self.cache: dict[str, bytes] = {}
        self.subscribers: list[Subscriber] = []
        self.failures: deque[Exception] = deque()
        self.connects = 0
        self.flags: int | None = KNOWN  # None: an older server, which does not tell
        self.hello_first = True
        self.tells_ids = True  # of subscriptions, in the document's dialect
        self.batch = 3  # events of a frame
        self.refusals: dict[str, str] = {}  # name of a stream, or key → what is wrong with it
        self.auth_error: str | None = None
        self.mute = False
        self.held = False
        self.replies: deque[Callable[[], None]] = deque()  # kept back
        self.answers_ends = True
        self.streams = 1000
        self.subscriptions = 1000  # of a connection
        self.options: Options | None = None

    async def connect(self, options: Options, connection: Connection) -> QuicConnection:
        self.connects += 1
        self.options = options
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.popleft()
        quic = ScriptedConnection(self, connection)
        self.connections.append(quic)
        return cast(QuicConnection, quic)

    # -- what tests ask and say

    def received(self, kind: type[Any]) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]

    def release(self, count: int | None = None) -> None:
        for _ in range(len(self.replies) if count is None else count):
            self.replies.popleft()()

    def publish(self, topic: str, *payloads: bytes) -> None:
        self.logs.setdefault(topic, []).extend(payloads)
        self.fan_out()

    def fan_out(self) -> None:
        for subscriber in self.subscribers:
            log = self.logs.setdefault(subscriber.topic, [])
            while subscriber.alive and subscriber.at < len(log):
                payloads = log[subscriber.at : subscriber.at + self.batch]
                subscriber.stream.say(self._events(subscriber, payloads))
                subscriber.at += len(payloads)

    def cut(self) -> None:
        """Lose all connections."""
        for connection in self.connections:
            if not connection.closed:
                connection.cut()

    # -- what clients say

    def take(self, stream: ScriptedStream, frame: Frame) -> None:
        if frame.flags & BATCH:
            batch = decode_batch(frame.payload, acked=bool(frame.flags & ACKED), keyed=bool(frame.flags & KEYED))
            self.requests.append(batch)
            self.streams_used.setdefault(batch.stream, set()).add(id(stream))
            error = self._store(batch.stream, list(batch.payloads))
            if batch.request_id is not None:
                self._reply(stream, encode_ack(batch.request_id, error))
            elif error is not None and not stream.original:
                self._reply(stream, m.encode(m.Error(message=error)))
            return
        request = decode_request(frame.payload, original=stream.original)
        self.requests.append(request)
        match request:
            case m.Auth():
                self._authenticate(stream, request)
            case m.Publish():
                self._published(stream, request.request_id, self._store(request.stream, [request.payload]))
            case m.PublishBatch():
                self._published(stream, request.request_id, self._store(request.stream, request.payloads))
            case m.Subscribe():
                self._subscribe(stream, request)
            case _:
                self._cached(stream, request)

    def _authenticate(self, stream: ScriptedStream, auth: m.Auth) -> None:
        stream.original = True
        stream.client_flags = auth.client_flags
        if self.auth_error is not None:
            stream.connection.later(lambda: stream.reader.refused(0))  # before it says why
            stream.say(m.encode(m.Error(message=self.auth_error)))
            stream.end()
        else:
            stream.say(m.encode(m.Ok() if self.flags is None else m.AuthOk(self.flags)))

    def _store(self, topic: str, payloads: list[bytes]) -> str | None:
        if topic in self.refusals:
            return self.refusals[topic]
        self.publish(topic, *payloads)
        return None

    def _published(self, stream: ScriptedStream, number: m.RequestId, error: str | None) -> None:
        if not stream.original:
            self._reply(stream, m.encode(m.Ok(number) if error is None else m.Error(request_id=number, message=error)))
        elif isinstance(number, int):
            self._reply(stream, m.encode(m.PublishOk(number) if error is None else m.PublishError(number, error)))

    def _reply(self, stream: ScriptedStream, data: bytes) -> None:
        if self.held:
            self.replies.append(lambda: stream.say(data))
        elif not self.mute:
            stream.say(data)

    def _subscribe(self, stream: ScriptedStream, request: m.Subscribe) -> None:
        end = len(self.logs.setdefault(request.stream, []))
        at = end
        if request.stream in self.refusals:
            self._reply(stream, m.encode(m.Error(message=self.refusals[request.stream])))
            return
        if len(stream.connection.events) >= self.subscriptions:
            self._reply(stream, m.encode(m.Error(message="max subscriptions per connection exceeded")))
            return
        if request.start == "earliest":
            at = self.oldest
        elif isinstance(request.start, m.From):
            at = request.start.offset
            if at < self.oldest or at > end:
                reason, available = ("too_old", self.oldest) if at < self.oldest else ("in_future", end)
                self._reply(stream, m.encode(m.SubscribeCursorError(cast(Any, reason), at, available)))
                return
        number = request.subscription_id if request.subscription_id is not None else 1000 + len(self.subscribers)
        if self.hello_first:
            events = self._opened(stream, request, at, number)
        reply = m.Subscribed(number) if stream.original else m.Ok(None, str(number) if self.tells_ids else None)
        self._reply(stream, m.encode(reply))
        if not self.hello_first:
            events = self._opened(stream, request, at, number)
        self.subscribers.append(events)
        self.fan_out()

    def _opened(self, stream: ScriptedStream, request: m.Subscribe, at: int, number: int) -> Subscriber:
        events = stream.connection.push()
        events.say(m.encode(m.EventStreamHello(number if stream.original else str(number))))
        return Subscriber(events, request.stream, at, number, stream.client_flags if stream.original else 0)

    def _events(self, subscriber: Subscriber, payloads: list[bytes]) -> bytes:
        if subscriber.flags == 0:
            names = ("default", "default", subscriber.topic)
            return m.encode(m.Event(*names, payloads[0]) if len(payloads) == 1 else m.EventBatch(*names, payloads))
        with_offsets = self.flags is not None and self.flags & OFFSETS
        return encode_events(payloads, None, subscriber.at if with_offsets else None)

    def _cached(self, stream: ScriptedStream, request: Any) -> None:
        number, key = request.request_id, request.key
        done: m.Message = m.CacheOk(number) if stream.original else m.Ok(number)
        if key in self.refusals:
            done = m.Error(request_id=number, message=self.refusals[key])
        elif isinstance(request, m.CachePut):
            self.cache[key] = request.value
        elif isinstance(request, m.CacheGet):
            done = m.CacheValue(key=key, value=self.cache.get(key), request_id=number)
        elif isinstance(request, m.CacheDelete):
            deleted = self.cache.pop(key, None) is not None
            done = m.CacheOk(number, deleted) if stream.original else m.Ok(number, None, deleted)
        elif isinstance(request, m.CacheCas):
            stored = self.cache.get(key) == request.expected
            if stored:
                self.cache[key] = request.value
            done = m.CacheCasOk(request_id=number, key=key, stored=stored, value=self.cache.get(key))
        elif isinstance(request, m.CacheIncrement):
            self.cache[key] = b"%d" % (int(self.cache.get(key, b"0")) + request.by)
            done = m.CacheValue(key=key, value=self.cache[key], request_id=number)
        self._reply(stream, m.encode(done))
