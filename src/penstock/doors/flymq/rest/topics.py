"""Topics: listing, describing, creating and deleting them."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.broker.broker import Broker
from penstock.broker.errors import AccessDenied, TopicNotFound
from penstock.broker.security.access import Identity
from penstock.broker.topics.topic_rules import TopicDescription
from penstock.doors.flymq.handlers.topics import create_topic
from penstock.doors.flymq.request_context import SCOPE
from penstock.doors.flymq.rest import documents as d
from penstock.doors.flymq.rest.lists import list_reply
from penstock.doors.http.replies import HttpReply, Outcome, after_commit, json_reply
from penstock.doors.http.router import Request, Route


class TopicRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        root = "/api/v1/topics"
        return [
            Route("GET", root, self.list_all, "All topics."),
            Route("POST", root, self.create, "Make a topic.", body=d.NewTopic, status=201),
            Route("GET", f"{root}/{{topic}}", self.get, "One topic."),
            Route("DELETE", f"{root}/{{topic}}", self.delete, "Delete a topic.", status=204),
        ]

    def list_all(self, request: Request) -> Outcome:
        names = [topic.name for topic in self._broker.topics.list(request.identity, SCOPE)]
        return list_reply(self._described(request.identity, names))

    def get(self, request: Request) -> Outcome:
        return json_reply(_topic(self._broker.topics.describe(request.identity, SCOPE, request.names["topic"])))

    def create(self, request: Request) -> Outcome:
        """An existing topic is left unchanged, as by CREATE_TOPIC."""
        wanted: d.NewTopic = request.body
        partitions = wanted.options.partitions if wanted.options is not None else wanted.partitions
        group = create_topic(self._broker, request.identity, SCOPE, wanted.name, partitions or 0)
        described = self._broker.topics.describe(request.identity, SCOPE, wanted.name)
        return after_commit(group, json_reply(_topic(described), 201))

    def delete(self, request: Request) -> Outcome:
        group = self._broker.topics.delete(request.identity, SCOPE, request.names["topic"])
        return after_commit(group, HttpReply(204, b""))

    def _described(self, identity: Identity, names: list[str]) -> Iterator[d.Topic]:
        for name in names:
            try:
                yield _topic(self._broker.topics.describe(identity, SCOPE, name))
            except (TopicNotFound, AccessDenied):  # changed since the listing began
                continue


def _topic(described: TopicDescription) -> d.Topic:
    topic, settings = described.topic, described.topic.settings
    count = sum(part.high_watermark - part.log_start for part in described.partitions)
    found = d.Topic(topic.name, topic.partitions, 1, count, d.timestamp(topic.created))
    found.retention_bytes = settings.retention_bytes
    found.retention_ms = None if settings.retention_seconds is None else int(settings.retention_seconds * 1000)
    return found
