"""Streams between our server and clients of three kinds."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aioquic.quic import events as aioquic_events
from qh3.asyncio.client import connect as qh3_connect
from qh3.asyncio.protocol import QuicConnectionProtocol as Qh3Protocol
from qh3.quic.configuration import QuicConfiguration as Qh3Configuration
from tests.transport.harness import LOOPS, run
from tests.transport.quic.peers import Tape, aioquic, house, until

from penstock.transport.quic.errors import ConnectionClosed, StreamsUsedUp
from penstock.transport.quic.settings import QuicSettings

BIG = bytes(range(256)) * 8192  # 2 MiB
Scene = Callable[[], Awaitable[None]]


@pytest.mark.parametrize("loop", LOOPS)
def test_two_megabytes_each_way_on_one_stream(loop: str) -> None:
    async def scene() -> None:
        async with house(echo=True) as there:
            connection, _ = await there.call()
            tape = Tape()
            stream = connection.open(tape, bidirectional=True)
            stream.send(BIG)
            stream.finish()
            await tape.ended.wait()
            assert tape.data == BIG
            assert there.only.tapes[0].pieces < 200  # not a call for each datagram
            await until(lambda: there.connection.streams == connection.streams == 0)
            connection.close()

    run(loop, scene)


@pytest.mark.parametrize("alpn", [None, ["felix"], ["x"], ["h3", "felix"]], ids=str)
def test_aioquic_connects_whatever_protocol_it_offers(alpn: list[str] | None) -> None:
    async def scene() -> None:
        async with house(echo=True) as there, aioquic(there.port, alpn) as peer:
            stream = peer.send(b"hello", end=True)
            await until(lambda: stream in peer.ends)
            assert peer.data[stream] == b"hello"
            negotiated = peer.of(aioquic_events.HandshakeCompleted)[0].alpn_protocol
            assert negotiated == (None if alpn is None else alpn[-1])

    run("uvloop", scene)


@pytest.mark.parametrize("alpn", [None, ["felix"], ["x"]], ids=str)
def test_qh3_as_it_comes_connects(alpn: list[str] | None) -> None:
    async def scene() -> None:
        configuration = Qh3Configuration(alpn_protocols=alpn, verify_mode=ssl.CERT_NONE, server_name="localhost")
        async with house(echo=True) as there:
            connection: Any = qh3_connect("127.0.0.1", there.port, configuration=configuration)
            async with connection as peer:
                assert isinstance(peer, Qh3Protocol)
                receiver, writer = await peer.create_stream()
                writer.write(b"hello")
                writer.write_eof()
                assert await receiver.read() == b"hello"
                peer.close()

    run("asyncio", scene)


def test_two_megabytes_each_way_with_aioquic() -> None:
    async def scene() -> None:
        async with house(echo=True) as there, aioquic(there.port) as peer:
            stream = peer.send(BIG, end=True)
            await until(lambda: stream in peer.ends, 15)
            assert peer.data[stream] == BIG

    run("uvloop", scene)


@pytest.mark.parametrize("size", [1200, 4096, 16_000, 65_000])
def test_datagrams_of_this_size_arrive(size: int) -> None:
    async def scene() -> None:
        async with house(QuicSettings(datagram_bytes=size), echo=True) as there:
            connection, _ = await there.call(datagram_bytes=size)
            tape = Tape()
            stream = connection.open(tape, bidirectional=True)
            stream.send(BIG)
            stream.finish()
            await tape.ended.wait()
            assert tape.data == BIG
            connection.close()

    run("uvloop", scene)


def test_both_sides_open_streams_of_one_direction() -> None:
    async def scene() -> None:
        async with house() as there, aioquic(there.port) as peer:
            peer.send(b"up", end=True, unidirectional=True)
            await until(lambda: there.households and there.only.tapes)
            tape = there.only.tapes[0]
            assert tape.stream is not None and not tape.stream.bidirectional and not tape.stream.local
            assert tape.data == b"up"
            tape.stream.send(b"never")  # nobody can hear it, and nothing breaks
            down = there.connection.open(Tape(), bidirectional=False)
            down.send(b"down")
            down.finish()
            await until(lambda: down.id in peer.ends)
            assert peer.data[down.id] == b"down"
            assert there.connection.streams == 0

    run("uvloop", scene)


def test_a_reset_and_a_refusal_reach_the_other_side_with_their_codes() -> None:
    async def scene() -> None:
        async with house() as there, aioquic(there.port) as peer:
            gives_up = peer.send(b"abc")
            refuses = peer.send(b"abc")
            ours = peer.send(b"abc")
            await until(lambda: there.households and len(there.only.tapes) == 3)
            peer.quic.reset_stream(gives_up, 7)
            peer.quic.stop_stream(refuses, 8)
            peer.transmit()
            tapes = there.only.tapes
            await until(lambda: tapes[0].calls and tapes[1].calls)
            assert (tapes[0].calls, tapes[1].calls) == ([("reset", 7)], [("refused", 8)])
            stream = tapes[2].stream
            assert stream is not None
            stream.send(b"x" * 1000)
            stream.refuse(9)
            stream.reset(10)
            await until(lambda: peer.of(aioquic_events.StopSendingReceived) and peer.of(aioquic_events.StreamReset))
            stopped = peer.of(aioquic_events.StopSendingReceived)[0]
            resets = {event.stream_id: event.error_code for event in peer.of(aioquic_events.StreamReset)}
            assert (stopped.stream_id, stopped.error_code) == (ours, 9)
            assert resets == {refuses: 8, ours: 10}

    run("uvloop", scene)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_refusal_is_told_also_if_something_was_sent_before_it_was_taken(bidirectional: bool) -> None:
    async def scene() -> None:
        async with house() as there:
            connection, handler = await there.call()
            await until(lambda: there.households)
            tape = Tape()
            stream = there.connection.open(tape, bidirectional=bidirectional)
            stream.send(b"one")
            await until(lambda: handler.tapes and handler.tapes[0].data == b"one")
            there.connection.pause()
            theirs = handler.tapes[0].stream
            assert theirs is not None
            theirs.refuse(5)
            for _ in range(100):
                await asyncio.sleep(0.01)
                stream.send(b"two")
                if not there.connection.send_stream(stream.id, b"", False):
                    break  # the refusal is there, and nobody has looked at it yet
            assert not stream.congested
            there.connection.resume()
            await until(lambda: tape.calls == [("refused", 5)])
            assert there.connection.streams == bidirectional  # of which the peer's side is still open
            connection.close()

    run("uvloop", scene)


def test_what_comes_after_a_refusal_is_thrown_away() -> None:
    async def scene() -> None:
        async with house() as there, aioquic(there.port) as peer:
            number = peer.send(b"first")
            await until(lambda: there.households and there.only.tapes)
            (tape,) = there.only.tapes
            assert tape.stream is not None
            tape.stream.refuse(1)
            peer.send(b"second", stream=number, end=True)
            peer.send(b"other")
            await until(lambda: len(there.only.tapes) == 2)
            assert bytes(tape.data) == b"first" and not tape.calls
            tape.stream.send(b"still")  # the other direction is not touched
            await until(lambda: bytes(peer.data.get(number, b"")) == b"still")

    run("uvloop", scene)


def test_more_streams_than_may_be_open_at_once_one_after_the_other() -> None:
    async def scene() -> None:
        async with house(QuicSettings(streams=5), echo=True) as there:
            connection, _ = await there.call()
            for _ in range(40):
                tape = Tape()
                stream = connection.open(tape, bidirectional=True)
                stream.send(b"x")
                stream.finish()
                await tape.ended.wait()
            assert len(there.only.tapes) == 40
            connection.close()

    run("uvloop", scene)


def test_the_peers_limit_of_streams_is_told_as_such() -> None:
    async def scene() -> None:
        async with house(QuicSettings(streams=3)) as there:
            connection, _ = await there.call()
            for _ in range(3):
                connection.open(Tape(), bidirectional=True)
            with pytest.raises(StreamsUsedUp):
                connection.open(Tape(), bidirectional=True)
            connection.open(Tape(), bidirectional=False)
            connection.close()
            with pytest.raises(ConnectionClosed):
                connection.open(Tape(), bidirectional=False)

    run("uvloop", scene)


def test_a_stream_is_congested_above_a_mark_and_is_told_when_it_has_drained() -> None:
    async def scene() -> None:
        async with house(QuicSettings(stream_window=1 << 20)) as there:
            connection, _ = await there.call()
            tape = Tape()
            stream = connection.open(tape, bidirectional=True)
            assert not stream.congested
            stream.send(bytes(8 << 20))
            assert stream.congested and stream.unsent == 8 << 20 <= connection.unsent
            await until(lambda: tape.calls)
            assert tape.calls == [("drained", 0)] and not stream.congested
            assert stream.unsent <= 128 << 10
            connection.close()

    run("uvloop", scene)


def test_nothing_is_drained_that_nobody_found_congested() -> None:
    async def scene() -> None:
        async with house() as there:
            connection, _ = await there.call()
            tape = Tape()
            stream = connection.open(tape, bidirectional=True)
            stream.send(bytes(2 << 20))
            await until(lambda: there.only.tapes and len(there.only.tapes[0].data) == 2 << 20)
            await asyncio.sleep(0.02)
            assert tape.calls == []
            connection.close()

    run("uvloop", scene)
