"""Which ports there are, which doors share one, and what is said about a port that cannot be opened."""

from __future__ import annotations

import socket

import pytest

from penstock.config.layers import load
from penstock.config.settings import Endpoint
from penstock.transport.tcp_listener import BindAddress, PortUnavailable, bind, is_loopback, plan

BUILT = ("rustlog", "http")
ALL = ("rustlog", "blipmq", "flymq", "kimberlite", "felix", "http", "flight")


def places(flags: dict[str, str], built: tuple[str, ...] = BUILT) -> dict[str, tuple[str, ...]]:
    return {str(place.endpoint): place.doors for place in plan(load(flags=flags), built).places}


def test_by_default_the_built_doors_are_open_and_the_others_are_said_to_be_closed() -> None:
    planned = plan(load(), BUILT)
    assert {str(place.endpoint): place.doors for place in planned.places} == {
        "127.0.0.1:9092": ("rustlog",),
        "127.0.0.1:8080": ("http",),
    }
    assert set(planned.closed) == {"blipmq", "flymq", "kimberlite", "felix", "flight"}
    assert set(planned.closed.values()) == {"closed (not built yet)"}


def test_doors_with_one_address_share_one_port_and_the_first_is_its_own() -> None:
    assert places({}, ("rustlog", "flymq"))["127.0.0.1:9092"] == ("rustlog", "flymq")
    assert places({"listen.http": "127.0.0.1:9092"}) == {"127.0.0.1:9092": ("rustlog", "http")}


def test_port_zero_is_never_shared() -> None:
    planned = plan(load(flags={"listen.rustlog": "127.0.0.1:0", "listen.http": "127.0.0.1:0"}), BUILT)
    assert [place.doors for place in planned.places] == [("rustlog",), ("http",)]


def test_a_door_that_is_off_is_off_built_or_not() -> None:
    planned = plan(load(flags={"listen.http": "off", "listen.felix": "off"}), BUILT)
    assert planned.closed["http"] == planned.closed["felix"] == "off"
    assert [place.doors for place in planned.places] == [("rustlog",)]


def test_a_pinned_port_keeps_out_a_door_that_would_share_it_by_default() -> None:
    planned = plan(load(environment={"PENSTOCK_LISTEN__PINNED": "rustlog"}), ALL)
    assert [place for place in planned.places if place.pinned] == [
        BindAddress(Endpoint("127.0.0.1", 9092), ("rustlog",), True)
    ]
    assert "pinned to rustlog" in planned.closed["flymq"]


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


def test_a_udp_door_has_its_port_for_itself_also_where_another_has_the_same_number() -> None:
    flags = {"listen.felix": "127.0.0.1:9092"}
    planned = plan(load(environment={"PENSTOCK_LISTEN__PINNED": "rustlog,felix"}, flags=flags), ALL)
    at = [place for place in planned.places if place.endpoint.port == 9092]
    assert [(place.doors, place.pinned) for place in at] == [(("rustlog",), True), (("felix",), False)]
    assert "felix" not in planned.closed


def test_a_udp_door_stays_closed_where_clients_must_show_a_certificate() -> None:
    flags = {"tls.cert": "x", "tls.key": "x", "tls.client_ca": "x"}
    planned = plan(load(flags=flags), ALL)
    assert "tls.client_ca" in planned.closed["felix"]
    assert "felix" not in {door for place in planned.places for door in place.doors}


def test_a_taken_udp_port_is_named_and_a_tcp_port_of_the_same_number_is_no_obstacle() -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        place = BindAddress(Endpoint("127.0.0.1", tcp.getsockname()[1]), ("felix",))
        (first,) = bind(place, socket.SOCK_DGRAM)
        with first, pytest.raises(PortUnavailable, match=r"felix: .* is taken by another program"):
            bind(place, socket.SOCK_DGRAM)
