"""The cluster, which is this node alone: what is told about it is true, and joining another is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.broker.errors import InvalidArgument
from penstock.broker.security.access import Permission
from penstock.broker.state.state import Topic
from penstock.doors.flymq.request_context import SCOPE, RequestContext
from penstock.doors.reply import Reply
from penstock.wire.flymq import messages as m

CLUSTER: Final = "standalone"
EPOCH: Final = 1
ONLINE: Final = "online"
MAX_PARTITIONS: Final = 200_000  # told of at once; more would not fit a frame


def join(call: RequestContext, request: m.JoinCluster) -> Reply:
    call.broker.access.require(call.identity, Permission.ADMIN, SCOPE, "")
    raise InvalidArgument(f"this node is standalone and cannot join {request.peer[:100]!r}")


def leave(call: RequestContext, _request: m.LeaveCluster) -> Reply:
    """It is in no cluster, which is what was asked for."""
    call.broker.access.require(call.identity, Permission.ADMIN, SCOPE, "")
    return Reply(m.Done(message="this node is standalone"))


def status(call: RequestContext, _request: m.GetClusterStatus) -> Reply:
    call.broker.access.require_any(call.identity, Permission.DESCRIBE, SCOPE)
    settings = call.settings
    node = m.ClusterNode(settings.node, settings.address, ONLINE, True)
    return Reply(m.ClusterStatus(CLUSTER, settings.node, [node]))


def metadata(call: RequestContext, request: m.GetClusterMetadata) -> Reply:
    broker = call.broker
    if request.topic:
        topics: Sequence[Topic] = [broker.topics.describe(call.identity, SCOPE, request.topic).topic]
    else:
        topics = broker.topics.list(call.identity, SCOPE)
        if (count := sum(topic.partitions for topic in topics)) > MAX_PARTITIONS:
            raise InvalidArgument(f"the topics have {count} partitions: ask for one topic at a time")
    return Reply(m.ClusterMetadata(CLUSTER, [_placement(call, topic) for topic in topics]))


def _placement(call: RequestContext, topic: Topic) -> m.TopicPlacement:
    node, address = call.settings.node, call.settings.address
    replicas = [node]
    return m.TopicPlacement(
        topic.name,
        [
            m.PartitionPlacement(number, node, address, EPOCH, ONLINE, replicas, replicas)
            for number in range(topic.partitions)
        ],
    )
