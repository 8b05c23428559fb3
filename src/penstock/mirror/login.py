"""Credentials and TLS of a mirror's clients, from a URL."""

from __future__ import annotations

import ssl

from penstock.clients._core.channel import tls_context
from penstock.connection.options import Credentials
from penstock.mirror.errors import MirrorError
from penstock.mirror.url import Location


def credentials(location: Location) -> Credentials:
    if location.user is not None:
        return Credentials(location.user, location.secret)
    return Credentials(secret=location.secret)


def tls(location: Location) -> ssl.SSLContext | None:
    """The TLS context: `?ca=FILE` trusts that file, `?tls=1` the system's authorities; None without TLS. Raises
    MirrorError."""
    try:
        if ca := location.options.get("ca"):
            return tls_context(ca)
        return ssl.create_default_context() if location.options.get("tls") in ("1", "on", "true", "") else None
    except OSError as error:
        raise MirrorError(f"{location.name}: {location.options['ca']}: {error.strerror or error}") from error
