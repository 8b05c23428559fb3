"""A UDP port, and the QUIC connections that come by it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import socket

from penstock.config.settings import Endpoint, Settings
from penstock.transport.busy_poll import BusyPoll
from penstock.transport.quic.certificate import Certificate, kept, load
from penstock.transport.quic.server import QuicServer
from penstock.transport.quic.settings import QuicSettings
from penstock.transport.quic_sessions import QuicPort, QuicSessions
from penstock.transport.tcp_listener import BindAddress, bind

CERTIFICATES = "certificates"  # folder in the data directory


def server_certificate(settings: Settings, data_dir: str) -> Certificate:
    """The one of `[tls]`, or the broker's own, which is made when it is first needed. Raises CertificateUnusable or
    OSError."""
    now = datetime.datetime.now(datetime.UTC)
    if settings.tls.cert:
        return load(settings.tls.cert, settings.tls.key, now)
    return kept(os.path.join(data_dir, CERTIFICATES), now)


def quic_settings(settings: Settings) -> QuicSettings:
    felix, limits = settings.felix, settings.limits
    return QuicSettings(
        datagram_bytes=felix.datagram_bytes,
        connection_window=felix.connection_window,
        stream_window=felix.stream_window,
        streams=felix.streams,
        idle_seconds=felix.idle_seconds,
        keep_alive_seconds=felix.keep_alive_seconds,
        handshake_seconds=limits.handshake_seconds,
        half_open=min(QuicSettings().half_open, limits.connections),
    )


class QuicListener:
    """The open sockets of one place. `start`, then `stop_accepting`, then `close`."""

    def __init__(self, place: BindAddress) -> None:
        """Raises PortUnavailable."""
        self.place = place
        self.fingerprint = ""  # of the certificate, once it is started
        self._sockets = bind(place, socket.SOCK_DGRAM)
        self._servers: list[QuicServer] = []
        # Where it really is: the port is the one that the system chose if port 0 was asked for.
        self.address = str(Endpoint(place.endpoint.host, self._sockets[0].getsockname()[1]))

    def start(
        self, port: QuicPort, settings: QuicSettings, certificate: Certificate, busy_poll: BusyPoll | None = None
    ) -> None:
        """Take connections from now on."""
        loop = asyncio.get_running_loop()
        self.fingerprint = certificate.fingerprint
        for own in self._sockets:
            self._servers.append(
                QuicServer(own, settings, certificate, lambda link: QuicSessions(port, link), loop, busy_poll)
            )

    def stop_accepting(self) -> None:
        """Those that there are stay."""
        for server in self._servers:
            server.stop_accepting()

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for own in self._sockets:
            with contextlib.suppress(OSError):
                own.close()
