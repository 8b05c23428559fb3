"""Forwarding: what a client sends through a broker that is no owner, and what comes back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from penstock.transport import forwarding
from penstock.transport.endpoint import Endpoint
from penstock.transport.forwarding import Forwarder

SECONDS = 60
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def bound(kind: socket.SocketKind = socket.SOCK_STREAM) -> tuple[socket.socket, Endpoint]:
    sock = socket.socket(socket.AF_INET, kind)
    sock.bind(("127.0.0.1", 0))
    return sock, Endpoint("127.0.0.1", sock.getsockname()[1])


@asynccontextmanager
async def owner(handler: Handler) -> AsyncIterator[Endpoint]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    server.close()


@asynccontextmanager
async def forwarder(connections: int = 100, wait_seconds: float = SECONDS) -> AsyncIterator[tuple[Forwarder, Endpoint]]:
    made = Forwarder(connections, wait_seconds)
    sock, endpoint = bound()
    made.add_stream("door", [sock])
    yield made, endpoint
    for _, left in await made.stop():
        left.close()


async def connect(endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(endpoint.host, endpoint.port)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await test()

    asyncio.run(bounded())


async def reverse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers only when the client has sent everything."""
    writer.write((await reader.read())[::-1])
    writer.close()
    await writer.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_a_side_that_has_sent_everything_still_gets_its_answer() -> None:
    async def test() -> None:
        async with owner(reverse) as there, forwarder() as (forward, here):
            forward.follow({"door": there})
            reader, writer = await connect(here)
            sent = bytes(range(256)) * 4096
            writer.write(sent)
            writer.write_eof()
            assert await reader.read() == sent[::-1]
            writer.close()

    run(test)


def test_who_comes_while_there_is_no_owner_waits_for_one() -> None:
    async def test() -> None:
        async with owner(echo) as there, forwarder() as (forward, here):
            reader, writer = await connect(here)
            writer.write(b"early")
            forward.follow({"door": there})
            assert await reader.readexactly(5) == b"early"
            writer.close()

    run(test)


def test_who_waits_too_long_is_closed() -> None:
    async def test() -> None:
        async with forwarder(wait_seconds=0.05) as (_, here):
            reader, writer = await connect(here)
            assert await reader.read() == b""
            writer.close()

    run(test)


def test_who_waits_when_the_broker_itself_becomes_the_owner_is_handed_over_unread() -> None:
    async def test() -> None:
        async with forwarder() as (forward, here):
            _, writer = await connect(here)
            writer.write(b"early")
            await writer.drain()
            await asyncio.sleep(0.2)  # until it is taken
            ((door, sock),) = await forward.stop()
            assert door == "door"
            assert await asyncio.get_running_loop().sock_recv(sock, 100) == b"early"
            sock.close()
            writer.close()

    run(test)


def test_stopping_does_not_wait_for_an_owner_that_refuses_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it refuses one in the very moment in which forwarding stops."""

    async def test() -> None:
        made = Forwarder(100, SECONDS)
        sock, here = bound()
        made.add_stream("door", [sock])
        attempts: list[asyncio.Task[list[tuple[str, socket.socket]]]] = []
        attempted = asyncio.Event()

        async def refused(_: Endpoint) -> socket.socket:
            attempts.append(asyncio.create_task(made.stop()))
            attempted.set()
            await asyncio.sleep(0)  # `stop` cancels whoever waits for this
            raise ConnectionRefusedError if len(attempts) == 1 else AssertionError

        monkeypatch.setattr(forwarding, "connect", refused)
        made.follow({"door": here})
        _, writer = await connect(here)
        await attempted.wait()
        for _, left in await attempts[0]:
            left.close()
        assert len(attempts) == 1
        writer.close()

    run(test)


def test_another_owner_cuts_connections_to_the_last_one() -> None:
    async def test() -> None:
        async with owner(echo) as first, owner(reverse) as second, forwarder() as (forward, here):
            forward.follow({"door": first})
            reader, writer = await connect(here)
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            forward.follow({"door": first})  # the same: nothing happens
            writer.write(b"two")
            assert await reader.readexactly(3) == b"two"
            forward.follow({"door": second})
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            reader, writer = await connect(here)
            writer.write(b"abc")
            writer.write_eof()
            assert await reader.read() == b"cba"
            writer.close()

    run(test)


def test_an_owner_that_may_be_gone_keeps_its_connections() -> None:
    """A standby claims the journal, and another was quicker or the owner was only slow."""

    async def test() -> None:
        async with owner(echo) as there, forwarder() as (forward, here):
            forward.follow({"door": there})
            reader, writer = await connect(here)
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            forward.hold()
            writer.write(b"two")
            assert await reader.readexactly(3) == b"two"
            late_reader, late_writer = await connect(here)
            late_writer.write(b"late")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(late_reader.read(1), 0.1)
            forward.follow({"door": there})
            assert await late_reader.readexactly(4) == b"late"
            writer.write(b"three")
            assert await reader.readexactly(5) == b"three"
            late_writer.close()
            writer.close()

    run(test)


def test_who_does_not_read_holds_little_and_stops_nobody() -> None:
    async def test() -> None:
        taken = asyncio.Event()
        stalled: list[asyncio.StreamWriter] = []

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if await reader.readexactly(1) == b"s":  # reads no further
                stalled.append(writer)
                taken.set()
                return
            await echo(reader, writer)

        async with owner(handler) as there, forwarder() as (forward, here):
            forward.follow({"door": there})
            _, flood = await connect(here)
            flood.write(b"s")
            await taken.wait()
            flood.write(bytes(64 << 20))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(flood.drain(), 0.5)  # the kernel's buffers and two chunks are full
            reader, writer = await connect(here)
            writer.write(b"ehello")
            assert await reader.readexactly(5) == b"hello"
            for each in (flood, writer, *stalled):
                each.transport.abort()

    run(test)


def test_no_more_connections_than_allowed() -> None:
    async def test() -> None:
        async with owner(echo) as there, forwarder(connections=1) as (forward, here):
            forward.follow({"door": there})
            reader, writer = await connect(here)
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            refused, other = await connect(here)
            assert await refused.read() == b""
            writer.close()
            other.close()

    run(test)


def test_datagrams_go_there_and_back_for_each_client() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        there, there_at = bound(socket.SOCK_DGRAM)
        here, here_at = bound(socket.SOCK_DGRAM)
        there.setblocking(False)
        forward = Forwarder(2, SECONDS)
        forward.add_datagrams("door", [here])
        clients = [bound(socket.SOCK_DGRAM)[0] for _ in range(3)]
        for client in clients:
            client.setblocking(False)
            client.connect((here_at.host, here_at.port))
        await loop.sock_sendall(clients[0], b"lost")  # there is no owner yet
        await asyncio.sleep(0.05)
        forward.follow({"door": there_at})
        for number in (0, 1, 0):
            await loop.sock_sendall(clients[number], b"from %d" % number)
            data, address = await loop.sock_recvfrom(there, 100)
            assert data == b"from %d" % number
            await loop.sock_sendto(there, data.upper(), address)
            assert await loop.sock_recv(clients[number], 100) == b"FROM %d" % number
        await loop.sock_sendall(clients[2], b"one too many")
        await loop.sock_sendall(clients[0], b"last")
        assert await loop.sock_recv(there, 100) == b"last"
        await forward.stop()
        for sock in (there, *clients):
            sock.close()

    run(test)
