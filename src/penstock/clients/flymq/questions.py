"""What can be asked: for every opcode a function that makes a `Question` of plain arguments.

A question is a request, what its reply means to the caller, and whether it may be sent twice. Both clients have a
method for each of these functions, of the same name and arguments; `pipeline` of both takes questions as they are.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from penstock.clients.flymq.outcome import BadReply, LoginFailed, refusal
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec.requests import OPCODES
from penstock.wire.flymq.opcodes import Op

R = TypeVar("R")

ANY: Final = m.ANY_PARTITION
DIVERTED: Final = -1
"""The offset of a record in a batch that was not stored in its topic but among the topic's dead letters."""


@dataclass(frozen=True, slots=True)
class Question(Generic[R]):
    request: m.Request
    take: Callable[[Any], R]  # makes the result of the reply, or raises FlyMqError
    repeatable: bool = False  # to carry it out twice is the same as once

    @property
    def opcode(self) -> Op:
        return OPCODES[type(self.request)]


def as_method(question: Callable[..., Question[Any]], method: Any) -> None:
    """Give a method that asks this the name, the text and the signature by which `help` shows it."""
    functools.update_wrapper(method, question)
    del method.__wrapped__  # or else its first argument would be taken for `self`
    shown = inspect.signature(question)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    answer = str(shown.return_annotation).removeprefix("Question[").removesuffix("]")
    method.__signature__ = shown.replace(parameters=[own, *shown.parameters.values()], return_annotation=answer)


# -- what replies mean


def _whole(reply: R) -> R:
    return reply


def _done(reply: m.Done) -> None:
    """We never say failure in this way; the original does."""
    if not reply.success:
        raise refusal(reply.message)


def _offset(reply: m.Position) -> int:
    return reply.offset


def _transaction(reply: m.TransactionState) -> str:
    if not reply.success:
        raise refusal(f"transaction not found: {reply.transaction_id}")
    return reply.transaction_id


def _over(reply: m.TransactionState) -> None:
    _transaction(reply)


def _login(reply: m.AuthResult) -> m.AuthResult:
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


def _read(request: m.Request, take: Callable[[Any], R]) -> Question[R]:
    return Question(request, take, repeatable=True)


# -- records


def produce(
    topic: str, value: bytes, key: bytes | None = None, partition: int = ANY, *, retry: bool = False
) -> Question[m.RecordMetadata]:
    """Store a record; the answer says where. Without a partition, the key or else the turn decides.

    With `retry` it is sent again if its outcome is unknown: it may then be there twice."""
    return Question(m.Produce(topic, key, value, partition), _whole, retry)


def produce_batch(
    topic: str,
    values: Iterable[bytes],
    keys: Iterable[bytes | None] | None = None,
    partitions: Iterable[int] | int = ANY,
    *,
    retry: bool = False,
) -> Question[m.ProducedBatch]:
    """Store records of one topic, all or none; one partition for all, or one for each. A record at offset `DIVERTED`
    did not fit the topic's schema and is among its dead letters. About `retry` see `produce`."""
    columns = list(values)
    count = len(columns)
    chosen = [partitions] * count if isinstance(partitions, int) else list(partitions)
    texts: list[bytes | None] = [None] * count if keys is None else list(keys)
    if not count == len(chosen) == len(texts):
        raise ValueError("as many keys and partitions as values are needed")
    return Question(m.ProduceBatch(topic, texts, columns, chosen), functools.partial(_batch, count=count), retry)


def produce_delayed(
    topic: str, value: bytes, delay_ms: int, key: bytes | None = None, partition: int = ANY, *, retry: bool = False
) -> Question[m.RecordMetadata]:
    """Store a record that appears later. The offset in the answer is the id for `cancel_delayed`."""
    return Question(m.ProduceDelayed(topic, value, delay_ms, key, partition), _whole, retry)


def cancel_delayed(message_id: int | str) -> Question[None]:
    """NotFound if it has appeared already."""
    return Question(m.CancelDelayed(str(message_id)), _done)


def produce_with_ttl(
    topic: str, value: bytes, ttl_ms: int, key: bytes | None = None, partition: int = ANY, *, retry: bool = False
) -> Question[m.RecordMetadata]:
    """Store a record that is not served any more after so many milliseconds; 0: as the topic says."""
    return Question(m.ProduceWithTtl(topic, value, ttl_ms, key, partition), _whole, retry)


def produce_with_schema(topic: str, schema: str, value: bytes, *, retry: bool = False) -> Question[m.RecordMetadata]:
    """Store a record if it fits the schema; SchemaRejected if it does not."""
    return Question(m.ProduceWithSchema(topic, schema, value), _whole, retry)


def consume(topic: str, offset: int, partition: int = 0) -> Question[m.Consumed]:
    """The record at this offset; EndOfLog if there is none."""
    return _read(m.Consume(topic, partition, offset), _whole)


