"""Replies of FlyMQ. Those of the same shape share a class."""

from __future__ import annotations

import enum

from msgspec import field

from penstock.wire.flymq.messages.message import Message


class Done(Message, frozen=True, gc=False):
    """The reply to requests without a result. After a change of a user or an ACL, the message is the name of the user
    or the topic."""

    success: bool = True
    message: str = "OK"


class Failure(Message, frozen=True, gc=False):
    """ERROR: the reply to any failed request."""

    message: str


class RecordMetadata(Message, frozen=True, gc=False):
    """The location of a stored record. The offset of a delayed record is the id for cancelling it."""

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


class StoredRecord(Message, frozen=True, gc=False):
    offset: int
    timestamp_us: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


class FetchedRecords(Message, frozen=True, gc=False):
    next_offset: int
    records: list[StoredRecord]


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
    next_offset: int | None = None  # where to continue; None if these were the last


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
    """The layout of the reply to a login (decision 5)."""

    BOTH = "both"  # understood by every client: without user name and roles
    SPEC = "spec"  # as in the protocol's specification
    ORIGINAL = "original"  # as in the original server and its clients


class AuthResult(Message, frozen=True, gc=False):
    success: bool
    error: str = ""
    username: str = ""
    roles: list[str] = field(default_factory=list)
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
    | FetchedRecords
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
