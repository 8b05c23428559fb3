"""The context of a request, as handlers are given it: on whose behalf, and of which connection."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity


class RequestContext:
    """The part that all doors share. There is one for each connection (at Felix's door, for each stream); each door
    adds what its requests need besides. A login changes the identity."""

    __slots__ = ("_counted", "broker", "identity", "peer")

    def __init__(self, broker: Broker, identity: Identity, peer: str) -> None:
        self.broker = broker
        self.identity = identity
        self.peer = peer
        self._counted: str | None = None

    def count_connection(self, identity: Identity) -> None:
        """The connection counts for the tenant of this identity from now on; see `fair_share`. At doors without
        tenants; others count by the tenant that a client names. Raises QuotaReached."""
        tenant = identity.tenant
        if tenant == self._counted or tenant is None:
            return
        self.broker.rate_limits.enter(tenant, many=True)
        self.forget_connection()
        self._counted = tenant

    def forget_connection(self) -> None:
        """The connection has ended, or counts for another tenant."""
        counted, self._counted = self._counted, None
        if counted is not None:
            self.broker.rate_limits.leave(counted)
