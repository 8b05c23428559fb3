"""Requests: for every opcode a function that makes a `RequestSpec` from plain arguments.

Both clients have a method with the same name and arguments for each of these functions; `pipeline` of both takes the
specs themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from penstock.clients._core.requests import RequestSpec, whole
from penstock.clients.flymq.errors import BadReply, LoginFailed, TransactionOver, reply_error
from penstock.wire.flymq import messages as m

T = TypeVar("T")

ANY: Final = m.ANY_PARTITION
DIVERTED: Final = -1
"""The offset of a record in a batch that was not stored in its topic but among the topic's dead letters."""


# -- decoders of replies


def _done(reply: m.Done) -> None:
    """Raise an error for a failure reported in this form, as the original does; our broker sends an ERROR instead."""
    if not reply.success:
        raise reply_error(reply.message)


def _offset(reply: m.Position) -> int:
    return reply.offset


def _transaction(reply: m.TransactionState) -> str:
    if not reply.success:
        raise reply_error(f"transaction not found: {reply.transaction_id}")
    return reply.transaction_id


def _transaction_ended(reply: m.TransactionState) -> None:
    _transaction(reply)


def _logged_in(reply: m.AuthResult) -> m.AuthResult:
    if not reply.success:
        raise LoginFailed(reply.error)
    return reply


def _batch(reply: m.ProducedBatch, count: int) -> m.ProducedBatch:
    if len(reply.offsets) != count:
        raise BadReply(f"The server sent the places of {len(reply.offsets)} records where {count} are due")
    unsigned = 2**64 + DIVERTED
    if unsigned not in reply.offsets:
        return reply
    offsets = [DIVERTED if offset == unsigned else offset for offset in reply.offsets]
    return m.ProducedBatch(reply.topic, reply.timestamp_ms, reply.partitions, offsets)


def _idempotent(request: m.Request, decode: Callable[[Any], T], *, changes: bool = False) -> RequestSpec[T]:
    return RequestSpec(request, decode, idempotent=True, changes=changes)


# -- records


def _produced(request: m.Request, retry: bool) -> RequestSpec[m.RecordMetadata]:
    return RequestSpec(request, whole, idempotent=retry, changes=retry)


def produce(
    topic: str, value: bytes, key: bytes | None = None, partition: int = ANY, *, retry: bool = False
) -> RequestSpec[m.RecordMetadata]:
    """Store a record; the reply has its partition and offset. Without a partition, the key selects it, or without a
    key, round-robin does.

    With `retry` it is sent again if its outcome is unknown: it may then be stored twice."""
    return _produced(m.Produce(topic, key, value, partition), retry)


def produce_batch(
    topic: str,
    values: Iterable[bytes],
    keys: Iterable[bytes | None] | None = None,
    partitions: Iterable[int] | int = ANY,
    *,
    retry: bool = False,
) -> RequestSpec[m.ProducedBatch]:
    """Store records of one topic, all or none; with one partition for all, or one for each. An offset of `DIVERTED`
    means that a record did not match the topic's schema and became a dead letter. For `retry` see `produce`."""
    columns = list(values)
    count = len(columns)
    chosen = [partitions] * count if isinstance(partitions, int) else list(partitions)
    texts: list[bytes | None] = [None] * count if keys is None else list(keys)
    if not count == len(chosen) == len(texts):
        raise ValueError("as many keys and partitions as values are needed")
    return RequestSpec(
        m.ProduceBatch(topic, texts, columns, chosen),
        functools.partial(_batch, count=count),
        idempotent=retry,
        changes=retry,
    )


def produce_records(
    topic: str,
    values: Iterable[bytes],
    keys: Iterable[bytes | None] | None = None,
    partitions: Iterable[int] | int = ANY,
    headers: Iterable[Iterable[tuple[str, bytes]]] = (),
    *,
    producer: str = "",
    epoch: int = 0,
    sequence: int = 0,
) -> RequestSpec[m.ProducedBatch]:
    """Store records of one topic, all or none, with headers for each or for none. With a producer name the request is
    idempotent: a batch with the same sequence number is stored once. Sequence numbers of one producer, epoch and topic
    must have no gaps (OutOfOrder); a higher epoch starts again, and fences lower ones (ProducerFenced)."""
    plain = produce_batch(topic, values, keys, partitions)
    batch: m.ProduceBatch = plain.request
    texts = [list(each) for each in headers]
    if texts and len(texts) != len(batch.values):
        raise ValueError("as many lists of headers as values are needed")
    request = m.ProduceRecords(
        topic, producer, epoch, sequence, batch.keys, batch.values, batch.partitions, texts
    )  # fmt: skip
    return RequestSpec(request, plain.decode, idempotent=bool(producer))


