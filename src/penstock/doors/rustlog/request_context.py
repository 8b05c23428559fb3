"""The context of a RustLog request."""

from __future__ import annotations

from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import Identity
from penstock.doors.request_context import RequestContext
from penstock.wire.rustlog.codec.dialect import JSON, Dialect

SCOPE: Final = DEFAULT_SCOPE  # RustLog has no tenants


class RustLogContext(RequestContext):
    """One connection, with the dialect of the current request."""

    __slots__ = ("dialect",)

    def __init__(self, broker: Broker, identity: Identity, peer: str) -> None:
        super().__init__(broker, identity, peer)
        self.dialect: Dialect = JSON
