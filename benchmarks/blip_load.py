"""BlipMQ clients in processes of their own: plain sockets that send prepared frames and check what comes back.

All messages of a benchmark have one size, so that deliveries are found by stride; a NACK shifts all behind it, and is
seen. Every conversation ends with a PING: when it is answered, all that came before it was carried out.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, NamedTuple

from benchmarks import blip_wire as wire
from benchmarks.report import Sample

from penstock.transport.spin_budget import BUSY_POLL, SocketBusyPoll

_CONTEXT = get_context("fork")
_RECEIVE = 1 << 18
_SUBSCRIBES = 500  # in one write


class Outcome(NamedTuple):
    sample: Sample
    used: float = 0.0  # processor seconds of the broker meanwhile
    ids: Sequence[int] = ()  # of new subscriptions
    groups: int = 0  # that the journal got meanwhile


@dataclass(frozen=True, slots=True)
class Publish:
    """Send `piece`, which holds `messages` PUBLISH frames, up to `pieces` times or for some seconds."""

    port: int
    piece: bytes
    messages: int
    seconds: float
    pieces: int = 1 << 60
    watch: Callable[[], float] = float  # processor seconds that the broker has used

    def run(self) -> Outcome:
        with Peer(self.port) as peer:
            clock, sent, used = time.perf_counter, 0, self.watch()
            began = clock()
            while sent < self.pieces and clock() - began < self.seconds:
                peer.send(self.piece)
                sent += 1
            peer.pass_barrier()
            return Outcome(Sample(sent * self.messages, clock() - began), self.watch() - used)


@dataclass(frozen=True, slots=True)
class Drain:
    """Subscribe, have the topic filled with `messages`, take and acknowledge them; stop after some seconds."""

    port: int
    topic: str
    delivery: bytes  # of the size that every delivery has
    fill: Callable[[], None]
    messages: int
    seconds: float
    in_flight: int = 1
    two_writes: bool = False  # first the ACK, then the POLL, and Nagle's algorithm as the system has it
    looks: bool = False  # for a reply, for a moment, as our own clients do; otherwise it sleeps until one comes
    watch: Callable[[], float] = float
    groups: Callable[[], int] = int  # that the journal has

    def run(self) -> Outcome:
        with Peer(self.port, no_delay=not self.two_writes, looks=self.looks) as peer:
            (subscription,) = peer.subscribe(self.topic, 1)
            self.fill()
            groups, used = self.groups(), self.watch()
            sample = (self._one if self.in_flight == 1 else self._many)(peer, subscription)
            used = self.watch() - used
            return Outcome(sample, used, groups=self.groups() - groups)

    def _one(self, peer: Peer, subscription: int) -> Sample:
        clock, size, send, receive = time.perf_counter, len(self.delivery), peer.send, peer.receive
        poll, head, own = wire.poll(subscription), wire.ack(subscription, 0)[:5], struct.pack(">Q", subscription)
        kind, tag = self.delivery[:5], wire.TAG
        rest = own + poll
        latencies = []
        began = now = clock()
        send(poll)
        while True:
            data = receive(size)
            if len(data) != size or not data.startswith(kind):
                raise RuntimeError(f"not a delivery: {data[:200]!r}")
            sent, now = now, clock()
            latencies.append(now - sent)
            if len(latencies) == self.messages or now - began > self.seconds:
                break
            if self.two_writes:
                send(head + data[tag] + own)
                send(poll)
            else:
                send(head + data[tag] + rest)
        send(head + data[tag] + own)
        peer.pass_barrier()
        return Sample(len(latencies), now - began, latencies)

    def _many(self, peer: Peer, subscription: int) -> Sample:
        clock, size, kind = time.perf_counter, len(self.delivery), self.delivery[:5]
        poll, head, own = wire.poll(subscription), wire.ack(subscription, 0)[:5], struct.pack(">Q", subscription)
        polls, between = poll * self.in_flight, own + head
        done, asked, step = 0, self.in_flight, wire.SUBSCRIPTION_FRAME
        buffer = b""
        began = now = clock()
        peer.send(polls)
        while done < asked:
            buffer += peer.receive(1)
            count = len(buffer) // size
            if not count:
                continue
            if any(buffer[at : count * size : size] != kind[at : at + 1] * count for at in range(5)):
                raise RuntimeError(f"not deliveries: {buffer[:200]!r}")
            tags = [buffer[at : at + 8] for at in range(5, count * size, size)]
            buffer = buffer[count * size :]
            now = clock()
            done += count
            more = 0 if now - began > self.seconds else min(count, self.messages - asked)
            peer.send(b"".join((head, between.join(tags), own, polls[: more * step])))
            asked += more
        peer.pass_barrier()
        return Sample(done, clock() - began)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Start so many subscriptions and leave."""

    port: int
    topic: str
    count: int

    def run(self) -> Outcome:
        ids: list[int] = []
        with Peer(self.port) as peer:
            began = time.perf_counter()
            while len(ids) < self.count:
                ids += peer.subscribe(self.topic, min(_SUBSCRIBES, self.count - len(ids)))
            return Outcome(Sample(len(ids), time.perf_counter() - began), ids=ids)


