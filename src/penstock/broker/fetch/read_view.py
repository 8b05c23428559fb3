"""Read views: everything another process needs to read a topic's records: the bounds of each partition, and which of
the records in between are no longer visible. The rules are those of `visible_read`.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker.fetch import visible_read
from penstock.broker.fetch.removal import NOTHING_REMOVED, RemovedRecords
from penstock.broker.names import Scope
from penstock.broker.state.state import State, Topic
from penstock.broker.topics import topic_rules
from penstock.log.engine import Bounds, Engine, partition_id


class PartitionView(NamedTuple):
    partition: int
    bounds: Bounds
    removed: RemovedRecords


class ReadView(NamedTuple):
    topic: Topic
    now: int  # µs since 1970: the time of the view
    horizon: int  # records stored at or before this time have expired; 0 if none has
    partitions: list[PartitionView]


def read_view(state: State, engine: Engine, scope: Scope, name: str, partition: int | None, now: int) -> ReadView:
    """The view of all partitions of the topic, or of one. Raises TopicNotFound or PartitionNotFound."""
    if partition is None:
        topic = topic_rules.find(state, scope, name)
        numbers = range(topic.partitions)
    else:
        topic = topic_rules.find_partition(state, scope, name, partition)
        numbers = range(partition, partition + 1)
    found = []
    for number in numbers:
        id_ = partition_id(topic.id, number)
        found.append(PartitionView(number, engine.bounds(id_), state.removed.get(id_, NOTHING_REMOVED)))
    return ReadView(topic, now, visible_read.horizon(topic, now), found)
