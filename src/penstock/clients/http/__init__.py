"""Clients of the administration API, `/api/v1`: `Client` blocks, `AsyncClient` runs on asyncio.

Imports `clients._core`. Start at `client` and `requests` (the spec of each request).
"""

from penstock.clients.http import requests
from penstock.clients.http.client import AsyncClient, Client
from penstock.clients.http.errors import (
    ApiError,
    BadReply,
    Conflict,
    ConnectionFailed,
    NotFound,
    OutcomeUnknown,
    ReplyError,
    ServerFailed,
    TooFast,
    Unauthorized,
    Unsendable,
)

__all__ = [
    "ApiError",
    "AsyncClient",
    "BadReply",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "NotFound",
    "OutcomeUnknown",
    "ReplyError",
    "ServerFailed",
    "TooFast",
    "Unauthorized",
    "Unsendable",
    "requests",
]
