"""The cluster, which consists of this node: its status is accurate; there are no nodes to join or to leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.broker.errors import InvalidArgument
from penstock.broker.security.access import Permission
from penstock.broker.state.state import Topic
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import Reply
from penstock.wire.flymq import messages as m

CLUSTER: Final = "standalone"
EPOCH: Final = 1
ONLINE: Final = "online"
MAX_PARTITIONS: Final = 200_000  # in one reply; more would not fit a frame


def join(context: FlyMqContext, request: m.JoinCluster) -> Reply:
    with context.broker.audit.attempt(context.identity, "cluster.join", scope=context.scope, resource=request.peer):
        context.broker.access.require(context.identity, Permission.ADMIN, context.scope, "")
        raise InvalidArgument(f"this node is standalone and cannot join {request.peer[:100]!r}")


def leave(context: FlyMqContext, _request: m.LeaveCluster) -> Reply:
    with context.broker.audit.attempt(context.identity, "cluster.leave", scope=context.scope):
        context.broker.access.require(context.identity, Permission.ADMIN, context.scope, "")
        raise InvalidArgument("this node is standalone and has no cluster to leave")


def status(context: FlyMqContext, _request: m.GetClusterStatus) -> Reply:
    context.broker.access.require_any(context.identity, Permission.DESCRIBE, context.scope)
    settings = context.settings
    node = m.ClusterNode(settings.node, settings.address, ONLINE, True)
    return Reply(m.ClusterStatus(CLUSTER, settings.node, [node]))


def metadata(context: FlyMqContext, request: m.GetClusterMetadata) -> Reply:
    broker = context.broker
    if request.topic:
        topics: Sequence[Topic] = [broker.topics.describe(context.identity, context.scope, request.topic).topic]
    else:
        topics = broker.topics.list(context.identity, context.scope)
        if (count := sum(topic.partitions for topic in topics)) > MAX_PARTITIONS:
            raise InvalidArgument(f"the topics have {count} partitions: ask for one topic at a time")
    return Reply(m.ClusterMetadata(CLUSTER, [_placement(context, topic) for topic in topics]))


def _placement(context: FlyMqContext, topic: Topic) -> m.TopicPlacement:
    node, address = context.settings.node, context.settings.address
    replicas = [node]
    return m.TopicPlacement(
        topic.name,
        [
            m.PartitionPlacement(number, node, address, EPOCH, ONLINE, replicas, replicas)
            for number in range(topic.partitions)
        ],
    )
