"""`connect` and `aconnect`: open a connection to a broker, and verify it at once."""

from __future__ import annotations

from penstock.connection.connection import AsyncConnection, Connection
from penstock.connection.options import Tls, connection_options
from penstock.retry import RetryPolicy


def connect(
    address: str = "127.0.0.1:9092",
    *,
    user: str | None = None,
    password: str | None = None,
    key: str | None = None,
    token: str | None = None,
    tls: Tls = None,
    timeout: float = 30.0,
    retry: RetryPolicy | None = None,
    tenant: str | None = None,
    namespace: str | None = None,
) -> Connection:
    """A connection to a broker. Raises an error if the broker cannot be reached or rejects the credentials.

    `address` is the host:port of any of its TCP doors. `user` and `password`, an API `key` or a `token` authenticate.
    `tls` is a context, the path of a file with trusted certificates, or True for the system's trusted certificates.
    `timeout` is how many seconds to wait for a connection and for each reply. `retry` is how often, and with which
    backoff, to retry idempotent requests: by default for most of a minute. `tenant` and `namespace`, by default
    `default`, apply to all requests and to the user.

    >>> with penstock.connect(address) as db:
    ...     db.produce("greetings", "hello").offset
    0
    """
    connection = Connection(
        connection_options(address, user, password, key, token, tls, timeout, retry, tenant, namespace)
    )
    connection.connect()
    return connection


async def aconnect(
    address: str = "127.0.0.1:9092",
    *,
    user: str | None = None,
    password: str | None = None,
    key: str | None = None,
    token: str | None = None,
    tls: Tls = None,
    timeout: float = 30.0,  # noqa: ASYNC109 - for each request
    retry: RetryPolicy | None = None,
    tenant: str | None = None,
    namespace: str | None = None,
) -> AsyncConnection:
    """`connect` for asyncio."""
    connection = AsyncConnection(
        connection_options(address, user, password, key, token, tls, timeout, retry, tenant, namespace)
    )
    await connection.connect()
    return connection
