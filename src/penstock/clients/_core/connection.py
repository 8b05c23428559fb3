"""`Connection`: one connection, as procedures see it under either driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.clients._core.address import Address
from penstock.clients._core.inflight import InFlightRequests
from penstock.clients._core.requests import RequestBatch


class Connection(ABC):
    """Sending never raises because of a lost connection: `lost` is set instead, also on the batches in flight."""

    def __init__(self, address: Address, requests: InFlightRequests[Any]) -> None:
        self.address = address
        self.requests = requests
        self.lost: Exception | None = None

    @property
    def congested(self) -> bool:
        """Whether to `Drain` before sending more."""
        return False

    @abstractmethod
    def send(self, batch: RequestBatch) -> None:
        """Send requests; `Wait` for the batch, or inspect it later."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send bytes that belong to no batch."""

    @abstractmethod
    def fail(self, reason: Exception) -> None:
        """Close at once. Everything in flight is lost for this reason."""

    @abstractmethod
    def retire(self) -> None:
        """Close as soon as nothing is in flight."""
