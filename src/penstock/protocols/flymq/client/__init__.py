"""Clients for FlyMQ: `Client` blocks, `AsyncClient` runs on asyncio. Both have the same methods and outcomes.

`Producer`, `Consumer` and `Transaction`, and their asyncio kinds, work on top of them.
"""

from penstock.protocols.flymq.client import questions
from penstock.protocols.flymq.client.asynchronous import AsyncClient
from penstock.protocols.flymq.client.blocking import Client
from penstock.protocols.flymq.client.consumer import AsyncConsumer, Consumer
from penstock.protocols.flymq.client.consuming import Record
from penstock.protocols.flymq.client.outcome import (
    AlreadyExists,
    AuthenticationRequired,
    BadReply,
    ConnectionFailed,
    EndOfLog,
    FlyMqError,
    LoginFailed,
    NotFound,
    OutcomeUnknown,
    PipelineError,
    ReplyError,
    SchemaRejected,
    ServerFailed,
    TransactionOver,
    Unauthorized,
    Unsendable,
)
from penstock.protocols.flymq.client.producer import AsyncDelivery, AsyncProducer, Delivery, Producer
from penstock.protocols.flymq.client.questions import DIVERTED, Question, audit_query
from penstock.protocols.flymq.client.transaction import AsyncTransaction, Transaction
from penstock.protocols.retry import RetryPolicy

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
    "OutcomeUnknown",
    "PipelineError",
    "Producer",
    "Question",
    "Record",
    "ReplyError",
    "RetryPolicy",
    "SchemaRejected",
    "ServerFailed",
    "Transaction",
    "TransactionOver",
    "Unauthorized",
    "Unsendable",
    "audit_query",
    "questions",
]
