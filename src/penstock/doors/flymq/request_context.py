"""The context of a FlyMQ request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.doors.request_context import RequestContext
from penstock.wire.flymq.messages import AuthStyle

SCOPE: Final = DEFAULT_SCOPE  # FlyMQ has no tenants; Penstock's clients may name one


@dataclass(frozen=True, slots=True)
class FlyMqSettings:
    """The configuration of this door."""

    auth_style: AuthStyle = AuthStyle.BOTH
    fetch_wait: int = 0  # µs that a fetch without records waits, unless its topic sets another time
    address: str = ""  # at which clients reach this node
    node: str = "penstock"


class FlyMqContext(RequestContext):
    """One connection. A login changes its identity."""

    __slots__ = ("owner", "scope", "settings")

    def __init__(self, broker: Broker, identity: Identity, peer: str, settings: FlyMqSettings) -> None:
        super().__init__(broker, identity, peer)
        self.settings = settings
        self.scope: Scope = SCOPE
        self.owner = object()  # of the transactions and memberships that end with this connection

    def release(self) -> None:
        """End the transactions and memberships of the closed connection."""
        self.broker.transactions.abandon(self.owner)
        self.broker.group_membership.leave(self.owner)
        self.forget_connection()

    @property
    def anonymous(self) -> bool:
        return self.identity.name == ANONYMOUS.name
