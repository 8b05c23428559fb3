"""Clients of the Felix door that take and do not give: subscribers that do not read, publishers that do not stop,
streams by the thousand. The broker's memory stays flat, everybody else is served, and who is slow loses nothing.

What the broker may hold for one client: 4 MiB that are not sent or not acknowledged, 16 MiB of requests that are not
answered (or four frames, if they may be larger; and, one after the other, up to twelve more when nothing gets done),
and what came before it stopped listening, which is at most the window of 4 MiB that every connection has. `GROWTH` of
`felix_peers` is well above that for one connection, and well below what the clients here would take if they could.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.e2e import felix_aioquic
from tests.fuzz.felix_peers import NAMES, Following, Peer, Siege, batch, event, gauges, joined, run, sieged, until
from tests.fuzz.test_resources import MIB
from tests.fuzz.wire import DEADLINE
from tests.transport.quic.peers import certificate

from penstock.broker.broker import Broker
from penstock.broker.names import Scope
from penstock.broker.security.access import ADMINISTRATOR, ANONYMOUS
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.felix.session import felix_door
from penstock.log.committer import InlineCommitter
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.transport.connection_limits import ConnectionLimits, ConnectionTracker
from penstock.transport.endpoint import Endpoint
from penstock.transport.quic.settings import QuicSettings
from penstock.transport.quic_listener import QuicListener
from penstock.transport.quic_sessions import GRACE_FRAMES, QuicPort
from penstock.transport.tcp_connection import READ_SLACK
from penstock.transport.tcp_listener import BindAddress
from penstock.wire.felix import messages as m
from penstock.wire.felix.frames import KNOWN, header

KIB = 1 << 10
LARGE = {"stream_window": 1 << 30, "connection_window": 1 << 30}
ROOM = (1 + GRACE_FRAMES) * (2 * MIB + READ_SLACK)  # that the broker may hold at last for a client with one stream
WINDOW = 4 * MIB
SMALL = {"stream_window": 64 * KIB, "connection_window": 64 * KIB}  # of clients that are to be stopped soon


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    with sieged(tmp_path_factory.mktemp("felix"), felix__max_frame_bytes="2MiB") as one:
        yield one


# -- subscribers


async def read_slowly(peer: Peer) -> None:
    while True:
        peer.link.pause()
        await asyncio.sleep(0.02)
        peer.link.resume()
        await asyncio.sleep(0.001)


def test_subscribers_in_every_kind_of_trouble(siege: Siege) -> None:
    """20 that read nothing for a while, one that reads slowly, two that give their streams up, one that vanishes, and
    one that does nothing wrong. 12 MiB are published: were it kept for those that do not read, it would be 240 MiB."""
    count, size = 12_000, KIB

    async def scene() -> None:
        async with AsyncExitStack() as stack, felix_aioquic.connect(siege.place, idle_seconds=5) as lost:
            publisher, good, tired, rude = [await stack.enter_async_context(joined(siege.place)) for _ in range(4)]
            slow, *silent = [await stack.enter_async_context(joined(siege.place, **SMALL)) for _ in range(21)]
            everything = [await peer.follow("trouble") for peer in (good, slow, *silent)]
            for peer in silent:
                peer.link.pause()
            names = dict(zip(("tenant_id", "namespace", "stream"), (*NAMES, "trouble"), strict=True))
            assert (await lost.open().ask(felix_aioquic.say("subscribe", **names)))["type"] == "ok"
            enough = await tired.follow("trouble")
            control, _ = rude.open()
            control.send(m.encode(m.Auth(NAMES[0], "", KNOWN)) + m.encode(m.Subscribe(*NAMES, "trouble")))
            await until(lambda: rude.following, "no event stream")
            assert gauges(siege.broker)["broadcast_followers"] == siege.peace["broadcast_followers"] + 25

            reading = asyncio.ensure_future(read_slowly(slow))
            await publisher.publish("trouble", range(count // 2), size)
            lost.vanish()
            await until(lambda: enough.count, "no events")
            enough.stream.refuse(7)
            control.reset(8)  # the subscription that was asked for there stays
            await publisher.publish("trouble", range(count // 2, count), size)
            await siege.holds()
            held, grown = gauges(siege.broker)["held_bytes"], siege.grown
            print(f"subscribers in trouble: {held / MIB:.1f} MiB held, {grown / MIB:.1f} MiB more in memory")
            assert held < 25 * MIB, "the broker keeps for slow subscribers what is in the log"

            for peer in silent:
                peer.link.resume()
            for each in (*everything, rude.following[0]):
                await until(lambda each=each: each.wrong or each.count == count, "events are missing")  # type: ignore[misc]
                assert each.wrong is None
            reading.cancel()
            assert enough.count < count
        await siege.over()

    run(scene())


def test_a_subscriber_that_was_quick_and_is_gone_holds_little(siege: Siege) -> None:
    """It takes 32 MiB, gives credit for a GiB, and answers no more: QUIC itself would let 32 MiB be on their way."""

    async def scene() -> None:
        async with joined(siege.place) as publisher, joined(siege.place, **LARGE) as gone:
            following = await gone.follow("quick")
            await publisher.publish("quick", range(2048), 16 * KIB)
            await until(lambda: following.wrong or following.count == 2048, "events are missing")
            deaf(gone)
            before = siege.grown
            await publisher.publish("quick", range(2048, 6144), 16 * KIB)
            held = gauges(siege.broker)["held_bytes"]
            print(f"gone: {held / MIB:.1f} MiB held, {(siege.grown - before) / MIB:.1f} MiB more in memory")
            assert siege.grown - before < 24 * MIB
            await siege.holds()
        await siege.over()

    run(scene())


def deaf(peer: Peer) -> None:
    """From now on it does not hear anything, and so says nothing."""
    loop = asyncio.get_running_loop()
    loop.remove_reader(peer.link._driver._udp.fileno())  # type: ignore[attr-defined]


# -- the cache


def test_ten_thousand_keys_expire_by_themselves_and_leave_nothing(siege: Siege) -> None:
    """10,000 values of 1 KiB, three times. What the first round took is used again by the others."""

    async def scene() -> None:
        async with joined(siege.place) as peer:
            await peer.ask(m.encode(m.CachePut(key="forever", value=b"v")))
            grown = []
            for number in range(3):
                keys = [f"key {number} {each}" for each in range(10_000)]
                puts = [m.encode(m.CachePut(key=key, value=bytes(KIB), ttl_ms=500)) for key in keys]
                assert set(await peer.ask(*puts)) == {m.Ok()}
                grown.append(siege.grown)
                await emptied(siege)
                gets = [m.encode(m.CacheGet(key=key)) for key in keys[::1000]]
                found = await peer.ask(*gets, m.encode(m.CacheGet(key="forever")))
                assert [each.value for each in found if isinstance(each, m.CacheValue)] == [None] * 10 + [b"v"]
            print("10,000 keys:", [f"{each / MIB:.1f} MiB" for each in grown])
            assert grown[-1] - grown[0] < 16 * MIB
            await siege.holds()
            await peer.ask(m.encode(m.CacheDelete(key="forever")))
        await siege.over()

    run(scene())


async def emptied(siege: Siege) -> None:
    """Wait until nothing is left but what never expires. Nobody looks for the rest: the broker does it."""
    await until(lambda: gauges(siege.broker)["cache_entries"] == 1, "values do not go away")


# -- publishers


@pytest.mark.parametrize("dialect", ["document", "original"])
def test_a_publisher_that_takes_no_acknowledgements_is_stopped(siege: Siege, dialect: str) -> None:
    """It may send what the broker holds for a client and a window, besides what is stored by then. Nothing more is
    stored once acknowledgements pile up (64 KiB with the client, 256 KiB with the broker, and what was under way); but
    those that wait for a slow disk pile up when they leave, and they are of no more requests than the broker holds. At
    last the client takes them, and they are all there, in order."""
    name, most = f"acks {dialect}", 200_000

    def request(number: int) -> bytes:
        return m.encode(m.Publish(*NAMES, name, b"x" * 500, request_id=number))

    async def scene() -> None:
        async with joined(siege.place, **SMALL) as peer:
            stream, replies = peer.open()
            if dialect == "original":
                stream.send(m.encode(m.Auth(NAMES[0], "")))
                await until(lambda: replies.frames, "no answer")
                replies.frames.clear()
            peer.link.pause()
            taken, count = await peer.push(stream, request, most)
            assert count < most, "the broker does not stop reading"
            held, grown = gauges(siege.broker)["held_bytes"], siege.grown
            size = len(request(0))
            await until(lambda: taken - records_of(siege, name) * size < ROOM + WINDOW, "the broker keeps too much")
            stored = records_of(siege, name)
            print(f"acknowledgements ({dialect}): {taken / MIB:.1f} MiB taken, {stored:,} records stored,")
            print(f"{held / MIB:.1f} MiB held, {grown / MIB:.1f} MiB more in memory")
            assert held < ROOM + MIB, "the broker holds too much"
            assert stored < ROOM // 500 + MIB // len(m.encode(m.Ok(request_id=0))), "the broker does not stop storing"
            await siege.holds()
            peer.link.resume()
            stream.finish()
            await until(lambda: replies.ended, "acknowledgements are missing")
            ids = [m.decode_reply(frame.payload).request_id for frame in replies.frames]  # type: ignore[union-attr]
            assert ids == list(range(count))
        await siege.over()

    run(scene())


def records_of(siege: Siege, topic: str) -> int:
    path = f"http://{siege.broker.address('http')}/api/v1/topics/{quote(topic)}"
    with urllib.request.urlopen(path, timeout=DEADLINE) as answer:
        return int(json.load(answer)["topic"]["records"])


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_thousand_streams_with_half_a_frame_each(siege: Siege, bidirectional: bool) -> None:
    """1,024 streams, each with a header that announces 2 MiB, and 64 KiB of them: 64 MiB in all. The broker takes what
    one client may hold, and a window."""

    async def scene() -> None:
        async with joined(siege.place) as peer:
            half = header(2 * MIB) + bytes(64 * KIB)
            streams = [peer.open(bidirectional=bidirectional)[0] for _ in range(1024)]
            for stream in streams:
                stream.send(half)
            before = -1
            while before != peer.link.unsent:
                before = peer.link.unsent
                await asyncio.sleep(0.3)
            taken = 1024 * len(half) - peer.link.unsent
            print(f"halves: {taken / MIB:.1f} MiB taken, {siege.grown / MIB:.1f} MiB more in memory")
            assert taken < 24 * MIB, "the broker does not stop reading"
            await siege.holds()
            for stream in streams[:512]:
                stream.reset(1)
        await siege.over()

    run(scene())


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_publisher_faster_than_the_disk_is_stopped(tmp_path: Path, bidirectional: bool) -> None:
    """The disk stores nothing for a while. The broker takes 1 MiB, which is what a client may hold here, and a window
    of 1 MiB, each with what was under way; the rest stays where it is. Then all of it is stored, in order."""

    async def scene() -> None:
        async with slow_disk(tmp_path) as (disk, broker, place), joined(place) as peer, joined(place) as other:
            await other.ask(m.encode(m.CachePut(key="k", value=b"v")))
            stream, _ = peer.open(bidirectional=bidirectional)
            sent, count = await peer.push(stream, lambda number: batch("disk", event(number, 32 * KIB)), 2000)
            assert count < 2000 and sent < 4 * MIB, "the broker does not stop reading"
            (found,) = await other.ask(m.encode(m.CacheGet(key="k")))
            assert isinstance(found, m.CacheValue) and found.value == b"v"
            stream.finish()
            scope = Scope(*NAMES)
            while not broker.topics.exists(scope, "disk") or end_of(broker, scope) < count:
                disk.run()
                await asyncio.sleep(0.001)
            following = await asyncio.wait_for(stored(disk, other), 20)
            await until(lambda: following.wrong or following.count == count, "something was not stored")
            assert following.wrong is None

    run(scene())


def end_of(broker: Broker, scope: Scope) -> int:
    return broker.topics.bounds(ADMINISTRATOR, scope, ["disk"])["disk"][0].high_watermark


async def stored(disk: InlineCommitter, peer: Peer) -> Following:
    """All that is there, from the beginning."""
    following = asyncio.ensure_future(peer.follow("disk", start="earliest"))
    while not following.done():
        disk.run()
        await asyncio.sleep(0.001)
    return following.result()


@asynccontextmanager
async def slow_disk(path: Path) -> AsyncIterator[tuple[InlineCommitter, Broker, tuple[str, int]]]:
    """A door in this process, and a disk that stores when it is told to."""
    loop, disk = asyncio.get_running_loop(), InlineCommitter()
    broker = Broker(FileEngine(OsFiles(str(path)), LogSettings(file_bytes=64 * MIB), committer=disk, clock=lambda: 1))
    tracker = ConnectionTracker(ConnectionLimits(100, MIB, 512 * MIB, 60.0, 10.0), broker.metrics, loop)
    listener = QuicListener(BindAddress(Endpoint("127.0.0.1", 0), ("felix",)))
    door = felix_door(FelixSettings(max_frame=64 * KIB))
    quic = QuicSettings(stream_window=MIB, connection_window=MIB)
    listener.start(QuicPort(door, broker, ANONYMOUS, tracker, loop.time), quic, certificate())
    try:
        yield disk, broker, ("127.0.0.1", listener.endpoint.port)
    finally:
        disk.drain()
        listener.stop_accepting()
        await tracker.drain(0.5)
        tracker.close()
        listener.close()
        broker.close()


# -- many


def test_a_thousand_subscribers_of_one_stream(tmp_path: Path) -> None:
    """20 connections with 50 each, which get 384 MiB in all. Each costs 5 KiB until there is something to send. A
    connection keeps 4 MiB for its peer, and QUIC's streams up to twice as much as they ever had to. The broker is their
    own, because the allocator gives back late what it took for them."""
    count, size = 384, KIB

    async def scene(siege: Siege) -> None:
        async with AsyncExitStack() as stack:
            peace = siege.grown
            peers = [await stack.enter_async_context(joined(siege.place)) for _ in range(20)]
            followings = await asyncio.gather(*(follow_all(peer, "thousand", 50) for peer in peers))
            assert gauges(siege.broker)["broadcast_followers"] == siege.peace["broadcast_followers"] + 1000
            before = siege.grown
            assert before - peace < 16 * MIB
            await peers[0].publish("thousand", range(count), size)
            for each in (each for several in followings for each in several):
                await until(lambda each=each: each.wrong or each.count == count, "events are missing")  # type: ignore[misc]
                assert each.wrong is None
            print(f"1,000 subscribers: {before / MIB:.1f} MiB more in memory, {siege.grown / MIB:.1f} after the events")
            await siege.holds(20 * 12 * MIB)
        await siege.over(20 * 12 * MIB)

    with sieged(tmp_path) as siege:
        run(scene(siege))


async def follow_all(peer: Peer, name: str, count: int) -> list[Following]:
    for _ in range(count):
        await peer.follow(name)
    return list(peer.following)
