"""Clients of the Felix door, good and bad: one that works all the time and checks what it gets, one that sends as much
as it can, one that makes packets of its own."""

from __future__ import annotations

import asyncio
import struct
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aioquic.tls import Epoch
from tests.e2e import felix_aioquic
from tests.fuzz.test_resources import MIB, Others
from tests.fuzz.wire import DEADLINE, Wire, binary_create, binary_produce
from tests.launcher import BrokerProcess
from tests.process_stats import resident_bytes

from penstock.transport.quic.client import connect
from penstock.transport.quic.connection import QuicConnection, Stream, StreamReceiver
from penstock.transport.quic.settings import QuicSettings
from penstock.wire.felix import messages as m
from penstock.wire.felix.codec.binary import Batch, decode_events, encode_batch
from penstock.wire.felix.frames import KNOWN, Frame, Framer

NAMES = ("default", "default")  # tenant and namespace of every stream here
GROWTH = 128 * MIB  # as that of `test_resources`, where frames are smaller
GAUGES = ("broadcast_followers", "active_connections", "held_bytes", "cache_entries", "log_pending_bytes")


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 3 * DEADLINE))


async def until(holds: Callable[[], object], what: str) -> None:
    """Wait for something that is about to become true; the deadline only turns a hang into a failure."""
    loop = asyncio.get_running_loop()
    end = loop.time() + DEADLINE
    while not holds():
        assert loop.time() < end, what
        await asyncio.sleep(0.01)


def gauges(broker: BrokerProcess) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{broker.address('http')}/metrics", timeout=DEADLINE) as answer:
        lines = [line.removeprefix("penstock_").split() for line in answer.read().decode().splitlines()]
    return {name: float(value) for name, value in (line for line in lines if len(line) == 2) if name in GAUGES}


class Replies:
    """The reader of a stream that is answered."""

    def __init__(self) -> None:
        self._frames = Framer(16 << 20)
        self.frames: list[Frame] = []
        self.ended = False
        self.reset_with: int | None = None
        self.refused_with: int | None = None
        self.drains = 0

    def received(self, data: bytes, end: bool) -> None:
        self._frames.feed(data)
        while (frame := self._frames.next()) is not None:
            self.frames.append(frame)
        self.ended |= end

    def reset(self, code: int) -> None:
        self.reset_with = code

    def refused(self, code: int) -> None:
        self.refused_with = code

    def drained(self) -> None:
        self.drains += 1

    @property
    def over(self) -> bool:
        return self.ended or self.reset_with is not None


def batch(stream: str, *payloads: bytes) -> bytes:
    return encode_batch(Batch(*NAMES, stream, list(payloads)))


def event(number: int, size: int) -> bytes:
    return (b"%d " % number).ljust(size, b"x")


class Following:
    """The reader of an event stream, whose events are `event(0)`, `event(1)` and so on. It keeps none of them."""

    def __init__(self, stream: Stream) -> None:
        self._frames = Framer(16 << 20)
        self._greeted = False
        self.stream = stream
        self.count = 0  # events that were right
        self.wrong: object = None  # the first that was not
        self.reset_with: int | None = None
        self.ended = False

    def received(self, data: bytes, end: bool) -> None:
        self._frames.feed(data)
        while (frame := self._frames.next()) is not None and self.wrong is None:
            if not self._greeted:
                self._greeted = isinstance(m.decode_reply(frame.payload), m.EventStreamHello)
                assert self._greeted
                continue
            found = decode_events(*frame)
            for payload in found.payloads:
                if payload != event(self.count, len(payload)):
                    self.wrong = (self.count, payload[:16])
                    break
                self.count += 1
            if found.base_offset is not None and found.base_offset + len(found.payloads) != self.count:
                self.wrong = (self.count, found.base_offset)
        self.ended |= end

    def reset(self, code: int) -> None:
        self.reset_with = code

    def refused(self, code: int) -> None: ...

    def drained(self) -> None: ...


