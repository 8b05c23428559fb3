"""Decisions about consumer groups: a group's offset in each partition, and what it may commit.

The last write wins, and moving back is allowed. A group exists in a topic as long as it has an offset or a member
there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.broker.errors import GroupNotFound, InvalidArgument, LimitReached
from penstock.broker.groups.group_membership import GroupMembership
from penstock.broker.limits import Limits
from penstock.broker.names import Scope, check_group, check_scope, check_topic
from penstock.broker.state.events import GroupDeleted, OffsetCommitted
from penstock.broker.state.state import State
from penstock.broker.tenancy.fair_share import check_room
from penstock.log.engine import Bounds

MAX_OFFSET: Final = 2**64 - 1


class GroupView(NamedTuple):
    """The state of a group in one topic."""

    topic: str
    group: str
    members: list[str]
    offsets: dict[int, int]  # by partition


class GroupLag(NamedTuple):
    committed: int | None  # the group's next offset; None if it never committed
    latest: int  # the offset after the last record
    lag: int  # records not reached yet; all that exist, if it never committed


def view(state: State, members: GroupMembership, scope: Scope, group: str, topic: str) -> GroupView:
    offsets = state.groups.get(scope, {}).get(group, {}).get(topic, {})
    present = members.of(scope, group, topic)
    if not offsets and not present:
        raise GroupNotFound(group, topic)
    return GroupView(topic, group, present, dict(sorted(offsets.items())))


def places(state: State, members: GroupMembership, scope: Scope, group: str | None = None) -> list[tuple[str, str]]:
    """(topic, group) of every group of the scope, or of one, ordered by name."""
    stored = ((topic, name) for name, by_topic in state.groups.get(scope, {}).items() for topic in by_topic)
    return sorted(place for place in {*stored, *members.places(scope)} if group is None or place[1] == group)


def delete(state: State, members: GroupMembership, scope: Scope, group: str, topic: str) -> GroupDeleted:
    view(state, members, scope, group, topic)
    return GroupDeleted(*scope, group, topic)


def lag(committed: int | None, bounds: Bounds) -> GroupLag:
    reached = bounds.start if committed is None else committed
    return GroupLag(committed, bounds.high_watermark, max(0, bounds.high_watermark - reached))


def start(mode: str, committed: int | None, bounds: Bounds) -> int:
    """The offset at which a subscription in this mode begins. Raises InvalidArgument."""
    match mode:
        case "earliest":
            return bounds.start
        case "latest" | "":
            return bounds.high_watermark
        case "commit":
            return bounds.start if committed is None else max(committed, bounds.start)
    raise InvalidArgument(f"unknown subscribe mode: {mode[:40]}")


def committed(state: State, scope: Scope, group: str, topic: str, partition: int) -> int | None:
    """The group's next offset in the partition; None if it never committed one."""
    try:
        return state.groups[scope][group][topic].get(partition)
    except KeyError:
        return None


def commit(
    state: State, limits: Limits, scope: Scope, group: str, topic: str, partition: int, offset: int
) -> OffsetCommitted:
    """The event that commits an offset. The caller checks that the topic exists: see `Groups.commit`."""
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
    mine = state.usage_of(scope.tenant).offsets
    check_room("group offsets", limits.group_offsets, state.offset_count, scope.tenant, mine, limits.tenant_share)
