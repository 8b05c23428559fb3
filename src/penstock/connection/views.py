"""Replies of the administration API. Times are µs since 1970."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T]):
    items: list[T]
    next: str | None


class Door(msgspec.Struct, frozen=True):
    """An open door of the broker."""

    name: str
    address: str
    transport: str
    tls: str
    pinned: bool = False
    """No other door is served at this address."""
    fingerprint: str = ""
    certificate: str = ""


class Health(msgspec.Struct, frozen=True):
    writable: bool
    reason: str
    phase: str


class BrokerInfo(msgspec.Struct, frozen=True):
    version: str
    started: int
    durability: str
    position: int
    security: bool
    health: Health
    doors: list[Door]


class TopicInfo(msgspec.Struct, frozen=True):
    name: str
    partitions: int
    created: int
    records: int
    bytes: int


class PartitionInfo(msgspec.Struct, frozen=True):
    partition: int
    start: int
    end: int
    segments: int = 0


class TopicDetails(msgspec.Struct, frozen=True):
    topic: TopicInfo
    partitions: list[PartitionInfo]
    settings: dict[str, Any]
    groups: list[str]


class PartitionLag(msgspec.Struct, frozen=True):
    partition: int
    committed: int | None
    end: int
    lag: int


class Group(msgspec.Struct, frozen=True):
    group: str
    topic: str
    members: list[str]
    lag: int
    partitions: list[PartitionLag]


class OffsetMove(msgspec.Struct, frozen=True):
    partition: int
    before: int | None
    after: int


class OffsetMoves(msgspec.Struct, frozen=True):
    moves: list[OffsetMove]
    done: bool


class User(msgspec.Struct, frozen=True):
    name: str
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    enabled: bool
    created: int


class CreatedUser(msgspec.Struct, frozen=True):
    user: User
    enforced: bool


class Identity(msgspec.Struct, frozen=True):
    """An identity; the name of the anonymous one is empty."""

    name: str
    tenant: str | None
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    security: bool


class Key(msgspec.Struct, frozen=True):
    id: int
    name: str
    permissions: list[str]
    topics: list[str]
    roles: list[str]
    state: str
    expires: int | None


class NewKey(msgspec.Struct, frozen=True):
    """A key that was just created: the only reply with its secret."""

    key: Key
    secret: str


class Acl(msgspec.Struct, frozen=True):
    topic: str
    public: bool
    users: tuple[str, ...]
    roles: tuple[str, ...]
    restrict: bool


class Role(msgspec.Struct, frozen=True):
    name: str
    permissions: tuple[str, ...]
    description: str
    built_in: bool


class Schema(msgspec.Struct, frozen=True):
    name: str
    version: int
    kind: str
    mode: str
    created: int


class SchemaText(msgspec.Struct, frozen=True):
    schema: Schema
    definition: bytes


class SchemaVerdict(msgspec.Struct, frozen=True):
    """The validation of a value against a schema: valid if there are no reasons against it."""

    version: int
    reasons: list[str]

    @property
    def valid(self) -> bool:
        return not self.reasons


class Tenant(msgspec.Struct, frozen=True):
    name: str
    label: str
    created: int
    topics: int


class QueueInfo(msgspec.Struct, frozen=True):
    """A work queue. `cursors` are the first offsets never delivered, by partition; `in_flight` counts messages that are
    delivered but not acknowledged."""

    id: int
    topic: str
    at_least_once: bool
    cursors: list[int]
    in_flight: int
    lag: int
    used: int


class DeadLetterTopic(msgspec.Struct, frozen=True):
    topic: str
    letters: int


class DeadLetterInfo(msgspec.Struct, frozen=True):
    """A record whose delivery was given up; without `original_offset` it was never accepted."""

    id: str
    offset: int
    topic: str
    partition: int | None
    original_offset: int | None
    key: bytes | None
    value: bytes
    reason: str
    attempts: int
    given_up: int


class ReplayedLetter(msgspec.Struct, frozen=True):
    partition: int
    offset: int


class DelayedRecord(msgspec.Struct, frozen=True):
    id: int
    topic: str
    partition: int | None
    due: int
    created: int


class OpenTransaction(msgspec.Struct, frozen=True):
    id: str
    state: str
    began: int
    records: int
    bytes: int
    topics: list[str]


class CacheInfo(msgspec.Struct, frozen=True):
    """A cache; a journalled one survives a restart."""

    name: str
    keys: int
    journalled: bool


class CachedValue(msgspec.Struct, frozen=True):
    value: bytes
