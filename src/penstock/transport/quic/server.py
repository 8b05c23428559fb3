"""The server side: new connections, limits on concurrent handshakes, and address validation."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from typing import Final

from penstock.transport.quic.certificate import Certificate
from penstock.transport.quic.connection import ConnectionHandler, QuicConnection
from penstock.transport.quic.endpoint import QuicEndpoint, TrafficObserver, TurnScheduler
from penstock.transport.quic.retry_token import ResetTokens, RetryTokens
from penstock.transport.quic.settings import QuicSettings, datagram_bytes
from penstock.transport.quic.state_machine import (
    CID_BYTES,
    INITIAL,
    VERSIONS,
    Address,
    Header,
    retry_packet,
    server_configuration,
    server_machine,
    version_negotiation,
)

SMALLEST_INITIAL: Final = 1200
MAX_ANSWERS_PER_SECOND: Final = 1000  # to peers without a connection


class QuicServer:
    """Accepts connections on one bound UDP socket. `handler_factory` is called when a handshake is complete."""

    def __init__(
        self,
        sock: socket.socket,
        settings: QuicSettings,
        certificate: Certificate,
        handler_factory: Callable[[QuicConnection], ConnectionHandler],
        loop: asyncio.AbstractEventLoop,
        observer: TrafficObserver | None = None,
        turns: TurnScheduler | None = None,
    ) -> None:
        self._settings = settings
        self._certificate = certificate
        self._handler_factory = handler_factory
        self._accepting = True
        self._retry = RetryTokens()
        self._resets = ResetTokens(certificate.key)
        self._configurations = {
            size: server_configuration(settings, size, certificate.chain, certificate.key)
            for size in {datagram_bytes(settings, host) for host in ("127.0.0.1", "192.0.2.1")}
        }
        self._second = 0
        self._answers = 0
        self.address: Address = sock.getsockname()
        self.endpoint = QuicEndpoint(sock, settings, loop, self._on_unknown_datagram, observer, turns)

    def stop_accepting(self) -> None:
        """Accept no more connections; open ones stay."""
        self._accepting = False

    def close(self) -> None:
        self.endpoint.close()

    def _on_unknown_datagram(self, datagram: bytes, header: Header | None, address: Address) -> QuicConnection | None:
        """A new connection for a datagram that belongs to none, or None."""
        if header is None:
            self._answer(self._resets.packet(datagram[1 : 1 + CID_BYTES], len(datagram)), address)
            return None
        if len(datagram) < SMALLEST_INITIAL or not self._accepting:
            return None
        if header.version not in VERSIONS:
            if header.version:  # 0 is itself a version negotiation
                self._answer(version_negotiation(header), address)
            return None
        if header.kind != INITIAL or self.endpoint.half_open >= self._settings.half_open:
            return None
        return self._admit(header, address)

    def _admit(self, header: Header, address: Address) -> QuicConnection | None:
        now = time.monotonic()
        original, retried = header.destination, None
        if header.token:
            found = self._retry.check(header.token, address, header.destination, now)
            if found is not None:
                original, retried = found, header.destination
        if retried is None and self.endpoint.half_open >= self._settings.retry_above:
            given = os.urandom(CID_BYTES)
            token = self._retry.make(address, header.destination, given, now)
            self._answer(retry_packet(header, given, token), address)
            return None
        configuration = self._configurations[datagram_bytes(self._settings, address[0])]
        machine = server_machine(configuration, original, retried, self._resets.of)
        machine.begin(header, address, now)
        connection = QuicConnection(machine, self.endpoint, address, self._handler_factory, lambda _: None, now)
        self.endpoint.add(connection, header.destination, machine.host_cid)
        return connection

    def _answer(self, packet: bytes | None, address: Address) -> None:
        """Send a packet outside of a connection, rate-limited: forged source addresses must not make us flood
        anyone."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._answers = second, 0
        self._answers += 1
        if packet is not None and self._answers <= MAX_ANSWERS_PER_SECOND:
            self.endpoint.send(packet, address)
