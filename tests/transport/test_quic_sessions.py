"""A QUIC connection between its streams, their sessions and the gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.transport.harness import LOOPS, broker_in, run, until
from tests.transport.quic.peers import RecordingHandler, RecordingReceiver, aioquic, certificate

from penstock.broker.broker import Broker
from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.doors.streams import MultiplexedChannel, StreamChannel, StreamsDoor, StreamsUsedUp
from penstock.transport import connection_limits, quic_sessions
from penstock.transport.connection_limits import ConnectionLimits, ConnectionTracker
from penstock.transport.endpoint import Endpoint
from penstock.transport.quic.client import connect
from penstock.transport.quic.connection import QuicConnection, Stream
from penstock.transport.quic.errors import ConnectFailed
from penstock.transport.quic.settings import QuicSettings
from penstock.transport.quic_listener import QuicListener
from penstock.transport.quic_sessions import Code, QuicPort
from penstock.transport.tcp_listener import BindAddress


class EchoStream:
    """Sends back what it gets. Certain bytes make it misbehave, or do what a session may do."""

    def __init__(self, host: EchoHost, channel: StreamChannel | None, *, replies: bool) -> None:
        self.host = host
        self.channel = channel
        self.replies = replies
        self.data = b""
        self.held = 0
        self.events: list[str] = []

    def receive(self, data: bytes) -> None:
        channel = self.channel
        assert channel is not None
        if not data:
            self.events.append("drained")
            return
        self.data += data
        if b"GATHER" in self.data:
            self.held = len(self.data)
            return
        if b"RAISE" in data:
            raise RuntimeError("planted")
        if b"HOLD" in data:
            self.held = 1 << 27
        if b"ABORT" in data:
            self.host.line.abort(0x77, "as you wish")
        elif b"RESET" in data:
            channel.reset(5)
        elif b"REFUSE" in data:
            channel.refuse(6)
        elif b"BYE" in data:
            channel.send(b"bye")
            channel.close()
        elif b"FLOOD" in data:
            channel.send(bytes(6 << 20))
            assert channel.congested
        elif self.replies:
            channel.send(data)

    def receive_pieces(self, pieces: list[bytes]) -> None:
        self.receive(b"".join(pieces))

    def end_of_input(self) -> None:
        self.events.append("end")
        self.held = 0
        self.finish(b"END")

    def stop(self) -> None:
        self.events.append("stop")
        if b"LEAVE" in self.data:
            assert self.channel is not None
            self.channel.send(bytes(100_000) + b"LEFT")
            self.channel.leave()
        elif b"STAY" not in self.data:
            self.finish(b"STOPPED")

    def finish(self, last: bytes) -> None:
        assert self.channel is not None
        if self.replies:
            self.channel.send(last)
        self.channel.close()

    def lost(self) -> None:
        self.events.append("lost")

    def refused(self, code: int) -> None:
        self.events.append(f"refused {code}")

    yielding = False
    awaiting_commit = False

    def describe_work(self) -> dict[str, str]:
        return {"door": "echo"}

    long_lived = True

    @property
    def held_bytes(self) -> int:
        return self.held


class EchoHost:
    def __init__(self, line: MultiplexedChannel, identity: Identity) -> None:
        self.line = line
        self.identity = identity
        self.streams: list[EchoStream] = []
        self.events: list[str] = []

    def accept(self, channel: StreamChannel, *, replies: bool) -> EchoStream:
        self.streams.append(EchoStream(self, channel, replies=replies))
        if "stop" in self.events:
            self.streams[-1].stop()
        return self.streams[-1]

    def open(self) -> EchoStream:
        stream = EchoStream(self, None, replies=True)
        stream.channel = self.line.open(stream)
        self.streams.append(stream)
        return stream

    def stop(self) -> None:
        self.events.append("stop")

    def lost(self) -> None:
        self.events.append("lost")


class Stage:
    def __init__(self, broker: Broker, tracker: ConnectionTracker) -> None:
        self.tracker = tracker
        self.broker = broker
        self.hosts: list[EchoHost] = []
        self.listener = QuicListener(BindAddress(Endpoint("127.0.0.1", 0), ("felix",)))
        self.port = self.listener.endpoint.port

    def open(self, broker: Broker, line: MultiplexedChannel, identity: Identity) -> EchoHost:
        assert broker is self.broker and identity == ANONYMOUS._replace(peer=line.peer)
        self.hosts.append(EchoHost(line, identity))
        return self.hosts[-1]

    async def call(self) -> tuple[QuicConnection, RecordingHandler]:
        handler = RecordingHandler()
        settings = QuicSettings(fingerprint=certificate().fingerprint)
        return await connect("127.0.0.1", self.port, settings, handler), handler

    @property
    def host(self) -> EchoHost:
        (host,) = self.hosts
        return host


@asynccontextmanager
async def stage(path: Path, quic: QuicSettings | None = None, **changes: Any) -> AsyncIterator[Stage]:
    limits = {"connections": 100, "connection_bytes": 1 << 20, "total_bytes": 1 << 28, "idle_seconds": 60.0,
              "handshake_seconds": 10.0} | changes  # fmt: skip
    loop = asyncio.get_running_loop()
    broker = broker_in(path, loop)
    tracker = ConnectionTracker(ConnectionLimits(**limits), broker.metrics, loop)
    one = Stage(broker, tracker)
    port = QuicPort(StreamsDoor("felix", one.open, 1 << 16), broker, ANONYMOUS, tracker, loop.time)
    one.listener.start(port, quic or QuicSettings(), certificate())
    try:
        yield one
    finally:
        one.listener.stop_accepting()
        await tracker.drain(0.5)
        tracker.close()
        one.listener.close()
        broker.close()


def opened(connection: QuicConnection, *, bidirectional: bool = True) -> tuple[Stream, RecordingReceiver]:
    receiver = RecordingReceiver()
    return connection.open(receiver, bidirectional=bidirectional), receiver


@pytest.mark.parametrize("loop", LOOPS)
def test_each_stream_has_its_session_and_its_end(tmp_path: Path, loop: str) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            connection, _ = await here.call()
            first, first_tape = opened(connection)
            second, second_tape = opened(connection)
            up, _ = opened(connection, bidirectional=False)
            first.send(b"one")
            second.send(b"two")
            up.send(b"three")
            up.finish()
            first.finish()
            await first_tape.ended.wait()
            await until(lambda: second_tape.data)
            assert (bytes(first_tape.data), bytes(second_tape.data)) == (b"oneEND", b"two")
            await until(lambda: len(here.host.streams) == 3)
            by_data = {stream.data: stream for stream in here.host.streams}
            assert [by_data[data].replies for data in (b"one", b"two", b"three")] == [True, True, False]
            assert by_data[b"three"].events == ["end"]
            connection.close()
            await until(lambda: here.host.events)
            assert by_data[b"two"].events == ["lost"] and here.host.events == ["lost"]
            assert by_data[b"one"].events == ["end"]  # it was over by then
            assert len(here.tracker) == 0

    run(loop, scene)


def test_a_closed_stream_ends_behind_what_was_sent_and_wants_no_more(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            connection, _ = await here.call()
            stream, receiver = opened(connection)
            stream.send(b"BYE")
            await receiver.ended.wait()
            assert bytes(receiver.data) == b"bye"
            await until(lambda: ("refused", 0) in receiver.calls)
            assert here.host.streams[0].events == []
            await until(lambda: connection.streams == 0)
            connection.close()

    run("uvloop", scene)


def test_resets_and_refusals_in_both_directions(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            connection, _ = await here.call()
            resets, resets_tape = opened(connection)
            resets.send(b"RESET")
            await until(lambda: ("reset", 5) in resets_tape.calls)
            refuses, refuses_tape = opened(connection)
            refuses.send(b"REFUSE")
            await until(lambda: ("refused", 6) in refuses_tape.calls)
            gives_up, _ = opened(connection)
            gives_up.send(b"x")
            await until(lambda: len(here.host.streams) == 3)
            gives_up.reset(9)
            await until(lambda: here.host.streams[2].events == ["lost"])
            deaf, _ = opened(connection)
            deaf.send(b"x")
            await until(lambda: len(here.host.streams) == 4)
            deaf.refuse(4)
            await until(lambda: here.host.streams[3].events == ["refused 4"])
            connection.close()

    run("uvloop", scene)


@pytest.mark.parametrize("heard", [True, False], ids=["after its first bytes", "before them"])
def test_a_client_that_gives_streams_up_may_open_others(tmp_path: Path, heard: bool) -> None:
    """A stream counts until both sides have ended it."""

    async def scene() -> None:
        async with stage(tmp_path, QuicSettings(streams=8)) as here:
            connection, _ = await here.call()
            for number in range(20):
                stream, receiver = opened(connection)
                stream.send(b"x")
                if heard:
                    await until(lambda: len(here.host.streams) > number)  # noqa: B023
                stream.reset(9)
                await until(lambda: ("reset", 0) in receiver.calls)  # noqa: B023
            await until(lambda: connection.streams == 0)
            connection.close()

    run("uvloop", scene)


def test_what_was_held_for_a_stream_is_held_no_more_when_it_is_given_up(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            connection, _ = await here.call()
            stays, _ = opened(connection)
            stays.send(b"GATHER")
            for _ in range(3):
                stream, _ = opened(connection)
                stream.send(b"GATHER" + bytes(100_000))
                await until(lambda: here.tracker.held > 100_000)
                stream.reset(9)
                await until(lambda: here.tracker.held == len(b"GATHER"))
            connection.close()
            await until(lambda: here.tracker.held == 0)

    run("uvloop", scene)


def test_streams_to_the_client_come_from_the_host_and_their_limit_is_reported(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here, aioquic(here.port) as peer:
            peer.send(b"x")
            await until(lambda: here.hosts and here.host.streams)
            stream = here.host.open()
            assert stream.channel is not None
            stream.channel.send(b"event")
            await until(lambda: bytes(peer.data.get(3, b"")) == b"event")
            peer.quic.stop_stream(3, 0)
            peer.transmit()
            await until(lambda: stream.events == ["refused 0"])
            with pytest.raises(StreamsUsedUp):
                for _ in range(1000):
                    here.host.open()

    run("uvloop", scene)


def test_a_session_is_reported_when_its_stream_has_drained(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            connection, _ = await here.call()
            stream, receiver = opened(connection)
            stream.send(b"FLOOD")
            await until(lambda: len(receiver.data) == 6 << 20)
            assert here.host.streams[0].events == ["drained"]
            connection.close()

    run("uvloop", scene)


def test_an_error_in_a_session_ends_its_connection_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            connection, handler = await here.call()
            other, _ = await here.call()
            stream, _ = opened(connection)
            stream.send(b"RAISE")
            await until(lambda: handler.endings)
            assert handler.endings == [(Code.INTERNAL, "internal error")]
            await until(lambda: len(here.tracker) == 1)
            assert [host.events for host in here.hosts if host.streams] == [["lost"]]
            bystander, receiver = opened(other)
            bystander.send(b"still here")
            await until(lambda: receiver.data)
            other.close()

    run("uvloop", scene)
    assert (
        caplog.text.count("Error: planted") == 1 and caplog.text.count("closed because of an error in the broker") == 1
    )


def test_a_host_can_close_the_connection_with_a_code(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            connection, handler = await here.call()
            stream, _ = opened(connection)
            stream.send(b"ABORT")
            await until(lambda: handler.endings and here.host.events)
            assert handler.endings == [(0x77, "as you wish")] and here.host.streams[0].events == ["lost"]

    run("uvloop", scene)


def test_what_is_held_stops_input_until_it_is_less(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path, QuicSettings(connection_window=1 << 20, stream_window=1 << 20)) as here:
            connection, _ = await here.call()
            stream, _ = opened(connection)
            stream.send(b"HOLD")
            await until(lambda: here.hosts and here.host.streams and here.host.streams[0].held)
            assert here.tracker.held == 1 << 27
            other, _ = opened(connection)
            other.send(b"x" * (4 << 20))
            await asyncio.sleep(0.2)
            assert len(here.host.streams) == 1 and other.unsent >= 2 << 20
            session = here.host.streams[0]
            session.held = 0
            assert session.channel is not None
            session.channel.progress()
            await until(lambda: len(here.host.streams) == 2 and len(here.host.streams[1].data) == 4 << 20)
            assert here.tracker.held < 1 << 27
            connection.close()

    run("uvloop", scene)


def test_a_connection_that_holds_too_much_for_ever_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quic_sessions, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(quic_sessions, "GRACE_SECONDS", 0.05)

    async def scene() -> None:
        async with stage(tmp_path, idle_seconds=0.2) as here:
            connection, handler = await here.call()
            stream, _ = opened(connection)
            stream.send(b"HOLD")
            await until(lambda: handler.endings)
            assert handler.endings[0][0] == Code.TOO_MUCH and here.tracker.held == 0

    run("uvloop", scene)


def test_streams_in_the_middle_of_large_frames_get_done_although_together_they_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session holds all that it was sent until its end, as one that waits for a whole frame does."""
    monkeypatch.setattr(quic_sessions, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(connection_limits, "SWEEP_SECONDS", 0.01)  # each makes room for one frame, and it takes 70

    async def scene() -> None:
        async with stage(tmp_path, connection_bytes=100_000) as here:
            connection, handler = await here.call()
            pairs = [opened(connection) for _ in range(8)]
            for stream, _ in pairs:
                stream.send(b"GATHER" + bytes(300_000))
            await until(lambda: here.hosts and len(here.host.streams) == 8)
            await until(lambda: connection.unsent == 0)
            for stream, _ in pairs:
                stream.send(bytes(300_000))
                stream.finish()
            for _, receiver in pairs:
                await receiver.ended.wait()
            assert not handler.endings
            connection.close()

    run("uvloop", scene)


def test_more_connections_than_allowed_are_reported_so(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path, connections=1) as here:
            connection, _ = await here.call()
            _, refused = await here.call()
            await until(lambda: refused.endings)
            assert refused.endings == [(Code.TOO_MANY, "too many connections")]
            assert len(here.hosts) == len(here.tracker) == 1
            assert here.broker.metrics.connections_refused == 1
            connection.close()

    run("uvloop", scene)


def test_who_has_no_stream_and_says_nothing_has_to_go_and_who_has_one_stays(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path, idle_seconds=0.4) as here:
            connection, handler = await here.call()
            _, idle = await here.call()
            stream, _ = opened(connection)
            stream.send(b"x")
            await until(lambda: idle.endings)
            assert idle.endings == [(0, "idle")] and not handler.endings
            connection.close()

    run("uvloop", scene)


def test_when_the_broker_stops_everything_accepted_is_answered_and_then_the_connection_closed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            connection, handler = await here.call()
            idle, idle_owner = await here.call()
            stream, receiver = opened(connection)
            stream.send(b"x" * 300_000)
            await until(lambda: here.hosts and any(host.streams for host in here.hosts))
            here.listener.stop_accepting()
            assert await here.tracker.drain(5) == 0
            await until(lambda: handler.endings and idle_owner.endings)
            assert bytes(receiver.data[-7:]) == b"STOPPED" and ("end", 0) in receiver.calls
            assert handler.endings == idle_owner.endings == [(0, "broker shutting down")]
            assert {tuple(host.events) for host in here.hosts} == {("stop", "lost")}
            assert connection.closed and idle.closed

    run("uvloop", scene)


def test_a_stream_that_is_left_when_the_broker_stops_has_no_end_but_that_of_the_connection(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            connection, handler = await here.call()
            stream, receiver = opened(connection)
            stream.send(b"LEAVE")
            await until(lambda: here.hosts and here.host.streams)
            assert await here.tracker.drain(5) == 0
            await until(lambda: handler.endings)
            assert bytes(receiver.data[-4:]) == b"LEFT" and ("end", 0) not in receiver.calls
            assert handler.endings == [(0, "broker shutting down")]
            assert here.host.streams[0].events == ["stop"]

    run("uvloop", scene)


def test_who_is_not_done_when_the_time_is_up_is_cut_off(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            connection, handler = await here.call()
            stream, _ = opened(connection)
            stream.send(b"STAY")
            await until(lambda: here.hosts and here.host.streams)
            assert await here.tracker.drain(0.2) == 1
            await until(lambda: handler.endings)
            assert handler.endings == [(0, "broker shutting down")]
            assert here.host.streams[0].events == ["stop", "lost"]

    run("uvloop", scene)


def test_a_stream_that_is_opened_while_the_broker_stops_is_stopped_as_well(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            connection, handler = await here.call()
            stays, _ = opened(connection)
            stays.send(b"STAY")
            await until(lambda: here.hosts and here.host.streams)
            draining = asyncio.create_task(here.tracker.drain(5))
            await until(lambda: here.host.events)
            late, receiver = opened(connection)
            late.send(b"x")
            await receiver.ended.wait()
            assert bytes(receiver.data) == b"STOPPED" and not handler.endings
            assert here.host.streams[1].events == ["stop"] and here.host.streams[1].data == b""
            here.host.streams[0].finish(b"done")
            assert await draining == 0
            await until(lambda: handler.endings)

    run("uvloop", scene)


def test_nobody_is_let_in_while_the_broker_stops(tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as here:
            here.listener.stop_accepting()
            settings = QuicSettings(verify=False, handshake_seconds=0.2)
            with pytest.raises(ConnectFailed, match="no answer"):
                await connect("127.0.0.1", here.port, settings, RecordingHandler())
            assert not here.hosts

    run("uvloop", scene)
