"""State events: every change to the broker's state, as stored in the log.

An event records what happened, never what was requested; `state.apply` applies it. Tags and the order of fields are the
stored format: a field may be added at the end with a default, but nothing may be removed or change its meaning.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from penstock.broker.errors import StateUnreadable
from penstock.broker.security.access import Permission
from penstock.broker.topics.topic_settings import TopicSettings


class Event(msgspec.Struct, frozen=True, array_like=True):
    """Any change of state. Stored as a msgpack array that begins with the tag of its type."""


class TopicCreated(Event, tag="topic+", frozen=True):
    id: int
    tenant: str
    namespace: str
    name: str
    partitions: int
    settings: TopicSettings
    created: int  # µs since 1970
    position: int = -1  # the log's committed position at that time; -1: unknown


class TopicDeleted(Event, tag="topic-", frozen=True):
    id: int


class TopicSettingsChanged(Event, tag="topic=", frozen=True):
    id: int
    settings: TopicSettings


class TableLeft(Event, tag="table-", frozen=True):
    """A topic was deleted, and its table has to be removed."""

    id: int  # the topic's
    tenant: str
    namespace: str
    name: str


class TableRemoved(Event, tag="table.", frozen=True):
    id: int  # the topic's


class OffsetCommitted(Event, tag="offset", frozen=True):
    """Refers to the topic by name, not id, because some clients commit before they create the topic."""

    tenant: str
    namespace: str
    group: str
    topic: str
    partition: int
    offset: int


class QueueStarted(Event, tag="queue+", frozen=True):
    id: int
    topic: int
    at_least_once: bool
    starts: list[int]  # of each partition: the first offset of this queue
    at: int  # µs since 1970
    name: str = ""  # a named queue has its own terms:
    lease: int = 0  # µs until the second delivery
    attempts: int = 0  # total deliveries


class QueueMoved(Event, tag="queue", frozen=True):
    """Messages delivered and acknowledged, by tag, and the new `cursors`."""

    id: int
    at: int
    cursors: list[int]
    sent: list[int] = []  # first delivery, now in flight
    again: list[int] = []  # redelivered, in flight again
    settled: list[int] = []  # no longer in flight
    released: list[int] = []  # due again immediately


class QueueEnded(Event, tag="queue-", frozen=True):
    id: int


class KeyAdded(Event, tag="key+", frozen=True):
    id: int
    name: str
    hash: bytes  # see `keys.Key`, as for `salt` and `cost`
    tenant: str
    permissions: list[Permission]
    topics: list[str]  # patterns
    namespace: str  # a pattern
    created: int  # µs since 1970
    expires: int | None = None
    salt: bytes = b""
    cost: int = 0
    roles: list[str] = []


class KeyRevoked(Event, tag="key-", frozen=True):
    id: int
    at: int  # µs since 1970


class GroupDeleted(Event, tag="group-", frozen=True):
    """A group's offsets in one topic, or in all topics, were deleted."""

    tenant: str
    namespace: str
    group: str
    topic: str = ""  # "": all


class RecordsRemoved(Event, tag="removed", frozen=True):
    """Records that are no longer visible, by topic id and partition: individual ones, and all below an offset."""

    topic: int
    partition: int
    offsets: list[int]
    below: int = 0


class DelayedAdded(Event, tag="delayed+", frozen=True):
    """See `delay.Delayed` for the fields."""

    id: int
    topic: int
    partition: int
    due: int
    offset: int
    created: int


class DelayedEnded(Event, tag="delayed-", frozen=True):
    """Delayed records that were delivered, cancelled, or deleted with their topic."""

    ids: list[int]


class TransactionCommitted(Event, tag="txn", frozen=True):
    id: str
    at: int  # µs since 1970


class Published(Event, tag="pub", frozen=True):
    """All records of a batch are in the log, as of this entry. See `publication.Publication`."""

    key: bytes
    batch: int
    at: int  # µs since 1970
    kept: int  # the limit on remembered applications at that time
    once: bool = False  # need not be remembered
    tenant: str = ""  # its owner; empty: unchanged, or unknown


class PublicationStarted(Event, tag="pub+", frozen=True):
    """A batch that is appended in several entries; from now on the broker has to finish it."""

    key: bytes
    batch: int
    at: int
    kept: int
    refs: list[str]
    once: bool = False
    tenant: str = ""


