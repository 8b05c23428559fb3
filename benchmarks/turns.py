"""One turn of a session without sockets: from the bytes of a request to the bytes of its reply, written to the journal.

What it takes is processor time of this thread, and the least of many short rounds counts: that hardly changes when
other processes use the machine, so that two revisions can be compared on a busy one. The event loop is a list of
callbacks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final, cast

from benchmarks import blip_wire, wire
from benchmarks.report import Report
from benchmarks.settings import Run

from penstock.broker.broker import Broker
from penstock.broker.queues.queue import QueuePolicy
from penstock.broker.runtime.clock import wall_clock
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.settings import BrokerSettings
from penstock.doors.blipmq import session as blipmq
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.felix.session import felix_door
from penstock.doors.rustlog import session as rustlog
from penstock.doors.session import Door
from penstock.doors.streams import StreamSession
from penstock.log.committer import ThreadCommitter
from penstock.log.engine import Durability
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.wire.felix.codec.binary import Batch, encode_batch
from penstock.wire.felix.frames import frame

TITLE: Final = "processor time of one turn, no sockets, written"
TOPIC: Final = "bench"
ROUNDS: Final = 150
TURNS: Final = 50
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


class Client:
    """A session, and the channel that it sees."""

    peer = "benchmark:1"
    congested = False

    def __init__(self, directory: str, door: Door) -> None:
        self._loop = loop = Loop()
        settings = LogSettings(durability=Durability.WRITTEN)
        engine = FileEngine(OsFiles(directory), settings, committer=ThreadCommitter(cast(Any, loop)), clock=wall_clock)
        self.broker = Broker(engine, BrokerSettings(queues=POLICY))
        self._replies: list[bytes] = []
        self.send = self._replies.append
        self._session = door.open(self.broker, self, ANONYMOUS)

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


def measure(run: Run, report: Report) -> None:
    for in_flight in (1, 64):
        client = Client(os.path.join(run.directory, f"take-{in_flight}"), blipmq.DOOR)
        seconds = _least(_take(client, in_flight))
        client.broker.close()
        name = f"BlipMQ, 64 B, ACK and POLL, {in_flight} in flight"
        report.add(name, 1e6 * seconds / in_flight, "µs", note="for one delivery")
    client = Client(os.path.join(run.directory, "produce"), rustlog.DOOR)
    seconds = _least(_produce(client))
    client.broker.close()
    report.add("RustLog, binary, Produce of one record of 1 KiB", 1e6 * seconds, "µs")

    for size, frames, fan_out in ((256, 1, 1), (256, 1, 10), (256, 3, 1), (256, 3, 10)):
        streams = Streams(os.path.join(run.directory, f"felix-{size}-{frames}-{fan_out}"), fan_out)
        seconds = _least(_deliver(streams, size, frames), rounds=ROUNDS // 5)
        streams.broker.close()
        name = f"Felix, {frames} x 64 of {size} B at once, to {fan_out} subscribers"
        report.add(name, 1e6 * seconds / frames, "µs", note="for one batch")


class Streams:
    """A Felix connection with one stream to publish on and some subscriptions."""

    peer = "benchmark:1"

    def __init__(self, directory: str, fan_out: int) -> None:
        self._loop = loop = Loop()
        settings = LogSettings(durability=Durability.WRITTEN)
        engine = FileEngine(OsFiles(directory), settings, committer=ThreadCommitter(cast(Any, loop)), clock=wall_clock)
        self.broker = Broker(engine, executor=self._offload, scheduler=loop)
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


def _deliver(streams: Streams, size: int, frames: int) -> Callable[[], None]:
    data = encode_batch(Batch("bench", "default", "bench", [os.urandom(size)] * 64)) * frames
    expected = streams.publish(data)
    assert expected > frames * 64 * size, expected

    def turn() -> None:
        assert streams.publish(data) == expected

    return turn


def about(_run: Run) -> str:
    return f"the least of {ROUNDS} rounds of {TURNS} turns"


def _least(turn: Callable[[], None], rounds: int = ROUNDS) -> float:
    found = []
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(TURNS):
            turn()
        found.append((time.thread_time() - began) / TURNS)
    return min(found)


def _take(client: Client, in_flight: int) -> Callable[[], None]:
    """Each turn acknowledges what the last one brought, and asks for as many more."""
    client.ask(blip_wire.GREETING)
    subscription = int.from_bytes(client.ask(blip_wire.subscribe(TOPIC))[-8:])
    message = blip_wire.publish(TOPIC, bytes(64))
    for _ in range((ROUNDS * TURNS + 1) * in_flight // 400 + 1):
        client.ask(message * 400)  # so few that no thread writes them
    polls = blip_wire.poll(subscription) * in_flight
    head, own = blip_wire.ack(subscription, 0)[:5], blip_wire.ack(subscription, 0)[-8:]
    size = len(message)
    last = client.ask(polls)

    def turn() -> None:
        nonlocal last
        assert len(last) == in_flight * size
        tags = [last[at : at + 8] for at in range(5, len(last), size)]
        last = client.ask(b"".join((head, (own + head).join(tags), own, polls)))

    return turn


def _produce(client: Client) -> Callable[[], None]:
    client.broker.topics.create(ANONYMOUS, rustlog.SCOPE, TOPIC, 1)
    request = wire.binary_produce(TOPIC, [os.urandom(1024)])
    expected = len(client.ask(request))

    def turn() -> None:
        assert len(client.ask(request)) == expected

    return turn
