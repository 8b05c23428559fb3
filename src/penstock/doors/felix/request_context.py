"""What an operation is given: the stream that a request came by, whose it is, and how it is answered there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.broker.broker import Broker
from penstock.broker.errors import TooFast
from penstock.broker.names import Scope, scope
from penstock.broker.security.access import Identity
from penstock.doors.felix.errors import RequestRefused
from penstock.doors.reply import Outcome
from penstock.doors.reply_queue import ReplyQueue
from penstock.doors.streams import StreamChannel
from penstock.wire.felix.codec.dialects import Dialect

if TYPE_CHECKING:
    from penstock.doors.felix.session import FelixHost


@dataclass(frozen=True, slots=True)
class FelixSettings:
    """What the configuration has to say about this door."""

    require_auth: bool = False
    auto_create_tenants: bool = True
    cache_tenant: str = "default"  # of cache messages that name no scope
    cache_namespace: str = "default"
    cache: str = "default"
    max_frame: int = 16 << 20
    batch_events: int = 512  # of one event frame
    batch_bytes: int = 64 << 10
    subscriptions: int = 4096  # of one connection
    slow: str = "keep"  # or drop_new, drop_old
    queue_events: int = 32_768


class RequestContext:
    """The stream on whose behalf operations are carried out. `auth` changes its identity, tenant and flags."""

    __slots__ = (
        "_scope", "broker", "channel", "dialect", "flags", "host", "identity", "replies", "settings", "tenant",
    )  # fmt: skip

    def __init__(
        self, broker: Broker, host: FelixHost, channel: StreamChannel, identity: Identity, replies: ReplyQueue,
        settings: FelixSettings, dialect: Dialect,
    ) -> None:  # fmt: skip
        self.broker = broker
        self.host = host
        self.channel = channel
        self.identity = identity
        self.replies = replies
        self.settings = settings
        self.dialect = dialect
        self.tenant: str | None = None  # that `auth` named
        self.flags: int | None = None  # of frames that the client said it reads; None: it did not say
        self._scope: Scope | None = None  # of the last request: most act where the one before did

    @property
    def original(self) -> bool:
        return self.dialect.name == "original"

    def scope(self, tenant: str, namespace: str, requests: int = 1) -> Scope:
        """Where a request acts, if the client may ask anything there now. Called once for each request, or for several
        that act as one; what the client may do there is looked at by `core`.

        Raises RequestRefused for a tenant that is not the stream's own, InvalidName, AccessDenied, QuotaReached for a
        tenant with too many connections, TooFast for one that asks too much."""
        found = self._scope
        if found is None or found.tenant != tenant or found.namespace != namespace:
            if self.tenant is not None and tenant != self.tenant:
                raise RequestRefused("tenant mismatch")
            found = scope(tenant, namespace)
            if self.tenant is None:  # nobody has vouched for it: who may do nothing there takes none of its quota
                self.broker.access.require_member(self.identity, found)
            self.host.enter(tenant)
            self._scope = found
        if (rate := self.broker.limits.tenant_requests) > 0:
            if 1 < requests > rate:
                raise TooFast(f"{requests} requests at once")  # they are not paid in advance: each is asked for alone
            self.broker.rate_limits.admit(tenant, self.broker.now(), requests)
        return found


Handler: TypeAlias = Callable[[RequestContext, Any], Outcome]
