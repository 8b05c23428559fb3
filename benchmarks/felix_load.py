"""Clients of a Felix broker, or of the bare relay, in a process of their own: frames made beforehand, counted when they
come back. They stand on the same QUIC code as our client and do as little as possible above it."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Final

import uvloop
from benchmarks.report import Sample

from penstock.transport.quic.client import connect
from penstock.transport.quic.connection import QuicConnection, Stream, StreamReceiver
from penstock.transport.quic.settings import QuicSettings

PATIENCE: Final = 120.0  # seconds
WINDOW: Final = 16 << 20
SETTINGS: Final = QuicSettings(verify=False, connection_window=WINDOW, stream_window=WINDOW)
HEADER: Final = struct.Struct(">IHHI")
SHORTEST: Final = 24  # bytes of a frame: header, base offset, count; every reply has as many

_CONTEXT = get_context("fork")
_LINKS: list[QuicConnection] = []  # of this process


@dataclass(frozen=True, slots=True)
class Throughput:
    """Send `frame` again and again, `frames` times, and wait until every subscriber has all of its events."""

    port: int
    greeting: bytes  # of a publisher's stream
    frame: bytes
    events: int  # in one frame
    frames: int
    subscribe: bytes  # what a subscriber sends
    fan_out: int


@dataclass(frozen=True, slots=True)
class Latency:
    """One frame at a time: the next when the last one is acknowledged and has come to the first subscriber."""

    port: int
    greeting: bytes
    frame: bytes
    count: int
    warm_up: int
    subscribe: bytes
    fan_out: int


@dataclass(frozen=True, slots=True)
class Asking:
    """Requests on so many streams, one at a time on each."""

    port: int
    greeting: bytes
    frames: tuple[bytes, ...]  # of each stream
    count: int
    warm_up: int


Job = Throughput | Latency | Asking


def run(job: Job) -> Sample:
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
    if not isinstance(outcome, Sample):
        raise RuntimeError(outcome)
    return outcome


def _child(job: Job, pipe: Any) -> None:
    works: dict[type, Callable[[Any], Coroutine[Any, Any, Sample]]] = {
        Throughput: _throughput,
        Latency: _latency,
        Asking: _asking,
    }
    try:
        pipe.send(uvloop.run(_and_close(works[type(job)](job))))
    except BaseException as error:  # noqa: BLE001 - it is told to the parent, which raises it
        pipe.send(f"{type(error).__name__}: {error}")


async def _and_close(work: Coroutine[Any, Any, Sample]) -> Sample:
    """A connection that is left open would be sent to until it is found to be idle."""
    sample = await work
    for link in _LINKS:
        link.close()
    await asyncio.sleep(0.05)
    return sample


class _Frames:
    """A reader that counts whole frames, and what is in event batches, without looking at the events."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self.frames = 0
        self.events = 0
        self.resume: Callable[[], None] | None = None
        self._arrived = arrived
        self._start = bytearray()  # of a frame, as long as it is too short to tell
        self._missing = 0  # bytes of the frame at hand
        self._batch = 0  # events in it

    def received(self, data: bytes, end: bool) -> None:  # noqa: ARG002 - a stream that ends is noticed by its silence
        if self._start:
            data = bytes(self._start) + data
            self._start.clear()
        at, size = 0, len(data)
        while at < size:
            if not self._missing:
                if size - at < SHORTEST:
                    self._start += data[at:]
                    break
                self._begin(data, at)
            step = min(self._missing, size - at)
            at += step
            self._missing -= step
            if not self._missing:
                self.frames += 1
                self.events += self._batch
        self._arrived()

    def _begin(self, data: bytes, at: int) -> None:
        magic, _, flags, length = HEADER.unpack_from(data, at)
        if magic != 0x464C5831:
            raise RuntimeError("that is no frame")
        self._missing = 12 + length
        self._batch = int.from_bytes(data[at + 20 : at + 24]) if flags == 0x24 else 0

    def reset(self, code: int) -> None:
        raise RuntimeError(f"the stream was reset with code {code}")

    def refused(self, code: int) -> None:
        raise RuntimeError(f"the stream was refused with code {code}")

    def drained(self) -> None:
        if self.resume is not None:
            self.resume()


