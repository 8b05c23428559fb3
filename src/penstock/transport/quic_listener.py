"""A UDP port, and the QUIC connections that arrive on it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import socket

from penstock.transport.busy_poll import BusyPoll
from penstock.transport.quic.certificate import Certificate, kept, load
from penstock.transport.quic.server import QuicServer
from penstock.transport.quic.settings import QuicSettings
from penstock.transport.quic.state_machine import seed_random_keys
from penstock.transport.quic_sessions import QuicPort, QuicSessions
from penstock.transport.tcp_listener import BindAddress, bind, bound_endpoint

CERTIFICATES = "certificates"  # folder in the data directory


def server_certificate(cert: str, key: str, data_dir: str) -> Certificate:
    """The certificate in the file `cert`; if empty, the broker's self-signed one, generated when first needed. Raises
    CertificateUnusable or OSError."""
    now = datetime.datetime.now(datetime.UTC)
    if cert:
        return load(cert, key, now)
    return kept(os.path.join(data_dir, CERTIFICATES), now)


class QuicListener:
    """The open sockets of one address. `start`, then `stop_accepting`, then `close`."""

    def __init__(self, bind_address: BindAddress) -> None:
        """Raises PortUnavailable."""
        self.bind_address = bind_address
        self.fingerprint = ""  # of the certificate, after `start`
        self._sockets = bind(bind_address, socket.SOCK_DGRAM)
        self._servers: list[QuicServer] = []
        self.endpoint = bound_endpoint(bind_address, self._sockets)

    def sockets_meanwhile(self) -> list[socket.socket]:
        """Duplicates of the sockets, for a forwarder that receives their datagrams until `start`."""
        return [sock.dup() for sock in self._sockets]

    def start(
        self, port: QuicPort, settings: QuicSettings, certificate: Certificate, busy_poll: BusyPoll | None = None
    ) -> None:
        """Start accepting connections."""
        loop = asyncio.get_running_loop()
        self.fingerprint = certificate.fingerprint
        seed_random_keys()
        for sock in self._sockets:
            self._servers.append(
                QuicServer(
                    *(sock, settings, certificate, lambda connection: QuicSessions(port, connection), loop, busy_poll),
                    turns=port.broker.turns,
                )
            )

    def stop_accepting(self) -> None:
        """Accept no more connections; open ones stay."""
        for server in self._servers:
            server.stop_accepting()

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.close()
