"""Whatever can be sent to the Felix door: datagrams that are no QUIC, handshakes that never end, frames on the wrong
streams, lengths and names that mean harm. Nobody else notices, nothing is written where it does not belong, and the log
has no traceback in it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from tests.e2e import felix_aioquic
from tests.e2e.felix_aioquic import say
from tests.fuzz.felix_peers import (
    GROWTH,
    NAMES,
    Siege,
    craft,
    gauges,
    joined,
    run,
    sieged,
    stream_frame,
    until,
    varint,
)
from tests.fuzz.seeds import seeded
from tests.fuzz.test_resources import MIB

from penstock.wire.felix import messages as m
from penstock.wire.felix.frames import ACKED, BATCH, Code, frame, header

MAX = 16 * MIB
SEED = 20_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "data"


@pytest.fixture(scope="module")
def siege(data: Path) -> Iterator[Siege]:
    with sieged(data) as one:
        yield one
    assert sorted(each.name for each in data.parent.iterdir()) == ["data"]


# -- datagrams


def initials(place: tuple[str, int], count: int) -> list[bytes]:
    """The first datagrams of so many clients, of which nothing more will be heard."""
    found = []
    for _ in range(count):
        quic = QuicConnection(configuration=QuicConfiguration(is_client=True, server_name="localhost"))
        quic.connect(place, now=0.0)
        found += [data for data, _ in quic.datagrams_to_send(now=0.0)]
    return found


def rubbish(place: tuple[str, int]) -> Iterator[bytes]:
    """10,000 datagrams that look more and more like the beginning of a connection."""
    chance = seeded(SEED)
    real = initials(place, 5)
    for _ in range(2000):
        yield chance.randbytes(chance.randrange(1, 1500))
        yield bytes((0x40 | chance.getrandbits(6),)) + chance.randbytes(chance.randrange(1, 100))
        yield bytes((0xC0 | chance.getrandbits(6),)) + b"\0\0\0\1" + chance.randbytes(1300)
        broken = bytearray(chance.choice(real))
        for _ in range(chance.randrange(1, 20)):
            broken[chance.randrange(len(broken))] = chance.getrandbits(8)
        yield bytes(broken)
        yield chance.choice(real)[: chance.randrange(1, 1200)]


def test_ten_thousand_datagrams_of_rubbish(siege: Siege) -> None:
    async def scene() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.setblocking(False)
            for number, datagram in enumerate(rubbish(siege.place)):
                own.sendto(datagram, siege.place)
                if number % 50 == 0:
                    await asyncio.sleep(0.001)
        await siege.holds()
        async with joined(siege.place) as peer:
            assert await peer.ask(m.encode(m.CacheGet(key="k"))) == [m.CacheValue(key="k", value=None)]
        await siege.over()

    run(scene())


def test_handshakes_that_never_end_do_not_keep_others_out(siege: Siege) -> None:
    """2,000 from one address, of which no more than 64 are begun before a client has to show that it is where it says
    it is. One that does is let in."""

    async def scene() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.setblocking(False)
            flood = initials(siege.place, 100)
            for number in range(2000):
                one = bytearray(flood[number % 100])
                one[6:14] = struct.pack(">Q", number)  # another connection, with keys that do not fit
                own.sendto(flood[number] if number < 100 else bytes(one), siege.place)
                if number % 20 == 0:
                    await asyncio.sleep(0.001)
        async with joined(siege.place) as peer:
            assert await peer.ask(m.encode(m.CacheGet(key="k"))) == [m.CacheValue(key="k", value=None)]
        await siege.holds()
        await siege.over()

    run(scene())


def test_packets_that_come_again_are_taken_once(siege: Siege) -> None:
    async def scene() -> None:
        async with felix_aioquic.connect(siege.place) as link:
            stream = link.open()
            increment = say("cache_increment", request_id="1", key="again")
            packet = craft(link, stream_frame(stream.number, 0, increment))
            assert felix_aioquic.unb64((await stream.message())["value"]) == b"1"
            for _ in range(500):
                link._transport.sendto(packet)
                craft(link, stream_frame(stream.number, 0, increment))  # the same bytes in a new packet
            craft(link, stream_frame(stream.number, len(increment), increment))
            assert felix_aioquic.unb64((await stream.message())["value"]) == b"2"
        await siege.over()

    run(scene())


# -- QUIC's own frames


BROKEN = {
    "a stream of the server's": stream_frame(3, 0, b"FLX1"),
    "a stream of the server's that it would answer on": stream_frame(1, 0, b"FLX1"),
    "a stream beyond the limit": stream_frame(4 * 5000, 0, b"FLX1"),
    "bytes beyond the window": stream_frame(4, 1 << 40, b"x"),
    "bytes behind the end": stream_frame(4, 0, b"x", end=True) + stream_frame(4, 1, b"x"),
    "another end": stream_frame(4, 0, b"xx", end=True) + stream_frame(4, 0, b"x", end=True),
    "the end of a stream of the server's": b"\x04" + varint(3) + varint(0) + varint(0),
    "credit for a stream that there is not": b"\x11" + varint(4 * 900 + 1) + varint(1 << 40),
    "an acknowledgement of what was not sent": b"\x02" + varint(1 << 30) + varint(0) + varint(0) + varint(0),
    "a frame that there is not": varint(0x3A3A),
    "half a frame": b"\x0e" + varint(4) + varint(0) + varint(1000) + b"FLX1",
    "the end of the handshake": b"\x1e",
    "a token": b"\x07" + varint(4) + b"abcd",
    "an id to retire that was not given": b"\x19" + varint(1000),
}


def test_a_connection_that_breaks_quics_rules_is_closed(siege: Siege) -> None:
    async def scene() -> None:
        for what, frames in BROKEN.items():
            async with felix_aioquic.connect(siege.place) as link:
                await link.open().ask(say("cache_get", request_id="1", key="k"))
                craft(link, frames)
                closed = await asyncio.wait_for(link.ended(), 20)
                assert closed.code and not closed.application, (what, closed)
        await siege.over()

    run(scene())


def test_very_many_very_small_frames(siege: Siege) -> None:
    """Bytes one by one, nothing at all, and pings: none is kept. Of bytes with holes between them each costs about 100,
    as long as the connection lasts; the window ends that at 200 MiB, and here it is 50,000 of them."""
    get = say("cache_get", request_id="1", key="k")

    async def scene() -> None:
        async with felix_aioquic.connect(siege.place) as link:
            stream = link.open()
            await stream.ask(get)
            data = get * 300
            first, second = link.open().number, link.open().number
            before = siege.grown
            for number, at in enumerate(range(0, len(data), 100)):
                craft(link, b"".join(stream_frame(first, at + each, byte(data, at + each)) for each in range(100)))
                craft(link, stream_frame(first, at, b"") * 200 + b"\x01" * 200)
                craft(link, b"".join(stream_frame(second, 200 * number + each, b"x") for each in range(2, 202, 2)))
                if number % 5 == 0:
                    await asyncio.sleep(0.001)
            await siege.holds()
            assert siege.grown - before < 24 * MIB
            assert (await stream.ask(get))["type"] == "cache_value"
        await siege.over()

    run(scene())


def byte(data: bytes, at: int) -> bytes:
    return data[at : at + 1]


# -- frames of the protocol


HEADERS = {
    "4 GiB": (struct.pack(">4sHHI", b"FLX1", 1, 0, 0xFFFFFFFF), Code.TOO_LARGE),
    "a byte too many": (header(MAX + 1), Code.TOO_LARGE),
    "another magic": (b"FLX2" + bytes(8), Code.BAD_MAGIC),
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", Code.BAD_MAGIC),
    "another version": (struct.pack(">4sHHI", b"FLX1", 2, 0, 0), Code.BAD_VERSION),
}


def test_a_header_that_cannot_be_accepted_closes_the_connection(siege: Siege) -> None:
    async def scene() -> None:
        for bidirectional, (what, (data, code)) in itertools.product((True, False), HEADERS.items()):
            async with joined(siege.place) as peer:
                stream, _ = peer.open(bidirectional=bidirectional)
                stream.send(data)
                await until(lambda: peer.closed_with, what)
                assert peer.closed_with is not None and peer.closed_with[0] == code, what
        await siege.over()

    run(scene())


def names(*three: bytes) -> bytes:
    return b"".join(struct.pack(">H", len(name)) + name for name in three)


LONG = b"n" * 0xFFFF
HERE = names(b"default", b"default", b"s")
REFUSED: dict[str, bytes] = {
    "2^32-1 payloads": frame(HERE + struct.pack(">I", 0xFFFFFFFF), BATCH),
    "2^32-1 payloads, and some": frame(HERE + struct.pack(">I", 0xFFFFFFFF) + bytes(4000), BATCH),
    "a payload of 2^32-1 bytes": frame(HERE + struct.pack(">II", 1, 0xFFFFFFFF), BATCH),
    "names of 65,535 bytes": frame(names(LONG, LONG, LONG) + struct.pack(">II", 1, 0), BATCH),
    "a name that is cut off": frame(struct.pack(">H", 0xFFFF) + b"default", BATCH),
    "no name": frame(names(b"", b"", b"") + struct.pack(">II", 1, 0), BATCH),
    "16 MiB of empty payloads": frame(HERE + struct.pack(">I", (MAX - 30) // 4) + bytes(MAX - 30), BATCH),
    "16 MiB of JSON payloads": frame(
        b'{"type":"publish_batch","tenant_id":"t","namespace":"n","stream":"s","payloads":["'
        + b'","'.join([b"AAAA"] * 2_300_000)
        + b'"]}'
    ),
    "16 MiB of objects": frame(b'{"type":"cache_get","key":"k\\n","x":[' + b'{"a":1},' * 2_000_000 + b"1]}"),
    "16 MiB of fields": frame(b'{"type":"cache_get","key":"k"' + b',"request_id":1' * 1_100_000 + b"}"),
    "16 MiB of brackets": frame(b'{"type":"cache_get","key":"k","x":' + b"[" * (MAX - 100)),
    "a number of 16 MiB": frame(b'{"type":"cache_increment","key":"k","by":' + b"9" * (MAX - 100) + b"}"),
    "an exponent": frame(b'{"type":"cache_put","key":"k","value":"","ttl_ms":1e999999999}'),
    "nothing": frame(b""),
    "a zero": frame(b"\0"),
    "no UTF-8": frame(b'{"type":"cache_get","key":"\xff"}'),
    "a reply": frame(b'{"type":"ok"}'),
    "events": frame(struct.pack(">QI", 1, 0), 0x0002),
}
NAMELESS = [
    "../../x",
    "..",
    ".",
    "/etc/x",
    "a/../../x",
    "a\0b",
    "a\nb",
    "\x1b[2J",
    "\u202ex",
    "~/x",
    "x" * 300,
    "__audit",
]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_frames_that_mean_harm(siege: Siege, bidirectional: bool) -> None:
    """Each on a stream of its own, some of them of 16 MiB. Where there are answers, they refuse it; the connection goes
    on."""

    async def scene() -> None:
        async with joined(siege.place) as peer:
            for what, data in REFUSED.items():
                stream, replies = peer.open(bidirectional=bidirectional)
                stream.send(data)
                stream.finish()
                if bidirectional:
                    await until(lambda replies=replies: replies.over or peer.closed_with, what)  # type: ignore[misc]
                    kinds = [type(m.decode_reply(each.payload)) for each in replies.frames]
                    assert kinds == [m.Error], (what, kinds, peer.closed_with)
                else:
                    await until(lambda: not peer.link.unsent, what)
                assert siege.grown < GROWTH, what
            assert await peer.ask(m.encode(m.CacheGet(key="k"))) == [m.CacheValue(key="k", value=None)]
        await siege.over()

    run(scene())


def test_names_are_only_names(siege: Siege, data: Path) -> None:
    """Whether such a name is taken or refused: nothing comes into being beside the data directory, or is called so."""
    scope = {"tenant_id": "default", "namespace": "default"}

    async def scene() -> None:
        async with joined(siege.place) as peer:
            for name, field in itertools.product(NAMELESS, ("tenant_id", "namespace", "stream", "cache", "key")):
                put: Any = {**scope, "cache": "c", "key": "k", field: name, "value": "", "request_id": "1"}
                publish: Any = {**scope, "stream": "s", field: name, "payload": "", "request_id": "1"}
                in_cache = field in ("cache", "key")
                (reply,) = await peer.ask(say("cache_put", **put) if in_cache else say("publish", **publish))
                assert isinstance(reply, m.Ok | m.Error), reply
        await siege.over()

    run(scene())
    for folder, folders, files in os.walk(data.parent):
        assert folder.startswith(str(data)) or folder == str(data.parent)
        assert not any(name in NAMELESS for name in (*folders, *files))


WRONG = {
    "a subscription": m.encode(m.Subscribe(*NAMES, "s")),
    "a question": m.encode(m.CacheGet(key="k")),
    "bad JSON": frame(b"{"),
    "a bad batch": frame(b"\xff" * 10, BATCH),
    "auth, and then a question": m.encode(m.Auth("default", "")) + m.encode(m.CacheGet(key="k")),
    "unknown flags after auth": m.encode(m.Auth("default", "", 0x3F)) + frame(b"", 0x8000),
    "an acknowledged batch of nobody": m.encode(m.Auth("default", "")) + frame(bytes(20), BATCH | ACKED),
}


def test_what_has_no_business_on_a_stream_without_replies_ends_it_alone(siege: Siege) -> None:
    async def scene() -> None:
        async with joined(siege.place) as peer:
            for what, data in WRONG.items():
                streams = [peer.open(bidirectional=False) for _ in range(20)]
                for stream, _ in streams:
                    stream.send(data)
                await until(lambda: all(replies.refused_with is not None for _, replies in streams), what)  # noqa: B023
            assert peer.closed_with is None and not peer.following
        await siege.over()

    run(scene())


def test_streams_are_opened_and_given_up_without_end(siege: Siege) -> None:
    """5,000 of them, in all the ways in which a stream can end: nothing of them is left."""
    chance = seeded(SEED)

    async def scene() -> None:
        async with joined(siege.place) as peer:
            for number in range(5000):
                await until(lambda: peer.link.streams < 500, "streams are not forgotten")
                stream, _ = peer.open(bidirectional=number % 2 == 0)
                stream.send(m.encode(m.CacheGet(key="k"))[: chance.randrange(1, 60)])
                match chance.randrange(4):
                    case 0:
                        stream.finish()
                    case 1:
                        stream.reset(1)
                        stream.refuse(2)
                    case 2:
                        stream.refuse(3)
                        stream.finish()
                    case 3:
                        stream.finish()
                        stream.reset(4)
            assert peer.closed_with is None
            assert await peer.ask(m.encode(m.CacheGet(key="k"))) == [m.CacheValue(key="k", value=None)]
            await until(lambda: gauges(siege.broker)["held_bytes"] < 100_000, "something is held")
        await siege.over()

    run(scene())
