"""Clients in processes of their own: plain sockets that send prepared bytes and check what comes back.

They do as little as possible, because what is measured is the broker. A client that has requests in flight sends
as many new ones as it gets replies.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from benchmarks.report import Sample
from benchmarks.wire import FETCH, REPLIES

from penstock.transport.spin_budget import BUSY_POLL, SocketBusyPoll

_CONTEXT = get_context("fork")
_RECEIVE = 1 << 18


@dataclass(frozen=True, slots=True)
class Produce:
    """Send `request` again and again for some seconds."""

    port: int
    request: bytes
    seconds: float
    connections: int = 1
    in_flight: int = 1
    dialect: str = "binary"
    greeting: bytes = b""  # sent first; its reply is one frame of the dialect
    looks: bool = False  # one connection, one in flight: for a reply, for a moment, as our own clients do


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read a partition from `first` to `end`, and again if that took less than `seconds`."""

    port: int
    topic: str
    first: int
    end: int
    seconds: float
    max_bytes: int
    dialect: str = "binary"


def run(jobs: Sequence[Produce | Fetch]) -> list[Sample]:
    """Run each job in a process of its own, all at the same time. Raises what a client raised, as text."""
    gate = _CONTEXT.Barrier(len(jobs))
    waiting = []
    for job in jobs:
        ours, theirs = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=_child, args=(job, gate, theirs), daemon=True)
        process.start()
        theirs.close()
        waiting.append((process, ours))
    samples = []
    failure = ""
    for process, pipe in waiting:
        try:
            outcome = pipe.recv()
        except EOFError:
            outcome = "a client process died"
        process.join()
        if isinstance(outcome, Sample):
            samples.append(outcome)
        else:
            failure = failure or str(outcome)
    if failure:
        raise RuntimeError(failure)
    return samples


def run_one(job: Produce | Fetch) -> Sample:
    (sample,) = run([job])
    return sample


def _child(job: Produce | Fetch, gate: Any, pipe: Any) -> None:
    try:
        pipe.send(_produce(job, gate) if isinstance(job, Produce) else _fetch(job, gate))
    except BaseException as error:  # noqa: BLE001 - it is told to the parent, which raises it
        gate.abort()
        pipe.send(f"{type(error).__name__}: {error}")


def _connect(port: int, greeting: bytes = b"") -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port), timeout=60)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if greeting:
        peer.sendall(greeting)
        if not peer.recv(_RECEIVE):
            raise ConnectionError("the broker does not answer the greeting")
    return peer


def _produce(job: Produce, gate: Any) -> Sample:
    if job.connections == 1 and job.in_flight == 1:
        return _one_at_a_time(job, gate)
    return _many(job, gate)


def _one_at_a_time(job: Produce, gate: Any) -> Sample:
    count_replies = REPLIES[job.dialect]
    clock, request = time.perf_counter, job.request
    latencies = []
    with _connect(job.port, job.greeting) as peer:
        look = SocketBusyPoll(peer, BUSY_POLL if job.looks else 0).poll
        gate.wait(60)
        buffer = bytearray()
        began = now = clock()
        while now - began < job.seconds:
            sent = now
            peer.sendall(request)
            while True:
                look()
                data = peer.recv(_RECEIVE)
                if not data:
                    raise ConnectionError("the broker closed the connection")
                buffer += data
                if count_replies(buffer):
                    break
            now = clock()
            latencies.append(now - sent)
    return Sample(len(latencies), now - began, latencies)


def _many(job: Produce, gate: Any) -> Sample:
    """Blocking sends are safe: the broker's replies to Produce are small and never fill a socket."""
    count_replies = REPLIES[job.dialect]
    clock, size = time.perf_counter, len(job.request)
    requests = memoryview(job.request * job.in_flight)
    peers = {}
    poll = select.epoll()
    for _ in range(job.connections):
        peer = _connect(job.port, job.greeting)
        poll.register(peer.fileno(), select.EPOLLIN)
        peers[peer.fileno()] = (peer, bytearray())
    sent_at = dict.fromkeys(peers, 0.0)
    latencies: list[float] = []
    done = 0
    gate.wait(60)
    began = now = clock()
    for fd, (peer, _) in peers.items():
        sent_at[fd] = clock()
        peer.sendall(requests)
    outstanding = job.in_flight * job.connections
    while outstanding:
        for fd, _ in poll.poll(60):
            peer, buffer = peers[fd]
            data = peer.recv(_RECEIVE)
            if not data:
                raise ConnectionError("the broker closed the connection")
            buffer += data
            count = count_replies(buffer)
            if not count:
                continue
            now = clock()
            done += count
            if job.in_flight == 1:
                latencies.append(now - sent_at[fd])
                sent_at[fd] = now
            if now - began < job.seconds:
                peer.sendall(requests[: count * size])
            else:
                outstanding -= count
    for peer, _ in peers.values():
        peer.close()
    return Sample(done, now - began, latencies)


def _fetch(job: Fetch, gate: Any) -> Sample:
    """Counts records. One fetch at a time: the next one's offset comes with the reply."""
    make, take = FETCH[job.dialect]
    clock = time.perf_counter
    records = 0
    with _connect(job.port) as peer:
        buffer = bytearray(12 << 20)
        view = memoryview(buffer)
        gate.wait(60)
        began = now = clock()
        while now - began < job.seconds:
            offset = job.first
            while offset < job.end:
                peer.sendall(make(job.topic, offset, job.max_bytes))
                have, wanted = 0, 4
                while have < wanted:
                    received = peer.recv_into(view[have:])
                    if not received:
                        raise ConnectionError("the broker closed the connection")
                    have += received
                    if wanted == 4 and have >= 4:
                        wanted = 4 + int.from_bytes(view[:4])
                count, after = take(bytes(view[4:wanted]))
                if after != offset + count or not count:
                    raise RuntimeError(f"asked for offset {offset}, got {count} records and next offset {after}")
                records += count
                offset = after
            now = clock()
    return Sample(records, now - began)
