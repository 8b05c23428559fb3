"""Decisions about topics: pure functions that map the state and a request to an event, or raise one of the broker's
errors.

Nothing is changed here; `Topics` commits the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.errors import (
    InvalidArgument,
    InvalidPartitionCount,
    PartitionNotFound,
    QuotaReached,
    TopicExists,
    TopicNotFound,
)
from penstock.broker.limits import Limits
from penstock.broker.names import Scope, check_scope, check_topic, is_dead_letters, is_internal
from penstock.broker.state.events import TopicCreated, TopicDeleted, TopicSettingsChanged
from penstock.broker.state.state import State, Topic
from penstock.broker.tenancy.fair_share import check_room
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import Retention


class PartitionDescription(NamedTuple):
    partition: int
    high_watermark: int  # the offset of the next committed record
    log_start: int  # the first offset that still exists
    segment_count: int  # segments that hold its records


class TopicDescription(NamedTuple):
    topic: Topic
    partitions: list[PartitionDescription]


def find(state: State, scope: Scope, name: str) -> Topic:
    try:
        return state.topics[scope][name]
    except KeyError:
        raise TopicNotFound(name) from None


def find_partition(state: State, scope: Scope, name: str, partition: int) -> Topic:
    """The topic, if it has this partition. Raises TopicNotFound or PartitionNotFound."""
    try:
        topic = state.topics[scope][name]
    except KeyError:
        raise TopicNotFound(name) from None
    if not 0 <= partition < topic.partitions:
        raise PartitionNotFound(name, partition, topic.partitions)
    return topic


def in_scope(state: State, scope: Scope, *, internal: bool = False) -> list[Topic]:
    """The topics of the scope, ordered by name; with `internal`, including internal ones."""
    topics = state.topics.get(scope, {})
    return [topics[name] for name in sorted(topics) if internal or not is_internal(name)]


def count(state: State, tenant: str) -> int:
    """The number of the tenant's topics in all namespaces, without internal ones."""
    return state.usage_of(tenant).topics


def create(
    state: State,
    limits: Limits,
    scope: Scope,
    name: str,
    partitions: int,
    settings: TopicSettings,
    now: int,
    coming: Sequence[TopicCreated] = (),
) -> TopicCreated:
    """The event that creates a topic. `coming` are other topics created in the same entry of the log."""
    check_scope(scope)
    check_topic(name)
    _check_schema(name, settings)
    if not 1 <= partitions <= limits.partitions_per_topic:
        raise InvalidPartitionCount(partitions, limits.partitions_per_topic)
    existing = state.topics.get(scope, {}).get(name)
    if existing is not None:
        raise TopicExists(name, existing.partitions)
    mine = count(state, scope.tenant) + sum(created.tenant == scope.tenant for created in coming)
    total = len(state.topics_by_id) + len(coming)
    if total < limits.topics and limits.tenant_topics and mine >= limits.tenant_topics:
        raise QuotaReached(f"Tenant '{scope.tenant}' has {limits.tenant_topics} topics, which is its limit")
    check_room("topics", limits.topics, total, scope.tenant, mine, limits.tenant_share)
    return TopicCreated(state.next_topic_id + len(coming), *scope, name, partitions, settings, now)


def retention(topic: Topic, default: Retention) -> Retention:
    settings = topic.settings
    if settings.retention_seconds is None and settings.retention_bytes is None:
        return default
    return Retention(
        default.seconds if settings.retention_seconds is None else settings.retention_seconds,
        default.bytes if settings.retention_bytes is None else settings.retention_bytes,
    )


def delete(state: State, scope: Scope, name: str) -> TopicDeleted:
    return TopicDeleted(find(state, scope, name).id)


def change_settings(state: State, scope: Scope, name: str, settings: TopicSettings) -> TopicSettingsChanged:
    found = find(state, scope, name)
    if settings.schema != found.settings.schema:
        _check_schema(name, settings)
    return TopicSettingsChanged(found.id, settings)


def _check_schema(name: str, settings: TopicSettings) -> None:
    if settings.schema is not None and is_dead_letters(name):
        raise InvalidArgument(f"'{name}' keeps the records that fit nowhere else: it cannot have a schema")
