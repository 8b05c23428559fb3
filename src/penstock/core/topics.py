"""Decisions about topics: given a state, what may happen, as an event or as one of the errors of `core`.

Nothing here changes anything; `Broker` keeps the event and applies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.errors import InvalidPartitionCount, LimitReached, PartitionNotFound, TopicExists, TopicNotFound
from penstock.core.events import TopicCreated, TopicDeleted, TopicSettingsChanged
from penstock.core.limits import Limits
from penstock.core.names import Scope, check_scope, check_topic, is_internal
from penstock.core.settings import TopicSettings
from penstock.core.state import State, Topic


class PartitionDescription(NamedTuple):
    partition: int
    high_watermark: int  # the offset that the next committed record gets
    log_start: int  # the first offset still there
    segment_count: int  # files that hold its records


class TopicDescription(NamedTuple):
    topic: Topic
    partitions: list[PartitionDescription]


def find(state: State, scope: Scope, name: str) -> Topic:
    try:
        return state.topics[scope][name]
    except KeyError:
        raise TopicNotFound(name) from None


def find_partition(state: State, scope: Scope, name: str, partition: int) -> Topic:
    """The topic, if it has this partition."""
    try:
        topic = state.topics[scope][name]
    except KeyError:
        raise TopicNotFound(name) from None
    if not 0 <= partition < topic.partitions:
        raise PartitionNotFound(name, partition, topic.partitions)
    return topic


def in_scope(state: State, scope: Scope, *, internal: bool = False) -> list[Topic]:
    """The topics of the scope, by name; with `internal` also the broker's own."""
    topics = state.topics.get(scope, {})
    return [topics[name] for name in sorted(topics) if internal or not is_internal(name)]


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
    """`coming` are other topics that come into being in the same entry of the log."""
    check_scope(scope)
    check_topic(name)
    if not 1 <= partitions <= limits.partitions_per_topic:
        raise InvalidPartitionCount(partitions, limits.partitions_per_topic)
    existing = state.topics.get(scope, {}).get(name)
    if existing is not None:
        raise TopicExists(name, existing.partitions)
    if len(state.topics_by_id) + len(coming) >= limits.topics:
        raise LimitReached(f"The broker holds {limits.topics} topics, which is its limit")
    return TopicCreated(state.next_topic_id + len(coming), *scope, name, partitions, settings, now)


def delete(state: State, scope: Scope, name: str) -> TopicDeleted:
    return TopicDeleted(find(state, scope, name).id)


def change_settings(state: State, scope: Scope, name: str, settings: TopicSettings) -> TopicSettingsChanged:
    return TopicSettingsChanged(find(state, scope, name).id, settings)
