"""The cluster, which consists of this node: it leads every partition, and nothing can be moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from penstock import __version__
from penstock.broker.broker import Broker
from penstock.broker.errors import InvalidArgument
from penstock.broker.security.access import Identity, Permission
from penstock.broker.state.state import Topic
from penstock.doors.flymq.handlers.cluster import CLUSTER, EPOCH, ONLINE
from penstock.doors.flymq.request_context import SCOPE, FlyMqSettings
from penstock.doors.flymq.rest import documents as d
from penstock.doors.flymq.rest.lists import list_reply
from penstock.doors.http.replies import Outcome, json_reply
from penstock.doors.http.router import Request, Route


class ClusterRoutes:
    def __init__(self, broker: Broker, settings: FlyMqSettings) -> None:
        self._broker = broker
        self._settings = settings

    def routes(self) -> list[Route]:
        root = "/api/v1/cluster"
        return [
            Route("GET", root, self.status, "The cluster and its node."),
            Route("GET", f"{root}/members", self.members, "The nodes, as the command line asks for them."),
            Route("GET", f"{root}/nodes", self.members, "The nodes."),
            Route("GET", f"{root}/metadata", self.metadata, "Partitions by topic.", query=d.TopicFilter),
            Route("GET", f"{root}/partitions", self.partitions, "All partitions.", query=d.TopicFilter),
            Route("GET", f"{root}/leaders", self.leaders, "How many partitions each node leads."),
            Route("POST", f"{root}/rebalance", self.rebalance, "Share partitions out; nothing moves."),
            Route(
                *("POST", f"{root}/partitions/{{topic}}/{{partition}}", self.reassign),
                "Give a partition to a node; there is one.",
                body=d.Reassignment,
            ),
        ]

    def status(self, request: Request) -> Outcome:
        topics = self._topics(request.identity)
        node = self._settings.node
        partitions = sum(topic.partitions for topic in topics)
        return json_reply(d.Cluster(CLUSTER, __version__, 1, node, len(topics), partitions, [self._node()]))

    def members(self, request: Request) -> Outcome:
        self._broker.access.require_any(request.identity, Permission.DESCRIBE, SCOPE)
        return json_reply([self._node()])

    def metadata(self, request: Request) -> Outcome:
        topics = (
            d.TopicPartitions(topic.name, [self._partition(number) for number in range(topic.partitions)])
            for topic in self._chosen(request)
        )
        return list_reply(topics, b'{"cluster_id":' + msgspec.json.encode(CLUSTER) + b',"topics":[', b"]}\n")

    def partitions(self, request: Request) -> Outcome:
        return list_reply(self._assignments(self._chosen(request)), b'{"assignments":[', b"]}\n")

    def leaders(self, request: Request) -> Outcome:
        led = self._led(request.identity)
        return json_reply(d.Leaders(led, sum(led.values()), 0.0))

    def rebalance(self, request: Request) -> Outcome:
        self._broker.access.require(request.identity, Permission.ADMIN, SCOPE, "")
        led = self._led(request.identity)
        message = "this node is standalone and leads every partition: nothing was to be moved"
        return json_reply(d.Rebalanced(True, message, [], led, led))

    def reassign(self, request: Request) -> Outcome:
        """Accept a reassignment that changes nothing; refuse all others."""
        broker, node, wanted = self._broker, self._settings.node, request.body
        broker.access.require(request.identity, Permission.ADMIN, SCOPE, "")
        topic, number = request.names["topic"], request.names["partition"]
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise InvalidArgument(f"{number[:40]!r} is no number of a partition")
        broker.topics.describe_partition(request.identity, SCOPE, topic, int(number))
        if wanted.new_leader != node or set(wanted.new_replicas) - {node}:
            raise InvalidArgument(f"this node is standalone: {node!r} leads every partition and has the only copy")
        return json_reply(d.Reassigned(True, f"{node!r} leads it already"))

    # -- internals

    def _topics(self, identity: Identity) -> Sequence[Topic]:
        """The topics visible to the identity."""
        self._broker.access.require_any(identity, Permission.DESCRIBE, SCOPE)
        return self._broker.topics.list(identity, SCOPE)

    def _chosen(self, request: Request) -> Sequence[Topic]:
        if not request.query.topic:
            return self._topics(request.identity)
        return [self._broker.topics.describe(request.identity, SCOPE, request.query.topic).topic]

    def _led(self, identity: Identity) -> dict[str, int]:
        return {self._settings.node: sum(topic.partitions for topic in self._topics(identity))}

    def _node(self) -> d.Node:
        now = d.timestamp(self._broker.now())
        return d.Node(self._settings.node, self._settings.address, "active", True, now)

    def _partition(self, number: int) -> d.Partition:
        node = self._settings.node
        return d.Partition(number, node, self._settings.address, EPOCH, ONLINE, [node], [node])

    def _assignments(self, topics: Sequence[Topic]) -> Iterator[d.Assignment]:
        node, address = self._settings.node, self._settings.address
        for topic in topics:
            for number in range(topic.partitions):
                yield d.Assignment(topic.name, number, node, address, [node], [node], EPOCH, ONLINE)
