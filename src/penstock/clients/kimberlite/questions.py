"""What can be asked: for every request a function that makes a `Question` of plain arguments.

A question is a request, what its reply means to the caller, and whether it may be sent twice. Both clients have a
method for each of these functions, of the same name and arguments; `pipeline` of both takes questions as they are.

Every one of them takes, by name, what can be said about any request: `tenant`, if it is not the client's own; `audit`,
notes for the server's audit log (from version 3 on); `timeout`, seconds to wait for the reply.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypedDict, TypeVar, Unpack

from penstock.clients.kimberlite.errors import (
    ApiKeyNotFound,
    BadReply,
    OffsetMismatch,
    ReplyError,
    ServerFailed,
    StreamAlreadyExists,
    TenantNotFound,
    Unsendable,
)
from penstock.clients.kimberlite.results import Appended, Executed, Page, Rows, Timestamp, Value
from penstock.wire.kimberlite import messages as m

R = TypeVar("R")

PAGE_BYTES: Final = 1024 * 1024  # of a page of a stream, unless told otherwise

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_READS: Final = re.compile(r"\s*(?:SELECT|SHOW|DESCRIBE|EXPLAIN|VALUES|FROM|WITH)\b", re.IGNORECASE)
_WRITES: Final = re.compile(r"\b(?:INSERT|CREATE|DROP|ALTER|UPDATE|DELETE)\b", re.IGNORECASE)


class How(TypedDict, total=False):
    tenant: int | None
    audit: m.AuditMetadata | None
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Question(Generic[R]):
    request: m.Message
    reply: type[m.Message]
    take: Callable[[Any], R]  # makes the result of the reply, or raises KimberliteError
    repeatable: bool = False  # to carry it out twice is the same as once
    doubtful: tuple[type[ReplyError], ...] = ()  # refusals of a repetition that may be due to the first time
    tenant: int | None = None  # the client's own
    audit: m.AuditMetadata | None = None
    timeout: float | None = None  # the client's own

    @property
    def name(self) -> str:
        return type(self.request).__name__


def as_method(question: Callable[..., Question[Any]], method: Any) -> None:
    """Give a method that asks this the name, the text and the signature by which `help` shows it."""
    functools.update_wrapper(method, question)
    del method.__wrapped__  # or else its first argument would be taken for `self`
    shown = inspect.signature(question)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    answer = str(shown.return_annotation).removeprefix("Question[").removesuffix("]")
    method.__signature__ = shown.replace(parameters=[own, *shown.parameters.values()], return_annotation=answer)


def _whole(reply: R) -> R:
    return reply


def _nothing(_reply: m.Message) -> None:
    return None


def _read(request: m.Message, reply: type[m.Message], take: Callable[[Any], R], how: How) -> Question[R]:
    return Question(request, reply, take, repeatable=True, **how)


# -- streams


def create_stream(
    name: str,
    data_class: m.DataClass = m.DataClass.PUBLIC,
    placement: m.Placement = m.Everywhere(),  # noqa: B008  (it cannot change)
    **how: Unpack[How],
) -> Question[int]:
    """Make a stream; the answer is its id. In version 1 `StreamAlreadyExists` if there is one of this name, from
    version 2 on only if that is of another class or placement. Where there is no `PUBLIC`, `NON_PHI` is sent."""
    return Question(
        m.CreateStream(name, data_class, placement),
        m.CreateStreamResponse,
        lambda reply: reply.stream_id,
        repeatable=True,
        doubtful=(StreamAlreadyExists,),
        **how,
    )


def _appended(reply: m.AppendEventsResponse) -> Appended:
    return Appended(reply.first_offset, reply.count)


def append(
    stream_id: int, events: Sequence[bytes], expected_offset: int | None = None, **how: Unpack[How]
) -> Question[Appended]:
    """Store events, all or none; the answer says where. With `expected_offset` only if the stream ends there, and else
    `OffsetMismatch`: that is how several writers stay out of each other's way."""
    known = expected_offset is not None
    return Question(
        m.AppendEvents(stream_id, events if type(events) is list else list(events), expected_offset),
        m.AppendEventsResponse,
        _appended,
        repeatable=known,
        doubtful=(OffsetMismatch,) if known else (),
        **how,
    )


def read_page(stream_id: int, from_offset: int = 0, max_bytes: int = PAGE_BYTES, **how: Unpack[How]) -> Question[Page]:
    """Events from an offset on, as many as fit, and one in any case if there is one."""

    def take(reply: m.ReadEventsResponse) -> Page:
        if reply.next_offset is not None and reply.events and reply.next_offset <= from_offset:
            raise BadReply(f"The server sent events from {from_offset} on, to be continued at {reply.next_offset}")
        # The original says how to go on even behind the last event; nothing read is the end for certain.
        return Page(reply.events, reply.next_offset if reply.events else None)

    return _read(m.ReadEvents(stream_id, from_offset, max_bytes), m.ReadEventsResponse, take, how)


def stream_info(stream_id: int, **how: Unpack[How]) -> Question[int]:
    """The length of a stream: the offset behind its last event. Newest version (5b) only."""
    return _read(m.StreamInfo(stream_id), m.StreamInfoResponse, lambda reply: reply.length, how)


def sync(**how: Unpack[How]) -> Question[None]:
    """Returns when all that was stored before is safe on the disk."""

    def take(reply: m.SyncResponse) -> None:
        if not reply.success:
            raise ServerFailed(m.ErrorCode.STORAGE_ERROR, "the server could not sync its storage")

    return _read(m.Sync(), m.SyncResponse, take, how)


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
    sql: str, params: Iterable[Any] = (), *, break_glass_reason: str | None = None, **how: Unpack[How]
) -> Question[Rows]:
    """Ask in SQL. `$1`, `$2`, … or `?` in the text stand for the parameters: None, int, str, bool, `Timestamp` or a
    datetime with a time zone."""
    reads = _READS.match(sql) is not None and _WRITES.search(sql) is None
    request = m.Query(sql, [_value(value) for value in params], break_glass_reason)
    return Question(request, m.QueryResponse, _rows, reads, **how)


