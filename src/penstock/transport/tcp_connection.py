"""One TCP connection: from the socket to a session and back.

It makes the session for the peer's protocol, which its `port` detects, feeds it, and obeys it. It decides when to read
and when to close. The session interprets the bytes; the tracker enforces limits across connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
import logging
import socket
import ssl
import struct
import termios
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from penstock.broker.runtime.turns import SMALL
from penstock.doors.pipeline import RequestPipeline
from penstock.doors.session import Session
from penstock.transport.port import Port
from penstock.transport.sniff import TLS
from penstock.transport.tls import TlsStream

logger = logging.getLogger(__name__)

WRITE_HIGH: Final = 1 << 20  # bytes in a socket's write buffer above which its connection is not read from
READ_SLACK: Final = 512 << 10  # the most that one read can return beyond a whole frame
LINGER_SECONDS: Final = 1.0
LINGER_BYTES: Final = 64 << 20
DEFECT: Final = "%s: closed because of an error in the broker; no other connection is touched"
ACK_SECONDS: Final = 0.002  # for a commit whose reply carries the TCP ACK; the kernel would wait up to 40 ms
QUICKACK: Final = int(getattr(socket, "TCP_QUICKACK", 0))  # 0: not supported by this system


class Phase(enum.Enum):
    SNIFFING = enum.auto()
    OPEN = enum.auto()  # has a session
    CLOSING = enum.auto()  # output is flushed; input is discarded
    CLOSED = enum.auto()


# Plain names: looking up an enum member takes several times as long, and every read and write does it.
OPEN: Final = Phase.OPEN
CLOSING: Final = Phase.CLOSING
CLOSED: Final = Phase.CLOSED


class Connection:
    """A connection; an `asyncio.Protocol` in all but inheritance, so that mypyc can compile it."""

    def __init__(self, port: Port, loop: asyncio.AbstractEventLoop) -> None:
        self.held = 0
        self.received = 0
        self.sent = 0
        self.peer = "?"
        self._port = port
        self._tracker = port.tracker
        self._busy_poll = port.busy_poll
        self._turns = port.broker.turns
        self._loop = loop
        self._phase = Phase.SNIFFING
        self._admitted = False
        self._sniffed = b""  # bytes received before the protocol was clear
        self._session: Session | None = None
        self._pipeline: RequestPipeline | None = None  # the session, if it is one: known by its class, calls are faster
        self._door = ""  # its name, once known
        self._limit = port.tracker.limits.connection_bytes
        self._tls: TlsStream | None = None
        self._started = self._last_activity = loop.time()  # when it began; the last sweep before which bytes moved
        self._active = False  # bytes have moved since the last sweep
        self._closing_since = 0.0
        self._discarded = 0
        self._write_blocked = False
        self._unsent = 0  # in the transport's buffer, at the last sweep
        self._input_over = False
        self._paused = False
        self._inbox: deque[bytes] = deque()  # received when the turn was used up, for the next turn
        self._inbox_bytes = 0
        self._ended_in_inbox = False  # end of input follows behind the inbox
        self._unanswered = False  # bytes arrived, and no output has carried an ACK since
        self._awaiting_commit = False  # listed in `port.awaiting_commit`,
        self._awaited = 0  # since so many bytes were received

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer = _peer(transport.get_extra_info("peername"))
        # Our own socket object on the same descriptor: setting an option on uvloop's takes 2 µs longer.
        self._socket = socket.socket(
            socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, transport.get_extra_info("socket").fileno()
        )
        if not self._tracker.admit(self):
            self._phase = CLOSED
            self._transport.abort()
            return
        self._admitted = True
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH)
        # Deferred: uvloop starts reading after this call, even if reading was paused in it.
        self._loop.call_soon(self.apply_backpressure)

    def data_received(self, data: bytes) -> None:
        if self._phase is CLOSING:
            self._discard(len(data))
        elif self._phase is not CLOSED:
            self._active = True
            self.received += len(data)
            self._unanswered = True
            if self._busy_poll is not None:
                self._busy_poll.received()
            if self._turns.exhausted or self._inbox:
                self._postpone(data)
            else:
                self._take(data)
            self.apply_backpressure()
            if self._unanswered:
                self._acknowledge()

    def eof_received(self) -> bool:
        if self._inbox:
            self._ended_in_inbox = True
        else:
            self._end_of_input()
        return self._phase is not CLOSED  # True keeps the other direction open

    def pause_writing(self) -> None:
        self._write_blocked = True
        self._unsent = self._transport.get_write_buffer_size()
        self.apply_backpressure()

    def resume_writing(self) -> None:
        self._write_blocked = False
        self._active = True
        if self._phase is OPEN:
            self._take(b"")  # requests may be waiting for room
        self.apply_backpressure()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - how it ended does not matter
        self._phase = CLOSED
        self._socket.detach()
        self._inbox.clear()
        session, self._session = self._session, None
        self._pipeline = None
        if session is not None:
            try:
                session.lost()
            except Exception:
                logger.exception("%s: the session could not be ended", self.peer, extra=self._log_keys)
        if self._admitted:
            self._tracker.leave(self)

    # -- called by the session

    def send(self, data: bytes) -> None:
        if self._phase is not OPEN:
            return
        if not self._write_blocked:
            self._active = True
        if self._tls is not None:
            self._tls.send(data)
            data = self._tls.outgoing()
        self._unanswered = False
        self.sent += len(data)
        self._transport.write(data)
        if self._busy_poll is not None:
            self._busy_poll.sent()

    @property
    def congested(self) -> bool:
        return self._write_blocked

    def close(self) -> None:
        """Close gracefully. Closing a socket with unread input resets the connection, and the peer may lose the last
        reply. So the sending direction is closed first, and input is discarded until the peer closes too, for a limited
        time."""
        if self._phase in (CLOSING, CLOSED):
            return
        if self._tls is not None:
            self._tls.close()
            self._transport.write(self._tls.outgoing())
        if self._input_over or self._transport.is_closing() or (self._tracker.stopping and not self._unread()):
            self._phase = CLOSED
            self._transport.close()
            return
        self._phase = CLOSING
        self._closing_since = self._loop.time()
        self._transport.write_eof()
        self.apply_backpressure()

    def progress(self) -> None:
        self.apply_backpressure()

    # -- called by the tracker

    @property
    def encrypted(self) -> bool:
        return self._tls is not None

    def apply_backpressure(self) -> None:
        """Pause or resume reading, depending on the bytes held for this peer and for all."""
        if self._phase is CLOSED:
            return
        pipeline = self._pipeline
        if pipeline is not None:
            held, yielding = pipeline.held_bytes, pipeline.yielding
        elif self._session is not None:
            held, yielding = self._session.held_bytes, self._session.yielding
        else:
            held, yielding = len(self._sniffed), False
        if self._inbox:
            held += self._inbox_bytes
            yielding = True
        elif self._phase is CLOSING:
            yielding = False
        if self._write_blocked:
            held += self._transport.get_write_buffer_size()
        if held != self.held:
            self._tracker.add(held - self.held)
            self.held = held
        if held <= self._limit and not (self._paused or self._write_blocked or self._tracker.full or yielding):
            return  # reading, and allowed to
        crowded = self._tracker.full and held > self._tracker.fair_share
        # On `yielding`: uvloop would read up to 32 more chunks from this connection before it serves another.
        pause = yielding or (self._phase is not CLOSING and (held > self._limit or self._write_blocked or crowded))
        if pause is not self._paused:
            self._paused = pause
            if self._transport.is_closing():
                return
            if pause:
                self._transport.pause_reading()
            else:
                self._active = True  # the silence was our doing
                self._transport.resume_reading()

    def sweep(self, now: float) -> None:
        limits = self._tracker.limits
        if self._phase is CLOSED:
            return
        unsent = self._transport.get_write_buffer_size()
        if self._active or unsent < self._unsent:
            self._active = False
            self._last_activity = now
        self._unsent = unsent
        if self._phase is CLOSING:
            if unsent:
                self._closing_since = now  # lingering begins when everything is sent
            if now - (self._last_activity if unsent else self._closing_since) > (
                limits.idle_seconds if unsent else LINGER_SECONDS
            ):
                self.abort()
        elif self._tls is not None and not self._tls.established:
            if now - self._started > limits.handshake_seconds:
                self._drop(f"no TLS handshake within {limits.handshake_seconds:g} s")
        elif self._phase is Phase.SNIFFING:
            if now - self._started > limits.idle_seconds:
                self._drop("said too little to tell its protocol")
        elif now - self._last_activity > limits.idle_seconds and not (self._tracker.full and not self.held):
            if self.held or unsent:
                self._drop(f"nothing of a request or a reply has moved for {limits.idle_seconds:g} s")
            elif self._session is None or not self._session.long_lived:
                self._drop(f"idle for {limits.idle_seconds:g} s")

    def stop(self) -> None:
        self._take_inbox()
        if self._phase is Phase.SNIFFING:
            self.abort()
        elif self._phase is OPEN and self._session is not None:
            self._call(self._session.stop)

    def abort(self) -> None:
        if self._phase is not CLOSED:
            self._phase = CLOSED
            self._transport.abort()

    # -- internal

    def _take(self, data: bytes) -> None:
        """Process received bytes, in any phase before closing, and charge the turn for the time."""
        turns, session = self._turns, self._session
        began = turns.timer()
        if self._tls is not None and data:
            self._decrypt(self._tls, data)
        elif session is None:
            self._accept(data)
        else:
            self._feed(session, data)
        turns.charge(turns.timer() - began, self)

    def describe_work(self) -> dict[str, str]:
        return self._log_keys if self._session is None else self._session.describe_work()

    def _postpone(self, data: bytes) -> None:
        """Keep bytes for a later turn: all connections together have used this one up."""
        self._inbox.append(data)
        self._inbox_bytes += len(data)
        if len(self._inbox) == 1:
            self._turns.later(self._take_inbox, little=len(data) <= SMALL)

    def _take_inbox(self) -> None:
        while self._inbox and self._phase in (Phase.SNIFFING, OPEN):
            data = self._inbox.popleft()
            self._inbox_bytes -= len(data)
            self._take(data)
        if self._ended_in_inbox:
            self._ended_in_inbox = False
            self._end_of_input()
        self.apply_backpressure()

    def _acknowledge(self) -> None:
        """Send a TCP ACK early. A client that writes in two parts may send the second only after the first is
        acknowledged, which the kernel delays by up to 40 ms. A reply carries the ACK too, so if one is due soon, wait
        for it and save a segment."""
        port = self._port
        if not self.held:
            self.quickack()
        elif self._awaits_commit():
            if not self._awaiting_commit:
                self._await_commit()
        else:
            if not port.unacknowledged:
                self._loop.call_soon(port.acknowledge)
            port.unacknowledged.append(self)

    def _awaits_commit(self) -> bool:
        if self._pipeline is not None:
            return self._pipeline.awaiting_commit
        return self._session is not None and self._session.awaiting_commit

    def _await_commit(self) -> None:
        self._awaiting_commit = True
        self._awaited = self.received
        port = self._port
        if not port.awaiting_commit:
            self._loop.call_later(ACK_SECONDS, port.acknowledge_late)
        port.awaiting_commit.append(self)

    def quickack_if_late(self) -> None:
        self._awaiting_commit = False
        if self._unanswered:
            if self._awaited == self.received:
                self.quickack()
            else:
                self._await_commit()  # the last bytes arrived meanwhile

    def quickack(self) -> None:
        if self._unanswered and self._phase is not CLOSED and QUICKACK:
            self._unanswered = False
            with contextlib.suppress(OSError):  # the peer may already be gone
                self._socket.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)  # the kernel resets it by itself

    def _accept(self, data: bytes) -> None:
        """Process decrypted bytes, in any phase before closing."""
        session = self._session
        if session is None:
            self._sniffed += data
            session = self._identify()
            if session is None:
                return
            data, self._sniffed = self._sniffed, b""
        self._feed(session, data)

    def _feed(self, session: Session, data: bytes) -> None:
        try:
            if self._pipeline is not None:
                self._pipeline.receive(data)
            else:
                session.receive(data)
        except Exception:
            self._tracker.metrics.internal_errors += 1
            logger.exception(DEFECT, self.peer, extra=self._log_keys)
            self.close()

    def _identify(self) -> Session | None:
        """The session for the first bytes; `None` if there are too few, if they start TLS, or if the protocol is not
        served."""
        port, encrypted = self._port, self._tls is not None
        protocol = port.detect(self._sniffed, encrypted)
        if protocol is None:
            return None
        if protocol == TLS and port.tls is not None and not encrypted:
            self._tls = TlsStream(port.tls)
            data, self._sniffed = self._sniffed, b""
            self._decrypt(self._tls, data)
            return None
        door = port.door_for(protocol, encrypted)
        if isinstance(door, str):
            self._refuse(protocol, door)
            return None
        try:
            subject = None if self._tls is None else self._tls.subject
            self._session = door.open(port.broker, self, port.identity_of(door, subject, self.peer))
        except Exception:
            self._tracker.metrics.internal_errors += 1
            logger.exception(DEFECT, self.peer, extra=self._log_keys)
            self.abort()
            return None
        # With a limit below a whole frame, reading could stop in the middle of one forever.
        self._limit = max(self._tracker.limits.connection_bytes, door.max_frame + READ_SLACK)
        self._door = door.name
        if isinstance(self._session, RequestPipeline):
            self._pipeline = self._session
        self._phase = OPEN
        return self._session

    def _decrypt(self, stream: TlsStream, data: bytes) -> None:
        try:
            plain = stream.receive(data)
        except ssl.SSLError as error:
            logger.info("%s: TLS failed: %s", self.peer, error.reason or error, extra=self._log_keys)
            self._transport.write(stream.outgoing())  # the alert with the reason
            self._phase = CLOSED
            self._transport.close()
            return
        outgoing = stream.outgoing()
        if outgoing:
            self._transport.write(outgoing)
        if plain:
            self._accept(plain)
        if stream.ended:
            self._end_of_input()

    def _end_of_input(self) -> None:
        self._input_over = True
        if self._phase is OPEN and self._session is not None:
            self._call(self._session.end_of_input)
            self.apply_backpressure()
        elif self._phase is not CLOSED:
            self._phase = CLOSED
            self._transport.close()

    def _call(self, method: Callable[[], None]) -> None:
        try:
            method()
        except Exception:
            self._tracker.metrics.internal_errors += 1
            logger.exception(DEFECT, self.peer, extra=self._log_keys)
            self.close()

    def _refuse(self, name: str, why: str) -> None:
        host = self.peer.rpartition(":")[0]
        if self._port.report_once(f"{host} {name}", self._loop.time()):
            logger.info(
                "%s speaks %s on the port of %s: closed, because %s",
                self.peer,
                name,
                self._port.protocol,
                why,
                extra=self._log_keys | {"protocol": name},
            )
        self._tracker.metrics.connections_refused += 1
        self.abort()

    def _drop(self, why: str) -> None:
        logger.info("%s: closed: %s", self.peer, why, extra=self._log_keys)
        self.abort()

    @property
    def _log_keys(self) -> dict[str, str]:
        return {"peer": self.peer, "door": self._door}

    def _unread(self) -> int:
        """Bytes in the kernel's receive buffer."""
        try:
            return int(struct.unpack("i", fcntl.ioctl(self._socket.fileno(), termios.FIONREAD, bytes(4)))[0])
        except OSError:
            return 0

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > LINGER_BYTES:
            self.abort()


def _peer(name: object) -> str:
    if isinstance(name, tuple) and len(name) >= 2:
        return f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"
    return str(name) if name else "?"
