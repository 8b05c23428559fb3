"""Errors of QUIC connections."""

from __future__ import annotations


class QuicError(Exception):
    """The text says what happened."""


class ConnectionClosed(QuicError):
    """The connection is closed."""


class StreamsUsedUp(QuicError):
    """The peer allows no more streams at the moment."""


class ConnectFailed(QuicError):
    """No connection came about. The text says why and, where that is known, what to do."""


class CertificateRefused(ConnectFailed):
    """The server's certificate is not accepted: to try again would not help."""