def produce_delayed(
    topic: str,
    value: bytes,
    delay_ms: int,
    key: bytes | None = None,
    partition: int = ANY,
    headers: Sequence[tuple[str, bytes]] = (),
    *,
    retry: bool = False,
) -> RequestSpec[m.RecordMetadata]:
    """Store a record that appears after a delay. The offset in the reply is the id for `cancel_delayed`."""
    return _produced(m.ProduceDelayed(topic, value, delay_ms, key, partition, list(headers)), retry)


def cancel_delayed(message_id: int | str) -> RequestSpec[None]:
    """Cancel a delayed record. Raises NotFound if it has already appeared."""
    return RequestSpec(m.CancelDelayed(str(message_id)), _done)


def produce_with_ttl(
    topic: str,
    value: bytes,
    ttl_ms: int,
    key: bytes | None = None,
    partition: int = ANY,
    headers: Sequence[tuple[str, bytes]] = (),
    *,
    retry: bool = False,
) -> RequestSpec[m.RecordMetadata]:
    """Store a record that expires after `ttl_ms` milliseconds; 0: the topic's default."""
    return _produced(m.ProduceWithTtl(topic, value, ttl_ms, key, partition, list(headers)), retry)


def produce_with_schema(topic: str, schema: str, value: bytes, *, retry: bool = False) -> RequestSpec[m.RecordMetadata]:
    """Store a record if it matches the schema; raises SchemaRejected if not."""
    return _produced(m.ProduceWithSchema(topic, schema, value), retry)


def consume(topic: str, offset: int, partition: int = 0) -> RequestSpec[m.Consumed]:
    """The record at this offset. Raises EndOfLog if there is none."""
    return _idempotent(m.Consume(topic, partition, offset), whole)


def consume_zero_copy(topic: str, offset: int, partition: int = 0) -> RequestSpec[m.Consumed]:
    """`consume` with the opcode that the original has for large records."""
    return _idempotent(m.ConsumeZeroCopy(topic, partition, offset), whole)


def fetch(
    topic: str,
    partition: int,
    offset: int,
    max_messages: int = 100,
    filter: str = "",  # noqa: A002 - the protocol's name
) -> RequestSpec[m.Fetched]:
    """Records from this offset on, and the next offset to fetch. With a filter, only those that match: `$.path`, a
    substring of the key or the value, or a regular expression."""
    return _idempotent(m.Fetch(topic, partition, offset, max_messages, filter, bool(filter)), whole)


def fetch_binary(
    topic: str,
    partition: int,
    offset: int,
    max_messages: int = 100,
    filter: str = "",  # noqa: A002 - the protocol's name
) -> RequestSpec[m.Fetched]:
    """`fetch` with the other opcode."""
    return _idempotent(m.FetchBinary(topic, partition, offset, max_messages, filter), whole)


def fetch_records(
    topic: str, partition: int, offset: int, max_messages: int = 100, wait_ms: int = 0
) -> RequestSpec[m.FetchedRecords]:
    """Records from this offset on, with their timestamps and headers, and the next offset to fetch. Waits for the first
    record for up to `wait_ms`, at most 9 seconds."""
    return _idempotent(m.FetchRecords(topic, partition, offset, max_messages, wait_ms), whole)


# -- topics


def create_topic(topic: str, partitions: int = 1) -> RequestSpec[None]:
    """Create a topic; an existing one is not changed."""
    return _idempotent(m.CreateTopic(topic, partitions), _done, changes=True)


def delete_topic(topic: str) -> RequestSpec[None]:
    """Delete a topic and its records. A missing topic is no error."""
    return RequestSpec(m.DeleteTopic(topic), _done)


def list_topics() -> RequestSpec[list[str]]:
    return _idempotent(m.ListTopics(), lambda reply: reply.topics)


def metadata(topic: str) -> RequestSpec[m.TopicMetadata]:
    """The partitions, each with its first offset and its end offset."""
    return _idempotent(m.Metadata(topic), whole)


# -- consumer groups


def subscribe(topic: str, group: str = "", partition: int = 0, mode: str = "latest") -> RequestSpec[int]:
    """The start offset for mode `earliest`, `latest`, or `commit` (the group's offset). The connection becomes a member
    of the group."""
    return _idempotent(m.Subscribe(topic, group, partition, mode), _offset)


def commit(topic: str, group: str, partition: int, offset: int) -> RequestSpec[None]:
    """Store the offset at which the group continues."""
    return _idempotent(m.Commit(topic, group, partition, offset), _done, changes=True)


def get_offset(topic: str, group: str, partition: int = 0) -> RequestSpec[int]:
    """The committed offset of the group; 0 if there is none in this partition."""
    return _idempotent(m.GetOffset(topic, group, partition), _offset)


