"""Clients for RustLog: `Client` blocks, `AsyncClient` runs on asyncio. Both have the same methods and outcomes."""

from penstock.protocols.retry import RetryPolicy
from penstock.protocols.rustlog.client.asynchronous import AsyncClient
from penstock.protocols.rustlog.client.blocking import Client
from penstock.protocols.rustlog.client.outcome import (
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
