"""One Python API for all of a broker: `penstock.connect` and `penstock.aconnect`.

Imports clients; never the broker. Every TCP door is behind every TCP port, so one address is enough. Start at
`connection`; what each thing does is in the module of its name. Which door a call goes through, and why:

    produce, produce_many, producer  FlyMQ   batches with keys, headers and partitions that count once (PRODUCE_RECORDS)
    delay=, ttl=                     FlyMQ   the only door with records that appear later or end
    consume                          FlyMQ   groups, several partitions, times and headers, waiting at the broker
    transaction                      FlyMQ   all topics together, and a commit that may be sent again
    queue                            BlipMQ  deliveries with a lease, to one of many; dead letters by FlyMQ
    sql                              HTTP    the one door to SQL in every tenant; results as a stream of Arrow
    table                            Flight  columns instead of records; its own port, which the HTTP door tells
    cache                            Felix   the only door with caches; over UDP, its address and fingerprint by HTTP
    admin                            HTTP    `/api/v1`, which has all of it

Everything is in the tenant and namespace `default`, which is where protocols without tenants are.
"""

from __future__ import annotations

from penstock.clients._core.errors import PenstockError
from penstock.connection.admin import Admin, AsyncAdmin
from penstock.connection.connection import AsyncConnection, Connection
from penstock.connection.consumer import AsyncConsumer, Consumer
from penstock.connection.errors import DoorClosed, TableUnreadable
from penstock.connection.options import Tls, connection_options
from penstock.connection.producing import AsyncProducer, Producer
from penstock.connection.queue import AsyncMessage, AsyncQueue, DeadLetter, Message, Queue
from penstock.connection.records import Record, Stored
from penstock.connection.sql import Result
from penstock.connection.transaction import AsyncTransaction, Transaction
from penstock.retry import RetryPolicy

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConnection",
    "AsyncConsumer",
    "AsyncMessage",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncTransaction",
    "Connection",
    "Consumer",
    "DeadLetter",
    "DoorClosed",
    "Message",
    "PenstockError",
    "Producer",
    "Queue",
    "Record",
    "Result",
    "RetryPolicy",
    "Stored",
    "TableUnreadable",
    "Transaction",
    "aconnect",
    "connect",
]


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
) -> Connection:
    """A connection to a broker, which it raises if there is none, or if it does not let us in.

    `address` is host:port of any of its TCP doors. `user` and `password`, an API `key` or a `token` say who we are.
    `tls` is a context, the path of a file with trusted certificates, or True for those that the system trusts.
    `timeout` is for how many seconds to wait for a connection and for a reply; `retry` says how often, and how long
    apart, what can be sent again is: by default for most of a minute.

    >>> with penstock.connect(address) as db:
    ...     db.produce("greetings", "hello").offset
    0
    """
    connection = Connection(connection_options(address, user, password, key, token, tls, timeout, retry))
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
) -> AsyncConnection:
    """The same as `connect`, for asyncio."""
    connection = AsyncConnection(connection_options(address, user, password, key, token, tls, timeout, retry))
    await connection.connect()
    return connection
