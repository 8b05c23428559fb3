"""Clients for Kimberlite: `KimberliteClient` blocks, `AsyncKimberliteClient` runs on asyncio. Both have the same
methods and outcomes, in every version of the protocol; `Pool` and `AsyncPool` keep several connections.

Imports `clients._core` and wire/kimberlite. Start with `client` (the public classes) and `requests` (a function for
each request, which makes its spec). `appends` and `subscription` are procedures of several requests, `event_buffer`
holds the events of a subscription, `binding` implements encoding, matching and pushes for the core, `version` lists
what each version of the protocol supports.
"""

from penstock.clients.kimberlite import requests
from penstock.clients.kimberlite.client import AsyncKimberliteClient, AsyncPool, KimberliteClient, Pool
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
from penstock.clients.kimberlite.requests import RequestSpec
from penstock.clients.kimberlite.results import Appended, Event, Executed, Page, Rows, Timestamp
from penstock.clients.kimberlite.subscription import AsyncSubscription, Subscription
from penstock.retry import RetryPolicy
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
    "RateLimited",
    "Regional",
    "ReplyError",
    "RequestSpec",
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
    "requests",
]