class Peer:
    """The owner of a link, with readers that check what they get."""

    def __init__(self) -> None:
        self.link: QuicConnection
        self.following: list[Following] = []
        self.closed_with: tuple[int, str] | None = None

    def connected(self, link: QuicConnection) -> None:
        self.link = link

    def accepted(self, stream: Stream) -> StreamReceiver:
        self.following.append(Following(stream))
        return self.following[-1]

    def closed(self, code: int, reason: str) -> None:
        self.closed_with = (code, reason)

    def open(self, *, bidirectional: bool = True) -> tuple[Stream, Replies]:
        replies = Replies()
        return self.link.open(replies, bidirectional=bidirectional), replies

    async def ask(self, *frames: bytes) -> list[m.Reply]:
        """The answers to these, on a stream of their own."""
        stream, replies = self.open()
        stream.send(b"".join(frames))
        stream.finish()
        await until(lambda: replies.over or self.closed_with, "no answer")
        return [m.decode_reply(frame.payload) for frame in replies.frames]

    async def follow(self, name: str, start: m.Start = "latest") -> Following:
        """A new subscription."""
        before = len(self.following)
        *_, answer = await self.ask(
            m.encode(m.Auth(NAMES[0], "", KNOWN)), m.encode(m.Subscribe(*NAMES, name, start=start))
        )
        assert isinstance(answer, m.Subscribed), answer
        await until(lambda: len(self.following) > before, "no event stream")
        return self.following[-1]

    async def publish(self, name: str, numbers: range, size: int) -> None:
        """These events, in batches of 64; returns when all are stored."""
        stream, replies = self.open()
        for first in numbers[::64]:
            payloads = [event(number, size) for number in range(first, min(first + 64, numbers.stop))]
            stream.send(batch(name, *payloads))
            await until(lambda: not stream.congested, "the broker takes no publications")
        stream.finish()
        await until(lambda: replies.ended, "the publications are not stored")

    async def push(self, stream: Stream, piece: Callable[[int], bytes], most: int) -> tuple[int, int]:
        """Send pieces until the other side takes no more of them, or so many; how many bytes it took, and how many
        pieces were sent."""
        sent = number = stuck = 0
        while number < most and stuck < 10 and self.closed_with is None:
            if stream.congested:
                before = self.link.unsent
                await asyncio.sleep(0.05)
                stuck = stuck + 1 if self.link.unsent == before else 0
                continue
            data = piece(number)
            stream.send(data)
            sent += len(data)
            number += 1
            if number % 16 == 0:
                await asyncio.sleep(0)
        return sent - self.link.unsent, number


@asynccontextmanager
async def joined(place: tuple[str, int], **settings: Any) -> AsyncIterator[Peer]:
    peer = Peer()
    await connect(*place, QuicSettings(verify=False, **settings), peer)
    try:
        yield peer
    finally:
        peer.link.close()
        await asyncio.sleep(0)


class Echo:
    """A well-behaved client that goes on publishing to a stream which it follows itself, and checks each event."""

    def __init__(self, place: tuple[str, int]) -> None:
        self._place = place
        self._thread = threading.Thread(target=self._run)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self.rounds = 0

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as failure:  # noqa: BLE001 - raised again where the test can see it
            self._failure = failure

    async def _work(self) -> None:
        async with joined(self._place) as peer:
            following = await peer.follow("echo")
            stream, replies = peer.open()
            while not self._stop.is_set():
                number = self.rounds
                stream.send(m.encode(m.Publish(*NAMES, "echo", event(number, 64), request_id=number)))
                await until(lambda: replies.frames, "a publication is not acknowledged")
                assert [m.decode_reply(frame.payload) for frame in replies.frames] == [m.Ok(request_id=number)]
                replies.frames.clear()
                await until(lambda: following.wrong or following.count > number, "an event is missing")  # noqa: B023
                assert following.wrong is None and following.count == number + 1
                self.rounds += 1
                await asyncio.sleep(0.02)

    def served(self) -> None:
        """Wait until it was served once more, whatever else goes on."""
        end = threading.Event()
        rounds = self.rounds + 2
        for _ in range(int(DEADLINE / 0.01)):
            if self._failure is not None or self.rounds >= rounds:
                break
            end.wait(0.01)
        if self._failure is not None:
            raise self._failure
        assert self.rounds >= rounds, "another connection is not served any more"

    def __enter__(self) -> Self:
        self._thread.start()
        self.served()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(DEADLINE)


