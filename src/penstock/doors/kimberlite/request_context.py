"""What an operation is given: the connection, and of the request at hand whose it is and in which tenant it acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import Identity
from penstock.broker.security.audit_event import context
from penstock.doors.kimberlite.errors import RequestRefused
from penstock.doors.reply import Outcome
from penstock.doors.reply_queue import ReplyQueue
from penstock.doors.session import Channel
from penstock.wire.kimberlite.codec.connection import ServerCodec
from penstock.wire.kimberlite.messages import AuditMetadata, ErrorCode

if TYPE_CHECKING:
    from penstock.doors.kimberlite.subscriptions import Subscriptions

NAMESPACE: Final = DEFAULT_SCOPE.namespace  # Kimberlite has tenants, and nothing within them but streams


@dataclass(frozen=True, slots=True)
class KimberliteSettings:
    """What the configuration has to say about this door."""

    assume: str = "auto"  # whose numbers a client uses, where its frames do not tell
    tenants: Mapping[int, str] = field(default_factory=dict)  # the names of tenants that are not called by their number
    auto_create_tenants: bool = True
    push_events: int = 1  # in one frame
    read_bytes: int = 120 << 10  # of events in a reply from version 2 on
    started: int = 0  # µs since 1970

    def name(self, tenant: int) -> str:
        """What the broker calls a tenant of this protocol."""
        return self.tenants.get(tenant) or str(tenant)

    def number(self, name: str) -> int | None:
        """The other way round; None for a tenant that has no number here."""
        for number, given in self.tenants.items():
            if given == name:
                return number
        if not (name.isascii() and name.isdigit()) or str(int(name)) != name or int(name) in self.tenants:
            return None
        return int(name) if int(name) < 1 << 64 else None


class RequestContext:
    """The connection on whose behalf operations are carried out. A handshake changes its identity; the tenant is told
    anew with each request."""

    __slots__ = (
        "_bearer", "broker", "channel", "greeted", "identity", "replies", "scope", "settings", "subscriptions",
        "tenant", "wire",
    )  # fmt: skip

    def __init__(
        self,
        broker: Broker,
        channel: Channel,
        identity: Identity,
        replies: ReplyQueue,
        wire: ServerCodec,
        settings: KimberliteSettings,
    ) -> None:
        self.broker = broker
        self.channel = channel
        self._bearer = self.identity = identity
        self.replies = replies
        self.wire = wire
        self.settings = settings
        self.subscriptions: Subscriptions  # set by the session, once
        self.greeted: str | None = None  # the tenant of the last handshake, whose connection this is
        self.tenant = 0  # of the request at hand, as the scope
        self.scope = DEFAULT_SCOPE

    @property
    def peer(self) -> str:
        return self.channel.peer

    @property
    def version(self) -> int:
        """Of the protocol, as the client speaks it."""
        return self.wire.version

    def enter(self, tenant: int, audit: AuditMetadata | None) -> None:
        """A request of this tenant is next."""
        if tenant != self.tenant or self.scope is DEFAULT_SCOPE:
            self.tenant = tenant
            self.scope = Scope(self.settings.name(tenant), NAMESPACE)
        self.identity = self._bearer
        if audit is not None:
            told = context(actor=audit.actor, reason=audit.reason, correlation_id=audit.correlation_id)
            self.identity = self._bearer._replace(context=told)

    def note(self, what: str, stream: str) -> None:
        """For the audit log, if the client wants to be found there: what a request says about itself is of use only
        with what was done. Changes that every client is found with are noted by `core`."""
        if self.identity.context:
            action = what.partition(".")[2]
            self.broker.audit.note(self.identity, what, scope=self.scope, resource=stream, action=action)

    def check_tenant(self, identity: Identity) -> None:
        """Raise unless the tenant at hand is this identity's. Says the same whatever there is in the other one. With
        security off nobody is of a tenant."""
        own = identity.tenant
        if own != self.scope.tenant and (own is not None or self.broker.access.enforced):
            raise RequestRefused(ErrorCode.AUTHENTICATION_FAILED, "the token is not for this tenant")

    def greet(self, identity: Identity) -> None:
        """The client is this one, from now on, and the connection counts as one of the tenant at hand."""
        tenant = self.scope.tenant
        if tenant != self.greeted:
            self.broker.rate_limits.enter(tenant)
            if self.greeted is not None:
                self.broker.rate_limits.leave(self.greeted)
            self.greeted = tenant
        self._bearer = self.identity = identity

    def forget(self) -> None:
        """The connection has ended."""
        self.subscriptions.forget()
        if self.greeted is not None:
            self.broker.rate_limits.leave(self.greeted)
            self.greeted = None


Handler: TypeAlias = Callable[[RequestContext, Any], Outcome]
