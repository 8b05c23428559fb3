"""How a client gets a QUIC connection: what it asks of the transport. Nothing else here touches a network."""

from __future__ import annotations

from penstock.clients.felix.connection import Connection
from penstock.clients.felix.errors import CertificateRefused
from penstock.clients.felix.options import MIB, Options
from penstock.transport.quic import errors
from penstock.transport.quic.client import connect
from penstock.transport.quic.connection import QuicConnection
from penstock.transport.quic.settings import QuicSettings


def settings(options: Options) -> QuicSettings:
    """A server that is gone is noticed by its silence, so it is asked for a sign of life three times before that."""
    trust = options.trust
    return QuicSettings(
        connection_window=max(16 * MIB, options.limits.frame),
        stream_window=max(4 * MIB, min(options.limits.frame, 16 * MIB)),
        idle_seconds=options.idle,
        keep_alive_seconds=options.idle / 3,
        handshake_seconds=options.timeout,
        server_name=trust.server_name or "",
        ca_file=trust.ca or "",
        fingerprint=trust.fingerprint or "",
        verify=not trust.insecure,
    )


async def dial(options: Options, connection: Connection) -> QuicConnection:
    """Connect. Raises ConnectFailed, or CertificateRefused."""
    try:
        return await connect(options.place.host, options.place.port, settings(options), connection)
    except errors.CertificateRefused as error:
        raise CertificateRefused(f"No connection to {error}") from error
