"""Procedures: what takes several steps, written once for the blocking and the asyncio clients.

A procedure is a generator. It yields the step to take next, gets the result of the step back, and returns its own
result. A driver takes the steps (`BlockingDriver.run`, `AsyncDriver.run`); the procedure itself never blocks. An
exception of a step is raised at its `yield`. Procedures call each other by `yield from`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from penstock.clients._core.address import Address
from penstock.clients._core.connection import Connection
from penstock.clients._core.requests import RequestBatch, RequestSpec, results_of
from penstock.clients._core.signal import Signal

T = TypeVar("T")


class Connected:
    """The connection, opened if there is none, or none that holds, and ready to be sent on. Raises ConnectionFailed, or
    what the login raises. What is sent right behind this step goes out in the order of the calls."""


CONNECTED: Final = Connected()


@dataclass(slots=True)
class Open:
    """A new connection to this address, logged in. Raises OSError, or what the login raises."""

    address: Address


@dataclass(slots=True)
class Wait:
    """Wait for a signal that something received on this connection sets, until a moment of `time.monotonic`. Returns
    whether it is set; also returns, with False, when the connection is lost."""

    connection: Connection
    signal: Signal
    until: float | None = None


@dataclass(slots=True)
class Drain:
    """Wait until this connection takes more to send, or is lost."""

    connection: Connection


Step: TypeAlias = Connected | Open | Wait | Drain | list[RequestSpec[Any]] | float
"""A list is requests to send together: its result is their outcomes, after retries. A number is a pause in seconds."""

Procedure: TypeAlias = Generator[Step, Any, T]


def exchange(connection: Connection, batch: RequestBatch) -> Procedure[Sequence[Any]]:
    """Send requests on this connection alone: the results, or the first error, or the reason why it was lost."""
    connection.send(batch)
    yield Wait(connection, batch)
    if batch.lost is not None:
        raise batch.lost
    return results_of(batch.outcomes)
