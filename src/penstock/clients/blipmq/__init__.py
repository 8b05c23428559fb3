"""Clients for BlipMQ: `Client` blocks, `AsyncClient` runs on asyncio. Both have the same methods and outcomes.

Imports `clients._core` and wire/blipmq. Start at `client` (the public classes) and `requests` (the spec of each
request), then `subscription`.
"""

from penstock.clients.blipmq.client import AsyncClient, Client
from penstock.clients.blipmq.errors import (
    BadReply,
    BlipMQError,
    ClientError,
    ConnectionFailed,
    OutcomeUnknown,
    PublishRefused,
    ReplyError,
    ServerError,
    Unsendable,
)
from penstock.clients.blipmq.results import Message, Refusal
from penstock.clients.blipmq.subscription import AsyncSubscription, Subscription
from penstock.retry import RetryPolicy

__all__ = [
    "AsyncClient",
    "AsyncSubscription",
    "BadReply",
    "BlipMQError",
    "Client",
    "ClientError",
    "ConnectionFailed",
    "Message",
    "OutcomeUnknown",
    "PublishRefused",
    "Refusal",
    "ReplyError",
    "RetryPolicy",
    "ServerError",
    "Subscription",
    "Unsendable",
]
