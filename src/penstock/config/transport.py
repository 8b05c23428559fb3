"""`[limits]` and `[felix]` as the settings of the transport: connection limits and QUIC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.settings import Settings
from penstock.transport.connection_limits import ConnectionLimits, KeepAlive

if TYPE_CHECKING:
    from penstock.transport.quic.settings import QuicSettings


def connection_limits(settings: Settings) -> ConnectionLimits:
    limits = settings.limits
    return ConnectionLimits(
        connections=limits.connections,
        connection_bytes=limits.connection_bytes,
        total_bytes=limits.total_bytes,
        idle_seconds=limits.idle_seconds,
        handshake_seconds=limits.handshake_seconds,
        keepalive=KeepAlive(limits.keepalive_seconds, limits.keepalive_interval_seconds, limits.keepalive_probes),
        address_share=limits.address_share if settings.security.mode == "on" else 1.0,
    )


def quic_settings(settings: Settings) -> QuicSettings:
    from penstock.transport.quic.settings import QuicSettings  # here: brokers without a QUIC door do not import QUIC

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
