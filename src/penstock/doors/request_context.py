"""The context that is passed to request handlers: identity and connection."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity


class RequestContext:
    """The part common to all doors. There is one per connection (at Felix's door, per stream); each door adds the
    fields that its requests need. A login changes the identity."""

    __slots__ = ("_counted", "broker", "identity", "peer")

    def __init__(self, broker: Broker, identity: Identity, peer: str) -> None:
        self.broker = broker
        self.identity = identity
        self.peer = peer
        self._counted: str | None = None

    def count_connection(self, identity: Identity) -> None:
        """Count the connection for the tenant of this identity from now on; see `fair_share`. For doors without
        tenants; others count by the tenant that a client names. Raises QuotaReached."""
        tenant = identity.tenant
        if tenant == self._counted or tenant is None:
            return
        self.broker.rate_limits.enter(tenant, many=True)
        self.forget_connection()
        self._counted = tenant

    def forget_connection(self) -> None:
        """Stop counting the connection: it is closed, or counted for another tenant."""
        counted, self._counted = self._counted, None
        if counted is not None:
            self.broker.rate_limits.leave(counted)
