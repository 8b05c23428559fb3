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
from penstock.protocols.felix.frames import KNOWN

KIB = 1 << 10
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
            print("troubles", held / MIB, grown / MIB, [p.following[0].count for p in silent], everything[1].count)
            await asyncio.sleep(1.5)
            print(gauges(siege.broker))
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


def test_a_thousand_subscribers_of_one_stream(siege: Siege) -> None:
    """20 connections with 50 each. Each costs its objects and its stream, some 10 KiB, and no copy of an event."""
    count, size = 512, 1024

    async def scene() -> None:
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(joined(siege.place)) for _ in range(20)]
            followings = await asyncio.gather(*(follow_all(peer, "thousand", 50) for peer in peers))
            assert gauges(siege.broker)["broadcast_followers"] == siege.peace["broadcast_followers"] + 1000
            await siege.holds()
            before = siege.grown
            await peers[0].publish("thousand", range(count), size)
            for each in (each for several in followings for each in several):
                await until(lambda each=each: each.wrong or each.count == count, "events are missing")  # type: ignore[misc]
                assert each.wrong is None
                print("thousand", before / MIB, siege.grown / MIB, gauges(siege.broker)) if peak(siege) else None
            print("thousand", before / MIB, siege.grown / MIB, PEAK)
            await siege.holds()
        await siege.over()

    run(scene())


async def follow_all(peer: Peer, name: str, count: int) -> list[Following]:
    for _ in range(count):
        await peer.follow(name)
    return list(peer.following)

PEAK=[0]
def peak(siege):
    if siege.grown>PEAK[0]+8*MIB:
        PEAK[0]=siege.grown
        return True
