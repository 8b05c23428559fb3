"""Consumer groups: where they stand, who is in them, and how to move them."""

from __future__ import annotations

from typing import Final, Literal

from penstock.broker.errors import InvalidArgument
from penstock.broker.groups.group import GroupView
from penstock.doors.flymq.request_context import SCOPE, RequestContext
from penstock.doors.reply import OffloadedReply, Outcome, Reply
from penstock.wire.flymq import messages as m

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
COMMITTED: Final = "commit"
OFFSET: Final = "offset"
ENDS: Final[dict[str, Literal["earliest", "latest"]]] = {EARLIEST: EARLIEST, LATEST: LATEST}


def subscribe(call: RequestContext, request: m.Subscribe) -> Reply:
    """With a group, the connection is a member of it from now on, until it ends."""
    mode = request.mode or LATEST
    if mode not in (EARLIEST, LATEST, COMMITTED):
        raise InvalidArgument(f"unknown subscribe mode: {request.mode}")
    broker = call.broker
    offset = broker.groups.start(call.identity, SCOPE, request.topic, request.partition, mode, request.group)
    if request.group:
        broker.group_membership.join(SCOPE, request.group, request.topic, call.peer, call.owner)
    return Reply(m.Position(offset))


def commit(call: RequestContext, request: m.Commit) -> Reply:
    group = call.broker.groups.commit(
        call.identity, SCOPE, request.group, request.topic, request.partition, request.offset
    )
    return Reply(m.Done(), group)


def get_offset(call: RequestContext, request: m.GetOffset) -> Reply:
    """0 in a partition where the group has committed nothing."""
    place = (call.identity, SCOPE, request.group, request.topic)
    offset = call.broker.groups.committed(*place, request.partition)
    call.broker.groups.describe(*place)
    return Reply(m.Position(offset or 0))


def reset_offset(call: RequestContext, request: m.ResetOffset) -> Reply:
    to = request.offset if request.mode == OFFSET else ENDS.get(request.mode)
    if to is None:
        raise InvalidArgument(f"unknown reset mode: {request.mode}")
    _, group = call.broker.groups.reset(call.identity, SCOPE, request.group, request.topic, request.partition, to)
    return Reply(m.Done(), group)


def get_lag(call: RequestContext, request: m.GetLag) -> Reply:
    lag = call.broker.groups.lag(call.identity, SCOPE, request.group, request.topic, request.partition)
    committed = lag.committed or 0
    return Reply(m.Lag(committed, committed, lag.latest, lag.lag))


def list_groups(call: RequestContext, _request: m.ListGroups) -> Reply:
    return Reply(m.GroupList([_info(group) for group in call.broker.groups.list(call.identity, SCOPE)]))


def describe(call: RequestContext, request: m.DescribeGroup) -> Reply:
    return Reply(_info(call.broker.groups.describe(call.identity, SCOPE, request.group, request.topic)))


def delete(call: RequestContext, request: m.DeleteGroup) -> Reply:
    return Reply(m.Done(), call.broker.groups.delete(call.identity, SCOPE, request.group, request.topic))


def seek_to_timestamp(call: RequestContext, request: m.SeekToTimestamp) -> Outcome:
    """The first offset that is not older; with a group, that is where the group stands from now on."""
    broker, place = call.broker, (request.topic, request.partition)
    work = broker.topics.offset_at(call.identity, SCOPE, *place, request.timestamp_ms * 1000)

    def answer(offset: int) -> Reply:
        if not request.group:
            return Reply(m.Position(offset))
        group = broker.groups.commit(call.identity, SCOPE, request.group, *place, offset)
        return Reply(m.Position(offset), group)

    return OffloadedReply(broker, work, answer)


def _info(group: GroupView) -> m.GroupInfo:
    offsets = [m.PartitionOffset(partition, offset) for partition, offset in sorted(group.offsets.items())]
    return m.GroupInfo(group.topic, group.group, len(group.members), offsets)
