"""The doors that are built, in one table. A protocol that joins adds its line here and nothing else in `net`."""

from __future__ import annotations

from penstock.admin.http import http_door
from penstock.broker.errors import InvalidName
from penstock.broker.names import DEFAULT_SCOPE, scope
from penstock.broker.runtime.clock import wall_clock
from penstock.config.settings import ConfigError, Settings
from penstock.doors.blipmq import session as blipmq
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.felix.session import felix_door
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.doors.flymq.session import flymq_door
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.doors.kimberlite.session import kimberlite_door
from penstock.doors.rustlog import session as rustlog
from penstock.doors.session import Door
from penstock.doors.streams import StreamsDoor
from penstock.wire.flymq.messages import AuthStyle

FLIGHT = "flight"  # is served by a process of its own, on a port that it shares with nobody
FELIX = "felix"  # QUIC
BUILT = ("rustlog", "blipmq", "flymq", "kimberlite", FELIX, "http", FLIGHT)


def stream_doors(settings: Settings) -> dict[str, Door]:
    """The doors that a TCP port can serve, by name. Raises ConfigError."""
    doors = (
        rustlog.DOOR,
        blipmq.DOOR,
        flymq_door(_flymq(settings)),
        kimberlite_door(_kimberlite(settings)),
        http_door(settings.log.durability),
    )
    return {door.name: door for door in doors}


def quic_door(settings: Settings) -> StreamsDoor:
    """The door that a UDP port serves."""
    return felix_door(_felix(settings))


def _felix(settings: Settings) -> FelixSettings:
    own = settings.felix
    return FelixSettings(
        require_auth=own.require_auth,
        auto_create_tenants=own.auto_create_tenants,
        cache_tenant=own.cache_tenant,
        cache_namespace=own.cache_namespace,
        cache=own.cache,
        max_frame=own.max_frame_bytes,
        batch_events=own.batch_events,
        batch_bytes=own.batch_bytes,
        subscriptions=own.subscriptions,
        slow=own.slow,
        queue_events=own.queue_events,
    )


def _flymq(settings: Settings) -> FlyMqSettings:
    own = settings.flymq
    address = own.advertised or settings.listen.flymq
    return FlyMqSettings(AuthStyle(own.auth_reply), int(own.fetch_wait_seconds * 1_000_000), address, own.node)


def _kimberlite(settings: Settings) -> KimberliteSettings:
    own = settings.kimberlite
    return KimberliteSettings(
        own.assume, tenant_names(own.tenants), own.auto_create_tenants, own.push_events, own.read_bytes, wall_clock()
    )


def tenant_names(given: tuple[str, ...]) -> dict[int, str]:
    """The names of `kimberlite.tenants`, each given as NUMBER=NAME, by number. Raises ConfigError."""
    names: dict[int, str] = {}
    for text in given:
        number, _, name = text.partition("=")
        try:
            scope(name, DEFAULT_SCOPE.namespace)
        except InvalidName as error:
            raise ConfigError(f"kimberlite.tenants: {text}: {error}") from error
        if name.isdigit() and name != number:
            raise ConfigError(f"kimberlite.tenants: {text}: that is the name of the tenant with this number already")
        if int(number) in names or name in names.values():
            raise ConfigError(f"kimberlite.tenants: {text}: this number or this name is there already")
        if int(number) >= 1 << 64:
            raise ConfigError(f"kimberlite.tenants: {text}: a tenant's number has 64 bits at most")
        names[int(number)] = name
    return names
