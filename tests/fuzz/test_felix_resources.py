"""Clients of the Felix door that take and do not give: subscribers that do not read, publishers that do not stop, streams
by the thousand. The broker's memory stays flat, everybody else is served, and who is slow loses nothing.

What the broker may hold for one client: 256 KiB of each event stream that are not sent yet, 4 MiB for all streams of the
connection together, 16 MiB of requests that are not answered, and what came before it stopped listening, which is at
most the window of 16 MiB that every connection has. `GROWTH` of `test_resources` is well above that for one connection,
and well below what the clients here would take if they could.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from tests.e2e import felix_aioquic
from tests.fuzz.felix_peers import NAMES, Following, Peer, Siege, gauges, joined, run, sieged, until
from tests.fuzz.test_resources import MIB

from penstock.protocols.felix import messages as m
from penstock.protocols.felix.frames import KNOWN, header

KIB = 1 << 10
LARGE = {"stream_window": 1 << 30, "connection_window": 1 << 30}
SMALL = {"stream_window": 64 * KIB, "connection_window": 64 * KIB}  # of clients that are to be stopped soon


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    with sieged(tmp_path_factory.mktemp("felix")) as one:
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
    """It takes 32 MiB, has credit for a GiB, and answers no more: QUIC itself would let 32 MiB be on their way to it."""

    async def scene() -> None:
        async with joined(siege.place) as publisher, joined(siege.place, **LARGE) as gone:
            following = await gone.follow("quick")
            await publisher.publish("quick", range(1024), 32 * KIB)
            await until(lambda: following.wrong or following.count == 1024, "events are missing")
            deaf(gone)
            before = siege.grown
            await publisher.publish("quick", range(1024, 3072), 32 * KIB)
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


def test_a_thousand_subscribers_of_one_stream(siege: Siege) -> None:
    """20 connections with 50 each, which get 384 MiB in all. Each costs 5 KiB until there is something to send. A
    connection keeps 4 MiB for its peer, and QUIC's streams up to twice as much as they ever had to."""
    count, size = 384, KIB

    async def scene() -> None:
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(joined(siege.place)) for _ in range(20)]
            followings = await asyncio.gather(*(follow_all(peer, "thousand", 50) for peer in peers))
            assert gauges(siege.broker)["broadcast_followers"] == siege.peace["broadcast_followers"] + 1000
            before = siege.grown
            assert before < 16 * MIB
            await peers[0].publish("thousand", range(count), size)
            for each in (each for several in followings for each in several):
                await until(lambda each=each: each.wrong or each.count == count, "events are missing")  # type: ignore[misc]
                assert each.wrong is None
            print(f"1,000 subscribers: {before / MIB:.1f} MiB more in memory, {siege.grown / MIB:.1f} after the events")
            await siege.holds(20 * 12 * MIB)
        await siege.over()

    run(scene())


async def follow_all(peer: Peer, name: str, count: int) -> list[Following]:
    for _ in range(count):
        await peer.follow(name)
    return list(peer.following)


# -- the cache


def test_ten_thousand_keys_expire_by_themselves_and_leave_nothing(siege: Siege) -> None:
    """10,000 values of 1 KiB, five times. What the first round took is used again by the others."""

    async def scene() -> None:
        async with joined(siege.place) as peer:
            await peer.ask(m.encode(m.CachePut(key="forever", value=b"v")))
            grown = []
            for number in range(5):
                keys = [f"key {number} {each}" for each in range(10_000)]
                puts = [m.encode(m.CachePut(key=key, value=bytes(KIB), ttl_ms=1_000)) for key in keys]
                assert set(await peer.ask(*puts)) == {m.Ok()}
                grown.append(siege.grown)
                await emptied(siege)
                gets = [m.encode(m.CacheGet(key=key)) for key in keys[:: 1000]]
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
    """It may send what the broker holds for a client (16 MiB of requests) and what was under way (a window of 4 MiB),
    besides what is stored by then. At last it takes them, and they are all there, in order."""
    name, most = f"acks {dialect}", 600_000

    def request(number: int) -> bytes:
        first, *rest = range(number * 100, number * 100 + 100)
        return b"".join(m.encode(m.Publish(*NAMES, name, b"x" * 50, request_id=each)) for each in (first, *rest))

    async def scene() -> None:
        async with joined(siege.place, **SMALL) as peer:
            stream, replies = peer.open()
            if dialect == "original":
                stream.send(m.encode(m.Auth(NAMES[0], "")))
                await until(lambda: replies.frames, "no answer")
                replies.frames.clear()
            peer.link.pause()
            sent = await peer.push(stream, request, most // 100)
            assert sent < most * 150, "the broker does not stop reading"
            print(f"acknowledgements ({dialect}): {sent / MIB:.1f} MiB taken, {siege.grown / MIB:.1f} MiB more in memory")
            await siege.holds()
            peer.link.resume()
            stream.finish()
            await until(lambda: replies.ended, "acknowledgements are missing")
            ids = [m.decode_reply(frame.payload).request_id for frame in replies.frames]  # type: ignore[union-attr]
            assert ids == list(range(len(ids))) and len(ids) * 150 >= sent
        await siege.over()

    run(scene())


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_thousand_streams_with_half_a_frame_each(siege: Siege, bidirectional: bool) -> None:
    """1,024 streams, each with a header that announces 16 MiB, and 64 KiB of them: 64 MiB in all. The broker takes what
    one client may hold, and a window."""

    async def scene() -> None:
        async with joined(siege.place) as peer:
            half = header(16 * MIB) + bytes(64 * KIB)
            streams = [peer.open(bidirectional=bidirectional)[0] for _ in range(1024)]
            for stream in streams:
                stream.send(half)
            before = -1
            while before != peer.link.unsent:
                before = peer.link.unsent
                await asyncio.sleep(0.3)
            taken = 1024 * len(half) - peer.link.unsent
            print(f"halves: {taken / MIB:.1f} MiB taken, {siege.grown / MIB:.1f} MiB more in memory")
            assert taken < 40 * MIB, "the broker does not stop reading"
            await siege.holds()
            for stream in streams[:512]:
                stream.reset(1)
        await siege.over()

    run(scene())
