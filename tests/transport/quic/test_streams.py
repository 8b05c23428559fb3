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
from tests.transport.quic.peers import RecordingReceiver, aioquic, quic_fixture, until

from penstock.transport.quic.errors import ConnectionClosed, StreamsUsedUp
from penstock.transport.quic.settings import QuicSettings

BIG = bytes(range(256)) * 8192  # 2 MiB
Scene = Callable[[], Awaitable[None]]


@pytest.mark.parametrize("loop", LOOPS)
def test_two_megabytes_each_way_on_one_stream(loop: str) -> None:
    async def scene() -> None:
        async with quic_fixture(echo=True) as there:
            connection, _ = await there.call()
            receiver = RecordingReceiver()
            stream = connection.open(receiver, bidirectional=True)
            stream.send(BIG)
            stream.finish()
            await receiver.ended.wait()
            assert receiver.data == BIG
            assert there.only.receivers[0].pieces < 200  # not a call for each datagram
            await until(lambda: there.connection.streams == connection.streams == 0)
            connection.close()

    run(loop, scene)


@pytest.mark.parametrize("alpn", [None, ["felix"], ["x"], ["h3", "felix"]], ids=str)
def test_aioquic_connects_whatever_protocol_it_offers(alpn: list[str] | None) -> None:
    async def scene() -> None:
        async with quic_fixture(echo=True) as there, aioquic(there.port, alpn) as peer:
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
        async with quic_fixture(echo=True) as there:
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
        async with quic_fixture(echo=True) as there, aioquic(there.port) as peer:
            stream = peer.send(BIG, end=True)
            await until(lambda: stream in peer.ends, 15)
            assert peer.data[stream] == BIG

    run("uvloop", scene)


@pytest.mark.parametrize("size", [1200, 4096, 16_000, 65_000])
def test_datagrams_of_this_size_arrive(size: int) -> None:
    async def scene() -> None:
        async with quic_fixture(QuicSettings(datagram_bytes=size), echo=True) as there:
            connection, _ = await there.call(datagram_bytes=size)
            receiver = RecordingReceiver()
            stream = connection.open(receiver, bidirectional=True)
            stream.send(BIG)
            stream.finish()
            await receiver.ended.wait()
            assert receiver.data == BIG
            connection.close()

    run("uvloop", scene)


def test_both_sides_open_streams_of_one_direction() -> None:
    async def scene() -> None:
        async with quic_fixture() as there, aioquic(there.port) as peer:
            peer.send(b"up", end=True, unidirectional=True)
            await until(lambda: there.handlers and there.only.receivers)
            receiver = there.only.receivers[0]
            assert receiver.stream is not None and not receiver.stream.bidirectional and not receiver.stream.local
            assert receiver.data == b"up"
            receiver.stream.send(b"never")  # nobody can hear it, and nothing breaks
            down = there.connection.open(RecordingReceiver(), bidirectional=False)
            down.send(b"down")
            down.finish()
            await until(lambda: down.id in peer.ends)
            assert peer.data[down.id] == b"down"
            assert there.connection.streams == 0

    run("uvloop", scene)


def test_a_reset_and_a_refusal_reach_the_other_side_with_their_codes() -> None:
    async def scene() -> None:
        async with quic_fixture() as there, aioquic(there.port) as peer:
            gives_up = peer.send(b"abc")
            refuses = peer.send(b"abc")
            ours = peer.send(b"abc")
            await until(lambda: there.handlers and len(there.only.receivers) == 3)
            peer.quic.reset_stream(gives_up, 7)
            peer.quic.stop_stream(refuses, 8)
            peer.transmit()
            receivers = there.only.receivers
            await until(lambda: receivers[0].calls and receivers[1].calls)
            assert (receivers[0].calls, receivers[1].calls) == ([("reset", 7)], [("refused", 8)])
            stream = receivers[2].stream
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
def test_a_refusal_is_reported_also_if_something_was_sent_before_it_was_taken(bidirectional: bool) -> None:
    async def scene() -> None:
        async with quic_fixture() as there:
            connection, handler = await there.call()
            await until(lambda: there.handlers)
            receiver = RecordingReceiver()
            stream = there.connection.open(receiver, bidirectional=bidirectional)
            stream.send(b"one")
            await until(lambda: handler.receivers and handler.receivers[0].data == b"one")
            there.connection.pause()
            theirs = handler.receivers[0].stream
            assert theirs is not None
            theirs.refuse(5)
            for _ in range(100):
                await asyncio.sleep(0.01)
                stream.send(b"two")
                if not there.connection.send_stream(stream.id, b"", False):
                    break  # the refusal is there, and nobody has looked at it yet
            assert not stream.congested
            there.connection.resume()
            await until(lambda: receiver.calls == [("refused", 5)])
            assert there.connection.streams == bidirectional  # of which the peer's side is still open
            connection.close()

    run("uvloop", scene)


