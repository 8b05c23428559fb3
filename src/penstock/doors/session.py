"""The interface between the transport and a protocol's session, and the states common to all connections.

A session is the state machine of one connection. It consumes and produces bytes, and never sees a socket. The transport
creates one for each connection, feeds it, and executes its channel calls. Protocols with a handshake have more states,
in `<door>/states.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity


class ConnectionState(enum.Enum):
    OPEN = enum.auto()  # input is read
    DRAINING = enum.auto()  # no more input; accepted requests are answered, then the channel closes
    CLOSED = enum.auto()  # final; no channel call follows


class ConnectionEvent(enum.Enum):
    END_OF_INPUT = enum.auto()  # the client sends no more, or nothing that can be decoded
    STOP = enum.auto()  # the broker shuts down
    VIOLATION = enum.auto()  # the client violated the protocol, or a handler failed: pending requests are dropped
    DRAINED = enum.auto()  # all replies are sent
    LOST = enum.auto()  # the connection is lost


OPEN: Final = ConnectionState.OPEN
DRAINING: Final = ConnectionState.DRAINING
CLOSED: Final = ConnectionState.CLOSED

TRANSITIONS: Final[dict[ConnectionState, dict[ConnectionEvent, ConnectionState]]] = {
    OPEN: {
        ConnectionEvent.END_OF_INPUT: DRAINING,
        ConnectionEvent.STOP: DRAINING,
        ConnectionEvent.VIOLATION: DRAINING,
        ConnectionEvent.LOST: CLOSED,
    },
    DRAINING: {
        ConnectionEvent.END_OF_INPUT: DRAINING,
        ConnectionEvent.STOP: DRAINING,
        ConnectionEvent.VIOLATION: DRAINING,
        ConnectionEvent.DRAINED: CLOSED,
        ConnectionEvent.LOST: CLOSED,
    },
    CLOSED: dict.fromkeys(ConnectionEvent, CLOSED),
}


class Channel(Protocol):
    """The connection, as seen by its session."""

    @property
    def peer(self) -> str:
        """The other side, for logs: `127.0.0.1:53422`."""

    def send(self, data: bytes) -> None:
        """Queue bytes for the client. Never blocks; queued bytes count towards the connection's limit."""

    @property
    def congested(self) -> bool:
        """Whether the client is not receiving fast enough. Meanwhile a session delays requests with large replies;
        `receive(b"")` is called when this has ended."""

    def close(self) -> None:
        """Close after everything sent so far has been delivered. Nothing more is received."""

    def progress(self) -> None:
        """The session holds less than before: reading may resume if it was paused because of `held_bytes`."""


class Session(Protocol):
    def receive(self, data: bytes) -> None:
        """Bytes from the client, in any split; none when a congested channel has drained. An exception closes the
        connection and is logged by the transport."""

    def end_of_input(self) -> None:
        """The client will send no more. Answer accepted requests, then close the channel."""

    def stop(self) -> None:
        """The broker shuts down: accept no more requests, answer accepted ones, then close the channel."""

    def lost(self) -> None:
        """The connection is lost. No channel call may follow."""

    @property
    def yielding(self) -> bool:
        """Whether its share of the turn is used up, so that others have theirs: the transport does not read meanwhile,
        and `Channel.progress` is called afterwards."""

    def describe_work(self) -> dict[str, str]:
        """Door, peer, and the kind of the last request: for the log line about a turn that took too long."""

    @property
    def long_lived(self) -> bool:
        """Whether an idle connection is kept open: its client may be waiting for data, with nothing to send. False
        before a required login."""

    @property
    def held_bytes(self) -> int:
        """Input buffered and replies waiting for a commit or a read. Above its limit, the transport stops reading."""

    @property
    def awaiting_commit(self) -> bool:
        """Whether a reply will be sent as soon as a commit is complete."""


SessionFactory = Callable[[Broker, Channel, Identity], Session]


@dataclass(frozen=True, slots=True)
class Door:
    """A protocol that a stream listener can serve."""

    name: str
    open: SessionFactory
    max_frame: int  # bytes; no session buffers more input than this
    speaks: str = ""  # the protocol of its first bytes, if a door that is not bound to its port has the same
