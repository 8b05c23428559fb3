"""One QUIC connection: from its streams to sessions and back.

It makes a session for each stream that the client opens, feeds it, and obeys it. It decides when to accept input, for
all streams at once, and when to close. The sessions interpret the bytes; the connection tracker enforces limits across
connections.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.security.access import Identity
from penstock.doors import streams
from penstock.doors.streams import MultiplexedSession, StreamsDoor, StreamSession
from penstock.transport.connection_limits import ConnectionTracker
from penstock.transport.quic.connection import INTERNAL_ERROR, QuicConnection, Stream
from penstock.transport.quic.errors import QuicError
from penstock.transport.tcp_connection import DEFECT, READ_SLACK

logger = logging.getLogger(__name__)

STALL_SECONDS: Final = 30.0  # of a connection that holds too much and makes no progress
FRAMES: Final = 4  # of the largest size: room for this many incomplete frames
GRACE_SECONDS: Final = 0.5  # without progress, until there is room for one more frame
GRACE_FRAMES: Final = 12  # further frames, at most
SMALL: Final = 64 << 10  # unsent bytes below which counting is not worthwhile
GOODBYE: Final = "broker shutting down"


class Code(enum.IntEnum):
    """Codes with which a connection is closed. Those below 0x20 belong to the protocols."""

    NONE = 0x00
    INTERNAL = INTERNAL_ERROR
    TOO_MANY = 0x22  # connections
    TOO_MUCH = 0x23  # memory held by this connection


@dataclass(frozen=True, slots=True)
class QuicPort:
    """Collaborators shared by the connections of one listener."""

    door: StreamsDoor
    broker: Broker
    identity: Identity
    tracker: ConnectionTracker
    now: Callable[[], float]


class QuicChannel:
    """One stream: a `StreamChannel` to its session, a `StreamReceiver` to the connection."""

    __slots__ = ("_connection", "_input_over", "_stream", "held", "peer", "session", "yielding")

    def __init__(self, connection: QuicSessions) -> None:
        self.peer = connection.peer
        self.held = 0  # as last accounted
        self.yielding = False  # as last accounted
        self.session: StreamSession | None = None  # None: the session is done with the stream
        self._connection = connection
        self._input_over = False
        self._stream: Stream

    def attach(self, stream: Stream) -> None:
        self._stream = stream

    # -- called by the session

    def send(self, data: bytes) -> None:
        self._stream.send(data)

    @property
    def congested(self) -> bool:
        return self._stream.congested

    def close(self) -> None:
        self._stream.finish()
        if not self._input_over:
            self._stream.refuse(0)
        self.leave()

    def progress(self) -> None:
        self._connection.account(self)

    def reset(self, code: int) -> None:
        self._stream.reset(code)
        if not self._input_over:
            self._stream.refuse(code)
        self.leave()

    def refuse(self, code: int) -> None:
        self._stream.refuse(code)

    def leave(self) -> None:
        self._connection.discard(self)

    # -- called by the connection

    def received(self, data: bytes, end: bool) -> None:
        session = self.session
        if end:
            self._input_over = True
        if session is None or (data and not self._connection.call(session.receive, data)):
            return
        self._accept(session, end)

    def received_pieces(self, pieces: list[bytes], end: bool) -> None:
        """`received`, with the data in several pieces."""
        session = self.session
        if end:
            self._input_over = True
        if session is not None and self._connection.call(session.receive_pieces, pieces):
            self._accept(session, end)

    def _accept(self, session: StreamSession, end: bool) -> None:
        if end and self.session is not None and not self._connection.call(session.end_of_input):
            return
        self._connection.account(self)

    def drained(self) -> None:
        if self.session is not None and self._connection.call(self.session.receive, b""):
            self._connection.account(self)

    def refused(self, code: int) -> None:
        if self.session is not None and self._connection.call(self.session.refused, code):
            self._connection.account(self)

    def reset_by_peer(self, code: int) -> None:  # noqa: ARG002 - whatever the code, nothing more arrives
        session = self.session
        if session is not None:
            self._stream.reset(0)  # nobody waits for replies, and a stream counts as long as one direction is open
            self.leave()
            self._connection.call(session.lost)


class StreamInput:
    """The connection's view of a channel, needed because `StreamReceiver` and `StreamChannel` both have a `reset`, with
    different meanings."""

    __slots__ = ("_channel", "drained", "received", "received_pieces", "refused")

    def __init__(self, channel: QuicChannel) -> None:
        self._channel = channel
        self.received = channel.received
        self.received_pieces = channel.received_pieces
        self.refused = channel.refused
        self.drained = channel.drained

    def reset(self, code: int) -> None:
        self._channel.reset_by_peer(code)


class QuicSessions:
    """The sessions of one connection: a `ConnectionHandler` to the connection, a `TrackedConnection` to the tracker, a
    `MultiplexedChannel` to the host of its streams."""

    def __init__(self, port: QuicPort, connection: QuicConnection) -> None:
        self.held = 0
        self.received = 0
        self.sent = 0
        self.peer = connection.peer
        self._port = port
        self._tracker = port.tracker
        self._connection = connection
        self._host: MultiplexedSession | None = None
        self._channels: dict[QuicChannel, None] = {}
        self._session_bytes = 0  # held by all sessions
        self._yielding = 0  # number of sessions whose share of the turn is used up
        self._frame = port.door.max_frame + READ_SLACK
        self._grace = 0  # frames of extra room, so that at least one stream can complete
        self._last_activity = port.now()  # while there are no streams
        self._least_held = 0  # minimum of the held bytes since input was paused
        self._stalled_since = 0.0  # time of that minimum
        self._stopping = False

    encrypted = True

    def describe_work(self) -> dict[str, str]:
        return self._log_keys | {"identity": "" if self._host is None else self._host.identity.name}

    # -- called by the connection

    def connected(self, connection: QuicConnection) -> None:
        port = self._port
        if not self._tracker.admit(self):
            refusal = (Code.NONE, GOODBYE) if self._tracker.stopping else (Code.TOO_MANY, "too many connections")
            connection.close(*refusal)
            return
        try:
            self._host = port.door.open(port.broker, self, port.identity._replace(peer=self.peer))
        except Exception:
            self._tracker.metrics.internal_errors += 1
            logger.exception(DEFECT, self.peer, extra=self._log_keys)
            self._tracker.leave(self)
            connection.close(Code.INTERNAL, "internal error")

    def accepted(self, stream: Stream) -> StreamInput:
        channel = QuicChannel(self)
        channel.attach(stream)
        self._channels[channel] = None
        if self._host is None:
            self.discard(channel)
            return StreamInput(channel)
        try:
            session = self._host.accept(channel, replies=stream.bidirectional)
        except Exception:
            self._tracker.metrics.internal_errors += 1
            logger.exception(DEFECT, self.peer, extra=self._log_keys)
            self._connection.close(Code.INTERNAL, "internal error")
        else:
            if channel in self._channels:  # else it was closed meanwhile
                channel.session = session
        return StreamInput(channel)

    def closed(self, code: int, reason: str) -> None:  # noqa: ARG002 - how it ended does not matter
        host, self._host = self._host, None
        if host is None:
            return
        channels, self._channels = self._channels, {}
        for channel in channels:
            session, channel.session = channel.session, None
            if session is not None:
                self._end(session.lost)
        self._end(host.lost)
        self._tracker.leave(self)

    # -- called by the host

    def open(self, session: StreamSession) -> QuicChannel:
        channel = QuicChannel(self)
        try:
            channel.attach(self._connection.open(StreamInput(channel), bidirectional=False))
        except QuicError as error:
            raise streams.StreamsUsedUp(str(error)) from None
        channel.session = session
        self._channels[channel] = None
        return channel

    def abort(self, code: int = Code.NONE, reason: str = GOODBYE) -> None:
        """Also called by the tracker, to close a connection."""
        self._connection.close(code, reason)

    # -- called by the tracker

    def apply_backpressure(self) -> None:
        """Pause or resume input, depending on the bytes held for this peer and for all."""
        if self._host is None or self._connection.closed:
            return
        held = self._session_bytes
        if self._connection.bound > SMALL:
            held += self._connection.unsent
        if held != self.held:
            self._tracker.account(self, held)
        if held:
            full = self._tracker.full and held > self._tracker.fair_share
            pause = held > self._room or self._yielding > 0 or full
        else:
            pause = self._yielding > 0
            self._grace = 0
        if pause is self._connection.paused:
            return
        if pause:
            self._least_held, self._stalled_since = held, self._port.now()
            self._connection.pause()
        else:
            self.touch()  # the silence was our doing
            self._connection.resume()

    def sweep(self, now: float) -> None:
        """Close a connection that is idle or permanently stalled. QUIC itself detects peers that are gone."""
        for channel in list(self._channels):
            self._measure(channel)
        self.apply_backpressure()
        limits = self._tracker.limits
        if self._connection.paused:
            self._check_progress(now)
        elif not self._channels and now - self._last_activity > limits.idle_seconds:
            logger.info("%s: closed: idle for %g s", self.peer, limits.idle_seconds, extra=self._log_keys)
            self._connection.close(Code.NONE, "idle")

    @property
    def _log_keys(self) -> dict[str, str]:
        return {"peer": self.peer, "door": self._port.door.name}

    @property
    def _room(self) -> int:
        """Bytes that may be held. Input is paused for all streams together; with room for less than a whole frame of
        each, all could get stuck in the middle of one."""
        frames = min(len(self._channels), FRAMES) + self._grace
        return max(self._tracker.limits.connection_bytes, self._frame * frames)

    def _check_progress(self, now: float) -> None:
        """Called while input is paused. If the held bytes do not shrink, they may all be incomplete frames: grant more
        room, or close after a while."""
        if self.held < self._least_held:
            self._least_held, self._stalled_since = self.held, now
        elif self.held <= self._room or now - self._stalled_since < GRACE_SECONDS:
            return
        elif self._grace < GRACE_FRAMES and not self._tracker.full:
            self._grace += 1
            self.apply_backpressure()
        elif now - self._stalled_since > STALL_SECONDS:
            logger.warning(
                "%s: closed: its streams hold %d bytes of unfinished requests, over limits.connection_bytes",
                self.peer,
                self.held,
                extra=self._log_keys,
            )
            self._connection.close(Code.TOO_MUCH, "too many bytes of unfinished requests on this connection")

    def stop(self) -> None:
        self._stopping = True
        if self._host is None:
            return
        self.call(self._host.stop)
        for channel in list(self._channels):
            if channel.session is not None:
                self.call(channel.session.stop)
        self._close_if_done()

    def touch(self) -> None:
        self._last_activity = self._port.now()

    # -- called by its channels

    def call(self, method: Callable[..., None], *arguments: object) -> bool:
        """Call a session's method. False if the connection is closed now, by an error or otherwise."""
        try:
            method(*arguments)
        except Exception:
            self._tracker.metrics.internal_errors += 1
            logger.exception(DEFECT, self.peer, extra=self._log_keys)
            self._connection.close(Code.INTERNAL, "internal error")
        return not self._connection.closed

    def account(self, channel: QuicChannel) -> None:
        self._measure(channel)
        self.apply_backpressure()

    def discard(self, channel: QuicChannel) -> None:
        self.touch()
        channel.session = None
        self._measure(channel)
        self._channels.pop(channel, None)
        self.apply_backpressure()
        self._close_if_done()

    # -- internal

    def _measure(self, channel: QuicChannel) -> None:
        session = channel.session
        held, yielding = (0, False) if session is None else (session.held_bytes, session.yielding)
        if yielding is not channel.yielding:
            channel.yielding = yielding
            self._yielding += 1 if yielding else -1
        self._session_bytes += held - channel.held
        channel.held = held

    def _close_if_done(self) -> None:
        if self._stopping and not self._channels:
            self._connection.close_when_delivered(Code.NONE, GOODBYE)

    def _end(self, method: Callable[[], None]) -> None:
        try:
            method()
        except Exception:
            logger.exception("%s: the session could not be ended", self.peer, extra=self._log_keys)