def consume_zero_copy(topic: str, offset: int, partition: int = 0) -> Question[m.Consumed]:
    """The same as `consume`, by the opcode that the original has for large records."""
    return _read(m.ConsumeZeroCopy(topic, partition, offset), _whole)


def fetch(
    topic: str,
    partition: int,
    offset: int,
    max_messages: int = 100,
    filter: str = "",  # noqa: A002 - its name
) -> Question[m.Fetched]:
    """Records from this offset on, and the offset to go on with. With a filter, only those that match: `$.path`, a part
    of the key or the value, or a regular expression."""
    return _read(m.Fetch(topic, partition, offset, max_messages, filter, bool(filter)), _whole)


def fetch_binary(
    topic: str,
    partition: int,
    offset: int,
    max_messages: int = 100,
    filter: str = "",  # noqa: A002 - its name
) -> Question[m.Fetched]:
    """The same as `fetch`, by the other opcode."""
    return _read(m.FetchBinary(topic, partition, offset, max_messages, filter), _whole)


# -- topics


def create_topic(topic: str, partitions: int = 1) -> Question[None]:
    """A topic that exists is left as it is."""
    return _read(m.CreateTopic(topic, partitions), _done)


def delete_topic(topic: str) -> Question[None]:
    """The topic with its records. One that is not there is deleted already."""
    return Question(m.DeleteTopic(topic), _done)


def list_topics() -> Question[list[str]]:
    return _read(m.ListTopics(), lambda reply: reply.topics)


def metadata(topic: str) -> Question[m.TopicMetadata]:
    """The partitions, each with its first offset and the one behind its last record."""
    return _read(m.Metadata(topic), _whole)


# -- consumer groups


def subscribe(topic: str, group: str = "", partition: int = 0, mode: str = "latest") -> Question[int]:
    """The offset at which to start: `earliest`, `latest`, or `commit`, where the group stands. The connection is a
    member of the group from then on."""
    return _read(m.Subscribe(topic, group, partition, mode), _offset)


def commit(topic: str, group: str, partition: int, offset: int) -> Question[None]:
    """Keep the offset with which the group goes on."""
    return _read(m.Commit(topic, group, partition, offset), _done)


def get_offset(topic: str, group: str, partition: int = 0) -> Question[int]:
    """Where the group stands; 0 if it has committed nothing in this partition."""
    return _read(m.GetOffset(topic, group, partition), _offset)


def reset_offset(topic: str, group: str, partition: int, to: int | str) -> Question[None]:
    """Move the group: to an offset, `earliest` or `latest`."""
    if isinstance(to, int):
        return _read(m.ResetOffset(topic, group, partition, "offset", to), _done)
    return _read(m.ResetOffset(topic, group, partition, to), _done)


def seek_to_timestamp(topic: str, partition: int, timestamp_ms: int, group: str = "") -> Question[int]:
    """The first offset that is not older. With a group, that is where it stands from then on."""
    return _read(m.SeekToTimestamp(topic, group, partition, timestamp_ms), _offset)


def get_lag(topic: str, group: str, partition: int = 0) -> Question[m.Lag]:
    return _read(m.GetLag(topic, group, partition), _whole)


def list_groups() -> Question[list[m.GroupInfo]]:
    return _read(m.ListGroups(), lambda reply: reply.groups)


def describe_group(topic: str, group: str) -> Question[m.GroupInfo]:
    return _read(m.DescribeGroup(topic, group), _whole)


def delete_group(topic: str, group: str) -> Question[None]:
    return Question(m.DeleteGroup(topic, group), _done)


# -- schemas


def register_schema(name: str, schema_type: str, definition: bytes) -> Question[m.SchemaSummary]:
    """The next version of a schema of type `json`, `avro` or `protobuf`; SchemaRejected if it does not fit."""
    return Question(m.RegisterSchema(name, schema_type, definition), _whole)


def get_schema(name: str, version: int = 0) -> Question[m.SchemaInfo]:
    """A version, or the latest."""
    return _read(m.GetSchema(name, version), _whole)


def list_schemas(name: str = "") -> Question[list[m.SchemaSummary]]:
    """All schemas, or the versions of one."""
    return _read(m.ListSchemas(name), lambda reply: reply.schemas)


def validate_schema(name: str, value: bytes) -> Question[m.SchemaVerdict]:
    """Whether the value fits the schema, and if not, why."""
    return _read(m.ValidateSchema(name, value), _whole)


def delete_schema(name: str, version: int = 0) -> Question[None]:
    """A version, or all."""
    return Question(m.DeleteSchema(name, version), _done)


def set_compatibility(name: str, mode: str) -> Question[None]:
    """How the versions of a schema must fit each other: `none`, `backward`, `forward`, `full`."""
    return _read(m.SetCompatibility(name, mode), _done)


# -- dead letters


def fetch_dlq(topic: str, max_messages: int = 100) -> Question[list[m.DlqMessage]]:
    """What was refused or given up, oldest first."""
    return _read(m.FetchDlq(topic, max_messages), lambda reply: reply.messages)


