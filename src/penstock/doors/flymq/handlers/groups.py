"""Consumer groups: committed offsets, members, and resetting offsets."""

from __future__ import annotations

from typing import Final, Literal

from penstock.broker.errors import InvalidArgument
from penstock.broker.groups.group import GroupView
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import OffloadedReply, Outcome, Reply
from penstock.wire.flymq import messages as m

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
COMMITTED: Final = "commit"
OFFSET: Final = "offset"
ENDS: Final[dict[str, Literal["earliest", "latest"]]] = {EARLIEST: EARLIEST, LATEST: LATEST}


def subscribe(context: FlyMqContext, request: m.Subscribe) -> Reply:
    """With a group, the connection is a member of it from now on."""
    mode = request.mode or LATEST
    if mode not in (EARLIEST, LATEST, COMMITTED):
        raise InvalidArgument(f"unknown subscribe mode: {request.mode}")
    broker = context.broker
    offset = broker.groups.start(context.identity, context.scope, request.topic, request.partition, mode, request.group)
    if request.group:
        broker.group_membership.join(context.scope, request.group, request.topic, context.peer, context.owner)
    return Reply(m.Position(offset))


def commit(context: FlyMqContext, request: m.Commit) -> Reply:
    group = context.broker.groups.commit(
        context.identity, context.scope, request.group, request.topic, request.partition, request.offset
    )
    return Reply(m.Done(), group)


def get_offset(context: FlyMqContext, request: m.GetOffset) -> Reply:
    """The committed offset; 0 in a partition where the group has committed nothing."""
    group = (context.identity, context.scope, request.group, request.topic)
    offset = context.broker.groups.committed(*group, request.partition)
    context.broker.groups.describe(*group)
    return Reply(m.Position(offset or 0))


def reset_offset(context: FlyMqContext, request: m.ResetOffset) -> Reply:
    to = request.offset if request.mode == OFFSET else ENDS.get(request.mode)
    if to is None:
        raise InvalidArgument(f"unknown reset mode: {request.mode}")
    _, group = context.broker.groups.reset(
        context.identity, context.scope, request.group, request.topic, request.partition, to
    )
    return Reply(m.Done(), group)


def get_lag(context: FlyMqContext, request: m.GetLag) -> Reply:
    lag = context.broker.groups.lag(context.identity, context.scope, request.group, request.topic, request.partition)
    committed = lag.committed or 0
    return Reply(m.Lag(committed, committed, lag.latest, lag.lag))


def list_groups(context: FlyMqContext, _request: m.ListGroups) -> Reply:
    return Reply(m.GroupList([_info(group) for group in context.broker.groups.list(context.identity, context.scope)]))


def describe(context: FlyMqContext, request: m.DescribeGroup) -> Reply:
    return Reply(_info(context.broker.groups.describe(context.identity, context.scope, request.group, request.topic)))


def delete(context: FlyMqContext, request: m.DeleteGroup) -> Reply:
    return Reply(m.Done(), context.broker.groups.delete(context.identity, context.scope, request.group, request.topic))


def seek_to_timestamp(context: FlyMqContext, request: m.SeekToTimestamp) -> Outcome:
    """The first offset that is not older; a group, if named, is reset to it."""
    broker, partition = context.broker, (request.topic, request.partition)
    work = broker.topics.offset_at(context.identity, context.scope, *partition, request.timestamp_ms * 1000)

    def answer(offset: int) -> Reply:
        if not request.group:
            return Reply(m.Position(offset))
        group = broker.groups.commit(context.identity, context.scope, request.group, *partition, offset)
        return Reply(m.Position(offset), group)

    return OffloadedReply(broker, work, answer)


def _info(group: GroupView) -> m.GroupInfo:
    offsets = [m.PartitionOffset(partition, offset) for partition, offset in sorted(group.offsets.items())]
    return m.GroupInfo(group.topic, group.group, len(group.members), offsets)
