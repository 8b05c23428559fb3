"""What the broker knows besides records: topics, group offsets, queues and keys, rebuilt from events alone.

`apply` is the only thing that changes a state. It reads no clock and does no input or output, so that the same events
always give the same state. What may happen is decided elsewhere (`topics`, `groups`); here it has happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from penstock.core.errors import StateUnreadable
from penstock.core.events import (
    AnyEvent,
    KeyAdded,
    KeyRevoked,
    OffsetCommitted,
    QueueEnded,
    QueueMoved,
    QueueStarted,
    TopicCreated,
    TopicDeleted,
    TopicSettingsChanged,
)
from penstock.core.keys import Key, apply_added, apply_revoked
from penstock.core.names import Scope
from penstock.core.queue import Queue, apply_move
from penstock.core.settings import TopicSettings

SNAPSHOT_VERSION: Final = 1

GroupOffsets: TypeAlias = dict[str, dict[int, int]]
"""A group's offsets, by the topic's name and the partition's number."""


@dataclass(slots=True)
class Topic:
    id: int  # never used again, also when the topic is gone
    scope: Scope
    name: str
    partitions: int
    settings: TopicSettings
    created: int  # µs since 1970


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


def apply(state: State, event: AnyEvent) -> None:
    match event:
        case QueueMoved():
            apply_move(state.queues[event.id], event)
        case OffsetCommitted():
            _commit(state, event)
        case TopicCreated():
            _create(state, event)
        case TopicDeleted():
            _delete(state, event)
        case TopicSettingsChanged():
            state.topics_by_id[event.id].settings = event.settings
        case QueueStarted():
            starts = tuple(event.starts)
            queue = Queue(event.id, event.topic, event.at_least_once, starts, list(starts), event.at)
            state.queues[event.id] = queue
            state.next_queue_id = max(state.next_queue_id, event.id + 1)
        case QueueEnded():
            del state.queues[event.id]
        case KeyAdded():
            apply_added(state.keys, event)
            state.next_key_id = max(state.next_key_id, event.id + 1)
        case KeyRevoked():
            apply_revoked(state.keys, event)


def _create(state: State, event: TopicCreated) -> None:
    scope = Scope(event.tenant, event.namespace)
    topic = Topic(event.id, scope, event.name, event.partitions, event.settings, event.created)
    state.topics.setdefault(scope, {})[event.name] = topic
    state.topics_by_id[event.id] = topic
    state.next_topic_id = max(state.next_topic_id, event.id + 1)
    state.tenants.add(event.tenant)


def _delete(state: State, event: TopicDeleted) -> None:
    topic = state.topics_by_id.pop(event.id)
    in_scope = state.topics[topic.scope]
    del in_scope[topic.name]
    if not in_scope:
        del state.topics[topic.scope]
    groups = state.groups.get(topic.scope, {})
    for group in [name for name, offsets in groups.items() if topic.name in offsets]:
        state.offset_count -= len(groups[group].pop(topic.name))
        if not groups[group]:
            del groups[group]
    if not groups:
        state.groups.pop(topic.scope, None)
    for queue in [queue.id for queue in state.queues.values() if queue.topic == event.id]:
        del state.queues[queue]


def _commit(state: State, event: OffsetCommitted) -> None:
    groups = state.groups.setdefault(Scope(event.tenant, event.namespace), {})
    offsets = groups.setdefault(event.group, {}).setdefault(event.topic, {})
    state.offset_count += event.partition not in offsets
    offsets[event.partition] = event.offset
    state.tenants.add(event.tenant)


class _Snapshot(msgspec.Struct, array_like=True):
    """The whole state. Topics and offsets are kept as the events that would make them."""

    version: int
    next_topic_id: int
    tenants: list[str]
    topics: list[TopicCreated]
    offsets: list[OffsetCommitted]
    next_queue_id: int = 1
    queues: list[Queue] = []
    next_key_id: int = 1
    keys: list[Key] = []


class _SnapshotVersion(msgspec.Struct, array_like=True):
    version: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Snapshot)
_version_decoder = msgspec.msgpack.Decoder(_SnapshotVersion)


def encode_snapshot(state: State) -> bytes:
    topics = [
        TopicCreated(topic.id, *topic.scope, topic.name, topic.partitions, topic.settings, topic.created)
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
        )
    )


def decode_snapshot(data: bytes) -> State:
    """Raises StateUnreadable for anything that `encode_snapshot` of this version did not write."""
    try:
        version = _version_decoder.decode(data).version
        if version != SNAPSHOT_VERSION:
            raise StateUnreadable(
                f"the log holds a snapshot of version {version}; this version of Penstock reads {SNAPSHOT_VERSION}"
            )
        snapshot = _decoder.decode(data)
    except msgspec.MsgspecError as error:
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
    return state


def apply_all(state: State, events: Iterable[AnyEvent]) -> None:
    for event in events:
        apply(state, event)
