"""Clients for FlyMQ: `Client` blocks, `AsyncClient` runs on asyncio. Both have the same methods and outcomes.

`Producer`, `Consumer` and `Transaction`, and their asyncio variants, are built on top of them. Imports `clients._core`
and wire/flymq. Start at `client` and `requests` (the spec of each request).
"""

from penstock.clients._core.requests import RequestSpec
from penstock.clients.flymq import requests
from penstock.clients.flymq.client import AsyncClient, Client
from penstock.clients.flymq.consumer import AsyncConsumer, Consumer, Record
from penstock.clients.flymq.errors import (
    AlreadyExists,
    AuthenticationRequired,
    BadReply,
    ConnectionFailed,
    EndOfLog,
    FlyMqError,
    LoginFailed,
    NotFound,
    OutcomeUnknown,
    OutOfOrder,
    PipelineError,
    ProducerFenced,
    ReplyError,
    SchemaRejected,
    ServerFailed,
    TransactionOver,
    Unauthorized,
    Unsendable,
)
from penstock.clients.flymq.producer import AsyncDelivery, AsyncProducer, Delivery, Producer
from penstock.clients.flymq.requests import DIVERTED, audit_query
from penstock.clients.flymq.transaction import AsyncTransaction, Transaction
from penstock.retry import RetryPolicy

__all__ = [
    "DIVERTED",
    "AlreadyExists",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProducer",
    "AsyncTransaction",
    "AuthenticationRequired",
    "BadReply",
    "Client",
    "ConnectionFailed",
    "Consumer",
    "Delivery",
    "EndOfLog",
    "FlyMqError",
    "LoginFailed",
    "NotFound",
    "OutOfOrder",
    "OutcomeUnknown",
    "PipelineError",
    "Producer",
    "ProducerFenced",
    "Record",
    "ReplyError",
    "RequestSpec",
    "RetryPolicy",
    "SchemaRejected",
    "ServerFailed",
    "Transaction",
    "TransactionOver",
    "Unauthorized",
    "Unsendable",
    "audit_query",
    "requests",
]
