"""The interface between the transport and the sessions of a connection with many streams.

Such a connection (QUIC) has many channels. Each stream has a session, which is an ordinary `Session`; they share a
`MultiplexedSession`. None of them ever sees a socket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.doors.session import Channel, Session


class StreamsUsedUp(Exception):
    """The peer allows no more streams at the moment."""


class StreamChannel(Channel, Protocol):
    """One stream, as seen by its session. `close` ends the sending direction after everything that was sent; on a
    stream on which only the client sends, it only releases the session."""

    def reset(self, code: int) -> None:
        """Send nothing more, not even queued data; the session is not called again."""

    def refuse(self, code: int) -> None:
        """Ask the client to stop sending. Its input is discarded from now on."""

    def leave(self) -> None:
        """At shutdown: release the stream without ending it. Queued data is delivered; the client learns from the end
        of the connection that nothing follows, which is when all sessions are done."""


class StreamSession(Session, Protocol):
    """A stream. `receive`, `end_of_input`, `stop` and `lost` are as in every session; `lost` is also called when the
    client resets the stream."""

    def receive_pieces(self, pieces: list[bytes]) -> None:
        """`receive` of all these pieces together, without joining them first."""

    def refused(self, code: int) -> None:
        """The client does not want to receive more (STOP_SENDING). No `send` may follow."""


class MultiplexedChannel(Protocol):
    """A connection with many streams, as seen by its session."""

    @property
    def peer(self) -> str: ...

    def open(self, session: StreamSession) -> StreamChannel:
        """Open a stream to the client, on which only we send. Raises StreamsUsedUp."""

    def abort(self, code: int, reason: str) -> None:
        """Close the whole connection with this application error code, now."""


class MultiplexedSession(Protocol):
    """A connection, shared by the sessions of its streams. Created after the handshake."""

    identity: Identity  # that has logged in

    def accept(self, channel: StreamChannel, *, replies: bool) -> StreamSession:
        """The client has opened a stream; `replies`: whether we may send on it too."""

    def stop(self) -> None:
        """The broker shuts down. The streams' sessions are stopped as well, after this."""

    def lost(self) -> None:
        """The connection is lost with all its streams, whose sessions were notified before."""


@dataclass(frozen=True, slots=True)
class StreamsDoor:
    """A protocol that a QUIC listener can serve."""

    name: str
    open: Callable[[Broker, MultiplexedChannel, Identity], MultiplexedSession]
    max_frame: int  # bytes; no stream's session buffers more input than this
