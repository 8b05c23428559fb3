"""Options of a Kimberlite client of either kind."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from penstock.clients._core.addresses import Addresses
from penstock.clients._core.channel import ConnectOptions, tls_context
from penstock.retry import RetryPolicy

DEFAULT_PORT: Final = 5432

DEFAULT_RETRY: Final = RetryPolicy(attempts=5, base=0.1, cap=5.0)
"""As the specification advises: up to 100 ms, then up to 200 ms, 400 ms, …"""

Token: TypeAlias = str | Callable[[], str] | None
"""The client's credentials, or a function that is called for them whenever a connection is made: tokens expire."""

Servers: TypeAlias = str | Sequence[str] | Addresses
"""One or several of host:port, all of the same cluster. Clients that share `Addresses` share what they learn about
which server leads."""


def server_addresses(servers: Servers) -> Addresses:
    return servers if isinstance(servers, Addresses) else Addresses.parse(servers, DEFAULT_PORT)


def connect_options(
    servers: Servers, tls: ssl.SSLContext | str | None, timeout: float, retry: RetryPolicy | None
) -> ConnectOptions:
    return ConnectOptions(server_addresses(servers), tls_context(tls), timeout, retry or DEFAULT_RETRY)
