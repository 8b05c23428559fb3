"""`[listen]` as addresses: which ports there are, which doors share one, and why a door stays closed."""

from __future__ import annotations

import pytest

from penstock.broker.security.access import Identity
from penstock.config.layers import load
from penstock.config.listen import bind_plan, door_identities
from penstock.config.settings import ConfigError
from penstock.transport.endpoint import Endpoint
from penstock.transport.tcp_listener import BindAddress

BUILT = ("rustlog", "http")
ALL = ("rustlog", "blipmq", "flymq", "kimberlite", "felix", "http", "flight")


def addresses(flags: dict[str, str], built: tuple[str, ...] = BUILT) -> dict[str, tuple[str, ...]]:
    return {str(address.endpoint): address.doors for address in bind_plan(load(flags=flags).settings, built).addresses}


def test_by_default_the_built_doors_are_open_and_the_others_are_said_to_be_closed() -> None:
    plan = bind_plan(load().settings, BUILT)
    assert {str(address.endpoint): address.doors for address in plan.addresses} == {
        "127.0.0.1:9092": ("rustlog",),
        "127.0.0.1:8080": ("http",),
    }
    assert set(plan.closed) == {"blipmq", "flymq", "kimberlite", "felix", "flight", "flymq_admin"}
    assert set(plan.closed.values()) == {"closed (not built yet)"}


def test_doors_with_one_address_share_one_port_and_the_first_is_its_own() -> None:
    assert addresses({}, ("rustlog", "flymq"))["127.0.0.1:9092"] == ("rustlog", "flymq")
    assert addresses({"listen.http": "127.0.0.1:9092"}) == {"127.0.0.1:9092": ("rustlog", "http")}


def test_port_zero_is_never_shared() -> None:
    plan = bind_plan(load(flags={"listen.rustlog": "127.0.0.1:0", "listen.http": "127.0.0.1:0"}).settings, BUILT)
    assert [address.doors for address in plan.addresses] == [("rustlog",), ("http",)]


def test_a_door_that_is_off_is_off_built_or_not() -> None:
    plan = bind_plan(load(flags={"listen.http": "off", "listen.felix": "off"}).settings, BUILT)
    assert plan.closed["http"] == plan.closed["felix"] == "off"
    assert [address.doors for address in plan.addresses] == [("rustlog",)]


def test_a_pinned_port_keeps_out_a_door_that_would_share_it_by_default() -> None:
    plan = bind_plan(load(environment={"PENSTOCK_LISTEN__PINNED": "rustlog"}).settings, ALL)
    assert [address for address in plan.addresses if address.pinned] == [
        BindAddress(Endpoint("127.0.0.1", 9092), ("rustlog",), True)
    ]
    assert "pinned to rustlog" in plan.closed["flymq"]


def test_a_udp_door_has_its_port_for_itself_also_where_another_has_the_same_number() -> None:
    flags = {"listen.felix": "127.0.0.1:9092"}
    plan = bind_plan(load(environment={"PENSTOCK_LISTEN__PINNED": "rustlog,felix"}, flags=flags).settings, ALL)
    at = [address for address in plan.addresses if address.endpoint.port == 9092]
    assert [(address.doors, address.pinned) for address in at] == [(("rustlog",), True), (("felix",), False)]
    assert "felix" not in plan.closed


def test_a_udp_door_stays_closed_where_clients_must_show_a_certificate() -> None:
    flags = {"tls.cert": "x", "tls.key": "x", "tls.client_ca": "x"}
    plan = bind_plan(load(flags=flags).settings, ALL)
    assert "tls.client_ca" in plan.closed["felix"]
    assert "felix" not in {door for address in plan.addresses for door in address.doors}


def test_a_door_without_a_login_may_have_a_principal_on_its_own_port() -> None:
    settings = load(flags={"listen.principals": "rustlog=ingest,http=watch"}).settings
    assert door_identities(settings, ("rustlog", "flymq")) == {"rustlog": Identity("ingest")}
    assert door_identities(settings, ("blipmq",)) == {}
    assert door_identities(load().settings, ("rustlog", "http")) == {}


@pytest.mark.parametrize(
    "entry", ["flymq=x", "rustlog", "rustlog=", "rustlog=admin@socket", "rustlog=key:1", "http=a b"]
)
def test_no_other_door_and_no_name_that_somebody_proves_is_one(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"listen\.principals"):
        load(flags={"listen.principals": entry})
