"""The load generator: one process with plain sockets that costs the same for every server.

Closed loop: each connection has so many requests in flight, and sends as many new ones as it gets replies. Open loop:
requests are due at times that are fixed before, whatever becomes of the others; the latency of each counts from the
time at which it was due. A server that stalls is so charged for all who would have come meanwhile, which a closed loop
leaves out (coordinated omission).
"""

from __future__ import annotations

import contextlib
import gc
import random
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from multiprocessing import get_context
from typing import Any, Final

from benchmarks.peers.conversations import Conversation
from benchmarks.report import Sample

_CONTEXT: Final = get_context("fork")
RECEIVE: Final = 1 << 18
PATIENCE: Final = 60.0  # seconds without any reply
DRAIN_SECONDS: Final = 10.0  # for replies that are still missing when an open loop has sent everything


@dataclass(frozen=True, slots=True)
class Load:
    """What to do for some seconds. With a `rate`, requests of all connections together each second: an open loop."""

    port: int
    conversation: Conversation
    seconds: float
    connections: int = 1
    in_flight: int = 1
    rate: float = 0.0


class Lane:
    """One connection."""

    __slots__ = ("_have", "_lines", "_unit", "due", "peer", "requests", "sent")

    def __init__(self, port: int, conversation: Conversation) -> None:
        self.peer = connect(port, conversation)
        self.requests = cycle(conversation.requests)
        self._unit = conversation.unit
        self._lines = conversation.lines
        self._have = 0  # bytes or lines of a reply that is not whole
        self.sent = 0.0  # when, if one request is in flight
        self.due: deque[float] = deque()  # in an open loop: when each request without a reply was due

    def replies(self) -> int:
        """Receive, and count the replies that this completes."""
        data = self.peer.recv(RECEIVE)
        if not data:
            raise ConnectionError("the server closed a connection")
        have = self._have + (data.count(b"\n") if self._lines else len(data))
        count, self._have = divmod(have, self._unit)
        return count


def connect(port: int, conversation: Conversation) -> socket.socket:
    """A connection that has been greeted, has stored one record of each kind of request, and is checked."""
    peer = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if conversation.greeting:
        peer.sendall(conversation.greeting)
        data = _receive(peer)
        while not data.endswith(conversation.greeted):
            data += _receive(peer)
    return peer


def _receive(peer: socket.socket) -> bytes:
    data = peer.recv(RECEIVE)
    if not data:
        raise ConnectionError("the server closed a connection")
    return data


def prepare(port: int, conversation: Conversation) -> int:
    """Every request once, one at a time: topics come into being, and the first reply is looked at. Returns how many."""
    conversation = conversation.numbered_for(0)
    with connect(port, conversation) as peer:
        for request in conversation.requests:
            peer.sendall(request)
            data = _receive(peer)
            if not data.startswith(conversation.first):
                raise RuntimeError(f"the server does not store: {data[:200]!r}")
            while (data.count(b"\n") if conversation.lines else len(data)) < conversation.unit:
                data += _receive(peer)
    return len(conversation.requests)


def run(load: Load) -> Sample:
    """In a process of its own. Raises what went wrong there."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_child, args=(load, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        outcome = ours.recv()
    except EOFError:
        outcome = "the load generator died"
    process.join()
    if isinstance(outcome, Sample):
        return outcome
    raise RuntimeError(str(outcome))


def _child(load: Load, pipe: Any) -> None:
    try:
        gc.disable()
        lanes = [Lane(load.port, load.conversation.numbered_for(number)) for number in range(load.connections)]
        pipe.send(open_loop(load, lanes) if load.rate else closed_loop(load, lanes))
    except BaseException as error:  # noqa: BLE001 - it is told to the parent, which raises it
        pipe.send(f"{type(error).__name__}: {error}")


def closed_loop(load: Load, lanes: Sequence[Lane]) -> Sample:
    clock, in_flight = time.perf_counter, load.in_flight
    latencies: list[float] = []
    poll, by_fd = _watched(lanes)
    done, outstanding = 0, in_flight * len(lanes)
    began = now = clock()
    for lane in lanes:
        lane.sent = clock()
        lane.peer.sendall(b"".join([next(lane.requests) for _ in range(in_flight)]))
    while outstanding:
        ready = poll.poll(PATIENCE)
        if not ready:
            raise TimeoutError("the server has stopped answering")
        for fd, _ in ready:
            lane = by_fd[fd]
            count = lane.replies()
            if not count:
                continue
            now = clock()
            done += count
            if in_flight == 1:
                latencies.append(now - lane.sent)
                lane.sent = now
            if now - began >= load.seconds:
                outstanding -= count
            elif count == 1:
                lane.peer.sendall(next(lane.requests))
            else:
                lane.peer.sendall(b"".join([next(lane.requests) for _ in range(count)]))
    return Sample(done, now - began, latencies)


def _watched(lanes: Sequence[Lane]) -> tuple[select.epoll, dict[int, Lane]]:
    poll, by_fd = select.epoll(), {lane.peer.fileno(): lane for lane in lanes}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    return poll, by_fd


def open_loop(load: Load, lanes: Sequence[Lane]) -> Sample:
    """Arrivals as of many clients that know nothing of each other: the times between them are exponential."""
    clock, draw = time.perf_counter, random.Random(1).expovariate
    latencies: list[float] = []
    poll, by_fd = _watched(lanes)
    turn, waiting = cycle(lanes), 0
    began = clock()
    due, end, now = began + draw(load.rate), began + load.seconds, began
    while due < end or waiting:
        while due <= now and due < end:
            lane = next(turn)
            lane.due.append(due)
            lane.peer.sendall(next(lane.requests))
            waiting += 1
            due += draw(load.rate)
        for fd, _ in poll.poll(0):
            lane = by_fd[fd]
            count, now = lane.replies(), clock()
            latencies += [now - lane.due.popleft() for _ in range(count)]
            waiting -= count
        now = clock()
        if now > end + DRAIN_SECONDS:
            latencies += [now - at for lane in lanes for at in lane.due]  # at least
            break
    return Sample(len(latencies), max(now - began, load.seconds), latencies)


@contextlib.contextmanager
def idle_connections(port: int, conversation: Conversation, count: int) -> Any:
    """So many connections that have been greeted and send nothing."""
    peers: list[socket.socket] = []
    try:
        peers += [connect(port, conversation.numbered_for(100_000 + number)) for number in range(count)]
        yield
    finally:
        for peer in peers:
            peer.close()
