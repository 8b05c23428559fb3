"""Clients of the administration API for commands: over the network with a login, or through a data directory's
socket."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.cli.admin_socket import at_directory
from penstock.cli.target import Target

if TYPE_CHECKING:  # takes a while to load: not for --help
    from penstock.clients.http.client import Client

ATTEMPTS: Final = 2  # a user is waiting at a terminal
SECONDS: Final = 60.0  # for a reply


@contextlib.contextmanager
def admin_client(
    target: Target,
    tenant: str | None = None,
    namespace: str | None = None,
    *,
    attempts: int = ATTEMPTS,
    timeout: float = SECONDS,
) -> Iterator[Client]:
    """A client for the target, in a tenant and a namespace."""
    from penstock.clients.http.client import Client
    from penstock.connection.options import Credentials
    from penstock.retry import RetryPolicy

    tenant = tenant or target.tenant
    if target.directory is not None:
        with at_directory(target.directory, tenant, namespace) as client:
            yield client
        return
    login = Credentials(target.user, target.password, target.key if target.token is None else target.token)
    with Client(
        target.endpoint.host, target.endpoint.port, authorization=login.authorization, tls=target.tls,
        retry=RetryPolicy(attempts=attempts), timeout=timeout, tenant=tenant, namespace=namespace,
    ) as client:  # fmt: skip
        yield client
