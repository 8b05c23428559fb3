"""One Python API for everything a broker offers: `penstock.connect` and `penstock.aconnect`.

Imports the clients, never the broker. Every TCP port serves every TCP door, so one address is enough. Start reading at
`connection`; each feature is in the module of its name. The door that carries each call, and why:

    produce, produce_many, producer  FlyMQ   idempotent batches with keys, headers and partitions (PRODUCE_RECORDS)
    delay=, ttl=                     FlyMQ   the only door with delayed and expiring records
    consume                          FlyMQ   groups, several partitions, timestamps and headers, long polling
    transaction                      FlyMQ   covers any topics, and its commit can safely be retried
    queue                            BlipMQ  deliveries with a lease, each to one consumer; dead letters use FlyMQ
    sql                              HTTP    the only door with SQL in every tenant; results are an Arrow stream
    table                            Flight  columns instead of records; on its own port, which the HTTP door reports
    cache                            Felix   over UDP; HTTP reports its address and fingerprint. With a password: HTTP
    admin                            HTTP    `/api/v1`, which covers all of it

Everything except queues works in any tenant and namespace: FlyMQ's door has an opcode for it (USE_SCOPE), BlipMQ's has
none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.clients._core.errors import PenstockError
    from penstock.connection.admin import Admin, AsyncAdmin
    from penstock.connection.connecting import aconnect, connect
    from penstock.connection.connection import AsyncConnection, Connection
    from penstock.connection.consumer import AsyncConsumer, Consumer
    from penstock.connection.errors import DoorClosed, TableUnreadable
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

_MODULES: Final = {
    "penstock.clients._core.errors": ("PenstockError",),
    "penstock.connection.admin": (
        "Admin",
        "AsyncAdmin",
    ),
    "penstock.connection.connecting": (
        "aconnect",
        "connect",
    ),
    "penstock.connection.connection": (
        "AsyncConnection",
        "Connection",
    ),
    "penstock.connection.consumer": (
        "AsyncConsumer",
        "Consumer",
    ),
    "penstock.connection.errors": (
        "DoorClosed",
        "TableUnreadable",
    ),
    "penstock.connection.producing": (
        "AsyncProducer",
        "Producer",
    ),
    "penstock.connection.queue": (
        "AsyncMessage",
        "AsyncQueue",
        "DeadLetter",
        "Message",
        "Queue",
    ),
    "penstock.connection.records": (
        "Record",
        "Stored",
    ),
    "penstock.connection.sql": ("Result",),
    "penstock.connection.transaction": (
        "AsyncTransaction",
        "Transaction",
    ),
    "penstock.retry": ("RetryPolicy",),
}
_HOME: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Lazy imports: a program that only administers loads no other door's client."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
