"""Doors, connections and configuration of this process, for the administration API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.admin.environment import ConfigValue, ConnectionView, DoorView
from penstock.config.layers import keys
from penstock.config.settings import Config, TlsSection
from penstock.server.doors import FELIX, FLIGHT
from penstock.transport.connection_limits import ConnectionTracker
from penstock.transport.tcp_listener import BindPlan

if TYPE_CHECKING:  # slow to import, and only one door needs it
    from penstock.transport.quic.certificate import Certificate

SECRET: Final = ("key", "secret", "password", "token", "options")
"""Configuration keys whose last part contains one of these are shown as set, without their value."""


def door_views(
    plan: BindPlan, addresses: dict[str, str], tls: TlsSection, certificate: Certificate | None
) -> list[DoorView]:
    pinned = {name for each in plan.addresses if each.pinned for name in each.doors}
    offered = "required" if tls.required else "offered" if tls.cert else "off"
    found = []
    for name, address in sorted(addresses.items()):
        quic = name == FELIX
        encrypted = "required" if quic else "off" if name == FLIGHT and not tls.cert else offered
        transport = "udp" if quic else "tcp"
        shown = (certificate.fingerprint, certificate.chain.decode(errors="replace")) if quic and certificate else ()
        found.append(DoorView(name, address, transport, encrypted, name in pinned, *shown))
    return found


def connection_views(tracker: ConnectionTracker) -> list[ConnectionView]:
    return [
        ConnectionView(
            number,
            work.get("door", ""),
            each.peer,
            work.get("identity", ""),
            since,
            each.received,
            each.sent,
            each.held,
            each.encrypted,
            work.get("request", ""),
        )
        for number, since, each in tracker.all()
        for work in (each.describe_work(),)
    ]


def config_values(config: Config) -> list[ConfigValue]:
    found = []
    for key in keys():
        section, dot, name = key.rpartition(".")
        value = getattr(getattr(config.settings, section) if dot else config.settings, name)
        shown = msgspec.to_builtins(value)
        if shown and any(word in name for word in SECRET) and not name.endswith(("_seconds", "_bytes")):
            shown = "(set)"
        found.append(ConfigValue(key, shown, config.origin(key)))
    return found
