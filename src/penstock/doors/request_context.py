"""The context of a request, as handlers are given it: on whose behalf, and of which connection."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity


class RequestContext:
    """The part that all doors share. There is one for each connection (at Felix's door, for each stream); each door
    adds what its requests need besides. A login changes the identity."""

    __slots__ = ("broker", "identity", "peer")

    def __init__(self, broker: Broker, identity: Identity, peer: str) -> None:
        self.broker = broker
        self.identity = identity
        self.peer = peer
