"""Listening sockets: an address with the doors that share it, binding it, and accepting connections there.

Ports are bound before anything else is opened, so that a port in use fails the start before it touches the log. They
accept connections only once the broker is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from penstock.transport.endpoint import Endpoint
from penstock.transport.port import Port
from penstock.transport.tcp_connection import Connection

BACKLOG = 1024
RETRY_SECONDS = 0.05


class PortUnavailable(Exception):
    """A port cannot be opened. The text names the door, the address and the flag to change it."""


class PortTaken(PortUnavailable):
    """Another program has it."""


@dataclass(frozen=True, slots=True)
class BindAddress:
    """One address to listen on, and the doors that share it; the first one is the port's own protocol."""

    endpoint: Endpoint
    doors: tuple[str, ...]
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class BindPlan:
    """All addresses to listen on."""

    addresses: tuple[BindAddress, ...]
    closed: dict[str, str]  # door → why it is not open


def is_loopback(endpoint: Endpoint) -> bool:
    """True if only this machine can reach the endpoint. A host name must resolve to loopback addresses only."""
    try:
        return ipaddress.ip_address(endpoint.host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(endpoint.host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(info[4][0]).partition("%")[0]).is_loopback for info in found)


def bind(bind_address: BindAddress, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[socket.socket]:
    """Bound sockets of an address, not listening yet: one for each IP address that its host resolves to. Raises
    PortUnavailable."""
    endpoint, doors = bind_address.endpoint, bind_address.doors
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=kind, flags=socket.AI_PASSIVE)
        for family, _, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            if kind == socket.SOCK_STREAM:  # for UDP it would let two programs share the port
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.setblocking(False)
    except OSError as error:
        _close(sockets)
        taken = error.errno == errno.EADDRINUSE
        why = "is taken by another program" if taken else f"cannot be opened: {_reason(error)}"
        flag = " or ".join(f"--listen {name}=HOST:PORT" for name in doors)
        raise (PortTaken if taken else PortUnavailable)(
            f"{' and '.join(doors)}: {endpoint} {why}. Choose another address with {flag}, or close the door "
            f"with --listen {doors[0]}=off"
        ) from None
    return sockets


def bound_endpoint(bind_address: BindAddress, sockets: Sequence[socket.socket]) -> Endpoint:
    """The address of bound sockets, with the actual port if port 0 was requested."""
    return Endpoint(bind_address.endpoint.host, sockets[0].getsockname()[1])


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"its host is not known ({error.strerror})"
    return os.strerror(error.errno) if error.errno else str(error)


def _close(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        with contextlib.suppress(OSError):
            sock.close()


class ReservedPort:
    """A port that another process serves. The sockets are bound here and never listen. This way a port in use is found
    before anything else is opened, a port chosen by the system stays the same when that process restarts, and no other
    program gets it meanwhile."""

    def __init__(self, bind_address: BindAddress) -> None:
        """Raises PortUnavailable."""
        self.bind_address = bind_address
        self._sockets = bind(bind_address)
        self.endpoint = bound_endpoint(bind_address, self._sockets)

    @classmethod
    async def once_free(cls, bind_address: BindAddress, patience: float) -> ReservedPort:
        """The port, even if another program has it for some more seconds. Raises PortUnavailable."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while True:
            try:
                return cls(bind_address)
            except PortTaken:
                if loop.time() >= until:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    def sockets_meanwhile(self) -> list[socket.socket]:
        """Further sockets on the same port, for a forwarder; to be closed before that process serves it."""
        return bind(BindAddress(self.endpoint, self.bind_address.doors))

    def close(self) -> None:
        _close(self._sockets)


class Listener:
    """The open sockets of one address."""

    def __init__(self, bind_address: BindAddress) -> None:
        """Raises PortUnavailable."""
        self.bind_address = bind_address
        self._sockets = bind(bind_address)
        self._servers: list[asyncio.Server] = []
        self.endpoint = bound_endpoint(bind_address, self._sockets)

    def sockets_meanwhile(self) -> list[socket.socket]:
        """Duplicates of the sockets, for a forwarder that accepts their connections until `start`. Connections in
        between wait in the backlog."""
        return [sock.dup() for sock in self._sockets]

    async def start(self, port: Port) -> None:
        """Start accepting connections. Raises PortUnavailable."""
        loop = asyncio.get_running_loop()
        try:
            for sock in self._sockets:
                port.tracker.limits.keepalive.apply(sock)
                self._servers.append(
                    await loop.create_server(lambda: _connection(port, loop), sock=sock, backlog=BACKLOG)
                )
        except OSError as error:
            raise PortUnavailable(
                f"{' and '.join(self.bind_address.doors)}: {self.endpoint} cannot be opened: {_reason(error)}"
            ) from None

    async def adopt(self, port: Port, sock: socket.socket) -> None:
        """Serve a connection that was accepted before `start`."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # the peer may be gone
            await loop.connect_accepted_socket(lambda: _connection(port, loop), sock)

    def close(self) -> None:
        """Accept no more connections; open ones stay."""
        for server in self._servers:
            server.close()
        _close(self._sockets)


def _connection(port: Port, loop: asyncio.AbstractEventLoop) -> asyncio.Protocol:
    return cast(asyncio.Protocol, Connection(port, loop))
