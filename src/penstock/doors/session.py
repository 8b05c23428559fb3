"""What `net` and a protocol's session know of each other.

A session is the state machine of one connection. It gets bytes and gives bytes; it never sees a socket. `net` makes
one for each connection, feeds it, and obeys its channel calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity


class Channel(Protocol):
    """The connection, as its session sees it."""

    @property
    def peer(self) -> str:
        """The other side, for logs: `127.0.0.1:53422`."""

    def send(self, data: bytes) -> None:
        """Queue bytes for the client. Never blocks; what is queued counts against the connection's limit."""

    @property
    def congested(self) -> bool:
        """The client does not take what was sent. A session keeps requests with large replies waiting while this
        holds; `receive(b"")` is called when it no longer does."""

    def close(self) -> None:
        """Close once everything sent so far has been delivered. Nothing more is received."""

    def progress(self) -> None:
        """The session holds less than before: reading may resume if it had been stopped for `held_bytes`."""


class Session(Protocol):
    def receive(self, data: bytes) -> None:
        """Bytes from the client, in any split; none when a congested channel has drained. An exception closes the
        connection and is logged by `net`."""

    def end_of_input(self) -> None:
        """The client will send no more. Answer what was accepted, then close the channel."""

    def stop(self) -> None:
        """The broker shuts down: take no more requests, answer what was accepted, then close the channel."""

    def lost(self) -> None:
        """The connection is gone; forget it. No channel call may follow."""

    @property
    def held_bytes(self) -> int:
        """Input buffered and replies waiting for a commit or a read. Above its limit, `net` stops reading."""


SessionFactory = Callable[[Broker, Channel, Identity], Session]


@dataclass(frozen=True, slots=True)
class Door:
    """A protocol that a stream listener can serve."""

    name: str
    open: SessionFactory
    max_frame: int  # bytes; no session buffers more input than this
