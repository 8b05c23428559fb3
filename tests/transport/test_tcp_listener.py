"""Binding: what is said about a port that cannot be opened, and which addresses only this machine can reach."""

from __future__ import annotations

import asyncio
import socket

import pytest

from penstock.transport.endpoint import Endpoint
from penstock.transport.tcp_listener import (
    BindAddress,
    PortTaken,
    PortUnavailable,
    ReservedPort,
    bind,
    is_loopback,
)


def test_a_taken_port_is_named_with_its_door_and_the_flag_that_changes_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortUnavailable) as refused:
            bind(BindAddress(Endpoint("127.0.0.1", port), ("rustlog", "http")))
    said = str(refused.value)
    assert said.startswith(f"rustlog and http: 127.0.0.1:{port} is taken by another program")
    assert "--listen rustlog=HOST:PORT" in said and "--listen http=HOST:PORT" in said and "rustlog=off" in said


@pytest.mark.parametrize(
    ("host", "reason"),
    [("203.0.113.7", "Cannot assign requested address"), ("no.such.host.invalid", "host is not known")],
)
def test_an_address_that_is_not_here_is_refused_with_the_reason(host: str, reason: str) -> None:
    with pytest.raises(PortUnavailable, match=reason):
        bind(BindAddress(Endpoint(host, 0), ("rustlog",)))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.1", False),
        ("no.such.host.invalid", False),
    ],
)
def test_loopback_is_what_nobody_else_can_reach(host: str, expected: bool) -> None:
    assert is_loopback(Endpoint(host, 1)) is expected


def test_a_taken_udp_port_is_named_and_a_tcp_port_of_the_same_number_is_no_obstacle() -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        address = BindAddress(Endpoint("127.0.0.1", tcp.getsockname()[1]), ("felix",))
        (first,) = bind(address, socket.SOCK_DGRAM)
        with first, pytest.raises(PortUnavailable, match=r"felix: .* is taken by another program"):
            bind(address, socket.SOCK_DGRAM)


def test_a_reserved_port_that_is_taken_is_waited_for_as_long_as_asked() -> None:
    async def scene() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = BindAddress(Endpoint("127.0.0.1", taken.getsockname()[1]), ("flight",))
            with pytest.raises(PortTaken):
                await ReservedPort.once_free(address, 0)
            asyncio.get_running_loop().call_later(0.1, taken.close)
            port = await ReservedPort.once_free(address, 60)
        assert port.endpoint == address.endpoint
        port.close()

    asyncio.run(scene())
