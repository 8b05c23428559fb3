"""The state of the broker besides records, rebuilt purely from events: topics, group offsets, queues, keys, schemas,
users, delayed and removed records, journalled caches, and the committed transactions and publications.

`apply` is the only function that changes a state. It reads no clock and does no I/O, so that the same events always
give the same state. Decisions are made elsewhere (`topics`, `groups`); events describe what has already happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from penstock.broker.cache.cache_state import CacheState, Stored, apply_cached, forget_cached, restored, stored
from penstock.broker.errors import StateUnreadable
from penstock.broker.fetch.removal import Removed, RemovedRecords, apply_removed
from penstock.broker.names import Scope, is_internal
from penstock.broker.produce.delay import Delayed
from penstock.broker.publications.publication import Publication, Publications, apply_publication
from penstock.broker.queues.queue import Queue, apply_move
from penstock.broker.schemas import schema
from penstock.broker.schemas.schema_ids import SchemaIds
from penstock.broker.security import user
from penstock.broker.security.key import Key, apply_added, apply_revoked
from penstock.broker.state.events import (
    UNREADABLE,
    AclRemoved,
    AclSet,
    AnyEvent,
    AuditChained,
    CacheRemoved,
    CacheSet,
    DelayedAdded,
    DelayedEnded,
    GroupDeleted,
    KeyAdded,
    KeyRevoked,
    OffsetCommitted,
    PublicationAdvanced,
    PublicationDropped,
    PublicationStarted,
    Published,
    QueueEnded,
    QueueMoved,
    QueueStarted,
    RecordsRemoved,
    RoleRemoved,
    RoleSet,
    SchemaModeSet,
    SchemaRegistered,
    SchemaRemoved,
    TableLeft,
    TableRemoved,
    TenantRemoved,
    TenantSet,
    TopicCreated,
    TopicDeleted,
    TopicSettingsChanged,
    TransactionCommitted,
    UserRemoved,
    UserSet,
)
from penstock.broker.tenancy.tenant import RegisteredTenant
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import PartitionId, partition_id

SNAPSHOT_VERSION: Final = 1
KEPT_TRANSACTIONS: Final = 10_000  # most recently committed ones, to recognize a repeated commit

GroupOffsets: TypeAlias = dict[str, dict[int, int]]
"""A group's offsets, by the topic's name and the partition's number."""


@dataclass(slots=True)
class Topic:
    id: int  # never reused, even after the topic is deleted
    scope: Scope
    name: str
    partitions: int
    settings: TopicSettings
    created: int  # µs since 1970
    position: int = -1  # the log's committed position at that time; -1: unknown


@dataclass(slots=True)
class TenantUsage:
    """A tenant's use of resources whose limits are shared by all tenants; see `fair_share`."""

    topics: int = 0  # not counting internal ones
    offsets: int = 0
    queues: int = 0
    delayed: int = 0


@dataclass(slots=True)
class State:
    topics: dict[Scope, dict[str, Topic]] = field(default_factory=dict)
    topics_by_id: dict[int, Topic] = field(default_factory=dict)
    next_topic_id: int = 1
    groups: dict[Scope, dict[str, GroupOffsets]] = field(default_factory=dict)
    offset_count: int = 0  # of all groups together
    tenants: set[str] = field(default_factory=set)
    queues: dict[int, Queue] = field(default_factory=dict)
    next_queue_id: int = 1
    keys: dict[int, Key] = field(default_factory=dict)
    next_key_id: int = 1
    schemas: schema.Subjects = field(default_factory=dict)
    schema_ids: SchemaIds = field(default_factory=SchemaIds)
    directory: user.Directory = field(default_factory=user.Directory)
    delayed: dict[int, Delayed] = field(default_factory=dict)
    next_delayed_id: int = 1
    removed: Removed = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)  # committed id → time, in this order
    publications: Publications = field(default_factory=dict)
    tables_left: dict[int, tuple[Scope, str]] = field(default_factory=dict)  # tables of deleted topics, to be removed
    registered: dict[str, RegisteredTenant] = field(default_factory=dict)  # tenants
    chains: dict[int, bytes] = field(default_factory=dict)  # topic of an audit log → last link of its hash chain
    cached: CacheState = field(default_factory=dict)
    usage: dict[str, TenantUsage] = field(default_factory=dict, compare=False)  # by tenant; derived from the rest

    def usage_of(self, tenant: str) -> TenantUsage:
        """The usage of a tenant. Read-only."""
        return self.usage.get(tenant) or TenantUsage()