class Siege:
    """A broker under attack, and what it looked like before."""

    def __init__(self, broker: BrokerProcess, others: Others, echo: Echo) -> None:
        self.broker = broker
        self.place = broker.endpoint("felix")
        self._others = others
        self._echo = echo
        self._memory = resident_bytes(broker.process.pid)
        self.peace = {"broadcast_followers": 1.0, "active_connections": gauges(broker)["active_connections"]}

    async def holds(self, bound: int = GROWTH) -> None:
        """Others are served, at this door and at another, and the memory is within its bound."""
        await asyncio.to_thread(self._echo.served)
        await asyncio.to_thread(self._others.served)
        assert self.grown < bound, f"{self.grown >> 20} MiB more than before"

    @property
    def grown(self) -> int:
        """Bytes of memory more than before."""
        return resident_bytes(self.broker.process.pid) - self._memory

    async def over(self, bound: int = GROWTH) -> None:
        """Everybody but the good clients is gone, and nothing is left of them."""

        def left() -> bool:
            now = gauges(self.broker)
            quiet = now["held_bytes"] < 4096 and not now["log_pending_bytes"]  # but for what the good ones do just now
            return quiet and all(now[name] == value for name, value in self.peace.items())

        loop = asyncio.get_running_loop()
        end = loop.time() + DEADLINE
        while not await asyncio.to_thread(left):
            assert loop.time() < end, f"{gauges(self.broker)}, and it was {self.peace}"
            await asyncio.sleep(0.05)
        await self.holds(bound)


@contextmanager
def sieged(directory: Path, **settings: str) -> Iterator[Siege]:
    """A broker with good clients at it. It keeps little of the log in memory, so that the rest can be seen."""
    settings = {"log__tail_bytes": "1MiB", "log__cache_bytes": "1MiB", "felix__idle_seconds": "5", **settings}
    settings = {"log__file_bytes": "64MiB"} | settings  # open files are counted: no more of them than are needed
    environment = {f"PENSTOCK_{name.upper()}": value for name, value in settings.items()}
    flags = ("--durability", "written", "--log-level", "warning", "--listen", "felix=127.0.0.1:0")
    with BrokerProcess(directory, *flags, **environment) as broker:
        broker.ready()
        with Wire(broker.endpoint("rustlog")) as wire:
            wire.send(*(binary_create(topic, 1) for topic in (b"small", b"busy")))
            wire.payloads(2)
            wire.ask(binary_produce(b"small", 0, b"one", b"two"))
        with Others(broker.endpoint("rustlog")) as others, Echo(broker.endpoint("felix")) as echo:
            yield Siege(broker, others, echo)
            others.served()
            echo.served()
        broker.process.terminate()
        code, _, err = broker.finish()
        assert code == 0 and "Traceback" not in err and '"level": "error"' not in err, err


# -- packets that no library would send


def varint(number: int) -> bytes:
    for size, mark in ((1, 0), (2, 1), (4, 2), (8, 3)):
        if number < 1 << (8 * size - 2):
            return (number | mark << (8 * size - 2)).to_bytes(size)
    raise ValueError(number)


def stream_frame(stream: int, offset: int, data: bytes, *, end: bool = False) -> bytes:
    return bytes((0x0E | end,)) + varint(stream) + varint(offset) + varint(len(data)) + data


def craft(link: felix_aioquic.Link, frames: bytes) -> bytes:
    """Send these frames in a packet of their own; it, for those who want to send it again."""
    quic: Any = link.quic
    crypto, number = quic._cryptos[Epoch.ONE_RTT], quic._packet_number
    quic._packet_number += 1
    header = bytes((0x41 | crypto.key_phase << 2,)) + quic._peer_cid.cid + struct.pack(">H", number & 0xFFFF)
    packet: bytes = crypto.encrypt_packet(header, frames.ljust(4, b"\0"), number)
    link._transport.sendto(packet)
    return packet