def reset_offset(topic: str, group: str, partition: int, to: int | str) -> RequestSpec[None]:
    """Move the group's offset to an offset, `earliest` or `latest`."""
    if isinstance(to, int):
        return _idempotent(m.ResetOffset(topic, group, partition, "offset", to), _done, changes=True)
    return _idempotent(m.ResetOffset(topic, group, partition, to), _done, changes=True)


def seek_to_timestamp(topic: str, partition: int, timestamp_ms: int, group: str = "") -> RequestSpec[int]:
    """The first offset that is not older than this time. With a group, it is also committed."""
    return _idempotent(m.SeekToTimestamp(topic, group, partition, timestamp_ms), _offset, changes=bool(group))


def get_lag(topic: str, group: str, partition: int = 0) -> RequestSpec[m.Lag]:
    return _idempotent(m.GetLag(topic, group, partition), whole)


def list_groups() -> RequestSpec[list[m.GroupInfo]]:
    return _idempotent(m.ListGroups(), lambda reply: reply.groups)


def describe_group(topic: str, group: str) -> RequestSpec[m.GroupInfo]:
    return _idempotent(m.DescribeGroup(topic, group), whole)


def delete_group(topic: str, group: str) -> RequestSpec[None]:
    return RequestSpec(m.DeleteGroup(topic, group), _done)


# -- schemas


def register_schema(name: str, schema_type: str, definition: bytes) -> RequestSpec[m.SchemaSummary]:
    """Register the next version of a schema of type `json`, `avro` or `protobuf`. Raises SchemaRejected if it is
    incompatible."""
    return RequestSpec(m.RegisterSchema(name, schema_type, definition), whole)


def get_schema(name: str, version: int = 0) -> RequestSpec[m.SchemaInfo]:
    """One version, by default the latest."""
    return _idempotent(m.GetSchema(name, version), whole)


def list_schemas(name: str = "") -> RequestSpec[list[m.SchemaSummary]]:
    """All schemas, or the versions of one."""
    return _idempotent(m.ListSchemas(name), lambda reply: reply.schemas)


def validate_schema(name: str, value: bytes) -> RequestSpec[m.SchemaVerdict]:
    """Validate a value against the schema: valid or not, and the reasons."""
    return _idempotent(m.ValidateSchema(name, value), whole)


def delete_schema(name: str, version: int = 0) -> RequestSpec[None]:
    """Delete one version, by default all."""
    return RequestSpec(m.DeleteSchema(name, version), _done)


def set_compatibility(name: str, mode: str) -> RequestSpec[None]:
    """Set how versions of a schema must be compatible: `none`, `backward`, `forward`, `full`."""
    return _idempotent(m.SetCompatibility(name, mode), _done, changes=True)


# -- dead letters


def fetch_dlq(topic: str, max_messages: int = 100) -> RequestSpec[list[m.DlqMessage]]:
    """Dead letters of the topic, oldest first: records that were rejected, or whose delivery was given up."""
    return _idempotent(m.FetchDlq(topic, max_messages), lambda reply: reply.messages)


def fetch_dlq_page(topic: str, max_messages: int = 100, offset: int | None = None) -> RequestSpec[m.DlqMessages]:
    """Dead letters of the topic from this dead-letter offset on, and `next_offset`, where to continue if there are
    more."""
    return _idempotent(m.FetchDlq(topic, max_messages, offset), whole)


def replay_dlq(topic: str, which: str | int) -> RequestSpec[None]:
    """Store a dead letter in its topic again, by its id or its offset."""
    letter = m.ReplayDlq(topic, offset=which) if isinstance(which, int) else m.ReplayDlq(topic, message_id=which)
    return RequestSpec(letter, _done)


def purge_dlq(topic: str) -> RequestSpec[None]:
    """Delete all dead letters of the topic."""
    return RequestSpec(m.PurgeDlq(topic), _done)


# -- transactions


def begin() -> RequestSpec[str]:
    """Begin a transaction; the result is its id. It is rolled back with the connection, unless committed before."""
    return RequestSpec(m.BeginTransaction(), _transaction)


def produce_in_transaction(
    transaction_id: str,
    topic: str,
    value: bytes,
    key: bytes | None = None,
    partition: int = ANY,
    headers: Sequence[tuple[str, bytes]] = (),
) -> RequestSpec[m.RecordMetadata]:
    """Add a record to the transaction. It has no offset until the commit."""
    return RequestSpec(m.ProduceInTransaction(transaction_id, topic, value, key, partition, list(headers)), whole)


def commit_transaction(transaction_id: str) -> RequestSpec[None]:
    """Store the records of the transaction, all or none. Idempotent; TransactionOver means that nothing is stored."""
    return RequestSpec(
        m.CommitTransaction(transaction_id),
        _transaction_ended,
        idempotent=True,
        changes=True,
        conclusive=(TransactionOver,),
    )


