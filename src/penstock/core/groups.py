"""Decisions about consumer groups: where a group stands in each partition, and what it may store there.

The last write wins, and going back is allowed. A group exists as long as it has an offset.
"""

from __future__ import annotations

from typing import Final

from penstock.core.errors import InvalidArgument, LimitReached
from penstock.core.events import OffsetCommitted
from penstock.core.limits import Limits
from penstock.core.names import Scope, check_group, check_scope, check_topic
from penstock.core.state import State

MAX_OFFSET: Final = 2**64 - 1


def committed(state: State, scope: Scope, group: str, topic: str, partition: int) -> int | None:
    """The next offset that the group wants from the partition, if it ever said so."""
    try:
        return state.groups[scope][group][topic].get(partition)
    except KeyError:
        return None


def commit(
    state: State, limits: Limits, scope: Scope, group: str, topic: str, partition: int, offset: int
) -> OffsetCommitted:
    """Whether the topic exists is the caller's question: see `Broker.commit_offset`."""
    check_scope(scope)
    check_group(group)
    check_topic(topic)
    if not 0 <= offset <= MAX_OFFSET or not 0 <= partition < 2**32:
        raise InvalidArgument(f"Offset {offset} of partition {partition} is out of range")
    if committed(state, scope, group, topic, partition) is None:
        _check_room(state, limits, scope, group)
    return OffsetCommitted(*scope, group, topic, partition, offset)


def _check_room(state: State, limits: Limits, scope: Scope, group: str) -> None:
    groups = state.groups.get(scope, {})
    offsets = groups.get(group)
    if offsets is None:
        if len(groups) >= limits.groups_per_scope:
            raise LimitReached(f"There are {limits.groups_per_scope} groups, which is the limit")
    elif sum(map(len, offsets.values())) >= limits.offsets_per_group:
        raise LimitReached(f"The group holds {limits.offsets_per_group} offsets, which is the limit")
    if state.offset_count >= limits.group_offsets:
        raise LimitReached(f"The broker holds {limits.group_offsets} group offsets, which is its limit")
