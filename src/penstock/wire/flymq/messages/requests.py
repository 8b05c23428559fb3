"""Requests of FlyMQ: one class for each opcode."""

from __future__ import annotations

import msgspec

from penstock.wire.flymq.messages.message import ANY_PARTITION, Message

# -- records


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


class ProduceRecords(Message, frozen=True, gc=False):
    """Many records of one topic, by column, optionally with headers. With a producer name, the batch is stored once
    however often it is sent: batches of one producer, epoch and topic are numbered without gaps, starting from any
    number."""

    topic: str
    producer: str  # empty: no deduplication
    epoch: int
    sequence: int
    keys: list[bytes | None]
    values: list[bytes]
    partitions: list[int]
    headers: list[list[tuple[str, bytes]]]  # of each record; empty if none has any


class UseScope(Message, frozen=True, gc=False):
    """The tenant and namespace of everything that follows on the connection, including the login."""

    tenant: str
    namespace: str


class ProduceDelayed(Message, frozen=True, gc=False):
    topic: str
    value: bytes
    delay_ms: int
    key: bytes | None = None
    partition: int = ANY_PARTITION
    headers: list[tuple[str, bytes]] = msgspec.field(default_factory=list)  # an extension


class CancelDelayed(Message, frozen=True, gc=False):
    message_id: str  # the offset in the reply to ProduceDelayed, in decimal


class ProduceWithTtl(Message, frozen=True, gc=False):
    topic: str
    value: bytes
    ttl_ms: int
    key: bytes | None = None
    partition: int = ANY_PARTITION
    headers: list[tuple[str, bytes]] = msgspec.field(default_factory=list)  # an extension


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
    code_order: bool = False  # the request had a filter field, even an empty one: see decision 4


class FetchBinary(Message, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int
    max_messages: int
    filter: str = ""

    @property
    def code_order(self) -> bool:
        return True


class FetchRecords(Message, frozen=True, gc=False):
    """Records with their timestamps and headers; waits for the first one for up to `wait_ms`."""

    topic: str
    partition: int
    offset: int
    max_messages: int
    wait_ms: int = 0


# -- topics


class CreateTopic(Message, frozen=True, gc=False):
    topic: str
    partitions: int


class DeleteTopic(Message, frozen=True, gc=False):
    topic: str


class ListTopics(Message, frozen=True, gc=False):
    pass


class Metadata(Message, frozen=True, gc=False):
    topic: str


# -- consumer groups


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
    group: str  # empty if the request has none
    partition: int
    timestamp_ms: int


class GetLag(Message, frozen=True, gc=False):
    topic: str
    group: str
    partition: int


class ListGroups(Message, frozen=True, gc=False):
    pass


class DescribeGroup(Message, frozen=True, gc=False):
    topic: str  # empty if the request has none
    group: str


class DeleteGroup(Message, frozen=True, gc=False):
    topic: str
    group: str


# -- schemas


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


# -- dead letters


class FetchDlq(Message, frozen=True, gc=False):
    topic: str
    max_messages: int
    offset: int | None = None  # among the dead letters, to continue from


class ReplayDlq(Message, frozen=True, gc=False):
    """By id or by offset: the other one is None."""

    topic: str
    message_id: str | None = None
    offset: int | None = None


class PurgeDlq(Message, frozen=True, gc=False):
    topic: str


# -- transactions


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
    headers: list[tuple[str, bytes]] = msgspec.field(default_factory=list)  # an extension


# -- cluster


class JoinCluster(Message, frozen=True, gc=False):
    peer: str


class LeaveCluster(Message, frozen=True, gc=False):
    pass


class GetClusterStatus(Message, frozen=True, gc=False):
    pass


class GetClusterMetadata(Message, frozen=True, gc=False):
    topic: str = ""  # empty: all


# -- users, roles, access


class Authenticate(Message, frozen=True, gc=False):
    username: str
    password: str

    def __repr__(self) -> str:  # a password must not get into a log
        return f"Authenticate(username={self.username!r})"


class WhoAmI(Message, frozen=True, gc=False):
    pass


class UserRequest(Message, frozen=True, gc=False):
    """The base class of three requests; each uses some of its fields."""

    username: str
    password: str
    old_password: str
    roles: list[str]
    enabled: bool | None = None  # None: no change

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


# -- audit


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
    | ProduceRecords
    | ProduceDelayed
    | CancelDelayed
    | ProduceWithTtl
    | ProduceWithSchema
    | Consume
    | ConsumeZeroCopy
    | Fetch
    | FetchBinary
    | FetchRecords
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
    | UseScope
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
