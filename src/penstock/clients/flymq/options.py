"""What a client of either kind is told when it is made."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from penstock.clients._core.retry import RetryPolicy


@dataclass(slots=True)
class Options:
    host: str
    port: int
    credentials: tuple[str, str] | None = field(repr=False)  # of the last login that was accepted, or is to be tried
    tls: ssl.SSLContext | None
    timeout: float
    retry: RetryPolicy

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"


def options(
    host: str,
    port: int,
    username: str | None,
    password: str | None,
    tls: ssl.SSLContext | str | None,
    timeout: float,
    retry: RetryPolicy | None,
) -> Options:
    """`tls` may be the path of a file with the certificates of those who are trusted."""
    if (username is None) != (password is None):
        raise ValueError("a user name and a password go together")
    if timeout <= 0:
        raise ValueError("timeout must be above 0")
    credentials = None if username is None or password is None else (username, password)
    context = ssl.create_default_context(cafile=tls) if isinstance(tls, str) else tls
    return Options(host, port, credentials, context, timeout, retry or RetryPolicy())
