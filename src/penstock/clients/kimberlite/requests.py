"""Request specs: for every request a function that makes a `RequestSpec` from plain arguments.

Both clients have a method with the same name and arguments for each of these functions; `pipeline` of both takes the
specs themselves. Every function accepts the options of any request as keywords: `tenant`, if not the client's; `audit`,
notes for the server's audit log (from version 3 on); `timeout`, seconds to wait for the reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypedDict, TypeVar, Unpack

from penstock.clients._core import requests as core
from penstock.clients._core.requests import nothing, whole
from penstock.clients.kimberlite.errors import AuthenticationFailed, BadReply, ServerFailed, Unsendable
from penstock.clients.kimberlite.event_buffer import EventBuffer
from penstock.clients.kimberlite.results import Appended, Executed, Page, Rows, Timestamp, Value
from penstock.wire.kimberlite import messages as m

T = TypeVar("T")

PAGE_BYTES: Final = 1024 * 1024  # default size of a page of events

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_READS: Final = re.compile(r"\s*(?:SELECT|SHOW|DESCRIBE|EXPLAIN|VALUES|FROM|WITH)\b", re.IGNORECASE)
_WRITES: Final = re.compile(r"\b(?:INSERT|CREATE|DROP|ALTER|UPDATE|DELETE)\b", re.IGNORECASE)


class RequestOptions(TypedDict, total=False):
    """Options of any request."""

    tenant: int | None
    audit: m.AuditMetadata | None
    timeout: float | None


@dataclass(slots=True)
class RequestSpec(core.RequestSpec[T]):
    tenant: int | None = None  # None: the client's
    audit: m.AuditMetadata | None = None
    buffer: EventBuffer | None = None  # for a Subscribe: pushes may directly follow its reply


def _read(
    request: m.Message, reply: type[m.Message], decode: Callable[[Any], T], options: RequestOptions
) -> RequestSpec[T]:
    return RequestSpec(request, decode, reply, idempotent=True, **options)


# -- streams


def create_stream(
    name: str,
    data_class: m.DataClass = m.DataClass.PUBLIC,
    placement: m.Placement = m.Everywhere(),  # noqa: B008 (immutable)
    **options: Unpack[RequestOptions],
) -> RequestSpec[int]:
    """Make a stream; the result is its id. In version 1 raises `StreamAlreadyExists` if the name exists, from version 2
    on only if its class or placement differs. Versions without `PUBLIC` use `NON_PHI` instead."""
    return RequestSpec(
        m.CreateStream(name, data_class, placement),
        lambda reply: reply.stream_id,
        m.CreateStreamResponse,
        idempotent=True,
        changes=True,
        **options,
    )


def _appended(reply: m.AppendEventsResponse) -> Appended:
    return Appended(reply.first_offset, reply.count)


def append(
    stream_id: int, events: Sequence[bytes], expected_offset: int | None = None, **options: Unpack[RequestOptions]
) -> RequestSpec[Appended]:
    """Store events, all or none; the result has their offsets. With `expected_offset` only if the stream ends there,
    and otherwise raises `OffsetMismatch`: optimistic concurrency control for several writers."""
    conditional = expected_offset is not None
    return RequestSpec(
        m.AppendEvents(stream_id, events if type(events) is list else list(events), expected_offset),
        _appended,
        m.AppendEventsResponse,
        idempotent=conditional,
        changes=conditional,
        **options,
    )


def read_page(
    stream_id: int, from_offset: int = 0, max_bytes: int = PAGE_BYTES, **options: Unpack[RequestOptions]
) -> RequestSpec[Page]:
    """Events from an offset on, as many as fit into `max_bytes`, but at least one if there are any."""

    def decode(reply: m.ReadEventsResponse) -> Page:
        if reply.next_offset is not None and reply.events and reply.next_offset <= from_offset:
            raise BadReply(f"The server sent events from {from_offset} on, to be continued at {reply.next_offset}")
        # The original returns a next offset even after the last event; an empty page is the certain end.
        return Page(reply.events, reply.next_offset if reply.events else None)

    return _read(m.ReadEvents(stream_id, from_offset, max_bytes), m.ReadEventsResponse, decode, options)


def stream_info(stream_id: int, **options: Unpack[RequestOptions]) -> RequestSpec[int]:
    """The length of a stream: its end offset. Newest version (5b) only."""
    return _read(m.StreamInfo(stream_id), m.StreamInfoResponse, lambda reply: reply.length, options)


def sync(**options: Unpack[RequestOptions]) -> RequestSpec[None]:
    """Wait until everything stored before is synced to disk."""

    def decode(reply: m.SyncResponse) -> None:
        if not reply.success:
            raise ServerFailed(m.ErrorCode.STORAGE_ERROR, "the server could not sync its storage")

    return _read(m.Sync(), m.SyncResponse, decode, options)


# -- SQL


def _value(value: Any) -> Value:
    if value is None or isinstance(value, int | str | Timestamp):
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise Unsendable("A datetime without a time zone can mean any moment; give it one")
        return Timestamp((value - _EPOCH) // timedelta(microseconds=1) * 1000)
    raise Unsendable(f"A parameter can be None, an int, a str, a bool, a Timestamp or a datetime, not {type(value)}")


def _rows(reply: m.QueryResponse | m.QueryAtResponse) -> Rows:
    return Rows(reply.columns, reply.rows)


def _executed(reply: m.QueryResponse) -> Executed:
    if reply.columns != ["rows_affected", "log_offset"] or len(reply.rows) != 1:
        raise BadReply("The server answered with rows, as to a query: use query() for what does not change anything")
    affected, position = reply.rows[0]
    if not isinstance(affected, int) or not isinstance(position, int):
        raise BadReply(f"The server says that {affected!r} rows are affected, at {position!r}")
    return Executed(affected, position)


def query(
    sql: str, params: Iterable[Any] = (), *, break_glass_reason: str | None = None, **options: Unpack[RequestOptions]
) -> RequestSpec[Rows]:
    """Query in SQL. Parameters replace `$1`, `$2`, … or `?` in the text: None, int, str, bool, `Timestamp` or a
    datetime with a time zone."""
    reads = _READS.match(sql) is not None and _WRITES.search(sql) is None
    request = m.Query(sql, [_value(value) for value in params], break_glass_reason)
    return RequestSpec(request, _rows, m.QueryResponse, reads, **options)


def query_at(
    sql: str,
    position: int,
    params: Iterable[Any] = (),
    *,
    break_glass_reason: str | None = None,
    **options: Unpack[RequestOptions],
) -> RequestSpec[Rows]:
    """Query in SQL the state at this log position: a `log_offset` that `execute` returned."""
    request = m.QueryAt(sql, [_value(value) for value in params], position, break_glass_reason)
    return _read(request, m.QueryAtResponse, _rows, options)


def execute(sql: str, params: Iterable[Any] = (), **options: Unpack[RequestOptions]) -> RequestSpec[Executed]:
    """Execute a statement that changes something: INSERT, CREATE TABLE, DROP TABLE."""
    return RequestSpec(m.Query(sql, [_value(value) for value in params]), _executed, m.QueryResponse, **options)


def list_tables(**options: Unpack[RequestOptions]) -> RequestSpec[list[m.TableSummary]]:
    return _read(m.ListTables(), m.ListTablesResponse, lambda reply: reply.tables, options)


def describe_table(table_name: str, **options: Unpack[RequestOptions]) -> RequestSpec[list[m.ColumnInfo]]:
    return _read(m.DescribeTable(table_name), m.DescribeTableResponse, lambda reply: reply.columns, options)


def list_indexes(table_name: str, **options: Unpack[RequestOptions]) -> RequestSpec[list[m.IndexInfo]]:
    return _read(m.ListIndexes(table_name), m.ListIndexesResponse, lambda reply: reply.indexes, options)


# -- subscriptions: used by `subscribe` of the clients


def subscription(buffer: EventBuffer, **options: Unpack[RequestOptions]) -> RequestSpec[m.SubscribeResponse]:
    request = buffer.subscribe_request()
    return RequestSpec(request, whole, m.SubscribeResponse, idempotent=True, buffer=buffer, **options)


def subscription_credit(request: m.SubscribeCredit, **options: Unpack[RequestOptions]) -> RequestSpec[int]:
    return RequestSpec(request, lambda reply: reply.credits_remaining, m.SubscriptionAck, **options)


def unsubscribe(subscription_id: int, **options: Unpack[RequestOptions]) -> RequestSpec[None]:
    return RequestSpec(m.Unsubscribe(subscription_id), nothing, m.SubscriptionAck, **options)


# -- tenants and keys


def create_tenant(
    tenant_id: int, name: str | None = None, **options: Unpack[RequestOptions]
) -> RequestSpec[m.TenantInfo]:
    """Create a tenant, if it does not exist. Raises `TenantAlreadyExists` if it exists with another name."""
    return RequestSpec(
        m.TenantCreate(tenant_id, name),
        lambda reply: reply.tenant,
        m.TenantCreateResponse,
        idempotent=True,
        changes=True,
        **options,
    )


def list_tenants(**options: Unpack[RequestOptions]) -> RequestSpec[list[m.TenantInfo]]:
    return _read(m.TenantList(), m.TenantListResponse, lambda reply: reply.tenants, options)


def get_tenant(tenant_id: int, **options: Unpack[RequestOptions]) -> RequestSpec[m.TenantInfo]:
    return _read(m.TenantGet(tenant_id), m.TenantGetResponse, lambda reply: reply.tenant, options)


def delete_tenant(tenant_id: int, **options: Unpack[RequestOptions]) -> RequestSpec[m.TenantDeleteResponse]:
    """Delete a tenant and everything in it."""
    return RequestSpec(
        m.TenantDelete(tenant_id),
        whole,
        m.TenantDeleteResponse,
        idempotent=True,
        changes=True,
        **options,
    )


def register_api_key(
    subject: str,
    tenant_id: int,
    roles: Iterable[str],
    expires_at_nanos: int | None = None,
    **options: Unpack[RequestOptions],
) -> RequestSpec[m.ApiKeyRegisterResponse]:
    """Create a key. The reply is the only place where it appears."""
    request = m.ApiKeyRegister(subject, tenant_id, list(roles), expires_at_nanos)
    return RequestSpec(request, whole, m.ApiKeyRegisterResponse, **options)


def revoke_api_key(key: str, **options: Unpack[RequestOptions]) -> RequestSpec[bool]:
    return RequestSpec(
        m.ApiKeyRevoke(key),
        lambda reply: reply.revoked,
        m.ApiKeyRevokeResponse,
        idempotent=True,
        changes=True,
        **options,
    )


def list_api_keys(tenant_id: int | None = None, **options: Unpack[RequestOptions]) -> RequestSpec[list[m.ApiKeyInfo]]:
    return _read(m.ApiKeyList(tenant_id), m.ApiKeyListResponse, lambda reply: reply.keys, options)


def rotate_api_key(old_key: str, **options: Unpack[RequestOptions]) -> RequestSpec[m.ApiKeyRotateResponse]:
    """Replace a key by a new one. The reply is the only place where it appears."""
    return RequestSpec(m.ApiKeyRotate(old_key), whole, m.ApiKeyRotateResponse, **options)


# -- server


def server_info(**options: Unpack[RequestOptions]) -> RequestSpec[m.ServerInfoResponse]:
    return _read(m.GetServerInfo(), m.ServerInfoResponse, whole, options)


def audit_query(
    *,
    subject_id: str | None = None,
    action_type: str | None = None,
    time_from_nanos: int | None = None,
    time_to_nanos: int | None = None,
    actor: str | None = None,
    limit: int | None = None,
    **options: Unpack[RequestOptions],
) -> RequestSpec[list[m.AuditEventInfo]]:
    """Entries of the server's audit log."""
    request = m.AuditQuery(subject_id, action_type, time_from_nanos, time_to_nanos, actor, limit)
    return _read(request, m.AuditQueryResponse, lambda reply: reply.events, options)


def verify_audit_chain(**options: Unpack[RequestOptions]) -> RequestSpec[m.VerifyAuditChainResponse]:
    """Verify that the audit log was not tampered with. Newest version (5b) only."""
    return _read(m.VerifyAuditChain(), m.VerifyAuditChainResponse, whole, options)


def handshake(version: int, token: str | None, **options: Unpack[RequestOptions]) -> RequestSpec[None]:
    """The first request on a connection; also a health check in versions without `server_info`."""

    def decode(reply: m.HandshakeResponse) -> None:
        if reply.server_version != version:
            raise BadReply(f"The server answered in version {reply.server_version}, not {version}")
        if not reply.authenticated:
            what = "a token is needed" if token is None else "the token was not accepted"
            raise AuthenticationFailed(m.ErrorCode.AUTHENTICATION_FAILED, f"not authenticated: {what}")

    return _read(m.Handshake(version, token), m.HandshakeResponse, decode, options)
