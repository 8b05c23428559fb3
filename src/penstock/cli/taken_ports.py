"""Ports in use by other programs: finds all of them, and suggests flags that move their doors to free ones."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.config.settings import DOOR_NAMES, UDP_DOORS, Settings
from penstock.transport.endpoint import Endpoint, parse_endpoint

STEP: Final = 10_000  # 9092 is moved to 19092: easy to remember, and probably free
LAST_PORT: Final = 65_535


class TakenPort(NamedTuple):
    endpoint: Endpoint
    doors: tuple[str, ...]
    kind: socket.SocketKind


def taken_ports(settings: Settings) -> list[TakenPort]:
    """The configured ports that another program uses. Addresses that cannot be opened for other reasons are left to the
    broker, which reports the reason."""
    return [
        TakenPort(endpoint, tuple(doors), kind)
        for (endpoint, kind), doors in _doors(settings).items()
        if _is_taken(endpoint, kind)
    ]


def describe(taken: Sequence[TakenPort], command: str) -> str:
    """The message about ports in use. `command` starts the broker; `{}` in it is replaced by the flags."""
    width = max(len(", ".join(port.doors)) for port in taken)
    lines = [f"  {', '.join(port.doors):<{width}}  {port.endpoint}" for port in taken]
    moved = " ".join(f"--listen {door}={free}" for port in taken for door, free in _moved(port))
    count = "this port is" if len(taken) == 1 else f"these {len(taken)} ports are"
    return "\n".join(
        (
            f"{count} taken by another program:",
            *lines,
            "Stop that program, which may be a broker, or move the doors to free ports:",
            f"  {command.format(moved)}",
            "`--listen NAME=off` closes a door.",
        )
    )


def _doors(settings: Settings) -> dict[tuple[Endpoint, socket.SocketKind], list[str]]:
    found: dict[tuple[Endpoint, socket.SocketKind], list[str]] = {}
    for name in DOOR_NAMES:
        endpoint = parse_endpoint(str(getattr(settings.listen, name)))
        if endpoint is not None and endpoint.port:
            kind = socket.SOCK_DGRAM if name in UDP_DOORS else socket.SOCK_STREAM
            found.setdefault((endpoint, kind), []).append(name)
    return found


def _moved(port: TakenPort) -> Iterator[tuple[str, Endpoint]]:
    host, number = port.endpoint.host, port.endpoint.port
    choices = range(number % STEP + STEP, LAST_PORT + 1, STEP)
    free = next((choice for choice in choices if not _is_taken(Endpoint(host, choice), port.kind)), 0)
    yield from ((door, Endpoint(host, free)) for door in port.doors)


def _is_taken(endpoint: Endpoint, kind: socket.SocketKind) -> bool:
    try:
        family, _, _, _, address = socket.getaddrinfo(endpoint.host, endpoint.port, type=kind)[0]
        with socket.socket(family, kind) as tried:
            if kind == socket.SOCK_STREAM:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False
