"""One connection, seen from its client: what is served, what is refused, and when it is read, stopped and closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.transport.harness import HELLO, EchoSession, run, stage, until

from penstock.broker.runtime import turns
from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.transport import connection_limits as gate_module
from penstock.transport import tcp_connection as connection_module
from penstock.transport.connection_limits import KeepAlive
from penstock.transport.tcp_connection import Connection

pytestmark = pytest.mark.parametrize("loop", ["uvloop", "asyncio"])


def test_bytes_reach_the_session_and_its_answer_the_client(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as one:
            reader, writer = await one.connect()
            writer.write(HELLO + b"abc")
            assert await reader.readexactly(8) == HELLO + b"abc"
            assert one.broker.metrics.active_connections == 1
            writer.close()
            await until(lambda: one.sessions[0].events == ["end", "lost"])
            assert one.broker.metrics.active_connections == 0

    run(loop, scene)


def test_the_protocol_is_told_from_any_split_of_the_first_bytes(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as one:
            for request, door in ((b"GET /health", "http"), (HELLO, "rustlog"), (b"SSH-2", "rustlog")):
                reader, writer = await one.connect()
                for byte in request:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.001)
                assert await reader.readexactly(len(request)) == request
                assert one.opened[-1] == door
                writer.close()

    run(loop, scene)


def test_a_pinned_port_serves_its_protocol_whatever_the_first_bytes(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path, pinned=True) as one:
            for request in (b"G", b"\xaf", b"\x16\x03\x01"):
                reader, writer = await one.connect()
                writer.write(request)
                assert await reader.readexactly(len(request)) == request
                writer.close()
            assert one.opened == ["rustlog"] * 3

    run(loop, scene)


def test_a_protocol_without_a_door_is_closed_counted_and_logged_once(
    loop: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as one:
            for _ in range(3):
                reader, writer = await one.connect()
                writer.write(b"\xaf\x01")
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
            reader, writer = await one.connect()
            writer.write(b"\x16\x03\x01")  # TLS, which is not set up
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            assert one.broker.metrics.connections_refused == 4
            assert one.opened == []

    with caplog.at_level(logging.INFO, "penstock.transport"):
        run(loop, scene)
    assert [record.message for record in caplog.records if "speaks flymq" in record.message] != []
    assert len([record for record in caplog.records if "speaks flymq" in record.message]) == 1
    assert len([record for record in caplog.records if "TLS is not set up" in record.message]) == 1


def test_a_connection_whose_input_takes_long_lets_others_have_their_turn(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[int] = []  # sizes of pieces

    async def scene() -> None:
        async with stage(tmp_path) as one:
            with one.raw() as greedy, one.raw() as modest:
                sent = 0

                def send_more() -> None:
                    nonlocal sent
                    with contextlib.suppress(BlockingIOError):
                        while True:
                            sent += greedy.send(bytes(1 << 20))

                def slowly(_: EchoSession, data: bytes) -> None:
                    received.append(len(data))
                    if len(received) == 5:
                        modest.sendall(b"x")
                    if len(received) < 20:  # however small the buffers are, there is more to read
                        send_more()
                    time.sleep(1.5 * turns.TURN / 1e9)

                greedy.sendall(HELLO)
                modest.sendall(HELLO)
                await until(lambda: len(one.sessions) == 2)
                monkeypatch.setattr(EchoSession, "receive", slowly)
                greedy.setblocking(False)
                send_more()
                await until(lambda: sum(received) == sent + 1)
                assert len(received) > 10 and received.index(1) <= 7, "others wait until all of it is read"

    run(loop, scene)


@pytest.mark.parametrize(("held", "awaiting_commit"), [(0, False), (7, False), (7, True)])
def test_what_is_not_answered_is_acknowledged_at_once_and_what_is_answered_by_the_answer(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, awaiting_commit: bool
) -> None:
    armed: list[int] = []
    original = connection_module.Connection.quickack

    def times(count: int) -> Callable[[], bool]:
        return lambda: len(armed) == count

    def spy(self: connection_module.Connection) -> None:
        assert self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        was_due = self._unanswered
        original(self)
        if was_due:
            armed.append(self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))

    monkeypatch.setattr(connection_module.Connection, "quickack", spy)

    async def scene() -> None:
        async with stage(tmp_path) as one:
            reader, writer = await one.connect()
            for _ in range(5):
                writer.write(HELLO)
                await reader.readexactly(len(HELLO))
            assert armed == []
            one.echo = False
            one.sessions[0].held = held  # as by a frame whose other half is to come, or an answer that takes time
            one.sessions[0].awaiting_commit = awaiting_commit
            for count in range(1, 6):
                writer.write(HELLO)
                await until(times(count))
            writer.close()

    run(loop, scene)
    assert len(armed) == 5
    assert all(armed)


def test_the_answer_behind_a_commit_acknowledges(loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "ACK_SECONDS", 3600)
    armed: list[Connection] = []
    original = Connection.quickack

    def spy(self: Connection) -> None:
        armed.append(self)
        original(self)

    monkeypatch.setattr(Connection, "quickack", spy)

    async def scene() -> None:
        async with stage(tmp_path) as one:
            reader, writer = await one.connect()
            writer.write(HELLO)
            await reader.readexactly(len(HELLO))
            session = one.sessions[0]
            connection = session.channel
            assert isinstance(connection, Connection)
            port = connection._port
            one.echo, session.held, session.awaiting_commit = False, 7, True
            for _ in range(3):
                received = len(session.received)
                writer.write(HELLO)
                await until(lambda received=received: len(session.received) > received)  # type: ignore[misc]
                assert port.awaiting_commit == [connection]
            port.acknowledge_late()  # too early: it is looked at again
            assert (port.awaiting_commit, armed) == ([connection], [])
            connection.send(b"committed")
            port.acknowledge_late()
            assert (port.awaiting_commit, armed) == ([], [])
            writer.close()

    run(loop, scene)


def test_over_the_limit_of_connections_the_newest_is_closed_and_the_others_stay(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path, connections=2) as one:
            first, second = await one.connect(), await one.connect()
            reader, writer = await one.connect()
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            assert one.broker.metrics.connections_refused == 1
            assert one.broker.metrics.active_connections == 2
            for reader, writer in (first, second):
                writer.write(HELLO)
                assert await reader.readexactly(len(HELLO)) == HELLO
            first[1].close()
            await until(lambda: len(one.tracker) == 1)
            reader, writer = await one.connect()
            writer.write(HELLO)
            assert await reader.readexactly(len(HELLO)) == HELLO
            second[1].close()
            writer.close()

    run(loop, scene)


def closed(reader: asyncio.StreamReader) -> Callable[[], bool]:
    return lambda: reader.at_eof() or reader.exception() is not None


@pytest.mark.parametrize("sent", [b"", b"\x00\x00", HELLO], ids=["silent", "too little to tell", "open"])
def test_an_idle_connection_is_closed_and_a_busy_one_is_not(loop: str, tmp_path: Path, sent: bytes) -> None:
    async def scene() -> None:
        async with stage(tmp_path, idle_seconds=0.2) as one:
            idle, idle_writer = await one.connect()
            busy, busy_writer = await one.connect()
            idle_writer.write(sent)
            while not closed(idle)():
                busy_writer.write(HELLO)
                assert await busy.readexactly(len(HELLO)) == HELLO
                await asyncio.sleep(0.01)
                with contextlib.suppress(TimeoutError, ConnectionError):
                    await asyncio.wait_for(idle.read(100), 0.001)
            assert len(one.tracker) == 1
            idle_writer.close()
            busy_writer.close()

    run(loop, scene)


def test_an_idle_connection_whose_session_is_long_lived_is_kept(loop: str, tmp_path: Path) -> None:
    """A client that has sent half a request is not one: nobody waits for anything but the other half."""

    async def scene() -> None:
        async with stage(tmp_path, idle_seconds=0.2) as one:
            one.long_lived = True
            kept, kept_writer = await one.connect()
            kept_writer.write(HELLO)
            assert await kept.readexactly(len(HELLO)) == HELLO
            half, half_writer = await one.connect()
            half_writer.write(HELLO)
            assert await half.readexactly(len(HELLO)) == HELLO
            one.sessions[1].held = 5
            one.sessions[1].channel.progress()
            with contextlib.suppress(ConnectionError):
                assert await half.read(100) == b""
            one.long_lived = False
            for _ in range(2):  # others come after it, and are gone before it
                other, other_writer = await one.connect()
                other_writer.write(HELLO)
                assert await other.readexactly(len(HELLO)) == HELLO
                with contextlib.suppress(ConnectionError):
                    assert await other.read(100) == b""
            assert len(one.tracker) == 1
            kept_writer.write(HELLO)
            assert await kept.readexactly(len(HELLO)) == HELLO
            for writer in (kept_writer, half_writer, other_writer):
                writer.close()

    run(loop, scene)


def test_connections_are_asked_by_tcp_whether_they_are_still_there(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path, keepalive=KeepAlive(7.5, 2, 3)) as one:
            reader, writer = await one.connect()
            writer.write(HELLO)
            assert await reader.readexactly(len(HELLO)) == HELLO
            (connection,) = one.tracker._connections
            assert isinstance(connection, Connection)
            option = connection._socket.getsockopt
            assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            assert [option(socket.IPPROTO_TCP, name) for name in names] == [8, 2, 3]
            writer.close()

    run(loop, scene)


def test_a_door_without_a_login_takes_its_clients_for_the_principal_of_its_port(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path, identities={"rustlog": Identity("ingest")}) as one:
            one.identity = Identity("ingest")
            reader, writer = await one.connect()
            writer.write(HELLO)
            assert await reader.readexactly(len(HELLO)) == HELLO
            one.identity = ANONYMOUS
            other, other_writer = await one.connect()
            other_writer.write(b"GET / HTTP/1.1\r\n")
            await other.readexactly(5)
            assert one.opened == ["rustlog", "http"]
            writer.close()
            other_writer.close()

    run(loop, scene)


def test_a_client_that_never_reads_is_not_read_from_and_closed_after_the_idle_time(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path, idle_seconds=0.3, connection_bytes=1 << 31, total_bytes=1 << 31) as one:
            with one.raw() as client:
                client.setblocking(False)
                await asyncio.get_running_loop().sock_sendall(client, HELLO + b"FLOOD")
                await until(lambda: one.sessions and one.sessions[0].channel.congested)
                before = len(one.sessions[0].received)
                await asyncio.get_running_loop().sock_sendall(client, b"more")
                await until(lambda: one.sessions[0].events == ["lost"])
                assert len(one.sessions[0].received) == before
                assert one.tracker.held == 0

    run(loop, scene)


def test_a_drained_channel_is_no_longer_congested_and_tells_the_session(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as one:
            reader, writer = await one.connect()
            writer.write(HELLO + b"FLOOD")
            await until(lambda: one.sessions and one.sessions[0].channel.congested)
            assert len(await reader.readexactly((64 << 20) + 10)) > 64 << 20
            await until(lambda: not one.sessions[0].channel.congested)
            writer.write(b"on")
            assert await reader.readexactly(2) == b"on"
            writer.close()

    run(loop, scene)


def test_a_session_that_holds_too_much_is_not_fed_until_it_makes_progress(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as one:
            one.echo = False
            reader, writer = await one.connect()
            writer.write(HELLO + b"HOLD")
            await until(lambda: one.sessions and one.sessions[0].held)
            session = one.sessions[0]
            sent = 0
            with pytest.raises(TimeoutError):  # when all buffers between them are full, however large they are
                while True:
                    writer.write(bytes(1 << 20))
                    sent += 1 << 20
                    await asyncio.wait_for(writer.drain(), 0.2)
            assert len(session.received) < 1 << 20
            session.release()
            await until(lambda: len(session.received) == sent + 9)
            writer.close()
            await reader.read()

    run(loop, scene)


def test_when_all_clients_hold_too_much_together_only_those_who_hold_most_are_not_read_from(
    loop: str, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with stage(tmp_path, connection_bytes=1 << 31, total_bytes=1 << 26) as one:
            one.echo = False
            _greedy, greedy_writer = await one.connect()
            _modest, modest_writer = await one.connect()
            modest_writer.write(HELLO)
            greedy_writer.write(HELLO + b"HOLD")
            await until(lambda: one.tracker.full and len(one.sessions) == 2)
            by_input = {session.received[:9]: session for session in one.sessions}
            modest, greedy = by_input[HELLO], by_input[HELLO + b"HOLD"]
            await asyncio.sleep(0.05)
            greedy_writer.write(b"later")
            modest_writer.write(b"now")
            await until(lambda: modest.received == HELLO + b"now")
            await asyncio.sleep(0.05)
            assert greedy.received == HELLO + b"HOLD"
            greedy.release()
            await until(lambda: greedy.received == HELLO + b"HOLDlater")
            assert not one.tracker.full
            greedy_writer.close()
            modest_writer.close()

    run(loop, scene)


def test_when_nothing_moves_any_more_the_client_that_holds_most_is_closed(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "STALL_SECONDS", 0.1)
    monkeypatch.setattr(gate_module, "SWEEP_SECONDS", 0.05)

    async def scene() -> None:
        async with stage(tmp_path, connection_bytes=1 << 31, total_bytes=1 << 26) as one:
            modest, modest_writer = await one.connect()
            modest_writer.write(HELLO)
            await modest.readexactly(len(HELLO))
            _greedy, greedy_writer = await one.connect()
            greedy_writer.write(HELLO + b"HOLD")
            await until(lambda: len(one.tracker) == 1 and not one.tracker.full)
            modest_writer.write(b"alive")
            assert await modest.readexactly(5) == b"alive"
            greedy_writer.close()
            modest_writer.close()

    run(loop, scene)


def test_an_error_in_one_session_closes_it_is_logged_once_and_touches_no_other(
    loop: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as one:
            healthy, healthy_writer = await one.connect()
            healthy_writer.write(HELLO)
            await healthy.readexactly(len(HELLO))
            reader, writer = await one.connect()
            writer.write(HELLO)
            await reader.readexactly(len(HELLO))
            writer.write(b"RAISE")
            assert await reader.read() == b""
            writer.write(b"RAISE")
            writer.close()
            await until(lambda: len(one.tracker) == 1)
            healthy_writer.write(b"fine")
            assert await healthy.readexactly(4) == b"fine"
            healthy_writer.close()

    run(loop, scene)
    logged = [record for record in caplog.records if record.exc_info]
    assert len(logged) == 1
    assert "planted" in str(logged[0].exc_info) and "127.0.0.1:" in logged[0].message


def test_a_half_closed_connection_still_gets_its_answers(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as one:
            reader, writer = await one.connect()
            writer.write(HELLO)
            writer.write_eof()
            assert await reader.read() == HELLO + b"END"
            writer.close()

    run(loop, scene)


def test_the_last_answer_arrives_although_the_client_goes_on_sending(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as one:
            for _ in range(20):
                reader, writer = await one.connect()
                writer.write(HELLO + b"BYE" + bytes(4 << 20))
                assert await reader.read() == b"bye"
                writer.close()

    run(loop, scene)


def test_a_closed_connection_does_not_linger_for_a_client_that_stays(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "LINGER_SECONDS", 0.1)
    monkeypatch.setattr(gate_module, "SWEEP_SECONDS", 0.02)

    async def scene() -> None:
        async with stage(tmp_path) as one:
            with one.raw() as client:
                client.sendall(HELLO + b"BYE")
                await until(lambda: one.sessions and one.sessions[0].events == ["lost"])
                assert client.recv(10) == b"bye"

    run(loop, scene)


def test_stopping_lets_sessions_answer_and_cuts_off_those_that_do_not(loop: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with stage(tmp_path) as one:
            good, good_writer = await one.connect()
            bad, bad_writer = await one.connect()
            mute, mute_writer = await one.connect()
            good_writer.write(HELLO)
            bad_writer.write(HELLO + b"STAY")
            await good.readexactly(5)
            await bad.readexactly(9)
            assert await one.tracker.drain(0.2) == 1
            assert await good.read() == b"STOPPED"
            assert len(one.tracker) == 0
            for reader, writer in ((bad, bad_writer), (mute, mute_writer), (good, good_writer)):
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                writer.close()

    run(loop, scene)
