"""What an operation is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS, Identity
from penstock.doors.reply import Outcome
from penstock.wire.flymq.messages import AuthStyle

SCOPE: Final = DEFAULT_SCOPE  # FlyMQ has no tenants


@dataclass(frozen=True, slots=True)
class FlyMqSettings:
    """What the configuration has to say about this door."""

    auth_style: AuthStyle = AuthStyle.BOTH
    fetch_wait: int = 0  # µs that a fetch waits that finds nothing, unless its topic says otherwise
    address: str = ""  # where clients reach this node
    node: str = "penstock"


class RequestContext:
    """The connection on whose behalf operations are carried out. A login changes its identity."""

    __slots__ = ("broker", "identity", "owner", "peer", "settings")

    def __init__(self, broker: Broker, identity: Identity, peer: str, settings: FlyMqSettings) -> None:
        self.broker = broker
        self.identity = identity
        self.peer = peer
        self.settings = settings
        self.owner = object()  # what belongs to this connection and ends with it is known by this

    def forget(self) -> None:
        """The connection has ended: so have its transactions and its memberships."""
        self.broker.transactions.abandon(self.owner)
        self.broker.group_membership.leave(self.owner)

    @property
    def anonymous(self) -> bool:
        return self.identity.name == ANONYMOUS.name


Handler: TypeAlias = Callable[[RequestContext, Any], Outcome]
