"""The context of a Felix request."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker.errors import TooFast
from penstock.broker.names import Scope, scope
from penstock.doors.felix.connection import FelixConnection
from penstock.doors.felix.errors import FORBIDDEN, RequestRefused
from penstock.doors.felix.states import State
from penstock.doors.reply_queue import ReplyQueue
from penstock.doors.request_context import RequestContext
from penstock.doors.streams import StreamChannel
from penstock.wire.felix.codec.dialects import DOCUMENT, Dialect


@dataclass(frozen=True, slots=True)
class FelixSettings:
    """The configuration of this door."""

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


class FelixContext(RequestContext):
    """One stream. `auth` changes its identity, tenant and flags."""

    __slots__ = (
        "_scope",
        "channel",
        "connection",
        "dialect",
        "features",
        "flags",
        "replies",
        "settings",
        "state",
        "tenant",
    )

    def __init__(
        self, connection: FelixConnection, channel: StreamChannel, replies: ReplyQueue, settings: FelixSettings
    ) -> None:
        super().__init__(connection.broker, connection.identity, channel.peer)
        self.connection = connection
        self.channel = channel
        self.replies = replies
        self.settings = settings
        self.state = State.NEW
        self.dialect: Dialect = DOCUMENT
        self.tenant: str | None = None  # named by `auth`
        self.flags: int | None = None  # of frames that the client can decode; None: unknown
        self.features = 0  # offered by the client
        self._scope: Scope | None = None  # of the last request: most requests use the scope of the previous one

    @property
    def original(self) -> bool:
        return self.dialect.original

    def scope(self, tenant: str, namespace: str, requests: int = 1) -> Scope:
        """The scope of a request, if the client may send requests there now. Called once for each request, or for
        several that are executed together; the broker checks permissions.

        Raises RequestRefused for a tenant other than the stream's own, InvalidName, AccessDenied, QuotaReached for a
        tenant with too many connections, TooFast for one over its rate limit."""
        found = self._scope
        if found is None or found.tenant != tenant or found.namespace != namespace:
            if self.tenant is not None and tenant != self.tenant:
                raise RequestRefused("tenant mismatch", advice=FORBIDDEN)
            found = scope(tenant, namespace)
            if self.tenant is None:  # not authenticated for it: without access there, its quota is not used
                self.broker.access.require_member(self.identity, found)
            self.connection.enter(tenant)
            self._scope = found
        if (rate := self.broker.limits.tenant_requests) > 0:
            if 1 < requests > rate:
                raise TooFast(f"{requests} requests at once")  # the session retries one by one
            self.broker.rate_limits.admit(tenant, self.broker.now(), requests)
        return found
