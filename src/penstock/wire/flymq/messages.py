"""The messages of FlyMQ: what is asked and what is answered, without a word about bytes.

`requests.py` and `replies.py` say which message belongs to which opcode and how it is laid out. A request has a class
of its own for each opcode. Replies that look alike share one, and are sent under the opcode of their request:
`replies.encode(op, reply)`.

A key is None if there is none; on the wire it is then empty, and an empty key is none. A partition of -1 leaves the
choice to the broker. Times end in their unit: `_ms` and `_s` since 1970, except delays and lives.
"""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct

ANY_PARTITION: Final = -1
NO_KEY: Final = -1  # the key size of a record without a key


class Message(Struct, frozen=True, gc=False):
    """Anything that is asked or answered, or a part of it."""


# -- requests: records


class Produce(Message, frozen=True, gc=False):
    topic: str
    key: bytes | None
    value: bytes
    partition: int = ANY_PARTITION


class ProduceBatch(Message, frozen=True, gc=False):
    """Many records of one topic, by column."""

    topic: str
    keys: list[bytes | None]
    values: list[bytes]
    partitions: list[int]


class ProduceDelayed(Message, frozen=True, gc=False):
    topic: str
    value: bytes
    delay_ms: int
    key: bytes | None = None
    partition: int = ANY_PARTITION


class CancelDelayed(Message, frozen=True, gc=False):
    message_id: str  # the offset that the reply to ProduceDelayed had, in decimal


class ProduceWithTtl(Message, frozen=True, gc=False):
    topic: str
    value: bytes
    ttl_ms: int
    key: bytes | None = None
    partition: int = ANY_PARTITION


class ProduceWithSchema(Message, frozen=True, gc=False):
    topic: str
    schema: str
    value: bytes