def query_at(
    sql: str, position: int, params: Iterable[Any] = (), *, break_glass_reason: str | None = None, **how: Unpack[How]
) -> Question[Rows]:
    """Ask in SQL how it was when the log had reached this position: a `log_offset` that `execute` returned."""
    request = m.QueryAt(sql, [_value(value) for value in params], position, break_glass_reason)
    return _read(request, m.QueryAtResponse, _rows, how)


def execute(sql: str, params: Iterable[Any] = (), **how: Unpack[How]) -> Question[Executed]:
    """Change something in SQL: INSERT, CREATE TABLE, DROP TABLE."""
    return Question(m.Query(sql, [_value(value) for value in params]), m.QueryResponse, _executed, **how)


def list_tables(**how: Unpack[How]) -> Question[list[m.TableSummary]]:
    return _read(m.ListTables(), m.ListTablesResponse, lambda reply: reply.tables, how)


def describe_table(table_name: str, **how: Unpack[How]) -> Question[list[m.ColumnInfo]]:
    return _read(m.DescribeTable(table_name), m.DescribeTableResponse, lambda reply: reply.columns, how)


def list_indexes(table_name: str, **how: Unpack[How]) -> Question[list[m.IndexInfo]]:
    return _read(m.ListIndexes(table_name), m.ListIndexesResponse, lambda reply: reply.indexes, how)


# -- subscriptions: `subscribe` of the clients is made of these


def subscription(request: m.Subscribe, **how: Unpack[How]) -> Question[m.SubscribeResponse]:
    return _read(request, m.SubscribeResponse, _whole, how)


def subscription_credit(request: m.SubscribeCredit, **how: Unpack[How]) -> Question[int]:
    return Question(request, m.SubscriptionAck, lambda reply: reply.credits_remaining, **how)


def unsubscribe(subscription_id: int, **how: Unpack[How]) -> Question[None]:
    return Question(m.Unsubscribe(subscription_id), m.SubscriptionAck, _nothing, **how)


# -- tenants and keys


def create_tenant(tenant_id: int, name: str | None = None, **how: Unpack[How]) -> Question[m.TenantInfo]:
    """Make a tenant, if it is not there. `TenantAlreadyExists` if it is, under another name."""
    return _read(m.TenantCreate(tenant_id, name), m.TenantCreateResponse, lambda reply: reply.tenant, how)


def list_tenants(**how: Unpack[How]) -> Question[list[m.TenantInfo]]:
    return _read(m.TenantList(), m.TenantListResponse, lambda reply: reply.tenants, how)


def get_tenant(tenant_id: int, **how: Unpack[How]) -> Question[m.TenantInfo]:
    return _read(m.TenantGet(tenant_id), m.TenantGetResponse, lambda reply: reply.tenant, how)


def delete_tenant(tenant_id: int, **how: Unpack[How]) -> Question[m.TenantDeleteResponse]:
    """Remove a tenant with all that it has."""
    return Question(
        m.TenantDelete(tenant_id), m.TenantDeleteResponse, _whole, repeatable=True, doubtful=(TenantNotFound,), **how
    )


def register_api_key(
    subject: str,
    tenant_id: int,
    roles: Iterable[str],
    expires_at_nanos: int | None = None,
    **how: Unpack[How],
) -> Question[m.ApiKeyRegisterResponse]:
    """Make a key. It is in the answer, and nowhere else."""
    request = m.ApiKeyRegister(subject, tenant_id, list(roles), expires_at_nanos)
    return Question(request, m.ApiKeyRegisterResponse, _whole, **how)


def revoke_api_key(key: str, **how: Unpack[How]) -> Question[bool]:
    return Question(
        m.ApiKeyRevoke(key),
        m.ApiKeyRevokeResponse,
        lambda reply: reply.revoked,
        repeatable=True,
        doubtful=(ApiKeyNotFound,),
        **how,
    )


def list_api_keys(tenant_id: int | None = None, **how: Unpack[How]) -> Question[list[m.ApiKeyInfo]]:
    return _read(m.ApiKeyList(tenant_id), m.ApiKeyListResponse, lambda reply: reply.keys, how)


def rotate_api_key(old_key: str, **how: Unpack[How]) -> Question[m.ApiKeyRotateResponse]:
    """Replace a key by a new one. It is in the answer, and nowhere else."""
    return Question(m.ApiKeyRotate(old_key), m.ApiKeyRotateResponse, _whole, **how)


# -- the server


def server_info(**how: Unpack[How]) -> Question[m.ServerInfoResponse]:
    return _read(m.GetServerInfo(), m.ServerInfoResponse, _whole, how)


def audit_query(
    *,
    subject_id: str | None = None,
    action_type: str | None = None,
    time_from_nanos: int | None = None,
    time_to_nanos: int | None = None,
    actor: str | None = None,
    limit: int | None = None,
    **how: Unpack[How],
) -> Question[list[m.AuditEventInfo]]:
    """What happened, by the server's audit log."""
    request = m.AuditQuery(subject_id, action_type, time_from_nanos, time_to_nanos, actor, limit)
    return _read(request, m.AuditQueryResponse, lambda reply: reply.events, how)


def verify_audit_chain(**how: Unpack[How]) -> Question[m.VerifyAuditChainResponse]:
    """Whether the audit log is as it was written. Newest version (5b) only."""
    return _read(m.VerifyAuditChain(), m.VerifyAuditChainResponse, _whole, how)
