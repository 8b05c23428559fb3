"""The interface between the transport and the sessions of a connection with many streams.

Such a connection (QUIC) is many channels at once. Each stream has a session, which is a `Session` like that of any
connection; what they share is the `MultiplexedSession`. Neither ever sees a socket.
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
    """One stream, as its session sees it. `close` ends the sending direction in an orderly way, behind all that was
    sent; on a stream that only the client sends on, it does nothing but forget the session."""

    def reset(self, code: int) -> None:
        """Send nothing more, not even what is queued; the session is not called again."""

    def refuse(self, code: int) -> None:
        """Ask the client to send nothing more. Its input is thrown away from now on."""

    def leave(self) -> None:
        """At shutdown: be done with the stream without ending it. What was sent arrives; that nothing follows, the
        client learns from the end of the connection, which comes when all sessions are done."""


class StreamSession(Session, Protocol):
    """A stream. `receive`, `end_of_input`, `stop` and `lost` are as in every session; `lost` also tells that the client
    has given the stream up by a reset."""

    def refused(self, code: int) -> None:
        """The client wants nothing more of what is sent here (STOP_SENDING). No `send` may follow."""


class MultiplexedChannel(Protocol):
    """A connection with many streams, as its session sees it."""

    @property
    def peer(self) -> str: ...

    def open(self, session: StreamSession) -> StreamChannel:
        """A new stream to the client, on which only we send. Raises StreamsUsedUp."""

    def abort(self, code: int, reason: str) -> None:
        """Close the whole connection with this application error code, now."""


class MultiplexedSession(Protocol):
    """A connection, shared by the sessions of its streams. Made when the handshake is done."""

    identity: Identity  # who has logged in

    def accept(self, channel: StreamChannel, *, replies: bool) -> StreamSession:
        """The client has opened a stream; `replies`: on which we may send as well."""

    def stop(self) -> None:
        """The broker shuts down. The streams' sessions are stopped as well, after this."""

    def lost(self) -> None:
        """The connection is gone, and with it all its streams, whose sessions have heard of it before."""


@dataclass(frozen=True, slots=True)
class StreamsDoor:
    """A protocol that a QUIC listener can serve."""

    name: str
    open: Callable[[Broker, MultiplexedChannel, Identity], MultiplexedSession]
    max_frame: int  # bytes; no stream's session buffers more input than this
