"""SQL values of the wire and of the broker: each has its own `Timestamp`, all other types are the same."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker.queries import query as broker
from penstock.wire.kimberlite import values as wire


def to_broker(params: Iterable[wire.Value]) -> list[broker.Value]:
    """The parameters of a request, for the broker."""
    return [broker.Timestamp(value.nanoseconds) if isinstance(value, wire.Timestamp) else value for value in params]


def to_wire(row: Iterable[broker.Value]) -> list[wire.Value]:
    """A row of a result, for the reply."""
    return [wire.Timestamp(value.nanoseconds) if isinstance(value, broker.Timestamp) else value for value in row]
