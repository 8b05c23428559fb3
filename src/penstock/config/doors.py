"""`[flymq]`, `[kimberlite]` and `[felix]` as the settings of these doors."""

from __future__ import annotations

from penstock.broker.errors import InvalidName
from penstock.broker.names import DEFAULT_SCOPE, scope
from penstock.broker.runtime.clock import wall_clock
from penstock.config.settings import ConfigError, Settings
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.wire.flymq.messages import AuthStyle


def flymq_settings(settings: Settings) -> FlyMqSettings:
    section = settings.flymq
    address = section.advertised or settings.listen.flymq
    return FlyMqSettings(
        AuthStyle(section.auth_reply), int(section.fetch_wait_seconds * 1_000_000), address, section.node
    )


def kimberlite_settings(settings: Settings) -> KimberliteSettings:
    """Raises ConfigError."""
    section = settings.kimberlite
    return KimberliteSettings(
        section.assume,
        tenant_names(section.tenants),
        section.auto_create_tenants,
        section.push_events,
        section.read_bytes,
        wall_clock(),
    )


def felix_settings(settings: Settings) -> FelixSettings:
    section = settings.felix
    return FelixSettings(
        require_auth=section.require_auth,
        auto_create_tenants=section.auto_create_tenants,
        cache_tenant=section.cache_tenant,
        cache_namespace=section.cache_namespace,
        cache=section.cache,
        max_frame=section.max_frame_bytes,
        batch_events=section.batch_events,
        batch_bytes=section.batch_bytes,
        subscriptions=section.subscriptions,
        slow=section.slow,
        queue_events=section.queue_events,
    )


def tenant_names(entries: tuple[str, ...]) -> dict[int, str]:
    """The names of `kimberlite.tenants`, each written as NUMBER=NAME, by number. Raises ConfigError."""
    names: dict[int, str] = {}
    for text in entries:
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
