"""A side that does not take what it is sent stops the sender, and nothing else."""

from __future__ import annotations

import asyncio

from tests.transport.harness import run
from tests.transport.quic.peers import AioquicClient, QuicFixture, RecordingReceiver, aioquic, quic_fixture, until

from penstock.transport.quic.connection import QuicConnection
from penstock.transport.quic.settings import QuicSettings
from penstock.transport.quic.udp import READ_BYTES

WINDOW = 1 << 20
MUCH = 8 << 20
SETTINGS = QuicSettings(connection_window=WINDOW, stream_window=WINDOW, keep_alive_seconds=0)


async def _paused(there: QuicFixture) -> RecordingReceiver:
    await until(lambda: there.handlers and there.only.receivers)
    there.connection.pause()
    await asyncio.sleep(0.3)
    return there.only.receivers[0]


async def _still(receiver: RecordingReceiver) -> int:
    taken = len(receiver.data)
    await asyncio.sleep(0.2)
    assert len(receiver.data) == taken
    return taken


def test_a_paused_connection_stops_aioquic_at_its_window() -> None:
    async def scene() -> None:
        async with quic_fixture(SETTINGS) as there, aioquic(there.port) as peer:
            peer.send(b"x")
            receiver = await _paused(there)
            peer.send(bytes(MUCH), stream=0)
            await asyncio.sleep(0.3)
            taken = await _still(receiver)
            assert peer.quic._remote_max_data_used <= taken + WINDOW
            await _sends_meanwhile(there, peer)
            there.connection.resume()
            await until(lambda: len(receiver.data) == MUCH + 1)

    run("uvloop", scene)


async def _sends_meanwhile(there: QuicFixture, peer: AioquicClient) -> None:
    """The other direction goes on: acknowledgements and windows of the peer are looked at all the same."""
    down = there.connection.open(RecordingReceiver(), bidirectional=False)
    down.send(bytes(3 << 20))
    down.finish()
    await until(lambda: down.id in peer.ends)
    assert len(peer.data[down.id]) == 3 << 20


def test_a_paused_connection_stops_our_own_client_at_its_window() -> None:
    async def scene() -> None:
        async with quic_fixture(SETTINGS) as there:
            connection, _ = await there.call()
            stream = connection.open(RecordingReceiver(), bidirectional=True)
            stream.send(b"x")
            receiver = await _paused(there)
            stream.send(bytes(MUCH))
            await asyncio.sleep(0.3)
            taken = await _still(receiver)
            assert MUCH - WINDOW <= stream.unsent + taken <= MUCH
            assert stream.congested
            there.connection.resume()
            await until(lambda: len(receiver.data) == MUCH + 1)
            connection.close()

    run("uvloop", scene)


def test_the_end_of_a_paused_connection_is_noticed() -> None:
    async def scene() -> None:
        async with quic_fixture(SETTINGS) as there:
            connection, _ = await there.call()
            stream = connection.open(RecordingReceiver(), bidirectional=True)
            stream.send(b"x")
            await _paused(there)
            stream.send(bytes(MUCH))
            await asyncio.sleep(0.1)
            connection.close(7, "enough")
            await until(lambda: there.handlers and there.only.endings)
            assert there.only.endings == [(7, "enough")]

    run("uvloop", scene)


def test_what_is_taken_in_one_turn_is_bounded_so_that_a_pause_acts_soon() -> None:
    """A receiver that pauses its connection in the middle of a great deal gets only what was on its way to it."""

    class Pausing(RecordingReceiver):
        def __init__(self, connection: QuicConnection) -> None:
            super().__init__()
            self.connection = connection

        def received(self, data: bytes, end: bool) -> None:
            super().received(data, end)
            self.connection.pause()

    async def scene() -> None:
        async with quic_fixture(QuicSettings()) as there:
            connection, _ = await there.call()
            stream = connection.open(RecordingReceiver(), bidirectional=True)
            stream.send(b"x")
            receiver = await _paused(there)
            stream.send(bytes(3 << 20))
            await asyncio.sleep(0.3)
            pausing = Pausing(there.connection)
            assert receiver.stream is not None
            receiver.stream.attach(pausing)
            there.connection.resume()
            await asyncio.sleep(0.1)
            assert 0 < len(pausing.data) < 600_000
            connection.close()

    run("uvloop", scene)


def test_no_more_is_taken_at_once_than_others_are_sent_at_once() -> None:
    """Else those who are sent what others send fall behind them, however fast they are: they are sent it later in the
    same turn of the loop."""

    class Counting(RecordingReceiver):
        def __init__(self) -> None:
            super().__init__()
            self.at_once = [0]

        def received(self, data: bytes, end: bool) -> None:
            super().received(data, end)
            if not self.at_once[-1]:
                asyncio.get_running_loop().call_soon(self.at_once.append, 0)
            self.at_once[-1] += len(data)

    async def scene() -> None:
        async with quic_fixture(QuicSettings()) as there:
            connection, _ = await there.call()
            stream = connection.open(RecordingReceiver(), bidirectional=True)
            stream.send(b"x")
            await until(lambda: there.handlers and there.only.receivers)
            counting, accepted = Counting(), there.only.receivers[0].stream
            assert accepted is not None
            accepted.attach(counting)
            for _ in range(8):  # the more the client was acknowledged, the more it sends at once
                stream.send(bytes(MUCH))
                sent = len(counting.data) + MUCH
                await until(lambda: len(counting.data) == sent)  # noqa: B023
            assert max(counting.at_once) <= READ_BYTES + (64 << 10)
            connection.close()

    run("uvloop", scene)


def test_a_pause_acts_between_streams_whose_data_came_together() -> None:
    async def scene() -> None:
        async with quic_fixture(SETTINGS) as there:
            connection, _ = await there.call()
            streams = [connection.open(RecordingReceiver(), bidirectional=True) for _ in range(5)]
            for stream in streams:
                stream.send(b"one")
            await until(lambda: there.handlers and len(there.only.receivers) == 5)
            receivers = there.only.receivers

            def received(data: bytes, end: bool) -> None:  # noqa: ARG001
                receivers[0].data += data
                there.connection.pause()

            receivers[0].received = received  # type: ignore[method-assign]
            for stream in streams:  # in one turn, so in one datagram
                stream.send(b"two")
            streams[4].finish()
            await until(lambda: bytes(receivers[0].data) == b"onetwo")
            await asyncio.sleep(0.1)
            assert [bytes(receiver.data) for receiver in receivers[1:]] == [b"one"] * 4
            there.connection.resume()
            await until(lambda: all(bytes(receiver.data) == b"onetwo" for receiver in receivers))
            await until(lambda: receivers[4].calls == [("end", 0)])
            connection.close()

    run("uvloop", scene)


def test_a_connection_parts_when_everything_was_delivered() -> None:
    async def scene() -> None:
        async with quic_fixture(echo=True) as there:
            connection, handler = await there.call()
            receiver = RecordingReceiver()
            stream = connection.open(receiver, bidirectional=True)
            stream.send(b"x" * 500_000)
            stream.finish()
            await until(lambda: there.handlers and there.only.receivers)
            there.connection.close_when_delivered(0, "bye")
            await until(lambda: handler.endings)
            assert handler.endings == [(0, "bye")]
            assert len(there.only.receivers[0].data) == 500_000 or receiver.data

    run("uvloop", scene)
