"""Access of commands to a broker that runs in a data directory: through its admin socket, without a login."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.admin.socket_path import socket_path

if TYPE_CHECKING:  # takes a while to load: not for --help
    from penstock.clients.http.client import Client

SOCKET_SECONDS: Final = 20.0


@contextlib.contextmanager
def at_directory(directory: str, tenant: str | None = None, namespace: str | None = None) -> Iterator[Client]:
    """A client for the broker that runs in a data directory. Access to its socket is sufficient for administration."""
    from penstock.clients.http.client import Client
    from penstock.retry import RetryPolicy

    with (
        socket_path(directory) as path,
        Client(
            path, 0, timeout=SOCKET_SECONDS, retry=RetryPolicy(attempts=1), tenant=tenant, namespace=namespace
        ) as client,
    ):
        yield client