class _Peer:
    """One connection."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self.link: QuicConnection
        self.events: list[_Frames] = []
        self._arrived = arrived
        self.closed_by = ""

    def connected(self, link: QuicConnection) -> None:
        self.link = link
        _LINKS.append(link)

    def accepted(self, stream: Stream) -> StreamReceiver:  # noqa: ARG002 - all that the server opens are event streams
        self.events.append(_Frames(self._arrived))
        return self.events[-1]

    def closed(self, code: int, reason: str) -> None:
        self.closed_by = f"closed with code {code}: {reason}"


async def _connect(port: int, arrived: Callable[[], None]) -> _Peer:
    peer = _Peer(arrived)
    await connect("127.0.0.1", port, SETTINGS, peer)
    return peer


class _Waiting:
    """Waits until something is so, looking again whenever something has arrived."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def arrived(self) -> None:
        self._event.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._event.clear()
                await self._event.wait()


async def _subscribers(port: int, subscribe: bytes, count: int, waiting: _Waiting) -> list[_Peer]:
    """Each on a connection of its own, and ready."""
    peers = []
    for _ in range(count):
        peer = await _connect(port, waiting.arrived)
        control = _Frames(waiting.arrived)
        peer.link.open(control, bidirectional=True).send(subscribe)
        await waiting.until(lambda peer=peer, control=control: bool(peer.events) and control.frames > 1)  # type: ignore[misc]
        peers.append(peer)
    return peers


async def _throughput(job: Throughput) -> Sample:
    waiting = _Waiting()
    peers = await _subscribers(job.port, job.subscribe, job.fan_out, waiting)
    publisher = await _connect(job.port, waiting.arrived)
    sender = _Frames(waiting.arrived)
    stream = publisher.link.open(sender, bidirectional=True)
    stream.send(job.greeting)
    await waiting.until(lambda: sender.frames > 0)
    room = asyncio.Event()
    sender.resume = room.set
    wanted = job.events * job.frames
    began = time.perf_counter()
    for _ in range(job.frames):
        stream.send(job.frame)
        if stream.congested:
            room.clear()
            await room.wait()
    await waiting.until(lambda: all(peer.events[0].events >= wanted for peer in peers))
    seconds = time.perf_counter() - began
    if any(peer.events[0].events != wanted for peer in peers):
        raise RuntimeError(f"{[peer.events[0].events for peer in peers]} events came, {wanted} were sent")
    return Sample(wanted, seconds)


async def _latency(job: Latency) -> Sample:
    waiting = _Waiting()
    peers = await _subscribers(job.port, job.subscribe, job.fan_out, waiting)
    publisher = await _connect(job.port, waiting.arrived)
    first = peers[0].events[0]
    latencies: list[float] = []
    done = asyncio.get_running_loop().create_future()
    state = {"sent": 0.0, "at": 0.0}
    replies = _Frames(waiting.arrived)
    stream = publisher.link.open(replies, bidirectional=True)
    stream.send(job.greeting)
    await waiting.until(lambda: replies.frames == 1)

    def step() -> None:
        """After every arrival: the next one, if this one is done."""
        now = time.perf_counter()
        if state["at"] == 0.0 and first.events > len(latencies):
            state["at"] = now
        if state["at"] and replies.frames > len(latencies) + 1 and not done.done():
            latencies.append(state["at"] - state["sent"])
            if len(latencies) == job.count + job.warm_up:
                done.set_result(now)
                return
            state["at"], state["sent"] = 0.0, time.perf_counter()
            stream.send(job.frame)

    first._arrived = replies._arrived = step
    began = state["sent"] = time.perf_counter()
    stream.send(job.frame)
    ended = await asyncio.wait_for(done, PATIENCE)
    return Sample(len(latencies), ended - began, latencies[job.warm_up :])


async def _asking(job: Asking) -> Sample:
    peer = await _connect(job.port, lambda: None)
    latencies: list[float] = []
    done = asyncio.get_running_loop().create_future()

    def start(frame: bytes) -> None:
        sent = [0.0, 1]

        def step() -> None:
            now = time.perf_counter()
            if replies.frames < sent[1] or done.done():
                return
            if sent[1] > 1:
                latencies.append(now - sent[0])
                if len(latencies) >= job.count + job.warm_up:
                    done.set_result(now)
                    return
            sent[0], sent[1] = now, sent[1] + 1
            stream.send(frame)

        replies = _Frames(step)
        stream = peer.link.open(replies, bidirectional=True)
        stream.send(job.greeting)

    began = time.perf_counter()
    for frame in job.frames:
        start(frame)
    ended = await asyncio.wait_for(done, PATIENCE)
    return Sample(len(latencies), ended - began, latencies[job.warm_up :])