def test_what_comes_after_a_refusal_is_thrown_away() -> None:
    async def scene() -> None:
        async with quic_fixture() as there, aioquic(there.port) as peer:
            number = peer.send(b"first")
            await until(lambda: there.handlers and there.only.receivers)
            (receiver,) = there.only.receivers
            assert receiver.stream is not None
            receiver.stream.refuse(1)
            peer.send(b"second", stream=number, end=True)
            peer.send(b"other")
            await until(lambda: len(there.only.receivers) == 2)
            assert bytes(receiver.data) == b"first" and not receiver.calls
            receiver.stream.send(b"still")  # the other direction is not touched
            await until(lambda: bytes(peer.data.get(number, b"")) == b"still")

    run("uvloop", scene)


def test_more_streams_than_may_be_open_at_once_one_after_the_other() -> None:
    async def scene() -> None:
        async with quic_fixture(QuicSettings(streams=5), echo=True) as there:
            connection, _ = await there.call()
            for _ in range(40):
                receiver = RecordingReceiver()
                stream = connection.open(receiver, bidirectional=True)
                stream.send(b"x")
                stream.finish()
                await receiver.ended.wait()
            assert len(there.only.receivers) == 40
            connection.close()

    run("uvloop", scene)


def test_the_peers_limit_of_streams_is_reported_as_such() -> None:
    async def scene() -> None:
        async with quic_fixture(QuicSettings(streams=3)) as there:
            connection, _ = await there.call()
            for _ in range(3):
                connection.open(RecordingReceiver(), bidirectional=True)
            with pytest.raises(StreamsUsedUp):
                connection.open(RecordingReceiver(), bidirectional=True)
            connection.open(RecordingReceiver(), bidirectional=False)
            connection.close()
            with pytest.raises(ConnectionClosed):
                connection.open(RecordingReceiver(), bidirectional=False)

    run("uvloop", scene)


def test_a_stream_is_congested_above_a_mark_and_is_reported_when_it_has_drained() -> None:
    async def scene() -> None:
        async with quic_fixture(QuicSettings(stream_window=1 << 20)) as there:
            connection, _ = await there.call()
            receiver = RecordingReceiver()
            stream = connection.open(receiver, bidirectional=True)
            assert not stream.congested
            stream.send(bytes(8 << 20))
            assert stream.congested and stream.unsent == 8 << 20 <= connection.unsent
            await until(lambda: receiver.calls)
            assert receiver.calls == [("drained", 0)] and not stream.congested
            assert stream.unsent <= 128 << 10
            connection.close()

    run("uvloop", scene)


def test_nothing_is_drained_that_nobody_found_congested() -> None:
    async def scene() -> None:
        async with quic_fixture() as there:
            connection, _ = await there.call()
            receiver = RecordingReceiver()
            stream = connection.open(receiver, bidirectional=True)
            stream.send(bytes(2 << 20))
            await until(lambda: there.handlers and there.only.receivers)
            await until(lambda: len(there.only.receivers[0].data) == 2 << 20)
            await asyncio.sleep(0.02)
            assert receiver.calls == []
            connection.close()

    run("uvloop", scene)
