"""The messages of the protocol as values, in the shape of its newest version. `generations` lists the messages of each
version, with their numbers and fields.

Fields that an older version lacks have defaults, so that sessions do not depend on the version.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from penstock.wire.kimberlite.errors import ErrorCode as ErrorCode
from penstock.wire.kimberlite.values import Value


class DataClass(enum.StrEnum):
    PHI = "PHI"
    NON_PHI = "NonPHI"  # only in the first versions, which have PHI, this and Deidentified
    DEIDENTIFIED = "Deidentified"
    PII = "PII"
    SENSITIVE = "Sensitive"
    PCI = "PCI"
    FINANCIAL = "Financial"
    CONFIDENTIAL = "Confidential"
    PUBLIC = "Public"


class CloseReason(enum.StrEnum):
    CLIENT_CANCELLED = "client cancelled"
    SERVER_SHUTDOWN = "server shutdown"
    STREAM_DELETED = "stream deleted"
    BACKPRESSURE_TIMEOUT = "backpressure timeout"
    PROTOCOL_ERROR = "protocol error"


class ClusterMode(enum.StrEnum):
    STANDALONE = "standalone"
    CLUSTERED = "clustered"


class Message(msgspec.Struct, frozen=True):
    """Any message."""


# -- placement of data


class Everywhere(Message, frozen=True):
    """Placement: anywhere."""


class Regional(Message, frozen=True):
    """Placement: in a region. The specification's version names no region."""

    region: Region | None = None


class UsEast1(Message, frozen=True):
    pass


class ApSoutheast2(Message, frozen=True):
    pass


class CustomRegion(Message, frozen=True):
    name: str


Region: TypeAlias = UsEast1 | ApSoutheast2 | CustomRegion
Placement: TypeAlias = Everywhere | Regional


# -- requests


class Handshake(Message, frozen=True):
    client_version: int
    auth_token: str | None = None


class CreateStream(Message, frozen=True):
    name: str
    data_class: DataClass
    placement: Placement


class AppendEvents(Message, frozen=True):
    stream_id: int
    events: list[bytes]
    expected_offset: int | None = None  # None: at any end of the stream; only old versions allow that


class Query(Message, frozen=True):
    sql: str
    params: list[Value]
    break_glass_reason: str | None = None


class QueryAt(Message, frozen=True):
    sql: str
    params: list[Value]
    position: int
    break_glass_reason: str | None = None


class ReadEvents(Message, frozen=True):
    stream_id: int
    from_offset: int
    max_bytes: int


class StreamInfo(Message, frozen=True):
    stream_id: int


class Subscribe(Message, frozen=True):
    stream_id: int
    from_offset: int
    initial_credits: int
    consumer_group: str | None = None


class Sync(Message, frozen=True):
    pass


class SubscribeCredit(Message, frozen=True):
    subscription_id: int
    additional_credits: int


class Unsubscribe(Message, frozen=True):
    subscription_id: int


class ListTables(Message, frozen=True):
    pass


class DescribeTable(Message, frozen=True):
    table_name: str


class ListIndexes(Message, frozen=True):
    table_name: str


class TenantCreate(Message, frozen=True):
    tenant_id: int
    name: str | None = None


class TenantList(Message, frozen=True):
    pass


class TenantDelete(Message, frozen=True):
    tenant_id: int


class TenantGet(Message, frozen=True):
    tenant_id: int


class ApiKeyRegister(Message, frozen=True):
    subject: str
    tenant_id: int
    roles: list[str]
    expires_at_nanos: int | None = None


class ApiKeyRevoke(Message, frozen=True):
    key: str


class ApiKeyList(Message, frozen=True):
    tenant_id: int | None = None


class ApiKeyRotate(Message, frozen=True):
    old_key: str


class GetServerInfo(Message, frozen=True):
    pass


class AuditQuery(Message, frozen=True):
    subject_id: str | None = None
    action_type: str | None = None
    time_from_nanos: int | None = None
    time_to_nanos: int | None = None
    actor: str | None = None
    limit: int | None = None


class VerifyAuditChain(Message, frozen=True):
    pass


class Unserved(Message, frozen=True):
    """Base class of requests that are decoded but not supported; see `compliance_messages`."""


class Ambiguous(Message, frozen=True):
    """Not a message of the protocol: a request that is destructive in one candidate generation and harmless in another
    with the same number and shape, while the client's generation is unknown."""

    readings: tuple[str, ...]  # names of the possible messages


