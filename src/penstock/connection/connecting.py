"""`connect` and `aconnect`: a connection to a broker, tried at once."""

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
    """A connection to a broker, which it raises if there is none, or if it does not let us in.

    `address` is host:port of any of its TCP doors. `user` and `password`, an API `key` or a `token` say who we are.
    `tls` is a context, the path of a file with trusted certificates, or True for those that the system trusts.
    `timeout` is for how many seconds to wait for a connection and for a reply; `retry` says how often, and how long
    apart, what can be sent again is: by default for most of a minute. `tenant` and `namespace` are those of all that is
    done, and of the user: by default `default`.

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
    timeout: float = 30.0,  # noqa: ASYNC109 - of each request
    retry: RetryPolicy | None = None,
    tenant: str | None = None,
    namespace: str | None = None,
) -> AsyncConnection:
    """The same as `connect`, for asyncio."""
    connection = AsyncConnection(
        connection_options(address, user, password, key, token, tls, timeout, retry, tenant, namespace)
    )
    await connection.connect()
    return connection
