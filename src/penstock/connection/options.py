"""Options of a connection: one address and one identity, and their form for each door."""

from __future__ import annotations

import ssl
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.clients._core.address import Address, parse_address
from penstock.clients._core.channel import tls_context
from penstock.retry import RetryPolicy

DEFAULT_PORT: Final = 9092
DEFAULT: Final = "default"  # tenant and namespace

DEFAULT_RETRY: Final = RetryPolicy(attempts=40, base=0.05, cap=2.0)
"""Most of a minute, on average: enough for a broker to restart."""

Tls: TypeAlias = ssl.SSLContext | str | bool | None
"""A context, the path of a file with trusted certificates, or True: the system's."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials: a user with a password, an API key or token, or neither (anonymous)."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)  # a key or a token: every door accepts both in the same place

    @property
    def login(self) -> tuple[str | None, str | None]:
        """Name and password for FlyMQ; a key has an empty name."""
        return ("", self.secret) if self.secret is not None else (self.user, self.password)

    @property
    def authorization(self) -> str | None:
        """The Authorization header of HTTP; None for anonymous."""
        if self.secret is not None:
            return f"Bearer {self.secret}"
        return None if self.user is None else self.basic

    @property
    def basic(self) -> str:
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()

    @property
    def key(self) -> str:
        """The single credential of doors that have a field for a key only."""
        if self.secret is not None:
            return self.secret
        return "anonymous" if self.user is None else self.basic


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    address: Address
    credentials: Credentials
    tls: ssl.SSLContext | None
    timeout: float
    retry: RetryPolicy
    tenant: str | None = None  # None: the identity's tenant, or `default`
    namespace: str | None = None

    @property
    def scope(self) -> tuple[str, str] | None:
        """Tenant and namespace; None if both are `default`."""
        scope = (self.tenant or DEFAULT, self.namespace or DEFAULT)
        return None if scope == (DEFAULT, DEFAULT) else scope


def connection_options(
    address: str,
    user: str | None,
    password: str | None,
    key: str | None,
    token: str | None,
    tls: Tls,
    timeout: float,
    retry: RetryPolicy | None,
    tenant: str | None = None,
    namespace: str | None = None,
) -> ConnectionOptions:
    """Options from the arguments of `connect`. Raises ValueError."""
    if (user is None) != (password is None):
        raise ValueError("a user and a password go together")
    if sum(each is not None for each in (user, key, token)) > 1:
        raise ValueError("a user, a key and a token exclude each other: choose one")
    if user is not None and (not user or ":" in user):
        raise ValueError("a user's name is not empty, and has no colon in it")
    context = ssl.create_default_context() if tls is True else tls_context(tls or None)
    credentials = Credentials(user, password, key if token is None else token)
    return ConnectionOptions(
        *(parse_address(address, DEFAULT_PORT), credentials, context, timeout, retry or DEFAULT_RETRY),
        *(tenant, namespace),
    )
