"""The context of a Kimberlite request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import Identity
from penstock.broker.security.audit_event import context as audit_context
from penstock.doors.kimberlite.errors import RequestRefused
from penstock.doors.kimberlite.states import State
from penstock.doors.kimberlite.subscriptions import Subscriptions
from penstock.doors.request_context import RequestContext
from penstock.log.engine import CommitGroup
from penstock.wire.kimberlite.codec.connection import ServerCodec
from penstock.wire.kimberlite.messages import AuditMetadata, ErrorCode

NAMESPACE: Final = DEFAULT_SCOPE.namespace  # Kimberlite has tenants, but no namespaces


@dataclass(frozen=True, slots=True)
class KimberliteSettings:
    """The configuration of this door."""

    assume: str = "auto"  # the client's version, if its frames do not reveal it
    tenants: Mapping[int, str] = field(default_factory=dict)  # names of tenants whose name is not their number
    auto_create_tenants: bool = True
    push_events: int = 1  # in one frame
    read_bytes: int = 120 << 10  # of events in a reply from version 2 on
    started: int = 0  # µs since 1970

    def name(self, tenant: int) -> str:
        """The broker's name for a tenant."""
        return self.tenants.get(tenant) or str(tenant)

    def number(self, name: str) -> int | None:
        """The number for a name; None for a tenant without a number at this door."""
        for number, given in self.tenants.items():
            if given == name:
                return number
        if not (name.isascii() and name.isdigit()) or str(int(name)) != name or int(name) in self.tenants:
            return None
        return int(name) if int(name) < 1 << 64 else None


class KimberliteContext(RequestContext):
    """One connection, with the sender and the tenant of the current request. A handshake changes the identity; every
    request names its tenant."""

    __slots__ = ("_bearer", "codec", "greeted", "scope", "settings", "state", "subscriptions", "tenant")

    def __init__(
        self,
        broker: Broker,
        identity: Identity,
        peer: str,
        codec: ServerCodec,
        settings: KimberliteSettings,
        subscriptions: Subscriptions,
    ) -> None:
        super().__init__(broker, identity, peer)
        self._bearer = identity
        self.codec = codec
        self.settings = settings
        self.subscriptions = subscriptions
        self.state = State.NEW
        self.greeted: str | None = None  # the tenant of the last handshake, for which the connection is counted
        self.tenant = 0  # of the current request, as the scope
        self.scope = DEFAULT_SCOPE

    @property
    def version(self) -> int:
        """The client's version of the protocol."""
        return self.codec.version

    def enter(self, tenant: int, audit: AuditMetadata | None) -> None:
        """Begin a request of this tenant."""
        if tenant != self.tenant or self.scope is DEFAULT_SCOPE:
            self.tenant = tenant
            self.scope = Scope(self.settings.name(tenant), NAMESPACE)
        self.identity = self._bearer
        if audit is not None:
            details = audit_context(actor=audit.actor, reason=audit.reason, correlation_id=audit.correlation_id)
            self.identity = self._bearer._replace(context=details)

    def note(self, event: str, stream: str) -> CommitGroup | None:
        """Record the request in the audit log, if it has audit metadata: that is meaningful only together with the
        operation. Changes that are audited for every client are recorded by the broker. Returns the group with the
        event, for which the reply must wait; None if there is none."""
        if not self.identity.context:
            return None
        action = event.partition(".")[2]
        return self.broker.audit.note(self.identity, event, scope=self.scope, resource=stream, action=action)

    def check_tenant(self, identity: Identity) -> None:
        """Raise unless the current tenant is this identity's. The error is the same whatever exists in the other
        tenant. With security off an identity has no tenant."""
        tenant = identity.tenant
        if tenant != self.scope.tenant and (tenant is not None or self.broker.access.enforced):
            raise RequestRefused(ErrorCode.AUTHENTICATION_FAILED, "the token is not for this tenant")

    def greet(self, identity: Identity) -> None:
        """Accept a handshake: set the identity, and count the connection for the tenant."""
        tenant = self.scope.tenant
        if tenant != self.greeted:
            self.broker.rate_limits.enter(tenant)
            if self.greeted is not None:
                self.broker.rate_limits.leave(self.greeted)
            self.greeted = tenant
        self._bearer = self.identity = identity
        self.state = State.GREETED

    def release(self) -> None:
        """Release the resources of the closed connection."""
        self.subscriptions.release()
        if self.greeted is not None:
            self.broker.rate_limits.leave(self.greeted)
            self.greeted = None
