"""What an operation is given: the stream that a request came by, whose it is, and how it is answered there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.core.access import Identity
from penstock.core.broker import Broker
from penstock.core.names import Scope, scope
from penstock.protocols.answers import Outcome
from penstock.protocols.felix.dialects import Dialect
from penstock.protocols.felix.errors import RequestRefused
from penstock.protocols.outbox import Outbox
from penstock.protocols.streams import StreamChannel

if TYPE_CHECKING:
    from penstock.protocols.felix.session import FelixHost

SILENT: Final = 0x0007  # what a client is presumed to read that has not said what it reads


@dataclass(frozen=True, slots=True)
class FelixSettings:
    """What the configuration has to say about this door."""

    require_auth: bool = False
    auto_create_tenants: bool = True
    cache_tenant: str = "default"  # of cache messages that name no scope
    cache_namespace: str = "default"
    cache: str = "default"
    max_frame: int = 16 << 20
    batch_events: int = 64  # of one event frame
    batch_bytes: int = 64 << 10
    subscriptions: int = 4096  # of one connection
    slow: str = "keep"  # or drop_new, drop_old
    queue_events: int = 32_768


class Call:
    """The stream on whose behalf operations are carried out. `auth` changes its identity, tenant and flags."""

    __slots__ = ("broker", "channel", "dialect", "flags", "host", "identity", "outbox", "settings", "tenant")

    def __init__(
        self, broker: Broker, host: FelixHost, channel: StreamChannel, identity: Identity, outbox: Outbox,
        settings: FelixSettings, dialect: Dialect,
    ) -> None:  # fmt: skip
        self.broker = broker
        self.host = host
        self.channel = channel
        self.identity = identity
        self.outbox = outbox
        self.settings = settings
        self.dialect = dialect
        self.tenant: str | None = None  # that `auth` named
        self.flags = SILENT  # what the client said it reads

    def scope(self, tenant: str, namespace: str) -> Scope:
        """Where a request acts. Raises RequestRefused for a tenant that is not the stream's own, or InvalidName."""
        if self.tenant is not None and tenant != self.tenant:
            raise RequestRefused("tenant mismatch")
        return scope(tenant, namespace)


Handler: TypeAlias = Callable[[Call, Any], Outcome]
