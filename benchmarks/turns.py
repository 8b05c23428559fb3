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

from penstock.core.access import ANONYMOUS
from penstock.core.broker import Broker
from penstock.core.clock import wall_clock
from penstock.core.queue import QueuePolicy
from penstock.log.committer import ThreadCommitter
from penstock.log.engine import Durability
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.protocols.blipmq import session as blipmq
from penstock.protocols.rustlog import session as rustlog
from penstock.protocols.session import Door

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
        self.broker = Broker(engine, queue_policy=POLICY)
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


def about(_run: Run) -> str:
    return f"the least of {ROUNDS} rounds of {TURNS} turns"


def _least(turn: Callable[[], None]) -> float:
    found = []
    for _ in range(ROUNDS):
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
    client.broker.create_topic(ANONYMOUS, rustlog.SCOPE, TOPIC, 1)
    request = wire.binary_produce(TOPIC, [os.urandom(1024)])
    expected = len(client.ask(request))

    def turn() -> None:
        assert len(client.ask(request)) == expected

    return turn
