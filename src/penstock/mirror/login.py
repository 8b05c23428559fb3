"""Logins and TLS of the clients that a mirror uses, from a URL."""

from __future__ import annotations

import ssl

from penstock.clients._core.channel import tls_context
from penstock.connection.options import Credentials
from penstock.mirror.errors import MirrorError
from penstock.mirror.url import Location


def credentials(place: Location) -> Credentials:
    if place.user is not None:
        return Credentials(place.user, place.secret)
    return Credentials(secret=place.secret)


def tls(place: Location) -> ssl.SSLContext | None:
    """`?ca=FILE` trusts that file, `?tls=1` what the system trusts."""
    try:
        if ca := place.options.get("ca"):
            return tls_context(ca)
        return ssl.create_default_context() if place.options.get("tls") in ("1", "on", "true", "") else None
    except OSError as error:
        raise MirrorError(f"{place.name}: {place.options['ca']}: {error.strerror or error}") from error