@dataclass(frozen=True, slots=True)
class TakeOneEach:
    """Take one message from each subscription, and acknowledge it."""

    port: int
    ids: Sequence[int]
    delivery: bytes

    def run(self) -> Outcome:
        size = len(self.delivery)
        with Peer(self.port) as peer:
            began = time.perf_counter()
            for at in range(0, len(self.ids), _SUBSCRIBES):
                ids = self.ids[at : at + _SUBSCRIBES]
                peer.send(b"".join(map(wire.poll, ids)))
                data = peer.receive(size * len(ids))
                if data[4::size] != self.delivery[4:5] * len(ids):
                    raise RuntimeError(f"not deliveries: {data[:200]!r}")
                tags = [int.from_bytes(data[i : i + 8]) for i in range(5, len(data), size)]
                peer.send(b"".join(map(wire.ack, ids, tags)))
            peer.pass_barrier()
            return Outcome(Sample(len(self.ids), time.perf_counter() - began))


class Peer:
    """A connection that has said HELLO and AUTH."""

    def __init__(self, port: int, *, no_delay: bool = True, looks: bool = False) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._look = SocketBusyPoll(self._socket, BUSY_POLL if looks else 0).poll
        if no_delay:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send = self._socket.sendall
        self.send(wire.GREETING)
        self._expect(wire.GREETED)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def receive(self, size: int) -> bytes:
        """At least so many bytes."""
        self._look()
        data = self._socket.recv(_RECEIVE)
        while data and len(data) < size:
            more = self._socket.recv(_RECEIVE)
            data = data + more if more else b""
        if not data:
            raise ConnectionError("the broker closed the connection")
        return data

    def _expect(self, reply: bytes) -> None:
        found = self.receive(len(reply))
        if found != reply:
            raise RuntimeError(f"the broker said {found[:200]!r}")

    def pass_barrier(self) -> None:
        self.send(wire.BARRIER)
        self._expect(wire.PASSED)

    def subscribe(self, topic: str, count: int) -> list[int]:
        self.send(wire.subscribe(topic) * count)
        size = wire.SUBSCRIPTION_FRAME
        data = self.receive(count * size)
        if data[4::size] != bytes((wire.ACK,)) * count:
            raise RuntimeError(f"the broker said {data[:200]!r}")
        return [int.from_bytes(data[at : at + 8]) for at in range(size - 8, len(data), size)]


def run(job: Publish | Drain | Subscribe | TakeOneEach) -> Outcome:
    """In a process of its own. Raises what the client raised, as text."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_child, args=(job, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        outcome = ours.recv()
    except EOFError:
        outcome = "a client process died"
    process.join()
    if not isinstance(outcome, Outcome):
        raise RuntimeError(outcome)
    return outcome


def _child(job: Publish | Drain | Subscribe | TakeOneEach, pipe: Any) -> None:
    try:
        pipe.send(job.run())
    except BaseException as error:  # noqa: BLE001 - it is told to the parent, which raises it
        pipe.send(f"{type(error).__name__}: {error}")


class BareServer:
    """A process that holds the same conversation, one connection at a time, without parsing more than it needs to know
    how many POLLs there were, and without keeping anything. It acknowledges segments at once, as the broker does."""

    def __init__(self, delivery: bytes) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(listener.getsockname()[1])
        self._process = _CONTEXT.Process(target=_serve, args=(listener, delivery), daemon=True)
        self._process.start()
        listener.close()

    def close(self) -> None:
        self._process.terminate()
        self._process.join()


def _serve(listener: socket.socket, delivery: bytes) -> None:
    while True:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with peer:
            _answer(peer, delivery)


def _answer(peer: socket.socket, delivery: bytes) -> None:
    """After the greeting: a SUBSCRIBE and then frames of ACK and POLL, or PUBLISH frames alone; at last a PING."""
    size, kind = wire.SUBSCRIPTION_FRAME, wire.POLL
    peer.recv(len(wire.GREETING), socket.MSG_WAITALL)
    peer.sendall(wire.GREETED)
    rest = b""
    publishing = subscribed = False
    while data := peer.recv(_RECEIVE):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if not publishing and not subscribed:
            publishing, subscribed = data[4] == wire.PUBLISH, data[4] == wire.SUBSCRIBE
            if subscribed:
                peer.sendall(wire.ack(1, 3))
                continue
        if publishing:
            rest = data[-13:] if len(data) >= 13 else (rest + data)[-13:]
        else:
            data = rest + data
            whole = len(data) // size * size
            if polls := data[4:whole:size].count(kind):
                peer.sendall(delivery * polls)
            rest = data[whole:]
        if rest == wire.BARRIER:
            peer.sendall(wire.PASSED)
            rest = b""
