"""Exchanges without sockets: a session on a broker with a journal, and a client that waits for each reply.

The event loop is a list of callbacks, so that everything happens on this thread. For each door there is one exchange
that writes and one that reads; `turns` times them, `calls` counts what they pass through.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import msgspec
from benchmarks import blip_wire, fly_wire, wire

from penstock.broker.broker import Broker
from penstock.broker.queues.queue import QueuePolicy
from penstock.broker.runtime.clock import wall_clock
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.settings import BrokerSettings
from penstock.doors.blipmq import session as blipmq
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.felix.session import felix_door
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.doors.flymq.session import flymq_door
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.doors.kimberlite.session import kimberlite_door
from penstock.doors.rustlog import session as rustlog
from penstock.doors.session import Door
from penstock.doors.streams import StreamSession
from penstock.log.committer import ThreadCommitter
from penstock.log.engine import Durability
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.wire.felix.codec.binary import Batch, encode_batch
from penstock.wire.felix.frames import HEADER_SIZE, frame
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ClientCodec

TOPIC: Final = "bench"
SIZE: Final = 1024  # bytes of a record
TENANT: Final = 42  # of Kimberlite
HOUR: Final = 3_600_000_000  # µs
POLICY: Final = QueuePolicy(capacity=10_000_000, ttl=HOUR, backoff=HOUR)


class Loop:
    """What a committer needs of an event loop."""

    def __init__(self) -> None:
        self._ready: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._ready.append((callback, arguments))

    call_soon_threadsafe = call_soon

    def run(self) -> None:
        while self._ready:
            ready, self._ready = self._ready, []
            for callback, arguments in ready:
                callback(*arguments)


def _engine(directory: str, loop: Loop) -> FileEngine:
    settings = LogSettings(durability=Durability.WRITTEN)
    return FileEngine(OsFiles(directory), settings, committer=ThreadCommitter(cast(Any, loop)), clock=wall_clock)


class Client:
    """A session, and the channel that it sees."""

    peer = "benchmark:1"
    congested = False

    def __init__(self, directory: str, door: Door) -> None:
        self._loop = loop = Loop()
        self.broker = Broker(_engine(directory, loop), BrokerSettings(queues=POLICY))
        self._replies: list[bytes] = []
        self.send = self._replies.append
        self._door = door
        self.reconnect()

    def reconnect(self) -> None:
        self._session = self._door.open(self.broker, self, ANONYMOUS)

    def close(self) -> None:
        """The session has nothing more to say."""

    def progress(self) -> None:
        """As a connection does: look how much is held."""
        _ = self._session.held_bytes

    def ask(self, data: bytes) -> bytes:
        self._session.receive(data)
        self.progress()
        self._loop.run()
        reply = b"".join(self._replies)
        self._replies.clear()
        return reply


class Streams:
    """A Felix connection with one stream to publish on and some subscriptions."""

    peer = "benchmark:1"

    def __init__(self, directory: str, fan_out: int) -> None:
        self._loop = loop = Loop()
        self.broker = Broker(_engine(directory, loop), executor=self._offload, scheduler=loop)
        self._host = felix_door(FelixSettings()).open(self.broker, self, ANONYMOUS)
        self.delivered = 0
        self._streams = [self._accept() for _ in range(1 + fan_out)]
        auth = b'{"type":"auth","tenant_id":"bench","token":"any","client_flags":63}'
        subscribe = b'{"type":"subscribe","tenant_id":"bench","namespace":"default","stream":"bench"}'
        for stream in self._streams:
            stream.receive(frame(auth))
            self._loop.run()
        for stream in self._streams[1:]:
            stream.receive(frame(subscribe))
            self._loop.run()

    def _offload(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self._loop.call_soon(work)
        self._loop.call_soon(done)

    def _accept(self) -> StreamSession:
        stream = Stream(self)
        stream.session = self._host.accept(stream, replies=True)
        return stream.session

    def open(self, session: StreamSession) -> Stream:
        stream = Stream(self)
        stream.session = session
        return stream

    def abort(self, code: int, reason: str) -> None:
        raise RuntimeError(f"{code}: {reason}")

    def publish(self, data: bytes) -> int:
        """How many bytes were sent to subscribers."""
        before = self.delivered
        self._streams[0].receive(data)
        self._loop.run()
        return self.delivered - before


class Stream:
    """One of its streams, to a client that takes everything."""

    peer = "benchmark:1"
    congested = False

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self.session: StreamSession

    def send(self, data: bytes) -> None:
        self._streams.delivered += len(data)

    def close(self) -> None: ...

    def reset(self, code: int) -> None:
        raise RuntimeError(f"reset with {code}")

    def refuse(self, code: int) -> None: ...

    def leave(self) -> None: ...

    def progress(self) -> None:
        _ = self.session.held_bytes


Turn: TypeAlias = Callable[[], None]
"""Sends a request and checks its reply."""


def rustlog_produce(client: Client) -> Turn:
    client.ask(wire.framed(b'{"type":"CreateTopic","topic":"bench","partition_count":1}'))
    client.reconnect()  # the first request of a connection chooses its dialect
    return _repeated(client, wire.binary_produce(TOPIC, [os.urandom(SIZE)]))


def rustlog_fetch(client: Client) -> Turn:
    rustlog_produce(client)()
    return _repeated(client, wire.binary_fetch(TOPIC, 0, SIZE))


def flymq_produce(client: Client) -> Turn:
    return _repeated(client, fly_wire.produce(TOPIC, os.urandom(SIZE)))


def flymq_fetch(client: Client) -> Turn:
    flymq_produce(client)()
    return _repeated(client, fly_wire.fetch(TOPIC, 0, 0, 1))


def blipmq_publish(client: Client) -> Turn:
    """With a PING behind it, because success is silent."""
    client.ask(blip_wire.GREETING)
    client.ask(blip_wire.subscribe(TOPIC))
    return _repeated(client, blip_wire.publish(TOPIC, bytes(SIZE)) + blip_wire.BARRIER)


def blipmq_poll(client: Client, messages: int = 1_000, in_flight: int = 1, size: int = SIZE) -> Turn:
    """Each turn acknowledges the messages of the last one, and asks for as many more. There are `messages` of them."""
    client.ask(blip_wire.GREETING)
    subscription = int.from_bytes(client.ask(blip_wire.subscribe(TOPIC))[-8:])
    message = blip_wire.publish(TOPIC, bytes(size))
    together = 25_600 // size  # so few that no thread writes them
    for _ in range(messages // together + 1):
        client.ask(message * together)
    polls = blip_wire.poll(subscription) * in_flight
    head, tail = blip_wire.ack(subscription, 0)[:5], blip_wire.ack(subscription, 0)[-8:]
    length = len(message)
    last = client.ask(polls)

    def turn() -> None:
        nonlocal last
        assert len(last) == in_flight * length
        tags = [last[at : at + 8] for at in range(5, len(last), length)]
        last = client.ask(b"".join((head, (tail + head).join(tags), tail, polls)))

    return turn


def kimberlite_append(client: Client) -> Turn:
    """By a client of version 1, which names no expected offset, so that the same bytes can be sent again."""
    stream, codec = _kimberlite_stream(client)
    return _repeated(client, codec.request(3, TENANT, m.AppendEvents(stream, [os.urandom(SIZE)])))


def kimberlite_read(client: Client) -> Turn:
    stream, codec = _kimberlite_stream(client)
    client.ask(codec.request(3, TENANT, m.AppendEvents(stream, [os.urandom(SIZE)])))
    return _repeated(client, codec.request(4, TENANT, m.ReadEvents(stream, 0, 4 * SIZE)))


def _kimberlite_stream(client: Client) -> tuple[int, ClientCodec]:
    codec = ClientCodec("v0.1")
    client.ask(codec.request(1, TENANT, m.Handshake(1)))
    create = m.CreateStream(TOPIC, m.DataClass.NON_PHI, m.Everywhere())
    codec.feed(client.ask(codec.request(2, TENANT, create)))
    reply = codec.next()
    assert isinstance(reply, m.Response), reply
    assert isinstance(reply.payload, m.CreateStreamResponse), reply
    return reply.payload.stream_id, codec


def felix_deliver(streams: Streams, size: int, frames: int = 1, records: int = 64) -> Turn:
    """Publishes batches, without an acknowledgement, to all subscribers."""
    data = encode_batch(Batch("bench", "default", "bench", [os.urandom(size)] * records)) * frames
    expected = streams.publish(data)
    assert expected > frames * records * size, expected

    def turn() -> None:
        assert streams.publish(data) == expected

    return turn


def felix_publish(streams: Streams) -> Turn:
    """One record, acknowledged; nobody has subscribed."""
    data = encode_batch(Batch("bench", "default", "bench", [os.urandom(SIZE)], request_id=1, ack=True))
    expected = streams.publish(data)
    assert expected > HEADER_SIZE, expected

    def turn() -> None:
        assert streams.publish(data) == expected

    return turn


def felix_cache(streams: Streams, verb: str, size: int = 256) -> Turn:
    """One put or get of a value that is there."""
    scope = {"tenant_id": "bench", "namespace": "default", "cache": "primary", "key": "key-1"}
    put = {"type": "cache_put", **scope, "value": os.urandom(size), "request_id": 1, "ttl_ms": None}
    streams.publish(frame(msgspec.json.encode(put)))
    request = put if verb == "put" else {"type": f"cache_{verb}", **scope, "request_id": 1}
    data = frame(msgspec.json.encode(request))
    expected = streams.publish(data)
    assert expected > HEADER_SIZE, expected

    def turn() -> None:
        assert streams.publish(data) == expected

    return turn


def _repeated(client: Client, request: bytes) -> Turn:
    """The same request every time: all replies have one size."""
    expected = len(client.ask(request))
    assert expected > 8, client.ask(request)

    def turn() -> None:
        assert len(client.ask(request)) == expected

    return turn


FLYMQ: Final = flymq_door(FlyMqSettings())
KIMBERLITE: Final = kimberlite_door(KimberliteSettings())
WRITES: Final[dict[str, tuple[Door, Callable[[Client], Turn]]]] = {
    "RustLog": (rustlog.DOOR, rustlog_produce),
    "BlipMQ": (blipmq.DOOR, blipmq_publish),
    "FlyMQ": (FLYMQ, flymq_produce),
    "Kimberlite": (KIMBERLITE, kimberlite_append),
}
READS: Final[dict[str, tuple[Door, Callable[[Client], Turn]]]] = {
    "RustLog": (rustlog.DOOR, rustlog_fetch),
    "BlipMQ": (blipmq.DOOR, blipmq_poll),
    "FlyMQ": (FLYMQ, flymq_fetch),
    "Kimberlite": (KIMBERLITE, kimberlite_read),
}