def replay_dlq(topic: str, which: str | int) -> Question[None]:
    """Store a dead letter in its topic again: by its id, or by its offset."""
    if isinstance(which, int):
        return Question(m.ReplayDlq(topic, offset=which), _done)
    return Question(m.ReplayDlq(topic, message_id=which), _done)


def purge_dlq(topic: str) -> Question[None]:
    """Delete all dead letters of the topic."""
    return Question(m.PurgeDlq(topic), _done)


# -- transactions


def begin() -> Question[str]:
    """The id of a new transaction. It ends with the connection, unless it is committed before."""
    return Question(m.BeginTransaction(), _transaction)


def produce_in_transaction(
    transaction_id: str, topic: str, value: bytes, key: bytes | None = None, partition: int = ANY
) -> Question[m.RecordMetadata]:
    """Store a record with the transaction. It has no offset until then."""
    return Question(m.ProduceInTransaction(transaction_id, topic, value, key, partition), _whole)


def commit_transaction(transaction_id: str) -> Question[None]:
    """Store the records of the transaction, all or none. May be asked again: it counts once, and TransactionOver says
    that nothing is stored."""
    return _read(m.CommitTransaction(transaction_id), _over)


def rollback_transaction(transaction_id: str) -> Question[None]:
    return Question(m.RollbackTransaction(transaction_id), _over)


# -- the cluster


def join_cluster(peer: str) -> Question[None]:
    return Question(m.JoinCluster(peer), _done)


def leave_cluster() -> Question[None]:
    return Question(m.LeaveCluster(), _done)


def cluster_status() -> Question[m.ClusterStatus]:
    return _read(m.GetClusterStatus(), _whole)


def cluster_metadata(topic: str = "") -> Question[m.ClusterMetadata]:
    """Which node has which partitions, of one topic or of all."""
    return _read(m.GetClusterMetadata(topic), _whole)


# -- users, roles, access


def authenticate(username: str, password: str) -> Question[m.AuthResult]:
    """Log in; LoginFailed if that is refused. Name and roles are in the answer only if the server is set to tell."""
    return _read(m.Authenticate(username, password), _login)


def who_am_i() -> Question[m.CurrentUser]:
    return _read(m.WhoAmI(), _whole)


def create_user(username: str, password: str, roles: Sequence[str] = ()) -> Question[m.UserInfo]:
    return Question(m.CreateUser(username, password, "", list(roles), True), _whole)


def update_user(username: str, roles: Sequence[str], enabled: bool | None = None) -> Question[None]:
    """Set the roles and, unless it is None, whether the user may log in."""
    return _read(m.UpdateUser(username, "", "", list(roles), enabled), _done)


def change_password(username: str, password: str, old_password: str = "") -> Question[None]:
    """The old password is needed for one's own."""
    return Question(m.ChangePassword(username, password, old_password, []), _done)


def delete_user(username: str) -> Question[None]:
    return Question(m.DeleteUser(username), _done)


def list_users() -> Question[list[m.UserInfo]]:
    return _read(m.ListUsers(), lambda reply: reply.users)


def get_user(username: str) -> Question[m.UserInfo]:
    return _read(m.GetUser(username), _whole)


def set_acl(
    topic: str,
    *,
    public: bool = False,
    users: Sequence[str] = (),
    roles: Sequence[str] = (),
    restrict: bool = False,
) -> Question[None]:
    """Who may use a topic beyond what roles allow; with `restrict`, nobody else may."""
    return _read(m.SetAcl(topic, public, list(users), list(roles), restrict), _done)


def get_acl(topic: str) -> Question[m.AclInfo]:
    return _read(m.GetAcl(topic), _whole)


def delete_acl(topic: str) -> Question[None]:
    """A list that is not there is deleted already."""
    return Question(m.DeleteAcl(topic), _done)


def list_acls() -> Question[m.AclList]:
    return _read(m.ListAcls(), _whole)


def list_roles() -> Question[list[m.RoleInfo]]:
    return _read(m.ListRoles(), lambda reply: reply.roles)


def set_role(name: str, permissions: Sequence[str], description: str = "") -> Question[None]:
    """Make a role, or change it."""
    return _read(m.SetRole(name, list(permissions), description), _done)


def delete_role(name: str) -> Question[None]:
    return Question(m.DeleteRole(name), _done)


# -- the audit log


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
    """What to look for in the audit log; what is not given is not looked at. Times are in seconds since 1970."""
    return m.AuditQuery(start_s, end_s, list(types), user, resource, result, search, limit, offset)


_EVERYTHING: Final = audit_query()


def query_audit(query: m.AuditQuery = _EVERYTHING) -> Question[m.AuditPage]:
    return _read(query, _whole)


def export_audit(query: m.AuditQuery = _EVERYTHING, format: str = "json") -> Question[bytes]:  # noqa: A002 - its name
    """As `json` or `csv`."""
    return _read(m.AuditExportRequest(query, format), lambda reply: reply.data)
