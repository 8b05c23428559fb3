"""Forwarding: a broker that does not own the journal accepts connections too, and passes their bytes to the owner.

Every port forwards raw bytes to the same door of the owner, including TLS, so this module needs no protocol knowledge.
A chunk is read only after the other side has accepted the previous one: this is the back-pressure, and bounds the
memory of a connection. QUIC is forwarded as datagrams, by client address.

Clients that connect while there is no owner wait for the next one. If this broker becomes the owner, it takes over
those connections, of which nothing has been read yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Mapping
from typing import Final

from penstock.transport.endpoint import Endpoint

logger = logging.getLogger(__name__)

CHUNK: Final = 64 << 10  # bytes held per connection and direction
CONNECT_SECONDS: Final = 2.0  # per attempt
RETRY_SECONDS: Final = 0.1
BACKLOG: Final = 1024
FLOW_SECONDS: Final = 60.0  # without datagrams in both directions, until a client's address is forgotten
DATAGRAM: Final = 65_536
DATAGRAMS_PER_TURN: Final = 64

Address = tuple[str | int, ...]
Owner = Mapping[str, Endpoint]
"""The owner's address of each door."""


class Forwarder:
    """All ports of a broker that is not the owner: `add_stream` and `add_datagrams`, `follow` an owner, `hold` new
    connections while it may be gone, `pause` when it is, and finally `stop`."""

    def __init__(self, connections: int, wait_seconds: float) -> None:
        """Up to `connections` at a time. A connection waits for an owner for up to `wait_seconds`, and is then
        closed."""
        self._loop = asyncio.get_running_loop()
        self._connections = connections
        self._wait_seconds = wait_seconds
        self._owner: Owner | None = None  # to which connections are, or were last, forwarded
        self._owner_known = asyncio.Event()  # set while connections are forwarded to it
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._relays: list[_DatagramRelay] = []
        self._open: dict[asyncio.Task[None], bool] = {}  # connection → whether it is being forwarded
        self._waiting: dict[socket.socket, str] = {}  # sockets from which nothing was read yet → door

    def add_stream(self, door: str, sockets: list[socket.socket]) -> None:
        """Accept connections on bound sockets; `stop` closes the sockets."""
        for sock in sockets:
            sock.setblocking(False)
            sock.listen(BACKLOG)
            self._listening.append(sock)
            self._accepting.append(self._loop.create_task(self._accept(door, sock)))

    def add_datagrams(self, door: str, sockets: list[socket.socket]) -> None:
        """Accept datagrams on bound sockets; `stop` closes the sockets."""
        for sock in sockets:
            self._relays.append(_DatagramRelay(self, door, sock, self._connections))

    def follow(self, owner: Owner) -> None:
        """Forward to this owner from now on. Connections to a previous one are closed."""
        if owner != self._owner:
            self.pause()
        self._owner = owner
        self._owner_known.set()

    def hold(self) -> None:
        """Make new connections wait because the owner may be gone; forwarded ones are not affected."""
        self._owner_known.clear()

    def pause(self) -> None:
        """There is no owner: close all connections forwarded to the last one."""
        self.hold()
        self._owner = None
        for task, passed_on in self._open.items():
            if passed_on:
                task.cancel()
        for relay in self._relays:
            relay.forget_all()

    def address(self, door: str) -> Endpoint | None:
        return None if self._owner is None or not self._owner_known.is_set() else self._owner.get(door)

    async def stop(self) -> list[tuple[str, socket.socket]]:
        """Stop forwarding. Returns the connections from which nothing was read, with their doors; the caller now owns
        them."""
        left = [(door, sock) for sock, door in self._waiting.items()]
        self._waiting.clear()
        tasks = [*self._accepting, *self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in self._listening:
            sock.close()
        for relay in self._relays:
            relay.close()
        return left

    async def _accept(self, door: str, listening: socket.socket) -> None:
        while True:
            try:
                sock, _ = await self._loop.sock_accept(listening)
            except OSError as error:  # the peer is already gone, or file descriptors ran out
                logger.warning("%s: a connection could not be taken: %s", door, error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if len(self._open) >= self._connections:
                sock.close()
                continue
            sock.setblocking(False)
            self._waiting[sock] = door
            task = self._loop.create_task(self._forward(door, sock))
            self._open[task] = False
            task.add_done_callback(lambda task: self._open.pop(task, None))

    async def _forward(self, door: str, client: socket.socket) -> None:
        owner: socket.socket | None = None
        passed_on = False
        try:
            owner = await self._connect(door)
            if owner is None or client not in self._waiting:
                return
            del self._waiting[client]
            passed_on = True
            task = asyncio.current_task()
            assert task is not None
            self._open[task] = True
            for sock in (client, owner):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await splice(client, owner)
        except OSError as error:
            logger.debug("%s: a forwarded connection ended: %s", door, error)
        finally:
            if owner is not None:
                owner.close()
            if passed_on or self._waiting.pop(client, None) is not None:  # else `stop` gave it away
                client.close()

    async def _connect(self, door: str) -> socket.socket | None:
        """A socket to the owner's door; None if that door is closed there, or no owner appeared in time."""
        give_up = time.monotonic() + self._wait_seconds
        while (left := give_up - time.monotonic()) > 0:
            # Not `wait_for`: before Python 3.12 it ignores a cancellation that comes together with the result.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._owner_known.wait()
            if self._owner is None or not self._owner_known.is_set():
                continue
            endpoint = self._owner.get(door)
            if endpoint is None:
                return None
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await connect(endpoint)
            await asyncio.sleep(RETRY_SECONDS)
        logger.warning(
            "%s: a connection was closed, because the journal had no owner for %g s", door, self._wait_seconds
        )
        return None


async def connect(endpoint: Endpoint) -> socket.socket:
    """A non-blocking socket that is connected to `endpoint`. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def splice(one: socket.socket, other: socket.socket) -> None:
    """Copy in both directions until both have ended. A side that sends no more may still receive. Raises OSError."""
    tasks = [asyncio.ensure_future(_pump(one, other)), asyncio.ensure_future(_pump(other, one))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, CHUNK):
        await loop.sock_sendall(target, data)
        await asyncio.sleep(0)  # if both sockets are fast, neither call suspends: let other tasks run
    with contextlib.suppress(OSError):  # it may be closed entirely
        target.shutdown(socket.SHUT_WR)


class _DatagramRelay:
    """One UDP port. Each client address has its own socket to the owner, which identifies the client of a reply."""

    def __init__(self, forwarder: Forwarder, door: str, sock: socket.socket, flows: int) -> None:
        self._forwarder = forwarder
        self._door = door
        self._socket = sock
        self._max_flows = flows
        self._loop = asyncio.get_running_loop()
        self._flows: dict[Address, _Flow] = {}
        sock.setblocking(False)
        self._loop.add_reader(sock, self._from_clients)

    def _from_clients(self) -> None:
        endpoint = self._forwarder.address(self._door)
        for _ in range(DATAGRAMS_PER_TURN):
            try:
                data, client = self._socket.recvfrom(DATAGRAM)
            except OSError:
                return
            flow = self._flows.get(client)
            if flow is None:
                if endpoint is None or (len(self._flows) >= self._max_flows and not self._make_room()):
                    continue  # QUIC retransmits it
                try:
                    flow = self._flows[client] = _Flow(self._loop, self._socket, client, endpoint)
                except OSError as error:
                    logger.debug("%s: %s cannot be reached: %s", self._door, endpoint, error)
                    continue
            flow.send(data)

    def _make_room(self) -> bool:
        old = time.monotonic() - FLOW_SECONDS
        for client in [client for client, flow in self._flows.items() if flow.used < old]:
            self._flows.pop(client).close()
        return len(self._flows) < self._max_flows

    def forget_all(self) -> None:
        for flow in self._flows.values():
            flow.close()
        self._flows.clear()

    def close(self) -> None:
        self.forget_all()
        self._loop.remove_reader(self._socket)
        self._socket.close()


class _Flow:
    """The datagrams of one client. If a socket's buffer is full they are lost, as on any network."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clients: socket.socket, client: Address, endpoint: Endpoint
    ) -> None:
        """Raises OSError."""
        self.used = time.monotonic()
        self._loop = loop
        self._clients = clients
        self._client = client
        family, kind, protocol, _, address = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(family, kind, protocol)
        self._socket.setblocking(False)
        self._socket.connect(address)
        loop.add_reader(self._socket, self._from_owner)

    def send(self, data: bytes) -> None:
        self.used = time.monotonic()
        with contextlib.suppress(OSError):
            self._socket.send(data)

    def _from_owner(self) -> None:
        self.used = time.monotonic()
        with contextlib.suppress(OSError):
            for _ in range(DATAGRAMS_PER_TURN):
                self._clients.sendto(self._socket.recv(DATAGRAM), self._client)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()
