"""What somebody has to know who reads a topic's records in another process: where each partition begins and ends, and
which of the records in between are not to be delivered any more. The rules are those of `visible_read`.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker.fetch import visible_read
from penstock.broker.fetch.removal import NOTHING, Gone
from penstock.broker.names import Scope
from penstock.broker.state.state import State, Topic
from penstock.broker.topics import topic_rules
from penstock.log.engine import Bounds, Engine, partition_id


class PartitionSurvey(NamedTuple):
    partition: int
    bounds: Bounds
    gone: Gone


class ReadView(NamedTuple):
    topic: Topic
    now: int  # µs since 1970: what is live was decided then
    horizon: int  # what was stored by then has expired; 0 if nothing has
    partitions: list[PartitionSurvey]


def read_view(state: State, engine: Engine, scope: Scope, name: str, partition: int | None, now: int) -> ReadView:
    """Of all partitions of the topic, or of one. Raises TopicNotFound or PartitionNotFound."""
    if partition is None:
        topic = topic_rules.find(state, scope, name)
        numbers = range(topic.partitions)
    else:
        topic = topic_rules.find_partition(state, scope, name, partition)
        numbers = range(partition, partition + 1)
    found = []
    for number in numbers:
        place = partition_id(topic.id, number)
        found.append(PartitionSurvey(number, engine.bounds(place), state.removed.get(place, NOTHING)))
    return ReadView(topic, now, visible_read.horizon(topic, now), found)
