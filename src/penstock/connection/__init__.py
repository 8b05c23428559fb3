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
    cache                            Felix   over UDP, its address and fingerprint by HTTP; or HTTP, with a password
    admin                            HTTP    `/api/v1`, which has all of it

All but queues works in any tenant and namespace: FlyMQ's door has an opcode for that (USE_SCOPE), BlipMQ's has not.
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
    """Imported when it is used: who only administers loads no door's client."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
