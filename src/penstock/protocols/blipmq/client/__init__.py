"""Clients for BlipMQ: `Client` blocks, `AsyncClient` runs on asyncio. Both have the same methods and outcomes."""

from penstock.protocols.blipmq.client.asynchronous import AsyncClient, AsyncSubscription
from penstock.protocols.blipmq.client.blocking import Client, Subscription
from penstock.protocols.blipmq.client.outcome import (
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
from penstock.protocols.retry import RetryPolicy

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