class Consume(Message, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int


class ConsumeZeroCopy(Message, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int


class Fetch(Message, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int
    max_messages: int
    filter: str = ""
    code_order: bool = False  # the request had a filter field, if only an empty one: see decision 4


class FetchBinary(Message, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int
    max_messages: int
    filter: str = ""

    @property
    def code_order(self) -> bool:
        return True


# -- requests: topics


class CreateTopic(Message, frozen=True, gc=False):
    topic: str
    partitions: int


class DeleteTopic(Message, frozen=True, gc=False):
    topic: str


class ListTopics(Message, frozen=True, gc=False):
    pass


class Metadata(Message, frozen=True, gc=False):
    topic: str


# -- requests: consumer groups


class Subscribe(Message, frozen=True, gc=False):
    topic: str
    group: str
    partition: int
    mode: str


class Commit(Message, frozen=True, gc=False):
    topic: str
    group: str
    partition: int
    offset: int


class GetOffset(Message, frozen=True, gc=False):
    topic: str
    group: str
    partition: int


class ResetOffset(Message, frozen=True, gc=False):
    topic: str
    group: str
    partition: int
    mode: str
    offset: int | None = None  # never None if the mode is `offset`


class SeekToTimestamp(Message, frozen=True, gc=False):
    topic: str
    group: str  # empty if the request had none
    partition: int
    timestamp_ms: int


class GetLag(Message, frozen=True, gc=False):
    topic: str
    group: str
    partition: int


class ListGroups(Message, frozen=True, gc=False):
    pass


class DescribeGroup(Message, frozen=True, gc=False):
    topic: str  # empty if the request had none
    group: str


class DeleteGroup(Message, frozen=True, gc=False):
    topic: str
    group: str


# -- requests: schemas


class RegisterSchema(Message, frozen=True, gc=False):
    name: str
    schema_type: str
    definition: bytes


class GetSchema(Message, frozen=True, gc=False):
    name: str
    version: int  # 0: the latest


class ListSchemas(Message, frozen=True, gc=False):
    name: str = ""  # empty: all


class ValidateSchema(Message, frozen=True, gc=False):
    name: str
    value: bytes


class DeleteSchema(Message, frozen=True, gc=False):
    name: str
    version: int


class SetCompatibility(Message, frozen=True, gc=False):
    name: str
    mode: str


# -- requests: dead letters


class FetchDlq(Message, frozen=True, gc=False):
    topic: str
    max_messages: int


class ReplayDlq(Message, frozen=True, gc=False):
    """By id or by offset: the other one is None."""

    topic: str
    message_id: str | None = None
    offset: int | None = None


class PurgeDlq(Message, frozen=True, gc=False):
    topic: str


# -- requests: transactions


class BeginTransaction(Message, frozen=True, gc=False):
    pass


class CommitTransaction(Message, frozen=True, gc=False):
    transaction_id: str


class RollbackTransaction(Message, frozen=True, gc=False):
    transaction_id: str


class ProduceInTransaction(Message, frozen=True, gc=False):
    transaction_id: str
    topic: str
    value: bytes
    key: bytes | None = None
    partition: int = ANY_PARTITION


# -- requests: cluster


class JoinCluster(Message, frozen=True, gc=False):
    peer: str


class LeaveCluster(Message, frozen=True, gc=False):
    pass


class GetClusterStatus(Message, frozen=True, gc=False):
    pass


class GetClusterMetadata(Message, frozen=True, gc=False):
    topic: str = ""  # empty: all


# -- requests: users, roles, access


class Authenticate(Message, frozen=True, gc=False):
    username: str
    password: str

    def __repr__(self) -> str:  # a password must not get into a log
        return f"Authenticate(username={self.username!r})"


class WhoAmI(Message, frozen=True, gc=False):
    pass


class UserRequest(Message, frozen=True, gc=False):
    """What three requests have in common; each uses some of it."""

    username: str
    password: str
    old_password: str
    roles: list[str]
    enabled: bool | None = None  # None: not said

    def __repr__(self) -> str:
        return f"{type(self).__name__}(username={self.username!r}, roles={self.roles!r}, enabled={self.enabled!r})"


class CreateUser(UserRequest, frozen=True, gc=False):
    pass


class UpdateUser(UserRequest, frozen=True, gc=False):
    pass


class ChangePassword(UserRequest, frozen=True, gc=False):
    pass


class DeleteUser(Message, frozen=True, gc=False):
    username: str


class ListUsers(Message, frozen=True, gc=False):
    pass


class GetUser(Message, frozen=True, gc=False):
    username: str


class SetAcl(Message, frozen=True, gc=False):
    topic: str
    public: bool
    users: list[str]
    roles: list[str]
    restrict: bool = False


class GetAcl(Message, frozen=True, gc=False):
    topic: str


class DeleteAcl(Message, frozen=True, gc=False):
    topic: str


class ListAcls(Message, frozen=True, gc=False):
    pass


class ListRoles(Message, frozen=True, gc=False):
    pass


class SetRole(Message, frozen=True, gc=False):
    name: str
    permissions: list[str]
    description: str


class DeleteRole(Message, frozen=True, gc=False):
    name: str


# -- requests: audit


class AuditQuery(Message, frozen=True, gc=False):
    start_s: int
    end_s: int
    types: list[str]
    user: str
    resource: str
    result: str
    search: str
    limit: int
    offset: int


class AuditExportRequest(Message, frozen=True, gc=False):
    query: AuditQuery
    format: str


Request = (
    Produce
    | ProduceBatch
    | ProduceDelayed
    | CancelDelayed
    | ProduceWithTtl
    | ProduceWithSchema
    | Consume
    | ConsumeZeroCopy
    | Fetch
    | FetchBinary
    | CreateTopic
    | DeleteTopic
    | ListTopics
    | Metadata
    | Subscribe
    | Commit
    | GetOffset
    | ResetOffset
    | SeekToTimestamp
    | GetLag
    | ListGroups
    | DescribeGroup
    | DeleteGroup
    | RegisterSchema
    | GetSchema
    | ListSchemas
    | ValidateSchema
    | DeleteSchema
    | SetCompatibility
    | FetchDlq
    | ReplayDlq
    | PurgeDlq
    | BeginTransaction
    | CommitTransaction
    | RollbackTransaction
    | ProduceInTransaction
    | JoinCluster
    | LeaveCluster
    | GetClusterStatus
    | GetClusterMetadata
    | Authenticate
    | WhoAmI
    | CreateUser
    | UpdateUser
    | ChangePassword
    | DeleteUser
    | ListUsers
    | GetUser
    | SetAcl
    | GetAcl
    | DeleteAcl
    | ListAcls
    | ListRoles
    | SetRole
    | DeleteRole
    | AuditQuery
    | AuditExportRequest
)


# -- replies


class Done(Message, frozen=True, gc=False):
    """The reply to whatever has no result but that it was done. To what is done to a user or an ACL, the message is
    the name of the user or the topic."""

    success: bool = True
    message: str = "OK"


class Failure(Message, frozen=True, gc=False):
    """ERROR: the reply to whatever failed."""

    message: str


class RecordMetadata(Message, frozen=True, gc=False):
    """Where a record was stored. The offset of a delayed record is the id by which it can be cancelled."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key_size: int  # NO_KEY if it has none
    value_size: int


class ProducedBatch(Message, frozen=True, gc=False):
    topic: str
    timestamp_ms: int
    partitions: list[int]
    offsets: list[int]


class Consumed(Message, frozen=True, gc=False):
    key: bytes | None
    value: bytes


class FetchedRecord(Message, frozen=True, gc=False):
    offset: int
    key: bytes | None
    value: bytes


class Fetched(Message, frozen=True, gc=False):
    records: list[FetchedRecord]
    next_offset: int
    code_order: bool = False


class TopicList(Message, frozen=True, gc=False):
    topics: list[str]


class PartitionMetadata(Message, frozen=True, gc=False):
    partition: int
    leader_id: int
    oldest_offset: int
    newest_offset: int


class TopicMetadata(Message, frozen=True, gc=False):
    topic: str
    partitions: list[PartitionMetadata]


class Position(Message, frozen=True, gc=False):
    """An offset: the reply to Subscribe, GetOffset and SeekToTimestamp."""

    offset: int


class Lag(Message, frozen=True, gc=False):
    current: int
    committed: int
    latest: int
    lag: int


class PartitionOffset(Message, frozen=True, gc=False):
    partition: int
    offset: int


class GroupInfo(Message, frozen=True, gc=False):
    topic: str
    group: str
    members: int
    offsets: list[PartitionOffset]


class GroupList(Message, frozen=True, gc=False):
    groups: list[GroupInfo]


class SchemaSummary(Message, frozen=True, gc=False):
    name: str
    schema_type: str
    version: int


class SchemaList(Message, frozen=True, gc=False):
    schemas: list[SchemaSummary]


class SchemaInfo(Message, frozen=True, gc=False):
    """The reply to GetSchema."""

    name: str
    schema_type: str
    version: int
    schema_id: str
    definition: bytes
    compatibility: str


class SchemaVerdict(Message, frozen=True, gc=False):
    valid: bool
    errors: list[str]


class DlqMessage(Message, frozen=True, gc=False):
    message_id: str
    value: bytes
    error: str
    retries: int


class DlqMessages(Message, frozen=True, gc=False):
    messages: list[DlqMessage]


class TransactionState(Message, frozen=True, gc=False):
    """The reply to BeginTransaction, CommitTransaction and RollbackTransaction."""

    transaction_id: str
    success: bool = True


class ClusterNode(Message, frozen=True, gc=False):
    node_id: str
    address: str
    state: str
    is_leader: bool


class ClusterStatus(Message, frozen=True, gc=False):
    cluster_id: str
    leader_id: str
    nodes: list[ClusterNode]


class PartitionPlacement(Message, frozen=True, gc=False):
    partition: int
    leader_id: str
    leader_address: str
    epoch: int
    state: str
    replicas: list[str]
    in_sync: list[str]


class TopicPlacement(Message, frozen=True, gc=False):
    topic: str
    partitions: list[PartitionPlacement]


class ClusterMetadata(Message, frozen=True, gc=False):
    cluster_id: str
    topics: list[TopicPlacement]


class AuthStyle(enum.Enum):
    """How a successful login is told (decision 5)."""

    BOTH = "both"  # nine bytes that every client understands, without user name and roles
    SPEC = "spec"  # as the protocol's document has it
    ORIGINAL = "original"  # as the original server and its clients have it


class AuthResult(Message, frozen=True, gc=False):
    success: bool
    error: str = ""
    username: str = ""
    roles: list[str] = []
    style: AuthStyle = AuthStyle.BOTH


class CurrentUser(Message, frozen=True, gc=False):
    """The reply to WhoAmI."""

    authenticated: bool
    username: str
    roles: list[str]
    permissions: list[str]


class UserInfo(Message, frozen=True, gc=False):
    username: str
    roles: list[str]
    permissions: list[str]
    enabled: bool
    created_at_s: int
    updated_at_s: int


class UserList(Message, frozen=True, gc=False):
    users: list[UserInfo]


class AclInfo(Message, frozen=True, gc=False):
    """The reply to GetAcl."""

    topic: str
    exists: bool
    public: bool
    default_public: bool
    users: list[str]
    roles: list[str]
    restrict: bool = False


class AclEntry(Message, frozen=True, gc=False):
    topic: str
    exists: bool
    public: bool
    users: list[str]
    roles: list[str]


class AclList(Message, frozen=True, gc=False):
    entries: list[AclEntry]
    default_public: bool


class RoleInfo(Message, frozen=True, gc=False):
    name: str
    permissions: list[str]
    description: str


class RoleList(Message, frozen=True, gc=False):
    roles: list[RoleInfo]


class AuditDetail(Message, frozen=True, gc=False):
    key: str
    value: str


class AuditEvent(Message, frozen=True, gc=False):
    event_id: str
    timestamp_ms: int
    event_type: str
    user: str
    client_ip: str
    resource: str
    action: str
    result: str
    node_id: str
    details: list[AuditDetail]


class AuditPage(Message, frozen=True, gc=False):
    events: list[AuditEvent]
    total: int
    has_more: bool


class AuditExport(Message, frozen=True, gc=False):
    format: str
    data: bytes


Reply = (
    Done
    | Failure
    | RecordMetadata
    | ProducedBatch
    | Consumed
    | Fetched
    | TopicList
    | TopicMetadata
    | Position
    | Lag
    | GroupInfo
    | GroupList
    | SchemaSummary
    | SchemaList
    | SchemaInfo
    | SchemaVerdict
    | DlqMessages
    | TransactionState
    | ClusterStatus
    | ClusterMetadata
    | AuthResult
    | CurrentUser
    | UserInfo
    | UserList
    | AclInfo
    | AclList
    | RoleList
    | AuditPage
    | AuditExport
)