# -- envelope


class AuditMetadata(Message, frozen=True):
    actor: str | None = None
    reason: str | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None


class Request(Message, frozen=True):
    id: int
    tenant_id: int
    payload: Message
    audit: AuditMetadata | None = None


class Response(Message, frozen=True):
    request_id: int
    payload: Message


class Push(Message, frozen=True):
    payload: Message


# -- responses


class ErrorResponse(Message, frozen=True):
    code: ErrorCode
    message: str


class HandshakeResponse(Message, frozen=True):
    server_version: int
    authenticated: bool
    capabilities: list[str]


class CreateStreamResponse(Message, frozen=True):
    stream_id: int


class AppendEventsResponse(Message, frozen=True):
    first_offset: int
    count: int


class QueryResponse(Message, frozen=True):
    columns: list[str]
    rows: list[list[Value]]


class QueryAtResponse(Message, frozen=True):
    columns: list[str]
    rows: list[list[Value]]


class ReadEventsResponse(Message, frozen=True):
    events: list[bytes]
    next_offset: int | None


class StreamInfoResponse(Message, frozen=True):
    length: int


class SubscribeResponse(Message, frozen=True):
    subscription_id: int
    start_offset: int
    credits: int


class SyncResponse(Message, frozen=True):
    success: bool


class SubscriptionAck(Message, frozen=True):
    subscription_id: int
    credits_remaining: int


class TableSummary(Message, frozen=True):
    name: str
    column_count: int


class ListTablesResponse(Message, frozen=True):
    tables: list[TableSummary]


class ColumnInfo(Message, frozen=True):
    name: str
    data_type: str
    nullable: bool
    primary_key: bool


class DescribeTableResponse(Message, frozen=True):
    table_name: str
    columns: list[ColumnInfo]


class IndexInfo(Message, frozen=True):
    name: str
    columns: list[str]


class ListIndexesResponse(Message, frozen=True):
    indexes: list[IndexInfo]


class TenantInfo(Message, frozen=True):
    tenant_id: int
    name: str | None
    table_count: int
    created_at_nanos: int | None


class TenantCreateResponse(Message, frozen=True):
    tenant: TenantInfo
    created: bool  # False: it already existed


class TenantListResponse(Message, frozen=True):
    tenants: list[TenantInfo]


class TenantDeleteResponse(Message, frozen=True):
    deleted: bool
    tables_dropped: int


class TenantGetResponse(Message, frozen=True):
    tenant: TenantInfo


class ApiKeyInfo(Message, frozen=True):
    key_id: str
    subject: str
    tenant_id: int
    roles: list[str]
    expires_at_nanos: int | None


class ApiKeyRegisterResponse(Message, frozen=True):
    key: str
    info: ApiKeyInfo


class ApiKeyRevokeResponse(Message, frozen=True):
    revoked: bool


class ApiKeyListResponse(Message, frozen=True):
    keys: list[ApiKeyInfo]


class ApiKeyRotateResponse(Message, frozen=True):
    new_key: str
    info: ApiKeyInfo


class ServerInfoResponse(Message, frozen=True):
    build_version: str
    protocol_version: int
    capabilities: list[str]
    uptime_secs: int
    cluster_mode: ClusterMode
    tenant_count: int


class AuditEventInfo(Message, frozen=True):
    event_id: str
    timestamp_nanos: int
    action: str
    subject_id: str | None = None
    actor: str | None = None
    tenant_id: int | None = None
    ip_address: str | None = None
    correlation_id: str | None = None
    request_id: str | None = None
    reason: str | None = None
    source_country: str | None = None
    changed_field_names: list[str] = []


class AuditQueryResponse(Message, frozen=True):
    """Only from version 4 on: in earlier versions an event had another shape."""

    events: list[AuditEventInfo]


class VerifyAuditChainResponse(Message, frozen=True):
    ok: bool
    event_count: int
    chain_head_hex: str
    mismatch_at_index: int | None = None
    error_message: str | None = None


# -- pushes


class SubscriptionEvents(Message, frozen=True):
    subscription_id: int
    start_offset: int
    events: list[bytes]
    credits_remaining: int


class SubscriptionClosed(Message, frozen=True):
    subscription_id: int
    reason: CloseReason
