"""Consumer lag: how far groups are behind, based on their committed offsets, or else on their last fetches.

Fetch positions are only metrics for the operator, kept in memory and bounded; nothing is decided by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.broker.errors import InvalidName
from penstock.broker.groups import group as groups
from penstock.broker.names import Scope, check_group
from penstock.broker.runtime.metrics import Lag
from penstock.broker.state.state import State
from penstock.log.engine import Engine, partition_id

MAX_POSITIONS: Final = 10_000


class GroupPartition(NamedTuple):
    scope: Scope
    group: str
    topic: str
    partition: int


class FetchPositions:
    """The end of each group's last fetch; the least recently used are evicted first."""

    def __init__(self) -> None:
        self._positions: dict[GroupPartition, int] = {}

    def __iter__(self) -> Iterator[tuple[GroupPartition, int]]:
        return iter(self._positions.items())

    def note(self, scope: Scope, group: str, topic: str, partition: int, next_offset: int) -> None:
        """Record a position. Invalid group names are ignored."""
        try:
            check_group(group)
        except InvalidName:
            return
        member = GroupPartition(scope, group, topic, partition)
        self._positions.pop(member, None)
        self._positions[member] = next_offset
        if len(self._positions) > MAX_POSITIONS:
            del self._positions[next(iter(self._positions))]


def lags(state: State, positions: FetchPositions, engine: Engine) -> Iterator[Lag]:
    """The lag of each group in each partition of an existing topic."""
    for scope, by_group in state.groups.items():
        for group, by_topic in by_group.items():
            for topic, by_partition in by_topic.items():
                for partition, offset in by_partition.items():
                    yield from _lag(state, engine, GroupPartition(scope, group, topic, partition), offset)
    for member, offset in positions:
        if groups.committed(state, member.scope, member.group, member.topic, member.partition) is None:
            yield from _lag(state, engine, member, offset)


def _lag(state: State, engine: Engine, member: GroupPartition, offset: int) -> Iterator[Lag]:
    topic = state.topics.get(member.scope, {}).get(member.topic)
    if topic is not None and member.partition < topic.partitions:
        end = engine.bounds(partition_id(topic.id, member.partition)).high_watermark
        yield Lag(member.scope, member.topic, member.partition, member.group, max(0, end - offset))