def apply(state: State, event: AnyEvent) -> None:
    match event:
        case QueueMoved():
            apply_move(state.queues[event.id], event)
        case CacheSet() | CacheRemoved():
            apply_cached(state.cached, event)
        case OffsetCommitted():
            _commit(state, event)
        case TopicCreated():
            _create(state, event)
        case TopicDeleted():
            _delete(state, {event.id})
        case TopicSettingsChanged():
            state.topics_by_id[event.id].settings = event.settings
        case TableLeft():
            state.tables_left[event.id] = Scope(event.tenant, event.namespace), event.name
        case TableRemoved():
            state.tables_left.pop(event.id, None)
        case QueueStarted():
            starts = tuple(event.starts)
            queue = Queue(event.id, event.topic, event.at_least_once, starts, list(starts), event.at)
            queue.name, queue.lease, queue.attempts = event.name, event.lease, event.attempts
            state.queues[event.id] = queue
            _used_in(state, event.topic).queues += 1
            state.next_queue_id = max(state.next_queue_id, event.id + 1)
        case QueueEnded():
            ended = state.queues.pop(event.id)
            _used_in(state, ended.topic).queues -= 1
        case KeyAdded():
            apply_added(state.keys, event)
            state.next_key_id = max(state.next_key_id, event.id + 1)
        case KeyRevoked():
            apply_revoked(state.keys, event)
        case GroupDeleted():
            _delete_group(state, event)
        case RecordsRemoved():
            apply_removed(state.removed, event)
        case DelayedAdded():
            state.delayed[event.id] = Delayed(
                event.id, event.topic, event.partition, event.due, event.offset, event.created
            )
            _used_in(state, event.topic).delayed += 1
            state.next_delayed_id = max(state.next_delayed_id, event.id + 1)
        case DelayedEnded():
            for number in event.ids:
                if (over := state.delayed.pop(number, None)) is not None:
                    _used_in(state, over.topic).delayed -= 1
        case TransactionCommitted():
            state.transactions[event.id] = event.at
            if len(state.transactions) > KEPT_TRANSACTIONS:
                del state.transactions[next(iter(state.transactions))]
        case Published() | PublicationStarted() | PublicationAdvanced() | PublicationDropped():
            apply_publication(state.publications, event)
        case SchemaRegistered():
            schema.apply_registered(state.schemas, state.schema_ids, event)
        case SchemaRemoved():
            schema.apply_removed(state.schemas, state.schema_ids, event)
        case SchemaModeSet():
            schema.apply_mode(state.schemas, event)
        case UserSet() | UserRemoved() | RoleSet() | RoleRemoved() | AclSet() | AclRemoved():
            user.apply_directory(state.directory, event)
        case TenantSet():
            state.registered[event.name] = RegisteredTenant(event.name, event.label, event.created)
            state.tenants.add(event.name)
        case TenantRemoved():
            _remove_tenant(state, event.name)
        case AuditChained():
            state.chains[event.topic] = event.link


def topic_of(event: TopicCreated) -> Topic:
    """The topic that the event creates."""
    scope = Scope(event.tenant, event.namespace)
    return Topic(event.id, scope, event.name, event.partitions, event.settings, event.created, event.position)


def _create(state: State, event: TopicCreated) -> None:
    topic = topic_of(event)
    state.topics.setdefault(topic.scope, {})[event.name] = topic
    state.topics_by_id[event.id] = topic
    state.next_topic_id = max(state.next_topic_id, event.id + 1)
    state.tenants.add(event.tenant)
    _used(state, event.tenant).topics += not is_internal(event.name)


