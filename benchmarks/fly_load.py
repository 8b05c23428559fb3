"""FlyMQ clients in processes of their own: plain sockets that send prepared frames and check what comes back.

A client that sleeps while it waits pays for being woken up, which on a virtual machine takes longer than many a
request. So a client can also *spin*: ask its sockets again and again. It then needs a processor of its own.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, NamedTuple

from benchmarks import fly_wire as wire
from benchmarks.report import Sample

_CONTEXT = get_context("fork")
_RECEIVE = 1 << 18
_LARGEST = 16 << 20  # of a reply to a fetch


class Span(NamedTuple):
    """What one process did, and from when to when on the clock that all processes share."""

    done: int
    began: float
    ended: float
    latencies: list[float]


@dataclass(slots=True)
class _Lane:
    """One of many connections."""

    peer: socket.socket
    replies: wire.Replies
    unsent: int
    sent: float = 0.0  # when


@dataclass(frozen=True, slots=True)
class Produce:
    """Send `messages` PRODUCE frames over so many connections, each of which has `in_flight` of them without an
    answer."""

    port: int
    topic: str
    frame: bytes
    messages: int
    connections: int = 1
    in_flight: int = 1
    spin: bool = False

    def run(self, gate: Callable[[], object]) -> Span:
        peers = [_connect(self.port) for _ in range(self.connections)]
        try:
            return self._one(peers[0], gate) if self.connections == self.in_flight == 1 else self._many(peers, gate)
        finally:
            for peer in peers:
                peer.close()

    def _one(self, peer: socket.socket, gate: Callable[[], object]) -> Span:
        clock, frame, send, latencies = time.perf_counter, self.frame, peer.sendall, list[float]()
        receive = _spinning(peer) if self.spin else peer.recv
        count = wire.Replies(self.topic).count
        gate()
        began = now = clock()
        for _ in range(self.messages):
            sent = now
            send(frame)
            while not count(receive(_RECEIVE) or _closed()):
                pass
            now = clock()
            latencies.append(now - sent)
        return Span(self.messages, began, now, latencies)

    def _many(self, peers: Sequence[socket.socket], gate: Callable[[], object]) -> Span:
        """Blocking sends are safe: the replies are small, and never fill a socket."""
        clock, size, alone = time.perf_counter, len(self.frame), self.in_flight == 1
        share = self.messages // len(peers)
        window = min(self.in_flight, share)
        frames = memoryview(self.frame * window)
        poll = select.epoll()
        lanes = {peer.fileno(): _Lane(peer, wire.Replies(self.topic), share - window) for peer in peers}
        for number in lanes:
            poll.register(number, select.EPOLLIN)
        latencies: list[float] = []
        left, timeout = share * len(peers), 0 if self.spin else 60
        gate()
        began = now = clock()
        for lane in lanes.values():
            lane.sent = clock()
            lane.peer.sendall(frames)
        while left:
            for number, _ in poll.poll(timeout):
                lane = lanes[number]
                count = lane.replies.count(lane.peer.recv(_RECEIVE) or _closed())
                if not count:
                    continue
                now = clock()
                left -= count
                if alone:
                    latencies.append(now - lane.sent)
                    lane.sent = now
                if more := min(count, lane.unsent):
                    lane.unsent -= more
                    lane.peer.sendall(frames[: more * size])
        poll.close()
        return Span(share * len(peers), began, now, latencies)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read partition 0 up to `end`, `records` in each request and one request at a time, for some seconds. `bare`:
    the server always answers with the same."""

    port: int
    topic: str
    end: int
    records: int
    seconds: float
    spin: bool = False
    bare: bool = False

    def run(self, gate: Callable[[], object]) -> Span:
        clock, latencies, count = time.perf_counter, list[float](), 0
        view = memoryview(bytearray(_LARGEST))
        requests = [wire.fetch(self.topic, 0, at, self.records) for at in range(0, self.end, self.records)]
        with _connect(self.port) as peer:
            if self.spin:
                peer.setblocking(False)
            gate()
            began = now = clock()
            while now - began < self.seconds:
                for place, request in enumerate(requests):
                    sent = now
                    peer.sendall(request)
                    got, after = wire.records_in(_whole_frame(peer, view))
                    if got != self.records or (after != (place + 1) * self.records and not self.bare):
                        raise RuntimeError(f"asked for {self.records} records, got {got} and next offset {after}")
                    now = clock()
                    latencies.append(now - sent)
                    count += got
        return Span(count, began, now, latencies)


def _connect(port: int) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port), timeout=60)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def _spinning(peer: socket.socket) -> Callable[[int], bytes]:
    def receive(size: int) -> bytes:
        while True:
            try:
                return peer.recv(size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass

    peer.settimeout(None)  # with a timeout, `recv` would wait for input by itself
    return receive


def _whole_frame(peer: socket.socket, view: memoryview) -> memoryview:
    have, wanted = 0, wire.HEADER.size
    while have < wanted:
        try:
            have += peer.recv_into(view[have:]) or len(_closed())
        except BlockingIOError:
            continue
        if wanted == wire.HEADER.size <= have:
            wanted += int.from_bytes(view[4:8])
    return view[:wanted]


def _closed() -> bytes:
    raise ConnectionError("the broker closed the connection")


def run(jobs: Sequence[Produce | Fetch]) -> Sample:
    """Run each job in a process of its own, all at the same time. Raises what a client raised, as text."""
    barrier = _CONTEXT.Barrier(len(jobs))
    waiting = []
    for job in jobs:
        ours, theirs = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=_child, args=(job, barrier, theirs), daemon=True)
        process.start()
        theirs.close()
        waiting.append((process, ours))
    outcomes = []
    for process, pipe in waiting:
        try:
            outcomes.append(pipe.recv())
        except EOFError:
            outcomes.append("a client process died")
        process.join()
    spans = [outcome for outcome in outcomes if isinstance(outcome, Span)]
    if len(spans) < len(jobs):
        raise RuntimeError("; ".join(str(outcome) for outcome in outcomes if not isinstance(outcome, Span)))
    seconds = max(span.ended for span in spans) - min(span.began for span in spans)
    return Sample(sum(span.done for span in spans), seconds, [each for span in spans for each in span.latencies])


def _child(job: Produce | Fetch, barrier: Any, pipe: Any) -> None:
    try:
        pipe.send(job.run(lambda: barrier.wait(60)))
    except BaseException as error:  # noqa: BLE001 - it is told to the parent, which raises it
        barrier.abort()
        pipe.send(f"{type(error).__name__}: {error}")
