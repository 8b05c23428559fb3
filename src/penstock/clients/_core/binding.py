"""`Binding`: the interface between a door and the core. One object per client, shared by all its connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from penstock.clients._core.connection import Connection
from penstock.clients._core.errors import ErrorFamily
from penstock.clients._core.inflight import InFlightRequests
from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import RequestBatch, RequestSpec


class Binding(ABC):
    errors: ErrorFamily
    numbered = False  # requests have ids that are unique per connection, and are encoded when sent

    def encode(self, spec: RequestSpec[Any], request_id: int) -> bytes:
        """The encoded request; the id is 0 if requests are not numbered. Raises Unsendable."""
        raise NotImplementedError

    @abstractmethod
    def in_flight(self) -> InFlightRequests[Any]:
        """The state of a new connection."""

    def login(self, connection: Connection) -> Procedure[None]:  # noqa: ARG002 (for overriding methods)
        """Requests to make on a new connection before any other, and the check of their replies."""
        return
        yield

    def batch(self, specs: Sequence[RequestSpec[Any]]) -> RequestBatch:
        """A batch of requests to send together. Raises Unsendable if requests are not numbered and one cannot be
        encoded."""
        if self.numbered:
            return RequestBatch(specs)
        if len(specs) == 1:
            return RequestBatch(specs, self.encode(specs[0], 0))
        return RequestBatch(specs, b"".join([self.encode(spec, 0) for spec in specs]))