class PublicationAdvanced(Event, tag="pub=", frozen=True):
    key: bytes
    done: int  # number of chunks in the log


class PublicationDropped(Event, tag="pub-", frozen=True):
    """Its staged files are missing or damaged: the rest of it cannot be appended."""

    key: bytes


class SchemaRegistered(Event, tag="schema+", frozen=True):
    """See `schema.Schema` for the fields."""

    tenant: str
    namespace: str
    name: str
    version: int
    kind: str
    definition: bytes
    created: int
    compiled: bytes = b""
    id: int = 0  # 0 in logs of earlier versions: assign the next one


class SchemaRemoved(Event, tag="schema-", frozen=True):
    tenant: str
    namespace: str
    name: str
    versions: list[int]


class SchemaModeSet(Event, tag="schema=", frozen=True):
    tenant: str
    namespace: str
    name: str
    mode: str
    last_version: int = 0  # the highest number ever assigned; for snapshots


class UserSet(Event, tag="user+", frozen=True):
    """A user was created or changed. See `user.User` for the fields."""

    tenant: str
    name: str
    hash: str
    roles: list[str]
    enabled: bool
    created: int
    updated: int


class UserRemoved(Event, tag="user-", frozen=True):
    tenant: str
    name: str


class RoleSet(Event, tag="role+", frozen=True):
    tenant: str
    name: str
    permissions: list[str]
    description: str = ""


class RoleRemoved(Event, tag="role-", frozen=True):
    tenant: str
    name: str


class AclSet(Event, tag="acl+", frozen=True):
    """See `user.Acl` for the fields."""

    tenant: str
    namespace: str
    topic: str
    public: bool
    users: list[str]
    roles: list[str]
    restrict: bool = False


class AclRemoved(Event, tag="acl-", frozen=True):
    tenant: str
    namespace: str
    topic: str


class AuditChained(Event, tag="audit", frozen=True):
    """The last link of an audit log's hash chain, by topic id; in the same entry as the record with this link."""

    topic: int
    link: bytes


class CacheSet(Event, tag="cache+", frozen=True):
    """A value of a journalled cache."""

    tenant: str
    namespace: str
    cache: str
    key: str
    value: bytes
    at: int  # µs since 1970
    ttl: int | None = None  # µs


class CacheRemoved(Event, tag="cache-", frozen=True):
    """Values of a journalled cache that were deleted, evicted, or have expired."""

    tenant: str
    namespace: str
    cache: str
    keys: list[str]


class TenantSet(Event, tag="tenant+", frozen=True):
    """A tenant was registered, or got a label. See `tenant.Registered` for the fields."""

    name: str
    label: str
    created: int


class TenantRemoved(Event, tag="tenant-", frozen=True):
    """A tenant was deleted with everything it had: topics, groups, schemas, users, roles, access lists, keys and
    caches.
    """

    name: str


AnyEvent: TypeAlias = (
    TopicCreated
    | TopicDeleted
    | TopicSettingsChanged
    | TableLeft
    | TableRemoved
    | OffsetCommitted
    | QueueStarted
    | QueueMoved
    | QueueEnded
    | KeyAdded
    | KeyRevoked
    | GroupDeleted
    | RecordsRemoved
    | DelayedAdded
    | DelayedEnded
    | TransactionCommitted
    | Published
    | PublicationStarted
    | PublicationAdvanced
    | PublicationDropped
    | SchemaRegistered
    | SchemaRemoved
    | SchemaModeSet
    | UserSet
    | UserRemoved
    | RoleSet
    | RoleRemoved
    | AclSet
    | AclRemoved
    | TenantSet
    | TenantRemoved
    | AuditChained
    | CacheSet
    | CacheRemoved
)

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of a decoder for bytes that were not encoded with the same types."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyEvent] = msgspec.msgpack.Decoder(AnyEvent)


def encode(event: AnyEvent) -> bytes:
    return _encoder.encode(event)


def decode(data: bytes) -> AnyEvent:
    """The event. Raises StateUnreadable for anything that `encode` of this version did not write."""
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise StateUnreadable(
            f"the log holds a state event that this version does not know ({error}). "
            "It was probably written by a newer version of Penstock: start that one"
        ) from error
