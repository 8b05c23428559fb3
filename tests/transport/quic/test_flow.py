"""A side that does not take what it is sent stops the sender, and nothing else."""

from __future__ import annotations

import asyncio

from tests.transport.harness import run
from tests.transport.quic.peers import House, Stranger, Tape, aioquic, house, until

from penstock.transport.quic.connection import QuicConnection
from penstock.transport.quic.settings import QuicSettings

WINDOW = 1 << 20
MUCH = 8 << 20
SETTINGS = QuicSettings(connection_window=WINDOW, stream_window=WINDOW, keep_alive_seconds=0)


async def _paused(there: House) -> Tape:
    await until(lambda: there.households and there.only.tapes)
    there.connection.pause()
    await asyncio.sleep(0.3)
    return there.only.tapes[0]


async def _still(tape: Tape) -> int:
    taken = len(tape.data)
    await asyncio.sleep(0.2)
    assert len(tape.data) == taken
    return taken


def test_a_paused_link_stops_aioquic_at_its_window() -> None:
    async def scene() -> None:
        async with house(SETTINGS) as there, aioquic(there.port) as peer:
            peer.send(b"x")
            tape = await _paused(there)
            peer.send(bytes(MUCH), stream=0)
            await asyncio.sleep(0.3)
            taken = await _still(tape)
            assert peer.quic._remote_max_data_used <= taken + WINDOW
            await _sends_meanwhile(there, peer)
            there.connection.resume()
            await until(lambda: len(tape.data) == MUCH + 1)

    run("uvloop", scene)


async def _sends_meanwhile(there: House, peer: Stranger) -> None:
    """The other direction goes on: acknowledgements and windows of the peer are looked at all the same."""
    down = there.connection.open(Tape(), bidirectional=False)
    down.send(bytes(3 << 20))
    down.finish()
    await until(lambda: down.id in peer.ends)
    assert len(peer.data[down.id]) == 3 << 20


def test_a_paused_link_stops_our_own_client_at_its_window() -> None:
    async def scene() -> None:
        async with house(SETTINGS) as there:
            connection, _ = await there.call()
            stream = connection.open(Tape(), bidirectional=True)
            stream.send(b"x")
            tape = await _paused(there)
            stream.send(bytes(MUCH))
            await asyncio.sleep(0.3)
            taken = await _still(tape)
            assert MUCH - WINDOW <= stream.unsent + taken <= MUCH
            assert stream.congested
            there.connection.resume()
            await until(lambda: len(tape.data) == MUCH + 1)
            connection.close()

    run("uvloop", scene)


def test_the_end_of_a_paused_link_is_noticed() -> None:
    async def scene() -> None:
        async with house(SETTINGS) as there:
            connection, _ = await there.call()
            stream = connection.open(Tape(), bidirectional=True)
            stream.send(b"x")
            await _paused(there)
            stream.send(bytes(MUCH))
            await asyncio.sleep(0.1)
            connection.close(7, "enough")
            await until(lambda: there.only.endings)
            assert there.only.endings == [(7, "enough")]

    run("uvloop", scene)


def test_what_is_taken_in_one_turn_is_bounded_so_that_a_pause_acts_soon() -> None:
    """A receiver that pauses its connection in the middle of a great deal gets only what was on its way to it."""

    class Pausing(Tape):
        def __init__(self, connection: QuicConnection) -> None:
            super().__init__()
            self.connection = connection

        def received(self, data: bytes, end: bool) -> None:
            super().received(data, end)
            self.connection.pause()

    async def scene() -> None:
        async with house(QuicSettings()) as there:
            connection, _ = await there.call()
            stream = connection.open(Tape(), bidirectional=True)
            stream.send(b"x")
            tape = await _paused(there)
            stream.send(bytes(3 << 20))
            await asyncio.sleep(0.3)
            pausing = Pausing(there.connection)
            assert tape.stream is not None
            tape.stream.attach(pausing)
            there.connection.resume()
            await asyncio.sleep(0.1)
            assert 0 < len(pausing.data) < 600_000
            connection.close()

    run("uvloop", scene)


def test_a_pause_acts_between_streams_whose_data_came_together() -> None:
    async def scene() -> None:
        async with house(SETTINGS) as there:
            connection, _ = await there.call()
            streams = [connection.open(Tape(), bidirectional=True) for _ in range(5)]
            for stream in streams:
                stream.send(b"one")
            await until(lambda: there.households and len(there.only.tapes) == 5)
            tapes = there.only.tapes

            def received(data: bytes, end: bool) -> None:  # noqa: ARG001
                tapes[0].data += data
                there.connection.pause()

            tapes[0].received = received  # type: ignore[method-assign]
            for stream in streams:  # in one turn, so in one datagram
                stream.send(b"two")
            streams[4].finish()
            await until(lambda: bytes(tapes[0].data) == b"onetwo")
            await asyncio.sleep(0.1)
            assert [bytes(tape.data) for tape in tapes[1:]] == [b"one"] * 4
            there.connection.resume()
            await until(lambda: all(bytes(tape.data) == b"onetwo" for tape in tapes))
            await until(lambda: tapes[4].calls == [("end", 0)])
            connection.close()

    run("uvloop", scene)


def test_a_link_parts_when_everything_was_delivered() -> None:
    async def scene() -> None:
        async with house(echo=True) as there:
            connection, handler = await there.call()
            tape = Tape()
            stream = connection.open(tape, bidirectional=True)
            stream.send(b"x" * 500_000)
            stream.finish()
            await until(lambda: there.only.tapes)
            there.connection.close_when_delivered(0, "bye")
            await until(lambda: handler.endings)
            assert handler.endings == [(0, "bye")]
            assert len(there.only.tapes[0].data) == 500_000 or tape.data

    run("uvloop", scene)
