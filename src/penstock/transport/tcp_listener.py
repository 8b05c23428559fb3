"""Listening sockets: which ports there are, which doors share one, and opening them.

Ports are bound before anything else is opened, so that a taken port stops the start before it touches the log, and
take connections only once the broker is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.config.settings import DOOR_NAMES, UDP_DOORS, Config, Endpoint, endpoint
from penstock.transport.tcp_connection import Connection, Port

BACKLOG = 1024


class PortUnavailable(Exception):
    """A port cannot be opened. The text names the door, the address and the flag that changes it."""


@dataclass(frozen=True, slots=True)
class BindAddress:
    """One address to listen on, and the doors that share it; the first of them is the port's own protocol."""

    endpoint: Endpoint
    doors: tuple[str, ...]
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    places: tuple[BindAddress, ...]
    closed: dict[str, str]  # door → why it is not open


def plan(config: Config, built: Collection[str]) -> Plan:
    """What to open for which doors. `built` are the doors that there are."""
    listen = config.settings.listen
    closed: dict[str, str] = {}
    grouped: dict[Endpoint, list[str]] = {}
    places: list[BindAddress] = []
    pinned = [name for name in listen.pinned if name in built and name not in UDP_DOORS]
    pinned_to = {endpoint(getattr(listen, name)): name for name in pinned}
    client_ca = config.settings.tls.client_ca
    for name in DOOR_NAMES:
        where = endpoint(getattr(listen, name))
        if where is None:
            closed[name] = "off"
        elif name not in built:
            closed[name] = "closed (not built yet)"
        elif name in UDP_DOORS:
            if client_ca:
                closed[name] = "closed (tls.client_ca is set, and QUIC clients cannot be asked for a certificate)"
            else:
                places.append(BindAddress(where, (name,)))
        elif where in pinned_to and pinned_to[where] != name and where.port:
            closed[name] = f"closed ({where} is pinned to {pinned_to[where]})"
        elif where.port == 0:
            places.append(BindAddress(where, (name,), name in listen.pinned))
        else:
            grouped.setdefault(where, []).append(name)
    places += [BindAddress(where, tuple(names), names[0] in listen.pinned) for where, names in grouped.items()]
    return Plan(tuple(sorted(places, key=lambda place: DOOR_NAMES.index(place.doors[0]))), closed)


def is_loopback(where: Endpoint) -> bool:
    """True if nobody beyond this machine can reach it. A name is judged by what it resolves to."""
    try:
        return ipaddress.ip_address(where.host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(where.host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(info[4][0]).partition("%")[0]).is_loopback for info in found)


def bind(place: BindAddress, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[socket.socket]:
    """Sockets of the place, bound and not listening yet: one for each address that its host resolves to."""
    where = place.endpoint
    flag = " or ".join(f"--listen {name}=HOST:PORT" for name in place.doors)
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(where.host, where.port, type=kind, flags=socket.AI_PASSIVE)
        for family, _, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            sockets.append(one)
            if kind == socket.SOCK_STREAM:  # with UDP it would let two programs have the same port
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.setblocking(False)
    except OSError as error:
        for one in sockets:
            one.close()
        why = (
            "is taken by another program" if error.errno == errno.EADDRINUSE else f"cannot be opened: {_reason(error)}"
        )
        raise PortUnavailable(
            f"{' and '.join(place.doors)}: {where} {why}. Choose another address with {flag}, or close the door "
            f"with --listen {place.doors[0]}=off"
        ) from None
    return sockets


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"its host is not known ({error.strerror})"
    return os.strerror(error.errno) if error.errno else str(error)


class Listener:
    """The open sockets of one place."""

    def __init__(self, place: BindAddress, sockets: Sequence[socket.socket]) -> None:
        self.place = place
        self._sockets = list(sockets)
        self._servers: list[asyncio.Server] = []

    @property
    def address(self) -> str:
        """Where it really is: the port is the one that the system chose if port 0 was asked for."""
        port = self._sockets[0].getsockname()[1]
        return str(Endpoint(self.place.endpoint.host, port))

    async def start(self, port: Port) -> None:
        """Take connections from now on. Raises PortUnavailable."""
        loop = asyncio.get_running_loop()
        try:
            for one in self._sockets:
                self._servers.append(
                    await loop.create_server(lambda: Connection(port, loop), sock=one, backlog=BACKLOG)
                )
        except OSError as error:
            raise PortUnavailable(
                f"{' and '.join(self.place.doors)}: {self.address} cannot be opened: {_reason(error)}"
            ) from None

    def close(self) -> None:
        """Take no more connections; those that there are stay."""
        for server in self._servers:
            server.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.close()