def _used(state: State, tenant: str) -> TenantUsage:
    found = state.usage.get(tenant)
    if found is None:
        found = state.usage[tenant] = TenantUsage()
    return found


def _used_in(state: State, topic: int) -> TenantUsage:
    """The usage of the topic's tenant."""
    known = state.topics_by_id.get(topic)
    return TenantUsage() if known is None else _used(state, known.scope.tenant)


def _delete(state: State, ids: Set[int]) -> None:
    """Remove topics, and everything that refers to their ids or names."""
    deleted = {number: state.topics_by_id.pop(number) for number in ids}
    for topic in deleted.values():
        _used(state, topic.scope.tenant).topics -= not is_internal(topic.name)
        in_scope = state.topics[topic.scope]
        del in_scope[topic.name]
        if not in_scope:
            del state.topics[topic.scope]
        for group in list(state.groups.get(topic.scope, {})):
            _forget_offsets(state, topic.scope, group, topic.name)
        for number in range(topic.partitions):
            state.removed.pop(partition_id(topic.id, number), None)
        state.chains.pop(topic.id, None)
    for delayed in [delayed for delayed in state.delayed.values() if delayed.topic in ids]:
        del state.delayed[delayed.id]
        _used(state, deleted[delayed.topic].scope.tenant).delayed -= 1
    for queue in [queue for queue in state.queues.values() if queue.topic in ids]:
        del state.queues[queue.id]
        _used(state, deleted[queue.topic].scope.tenant).queues -= 1


def _commit(state: State, event: OffsetCommitted) -> None:
    groups = state.groups.setdefault(Scope(event.tenant, event.namespace), {})
    offsets = groups.setdefault(event.group, {}).setdefault(event.topic, {})
    if event.partition not in offsets:
        state.offset_count += 1
        _used(state, event.tenant).offsets += 1
    offsets[event.partition] = event.offset
    state.tenants.add(event.tenant)


def _delete_group(state: State, event: GroupDeleted) -> None:
    scope = Scope(event.tenant, event.namespace)
    for topic in [event.topic] if event.topic else list(state.groups.get(scope, {}).get(event.group, {})):
        _forget_offsets(state, scope, event.group, topic)


def _forget_offsets(state: State, scope: Scope, group: str, topic: str) -> None:
    groups = state.groups.get(scope, {})
    offsets = groups.get(group, {})
    forgotten = len(offsets.pop(topic, {}))
    state.offset_count -= forgotten
    _used(state, scope.tenant).offsets -= forgotten
    if group in groups and not offsets:
        del groups[group]
    if not groups:
        state.groups.pop(scope, None)


def _remove_tenant(state: State, tenant: str) -> None:
    _delete(state, {topic.id for topic in state.topics_by_id.values() if topic.scope.tenant == tenant})
    for scope in [scope for scope in state.groups if scope.tenant == tenant]:
        groups = state.groups.pop(scope)
        state.offset_count -= sum(len(offsets) for by_topic in groups.values() for offsets in by_topic.values())
    for scope in [scope for scope in state.schemas if scope.tenant == tenant]:
        schema.forget_scope(state.schemas, state.schema_ids, scope)
    for number in [key.id for key in state.keys.values() if key.tenant == tenant]:
        del state.keys[number]
    user.forget_tenant(state.directory, tenant)
    forget_cached(state.cached, tenant)
    state.registered.pop(tenant, None)
    state.tenants.discard(tenant)
    state.usage.pop(tenant, None)


class _Snapshot(msgspec.Struct, array_like=True):
    """The whole state. Most of it is stored as the events that recreate it."""

    version: int
    next_topic_id: int
    tenants: list[str]
    topics: list[TopicCreated]
    offsets: list[OffsetCommitted]
    next_queue_id: int = 1
    queues: list[Queue] = []
    next_key_id: int = 1
    keys: list[Key] = []
    next_delayed_id: int = 1
    delayed: list[Delayed] = []
    removed: dict[int, list[int]] = {}  # first the offset below which all are removed, then individual ones
    transactions: dict[str, int] = {}
    schemas: list[SchemaModeSet | SchemaRegistered] = []
    directory: list[UserSet | RoleSet | AclSet] = []
    publications: list[Publication] = []
    tables_left: list[TableLeft] = []
    registered: list[TenantSet] = []
    chains: dict[int, bytes] = {}
    cached: Stored = []
    last_schema_id: int = 0


