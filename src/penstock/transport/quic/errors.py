"""Errors of QUIC connections."""

from __future__ import annotations


class QuicError(Exception):
    """The text describes what happened."""


class ConnectionClosed(QuicError):
    """The connection is closed."""


class StreamsUsedUp(QuicError):
    """The peer currently allows no more streams."""


class ConnectFailed(QuicError):
    """The connection could not be established. The text has the reason and, where known, the remedy."""


class CertificateRefused(ConnectFailed):
    """The server's certificate is not trusted: a retry would not help."""
