"""The interface between the transport and a protocol's session, and the states that every connection goes through.

A session is the state machine of one connection. It gets bytes and gives bytes; it never sees a socket. The transport
makes one for each connection, feeds it, and obeys its channel calls. Protocols with a handshake have more states,
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
    DRAINING = enum.auto()  # no more input; what was accepted is answered, then the channel closes
    CLOSED = enum.auto()  # nothing more happens, and no channel call follows


class ConnectionEvent(enum.Enum):
    END_OF_INPUT = enum.auto()  # the client will send no more, or nothing more that could be understood
    STOP = enum.auto()  # the broker shuts down
    VIOLATION = enum.auto()  # the client broke the protocol, or a handler failed: its other requests are dropped
    DRAINED = enum.auto()  # everything was answered, and the answers are out
    LOST = enum.auto()  # the connection is gone


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
        connection and is logged by the transport."""

    def end_of_input(self) -> None:
        """The client will send no more. Answer what was accepted, then close the channel."""

    def stop(self) -> None:
        """The broker shuts down: take no more requests, answer what was accepted, then close the channel."""

    def lost(self) -> None:
        """The connection is gone; forget it. No channel call may follow."""

    @property
    def yielding(self) -> bool:
        """Its share of the turn is used up, and others have theirs: the transport does not read meanwhile, and
        `Channel.progress` is called after it."""

    def describe_work(self) -> dict[str, str]:
        """Door, peer, and the kind of the last request: for the log line about a turn that took too long."""

    @property
    def long_lived(self) -> bool:
        """Whether the connection is kept when nothing moves: its client may wait for something, and has no word to say
        meanwhile. Not before it has logged in, where one has to."""

    @property
    def held_bytes(self) -> int:
        """Input buffered and replies waiting for a commit or a read. Above its limit, the transport stops reading."""


SessionFactory = Callable[[Broker, Channel, Identity], Session]


@dataclass(frozen=True, slots=True)
class Door:
    """A protocol that a stream listener can serve."""

    name: str
    open: SessionFactory
    max_frame: int  # bytes; no session buffers more input than this
    speaks: str = ""  # the protocol of its first bytes, if it shares that with a door that is not bound to its port
