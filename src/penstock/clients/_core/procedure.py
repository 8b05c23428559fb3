"""Procedures: operations of several steps, written once for the blocking and the asyncio clients.

A procedure is a generator. It yields the next step, receives the step's result, and returns its own result. A driver
executes the steps (`BlockingDriver.run`, `AsyncDriver.run`); the procedure itself never blocks. An exception of a step
is raised at its `yield`. Procedures call each other with `yield from`.
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
    """The connection, writable; opened if there is none or it is lost. Raises ConnectionFailed, or the login's error.
    Whatever is sent directly after this step is sent in the order of the calls."""


CONNECTED: Final = Connected()


@dataclass(slots=True)
class Open:
    """A new connection to this address, logged in. Raises OSError, or the login's error."""

    address: Address


@dataclass(slots=True)
class Wait:
    """Wait for a signal that is set by data received on this connection, until a time of `time.monotonic`. Returns
    whether it is set; returns False when the connection is lost."""

    connection: Connection
    signal: Signal
    until: float | None = None


@dataclass(slots=True)
class Drain:
    """Wait until this connection accepts more data to send, or is lost."""

    connection: Connection


Step: TypeAlias = Connected | Open | Wait | Drain | list[RequestSpec[Any]] | float
"""A list is requests to send together: its result is their outcomes, after retries. A number is a pause in seconds."""

Procedure: TypeAlias = Generator[Step, Any, T]


def exchange(connection: Connection, batch: RequestBatch) -> Procedure[Sequence[Any]]:
    """Send requests on this connection only. Returns the results; raises the first error, or the reason why the
    connection was lost."""
    connection.send(batch)
    yield Wait(connection, batch)
    if batch.lost is not None:
        raise batch.lost
    return results_of(batch.outcomes)
