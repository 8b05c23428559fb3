"""Topics: `/topics`, `/topics/orders`. Only settings that have an effect can be changed."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.admin.paging import After, Limit, Page, PageQuery, cut
from penstock.admin.rates import RateSampler
from penstock.broker.broker import Broker
from penstock.broker.security.access import Permission
from penstock.broker.state.state import Topic
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.doors.http.replies import Outcome, PendingHttpReply, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route
from penstock.log.engine import Bounds

MAX_SECONDS: Final = 100 * 365 * 86_400
MAX_PARTITIONS: Final = 1000

Seconds = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]


class TopicChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Changes of a topic's settings. Missing ones stay unchanged; null is the default."""

    schema: Annotated[str, Meta(min_length=1)] | UnsetType | None = UNSET
    rejected: Literal["error", "dead-letter"] | UnsetType | None = UNSET
    retention_seconds: Seconds | UnsetType | None = UNSET
    retention_bytes: Annotated[int, Meta(gt=0, lt=1 << 62)] | UnsetType | None = UNSET
    expiry_seconds: Seconds | UnsetType | None = UNSET
    fetch_wait_seconds: Annotated[float, Meta(ge=0, le=9)] | UnsetType | None = UNSET
    table: bool | UnsetType | None = UNSET
    data_class: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType | None = UNSET


class NewTopic(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A topic to create."""

    name: str
    partitions: Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)] = 1
    settings: TopicChange = TopicChange()


class TopicsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query parameters of the list of topics."""

    limit: Limit = 100
    after: After = ""
    prefix: Annotated[str, Meta(description="Only topics whose name begins like this.")] = ""
    internal: Annotated[bool, Meta(description="Also the broker's own.")] = False


class TopicSummary(msgspec.Struct):
    """A topic in a list."""

    name: str
    tenant: str
    namespace: str
    partitions: int
    created: int  # µs since 1970
    records: int  # retained offsets; some may have expired
    bytes: int  # in segments and in its table
    records_per_second: float | None  # since the previous request; null: there was none
    typed: str | None  # the name of its typed table in SQL; null: it has none


class PartitionView(msgspec.Struct):
    """A partition."""

    partition: int
    start: int  # the first retained offset
    end: int  # the offset of the next record
    segments: int  # files that hold its records


class TableSummary(msgspec.Struct):
    """The table of a topic."""

    location: str
    ends: dict[int, int]  # by partition: the first offset that is not in the table


class TopicView(msgspec.Struct):
    """A topic."""

    topic: TopicSummary
    partitions: list[PartitionView]
    settings: TopicSettings
    groups: list[str]  # consumer groups with offsets in it
    table: TableSummary | None


class TopicRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topics = broker.topics
        self._rates = RateSampler()

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/topics", "/api/v1/topics/{topic}"
        return (
            Route(
                *("GET", path, self.list, "Topics, with their sizes and rates."),
                query=TopicsQuery,
                reply=Page[TopicSummary],
            ),
            Route(
                *("POST", path, self.create, "Create a topic."),
                body=NewTopic,
                reply=TopicSummary,
                status=201,
                audit="topic.create",
            ),
            Route("GET", one, self.get, "One topic.", reply=TopicView),
            Route(
                *("PATCH", one, self.change, "Change a topic's settings."),
                body=TopicChange,
                reply=TopicSettings,
                audit="topic.alter",
            ),
            Route("DELETE", one, self.delete, "Delete a topic and its records.", audit="topic.delete"),
        )

    def list(self, request: Request) -> Outcome:
        query: TopicsQuery = request.query
        topics = self._topics.list(request.identity, request.scope, internal=query.internal)
        fitting = [topic for topic in topics if topic.name.startswith(query.prefix)]
        found = cut(fitting, lambda topic: topic.name, PageQuery(query.limit, query.after))
        bounds = self._topics.bounds(request.identity, request.scope, [topic.name for topic in found.items])
        sizes = self._topics.sizes(request.identity, request.scope)
        views = [self._summary(topic, bounds.get(topic.name, ()), sizes.get(topic.name, 0)) for topic in found.items]
        return after_commit(self._broker.pending_commit, json_reply(Page(views, found.next)))

    def create(self, request: Request) -> Outcome:
        body: NewTopic = request.body
        self._check_schema(request, body.settings)
        settings = msgspec.structs.replace(TopicSettings(), **_given(body.settings))
        topic, group = self._topics.create(request.identity, request.scope, body.name, body.partitions, settings)
        return PendingHttpReply(group, json_reply(self._summary(topic, (), 0), 201))  # needs no further permissions

    def get(self, request: Request) -> Outcome:
        return after_commit(self._broker.pending_commit, json_reply(self._view(request, request.names["topic"])))

    def change(self, request: Request) -> Outcome:
        name, scope = request.names["topic"], request.scope
        with self._broker.audit.attempt(request.identity, "topic.alter", scope=scope, resource=name):
            self._check_schema(request, request.body)
            known = self._topics.describe(request.identity, scope, name).topic.settings
            settings = msgspec.structs.replace(known, **_given(request.body))
            group = self._topics.change(request.identity, scope, name, settings)
        return PendingHttpReply(group, json_reply(settings))

    def delete(self, request: Request) -> Outcome:
        return done(self._topics.delete(request.identity, request.scope, request.names["topic"]))

    def _check_schema(self, request: Request, change: TopicChange) -> None:
        """Check that the schema exists: a mistyped name would reject every record."""
        if isinstance(change.schema, str):
            self._broker.schemas.get(request.identity, request.scope, change.schema)

    def _view(self, request: Request, name: str) -> TopicView:
        identity, scope = request.identity, request.scope
        topic, partitions = self._topics.describe(identity, scope, name)
        bounds = [Bounds(each.log_start, each.high_watermark) for each in partitions]
        groups = {view.group for view in self._broker.groups.list(identity, scope) if view.topic == name}
        readable = self._broker.access.allows(identity, Permission.READ, scope, name)
        table = self._broker.tables.describe(identity, scope, name) if readable else None
        return TopicView(
            self._summary(topic, bounds, self._topics.sizes(identity, scope).get(name, 0)),
            [PartitionView(at, start, end, segments) for at, end, start, segments in partitions],
            topic.settings,
            sorted(groups),
            None if table is None else TableSummary(table.ref.url, dict(table.ends)),
        )

    def _summary(self, topic: Topic, bounds: object, stored: int) -> TopicSummary:
        known: list[Bounds] = list(bounds)  # type: ignore[call-overload]
        end = sum(each.high_watermark for each in known)
        return TopicSummary(
            topic.name,
            topic.scope.tenant,
            topic.scope.namespace,
            topic.partitions,
            topic.created,
            end - sum(each.start for each in known),
            stored + self._broker.tables.jobs.sizes().get(topic.id, 0),
            self._rates.rate(topic.id, end, self._broker.now()),
            self._broker.tables.typed_name(topic),
        )


def _given(change: TopicChange) -> dict[str, object]:
    return {key: value for key, value in msgspec.structs.asdict(change).items() if value is not UNSET}