def rollback_transaction(transaction_id: str) -> RequestSpec[None]:
    return RequestSpec(m.RollbackTransaction(transaction_id), _transaction_ended)


# -- cluster


def join_cluster(peer: str) -> RequestSpec[None]:
    return RequestSpec(m.JoinCluster(peer), _done)


def leave_cluster() -> RequestSpec[None]:
    return RequestSpec(m.LeaveCluster(), _done)


def cluster_status() -> RequestSpec[m.ClusterStatus]:
    return _idempotent(m.GetClusterStatus(), whole)


def cluster_metadata(topic: str = "") -> RequestSpec[m.ClusterMetadata]:
    """The nodes with partitions of one topic, or of all topics."""
    return _idempotent(m.GetClusterMetadata(topic), whole)


# -- users, roles, access


def authenticate(username: str, password: str) -> RequestSpec[m.AuthResult]:
    """Log in; raises LoginFailed if refused. The reply has name and roles only if the server is configured to send
    them."""
    return _idempotent(m.Authenticate(username, password), _logged_in)


def use_scope(tenant: str, namespace: str) -> RequestSpec[None]:
    """Set the tenant and namespace of the connection."""
    return _idempotent(m.UseScope(tenant, namespace), _done)


def who_am_i() -> RequestSpec[m.CurrentUser]:
    return _idempotent(m.WhoAmI(), whole)


def create_user(username: str, password: str, roles: Sequence[str] = ()) -> RequestSpec[m.UserInfo]:
    return RequestSpec(m.CreateUser(username, password, "", list(roles), True), whole)


def update_user(username: str, roles: Sequence[str], enabled: bool | None = None) -> RequestSpec[None]:
    """Set the roles and, unless None, whether the user may log in."""
    return _idempotent(m.UpdateUser(username, "", "", list(roles), enabled), _done, changes=True)


def change_password(username: str, password: str, old_password: str = "") -> RequestSpec[None]:
    """Set a password. Users who change their own password must give the old one."""
    return RequestSpec(m.ChangePassword(username, password, old_password, []), _done)


def delete_user(username: str) -> RequestSpec[None]:
    return RequestSpec(m.DeleteUser(username), _done)


def list_users() -> RequestSpec[list[m.UserInfo]]:
    return _idempotent(m.ListUsers(), lambda reply: reply.users)


def get_user(username: str) -> RequestSpec[m.UserInfo]:
    return _idempotent(m.GetUser(username), whole)


def set_acl(
    topic: str,
    *,
    public: bool = False,
    users: Sequence[str] = (),
    roles: Sequence[str] = (),
    restrict: bool = False,
) -> RequestSpec[None]:
    """Set who may use a topic in addition to those whose roles allow it; with `restrict`, nobody else may."""
    return _idempotent(m.SetAcl(topic, public, list(users), list(roles), restrict), _done, changes=True)


def get_acl(topic: str) -> RequestSpec[m.AclInfo]:
    return _idempotent(m.GetAcl(topic), whole)


def delete_acl(topic: str) -> RequestSpec[None]:
    """Delete an access list. A missing list is no error."""
    return RequestSpec(m.DeleteAcl(topic), _done)


def list_acls() -> RequestSpec[m.AclList]:
    return _idempotent(m.ListAcls(), whole)


def list_roles() -> RequestSpec[list[m.RoleInfo]]:
    return _idempotent(m.ListRoles(), lambda reply: reply.roles)


def set_role(name: str, permissions: Sequence[str], description: str = "") -> RequestSpec[None]:
    """Create or replace a role."""
    return _idempotent(m.SetRole(name, list(permissions), description), _done, changes=True)


def delete_role(name: str) -> RequestSpec[None]:
    return RequestSpec(m.DeleteRole(name), _done)


# -- audit log


def audit_query(
    *,
    start_s: int = 0,
    end_s: int = 0,
    types: Sequence[str] = (),
    user: str = "",
    resource: str = "",
    result: str = "",
    search: str = "",
    limit: int = 100,
    offset: int = 0,
) -> m.AuditQuery:
    """A search in the audit log, by the given fields. Times are in seconds since 1970."""
    return m.AuditQuery(start_s, end_s, list(types), user, resource, result, search, limit, offset)


_EVERYTHING: Final = audit_query()


def query_audit(query: m.AuditQuery = _EVERYTHING) -> RequestSpec[m.AuditPage]:
    return _idempotent(query, whole)


def export_audit(query: m.AuditQuery = _EVERYTHING, format: str = "json") -> RequestSpec[bytes]:  # noqa: A002 - its name
    """Export matching entries as `json` or `csv`."""
    return _idempotent(m.AuditExportRequest(query, format), lambda reply: reply.data)
