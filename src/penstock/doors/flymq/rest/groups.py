"""Consumer groups: their offsets and lag in each topic, and deleting a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.broker.broker import Broker
from penstock.broker.errors import AccessDenied, GroupNotFound, TopicNotFound
from penstock.broker.groups.group import GroupView
from penstock.broker.security.access import Identity
from penstock.doors.flymq.request_context import SCOPE
from penstock.doors.flymq.rest import documents as d
from penstock.doors.flymq.rest.lists import list_reply
from penstock.doors.http.replies import HttpReply, Outcome, after_commit, json_reply
from penstock.doors.http.router import Request, Route


class GroupRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        root = "/api/v1/consumer-groups"
        return [
            Route("GET", root, self.list_all, "All groups, once for each of their topics."),
            Route("GET", f"{root}/{{group}}", self.get, "One group: NAME or TOPIC:NAME."),
            Route("DELETE", f"{root}/{{group}}", self.delete, "Delete a group: NAME or TOPIC:NAME.", status=204),
        ]

    def list_all(self, request: Request) -> Outcome:
        return list_reply(self._shown(request.identity, self._broker.groups.list(request.identity, SCOPE)))

    def get(self, request: Request) -> Outcome:
        return json_reply(self._group(request.identity, self._find(request)))

    def delete(self, request: Request) -> Outcome:
        found = self._find(request)
        group = self._broker.groups.delete(request.identity, SCOPE, found.group, found.topic)
        return after_commit(group, HttpReply(204, b""))

    def _find(self, request: Request) -> GroupView:
        """The first group that matches this name, as in the original: names of topics and groups may contain colons."""
        name = request.names["group"]
        for group in self._broker.groups.list(request.identity, SCOPE):
            if name in (group.group, f"{group.topic}:{group.group}"):
                return group
        raise GroupNotFound("", name)

    def _shown(self, identity: Identity, groups: Sequence[GroupView]) -> Iterator[d.Group]:
        for group in groups:
            try:
                yield self._group(identity, group)
            except (TopicNotFound, AccessDenied):  # changed since the listing began
                continue

    def _group(self, identity: Identity, group: GroupView) -> d.Group:
        ends = [part.high_watermark for part in self._broker.topics.describe(identity, SCOPE, group.topic).partitions]
        partitions = [
            d.PartitionLag(number, offset, max(ends[number] - offset, 0) if number < len(ends) else 0)
            for number, offset in sorted(group.offsets.items())
        ]
        state = "active" if group.members else "empty"
        lag = sum(part.lag for part in partitions)
        return d.Group(group.group, group.topic, len(group.members), state, lag, partitions)
