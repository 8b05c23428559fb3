"""Clients for FlyMQ: `Client` blocks, `AsyncClient` runs on asyncio. Both have the same methods and outcomes.

`Producer`, `Consumer` and `Transaction`, and their asyncio kinds, work on top of them.
"""

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.flymq import questions
from penstock.clients.flymq.asynchronous import AsyncClient
from penstock.clients.flymq.blocking import Client
from penstock.clients.flymq.consumer import AsyncConsumer, Consumer
from penstock.clients.flymq.consuming import Record
from penstock.clients.flymq.outcome import (
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
from penstock.clients.flymq.producer import AsyncDelivery, AsyncProducer, Delivery, Producer
from penstock.clients.flymq.questions import DIVERTED, Question, audit_query
from penstock.clients.flymq.transaction import AsyncTransaction, Transaction

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
