"""Clients for RustLog: `Client` blocks, `AsyncClient` runs on asyncio. Both have the same methods and outcomes.

Imports `clients._core` and wire/rustlog. Start at `client` (the public classes) and `requests` (the spec of each
request).
"""

from penstock.clients.rustlog.client import AsyncClient, Client
from penstock.clients.rustlog.errors import (
    BadReply,
    ClientError,
    ConnectionFailed,
    OutcomeUnknown,
    PipelineError,
    ReplyError,
    RustLogError,
    ServerError,
    Unsendable,
)
from penstock.retry import RetryPolicy

__all__ = [
    "AsyncClient",
    "BadReply",
    "Client",
    "ClientError",
    "ConnectionFailed",
    "OutcomeUnknown",
    "PipelineError",
    "ReplyError",
    "RetryPolicy",
    "RustLogError",
    "ServerError",
    "Unsendable",
]
