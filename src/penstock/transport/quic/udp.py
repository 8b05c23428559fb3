"""A UDP socket: many datagrams per system call, in both directions, with UDP's transient errors handled."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import sys
from collections import deque
from typing import Final, TypeAlias

from penstock.transport.quic.state_machine import Address, UdpSocketState

logger = logging.getLogger(__name__)

BUFFER_BYTES: Final = 4 << 20  # kernel buffers, in each direction
READ_BYTES: Final = 256 << 10  # per turn: what subscribers are sent in one, so that they keep up with publishers
BULK_BYTES: Final = 32 << 10  # read at once, from which on a copy of them takes longer than more system calls,
LARGE: Final = 8 << 10  # if datagrams have this many on average,
FEW: Final = 8  # with so many smaller ones in a row, as of acknowledgements
SEGMENTS_BYTES: Final = 64 << 10  # the most that the kernel joins
CONTROL_BYTES: Final = 256  # for what the kernel tells about a message
SOL_UDP: Final = 17
UDP_GRO: Final = 104
SO_RCVBUFFORCE: Final = 33
SO_SNDBUFFORCE: Final = 32
NO_SEGMENTS: Final = frozenset((errno.EIO, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOPROTOOPT))

Received: TypeAlias = tuple[bytes, int, Address]
"""Datagrams from one address, one after the other: all have this many bytes, but for the last, which may have fewer."""


class UdpSocket:
    """Takes ownership of the socket. `blocked`: the send buffer is full; call `resume` when the socket is writable
    again."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        _enlarge(sock, socket.SO_RCVBUF, SO_RCVBUFFORCE)
        _enlarge(sock, socket.SO_SNDBUF, SO_SNDBUFFORCE)
        self._socket = sock
        self._state: UdpSocketState | None = UdpSocketState(sock.fileno())  # None: closed
        self._joins = sys.platform == "linux" and self._state.gro_segments > 1
        self._bulk = False  # large messages are expected
        self._small = 0  # datagrams in a row that were none
        self._waiting: deque[tuple[list[bytes], Address]] = deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def blocked(self) -> bool:
        return bool(self._waiting)

    def receive(self) -> tuple[list[Received], OSError | None]:
        """The available datagrams, about `READ_BYTES` at most; and the error that ended the read, if any."""
        found: list[Received] = []
        size = 0
        while self._state is not None and size < READ_BYTES:
            try:
                read = self._receive_joined(found) if self._bulk else self._receive_many(self._state, found)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                return found, error
            if not read:
                break
            size += read
        return found, None

    def _receive_many(self, state: UdpSocketState, found: list[Received]) -> int:
        """Datagrams of any senders, up to 2 MiB; returns their bytes."""
        batch, size = state.recv(), 0
        for datagram, address in batch:
            found.append((datagram, len(datagram), address))
            size += len(datagram)
        self._bulk, self._small = self._joins and size >= max(BULK_BYTES, LARGE * len(batch)), 0
        return size

    def _receive_joined(self, found: list[Received]) -> int:
        """Datagrams that the kernel has joined, left as they are; returns their bytes. Takes a system call for each
        sender, but less copying."""
        data, control, _, address = self._socket.recvmsg(SEGMENTS_BYTES, CONTROL_BYTES)
        segment = len(data)
        for level, kind, value in control:
            if level == SOL_UDP and kind == UDP_GRO:
                segment = int.from_bytes(value, sys.byteorder)
        found.append((data, segment, address))
        self._small = 0 if len(data) >= LARGE else self._small + 1
        self._bulk = self._small <= FEW
        return len(data)

    def send(self, datagrams: list[bytes], address: Address) -> None:
        """Send, or queue if the buffer is full. On other failures the datagrams are dropped, as if lost on the
        network."""
        if self._waiting:
            self._waiting.append((datagrams, address))
            return
        rest = self._send(datagrams, address)
        if rest:
            self._waiting.append((rest, address))

    def resume(self) -> None:
        while self._waiting:
            datagrams, address = self._waiting.popleft()
            rest = self._send(datagrams, address)
            if rest:
                self._waiting.appendleft((rest, address))
                return

    def _send(self, datagrams: list[bytes], address: Address) -> list[bytes]:
        """Returns the datagrams for which there is no room."""
        state = self._state
        while datagrams and state is not None:
            try:
                sent = state.send(datagrams, address)
                return datagrams[sent:]
            except (BlockingIOError, InterruptedError) as error:
                return datagrams[getattr(error, "datagrams_sent", 0) :]
            except OSError as error:
                if error.errno in NO_SEGMENTS and state.max_gso_segments > 1:
                    state.disable_gso()  # unsupported by this device; retry without it
                    datagrams = datagrams[getattr(error, "datagrams_sent", 0) :]
                    continue
                if error.errno == errno.ENOBUFS:
                    return []
                logger.debug("a datagram of %d bytes to %s was not sent: %s", len(datagrams[0]), address[0], error)
                datagrams = datagrams[getattr(error, "datagrams_sent", 0) + 1 :]
            except ValueError as error:
                logger.debug("no datagram can be sent to %s: %s", address[0], error)
                return []
        return []

    def close(self) -> None:
        self._waiting.clear()
        self._state = None  # it refers to the descriptor
        self._socket.close()


def _enlarge(sock: socket.socket, option: int, forced: int) -> None:
    """Enlarge a kernel buffer. Exceeding the system's limit takes CAP_NET_ADMIN."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, forced, BUFFER_BYTES)
