"""Clients for Kimberlite: `KimberliteClient` blocks, `AsyncKimberliteClient` runs on asyncio. Both have the same
methods and outcomes, in every version of the protocol; `Pool` and `AsyncPool` keep several connections.
"""

from penstock.broker.queries.query import Rows, Timestamp
from penstock.clients._core.retry import RetryPolicy
from penstock.clients.kimberlite import questions
from penstock.clients.kimberlite.aio import AsyncKimberliteClient
from penstock.clients.kimberlite.blocking import KimberliteClient
from penstock.clients.kimberlite.errors import (
    ApiKeyNotFound,
    AuthenticationFailed,
    BadReply,
    ConnectionFailed,
    DuplicateKey,
    InvalidOffset,
    InvalidRequest,
    KimberliteError,
    NotLeader,
    OffsetMismatch,
    OutcomeUnknown,
    PipelineError,
    PoolTimeout,
    PositionAhead,
    ProjectionLag,
    QueryExecutionError,
    QueryParseError,
    RateLimited,
    ReplyError,
    ServerFailed,
    StreamAlreadyExists,
    StreamNotFound,
    SubscriptionEnded,
    SubscriptionNotFound,
    TableNotFound,
    TenantAlreadyExists,
    TenantNotFound,
    TimedOut,
    Unsendable,
)
from penstock.clients.kimberlite.pool import AsyncPool, Pool
from penstock.clients.kimberlite.questions import Question
from penstock.clients.kimberlite.results import Appended, Event, Executed, Page
from penstock.clients.kimberlite.subscription import AsyncSubscription, Subscription
from penstock.wire.kimberlite.messages import AuditMetadata, CustomRegion, DataClass, ErrorCode, Everywhere, Regional

__all__ = [
    "ApiKeyNotFound",
    "Appended",
    "AsyncKimberliteClient",
    "AsyncPool",
    "AsyncSubscription",
    "AuditMetadata",
    "AuthenticationFailed",
    "BadReply",
    "ConnectionFailed",
    "CustomRegion",
    "DataClass",
    "DuplicateKey",
    "ErrorCode",
    "Event",
    "Everywhere",
    "Executed",
    "InvalidOffset",
    "InvalidRequest",
    "KimberliteClient",
    "KimberliteError",
    "NotLeader",
    "OffsetMismatch",
    "OutcomeUnknown",
    "Page",
    "PipelineError",
    "Pool",
    "PoolTimeout",
    "PositionAhead",
    "ProjectionLag",
    "QueryExecutionError",
    "QueryParseError",
    "Question",
    "RateLimited",
    "Regional",
    "ReplyError",
    "RetryPolicy",
    "Rows",
    "ServerFailed",
    "StreamAlreadyExists",
    "StreamNotFound",
    "Subscription",
    "SubscriptionEnded",
    "SubscriptionNotFound",
    "TableNotFound",
    "TenantAlreadyExists",
    "TenantNotFound",
    "TimedOut",
    "Timestamp",
    "Unsendable",
    "questions",
]