class _SnapshotVersion(msgspec.Struct, array_like=True):
    version: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Snapshot)
_version_decoder = msgspec.msgpack.Decoder(_SnapshotVersion)


def encode_snapshot(state: State) -> bytes:
    topics = [
        TopicCreated(
            topic.id, *topic.scope, topic.name, topic.partitions, topic.settings, topic.created, topic.position
        )
        for topic in state.topics_by_id.values()
    ]
    offsets = [
        OffsetCommitted(*scope, group, topic, partition, offset)
        for scope, groups in state.groups.items()
        for group, by_topic in groups.items()
        for topic, by_partition in by_topic.items()
        for partition, offset in by_partition.items()
    ]
    return _encoder.encode(
        _Snapshot(
            SNAPSHOT_VERSION,
            state.next_topic_id,
            sorted(state.tenants),
            topics,
            offsets,
            state.next_queue_id,
            list(state.queues.values()),
            state.next_key_id,
            list(state.keys.values()),
            state.next_delayed_id,
            list(state.delayed.values()),
            {partition: [gone.below, *sorted(gone.single)] for partition, gone in state.removed.items()},
            state.transactions,
            list(schema.events_of(state.schemas)),
            list(user.events_of(state.directory)),
            list(state.publications.values()),
            [TableLeft(topic, *scope, name) for topic, (scope, name) in state.tables_left.items()],
            [TenantSet(tenant.name, tenant.label, tenant.created) for tenant in state.registered.values()],
            state.chains,
            stored(state.cached),
            state.schema_ids.last,
        )
    )


def decode_snapshot(data: bytes) -> State:
    """The state. Raises StateUnreadable for anything that `encode_snapshot` of this version did not write."""
    try:
        version = _version_decoder.decode(data).version
        if version != SNAPSHOT_VERSION:
            raise StateUnreadable(
                f"the log holds a snapshot of version {version}; this version of Penstock reads {SNAPSHOT_VERSION}"
            )
        snapshot = _decoder.decode(data)
    except UNREADABLE as error:
        raise StateUnreadable(f"the log holds a snapshot that this version cannot read ({error})") from error
    state = State()
    apply_all(state, snapshot.topics)
    apply_all(state, snapshot.offsets)
    state.tenants.update(snapshot.tenants)
    state.next_topic_id = max(state.next_topic_id, snapshot.next_topic_id)
    state.next_queue_id = snapshot.next_queue_id
    state.queues = {queue.id: queue for queue in snapshot.queues}
    state.next_key_id = snapshot.next_key_id
    state.keys = {key.id: key for key in snapshot.keys}
    state.next_delayed_id = snapshot.next_delayed_id
    state.delayed = {delayed.id: delayed for delayed in snapshot.delayed}
    for queue in snapshot.queues:
        _used_in(state, queue.topic).queues += 1
    for delayed in snapshot.delayed:
        _used_in(state, delayed.topic).delayed += 1
    for partition, (below, *single) in snapshot.removed.items():
        state.removed[PartitionId(partition)] = RemovedRecords(below, frozenset(single))
    state.transactions = snapshot.transactions
    apply_all(state, snapshot.schemas)
    state.schema_ids.last = max(state.schema_ids.last, snapshot.last_schema_id)
    apply_all(state, snapshot.directory)
    state.publications = {publication.key: publication for publication in snapshot.publications}
    apply_all(state, snapshot.tables_left)
    apply_all(state, snapshot.registered)
    state.chains = snapshot.chains
    state.cached = restored(snapshot.cached)
    return state


def apply_all(state: State, events: Iterable[AnyEvent]) -> None:
    for event in events:
        apply(state, event)
