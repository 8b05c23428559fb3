"""`[listen]` as addresses to bind: the ports, the doors that share them, and the doors that stay closed."""

from __future__ import annotations

from collections.abc import Collection

from penstock.broker.security.access import Identity
from penstock.config.settings import DOOR_NAMES, UDP_DOORS, Settings
from penstock.transport.endpoint import Endpoint, parse_endpoint
from penstock.transport.tcp_listener import BindAddress, BindPlan


def door_identities(settings: Settings, doors: Collection[str]) -> dict[str, Identity]:
    """`listen.principals` for a port that is bound for these doors: at other ports, the protocol proves nothing."""
    named = dict(entry.split("=", 1) for entry in settings.listen.principals)
    return {door: Identity(principal) for door, principal in named.items() if door in doors}


def bind_plan(settings: Settings, built: Collection[str]) -> BindPlan:
    """The addresses to bind and their doors. `built`: the available doors."""
    listen = settings.listen
    closed: dict[str, str] = {}
    shared: dict[Endpoint, list[str]] = {}
    addresses: list[BindAddress] = []
    pinned = [name for name in listen.pinned if name in built and name not in UDP_DOORS]
    pinned_to = {parse_endpoint(getattr(listen, name)): name for name in pinned}
    for name in DOOR_NAMES:
        endpoint = parse_endpoint(getattr(listen, name))
        if endpoint is None:
            closed[name] = "off"
        elif name not in built:
            closed[name] = "closed (not built yet)"
        elif name in UDP_DOORS:
            if settings.tls.client_ca:
                closed[name] = "closed (tls.client_ca is set, and QUIC clients cannot be asked for a certificate)"
            else:
                addresses.append(BindAddress(endpoint, (name,)))
        elif endpoint in pinned_to and pinned_to[endpoint] != name and endpoint.port:
            closed[name] = f"closed ({endpoint} is pinned to {pinned_to[endpoint]})"
        elif endpoint.port == 0:
            addresses.append(BindAddress(endpoint, (name,), name in listen.pinned))
        else:
            shared.setdefault(endpoint, []).append(name)
    addresses += [BindAddress(endpoint, tuple(names), names[0] in listen.pinned) for endpoint, names in shared.items()]
    return BindPlan(tuple(sorted(addresses, key=lambda address: DOOR_NAMES.index(address.doors[0]))), closed)
