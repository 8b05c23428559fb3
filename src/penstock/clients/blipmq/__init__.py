"""Clients for BlipMQ: `Client` blocks, `AsyncClient` runs on asyncio. Both have the same methods and outcomes."""

from penstock.clients.blipmq.asynchronous import AsyncClient, AsyncSubscription
from penstock.clients.blipmq.blocking import Client, Subscription
from penstock.clients.blipmq.outcome import (
    BadReply,
    BlipMQError,
    ClientError,
    ConnectionFailed,
    Message,
    OutcomeUnknown,
    PublishRefused,
    Refusal,
    ReplyError,
    ServerError,
    Unsendable,
)
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
