"""Penstock for PySpark: `format("penstock")`, and helper functions.

    from penstock.spark import decode, register, session, start, table

Everything is imported on first use, since Spark imports this package in every worker. Imports flight, broker and log.
Start at `source.py` and `sink.py`, or at `topic_table.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.catalog_views import catalog
    from penstock.spark.decoding.frames import decode
    from penstock.spark.lag import LagListener, source_lags
    from penstock.spark.query_start import start
    from penstock.spark.sessions import SessionUnusable, register, session
    from penstock.spark.topic_batches import into_topic
    from penstock.spark.topic_table import table
    from penstock.spark.typed_rows import typed

__all__ = [
    "LagListener",
    "SessionUnusable",
    "catalog",
    "decode",
    "into_topic",
    "register",
    "session",
    "source_lags",
    "start",
    "table",
    "typed",
]

# No module has the name of one of these: importing it would replace the function.
_MODULE = {
    "LagListener": "lag",
    "SessionUnusable": "sessions",
    "catalog": "catalog_views",
    "decode": "decoding.frames",
    "into_topic": "topic_batches",
    "register": "sessions",
    "session": "sessions",
    "source_lags": "lag",
    "start": "query_start",
    "table": "topic_table",
    "typed": "typed_rows",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE[name]}"), name)
