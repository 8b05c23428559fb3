"""Penstock: one durable log behind five broker wire protocols, and a table for Spark.

`penstock.connect` and `penstock.aconnect` are its Python API: see `penstock.connection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.clients._core.errors import PenstockError as PenstockError
    from penstock.connection import AsyncConnection as AsyncConnection
    from penstock.connection import Connection as Connection
    from penstock.connection import aconnect as aconnect
    from penstock.connection import connect as connect

__version__ = "0.1.0"

_PUBLIC = ("AsyncConnection", "Connection", "PenstockError", "aconnect", "connect")


def __getattr__(name: str) -> object:
    """Imported when they are used: `import penstock` itself stays light."""
    if name in _PUBLIC:
        from penstock import connection

        return getattr(connection, name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_PUBLIC]
