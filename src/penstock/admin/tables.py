"""Tables of topics: `/tables`, `/tables/orders`. To verify and repair them: `penstock table`."""

from __future__ import annotations

import msgspec

from penstock.admin.paging import Page, PageQuery, cut
from penstock.broker.broker import Broker
from penstock.broker.errors import TableNotFound
from penstock.broker.security.access import Permission
from penstock.broker.state.state import Topic
from penstock.doors.http.replies import Outcome, after_commit, json_reply
from penstock.doors.http.router import Request, Route
from penstock.log.tables.location import typed_ref


class TableView(msgspec.Struct):
    """The table of a topic."""

    topic: str
    url: str
    bytes: int | None  # null: unknown yet
    ends: dict[int, int]  # by partition: the first offset that is not in the table
    typed: str | None  # the name of the topic's typed table in SQL and Flight; null: there is none
    typed_url: str | None  # where that is


class TableRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/tables", "/api/v1/tables/{topic}"
        return (
            Route(
                *("GET", path, self.list, "Tables of topics. A page is of topics: it may have fewer tables."),
                query=PageQuery,
                reply=Page[TableView],
            ),
            Route("GET", one, self.get, "The table of a topic.", reply=TableView),
        )

    def list(self, request: Request) -> Outcome:
        topics = cut(self._broker.topics.list(request.identity, request.scope), lambda topic: topic.name, request.query)
        allows = self._broker.access.allows
        readable = [
            topic for topic in topics.items if allows(request.identity, Permission.READ, topic.scope, topic.name)
        ]
        views = [view for topic in readable if (view := self._view(request, topic)) is not None]
        return after_commit(self._broker.pending_commit, json_reply(Page(views, topics.next)))

    def get(self, request: Request) -> Outcome:
        name = request.names["topic"]
        topic = self._broker.topics.describe(request.identity, request.scope, name).topic
        view = self._view(request, topic)
        if view is None:
            raise TableNotFound(name)
        return after_commit(self._broker.pending_commit, json_reply(view))

    def _view(self, request: Request, topic: Topic) -> TableView | None:
        found = self._broker.tables.describe(request.identity, topic.scope, topic.name)
        if found is None:
            return None
        tables = self._broker.tables
        size, typed = tables.jobs.sizes().get(topic.id), tables.typed_name(topic)
        typed_url = None if typed is None else typed_ref(found.ref).url
        return TableView(topic.name, found.ref.url, size, dict(found.ends), typed, typed_url)
