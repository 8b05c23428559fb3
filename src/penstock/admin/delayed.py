"""Delayed records: `/delayed`, `/delayed/7`."""

from __future__ import annotations

import msgspec

from penstock.admin.paging import Page, PageQuery, number_of
from penstock.broker.broker import Broker
from penstock.broker.errors import InvalidArgument
from penstock.doors.http.replies import Outcome, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route


class DelayedView(msgspec.Struct):
    """A record that is not due yet."""

    id: int
    topic: str
    partition: int | None  # null: chosen when it is due
    due: int  # µs since 1970
    created: int


class DelayedRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._delays = broker.delays

    def routes(self) -> tuple[Route, ...]:
        path = "/api/v1/delayed"
        return (
            Route(
                *("GET", path, self.list, "Records that appear later. A page may be empty and have a `next`."),
                query=PageQuery,
                reply=Page[DelayedView],
            ),
            Route("DELETE", f"{path}/{{record}}", self.cancel, "Let a record not appear.", audit="delayed.cancel"),
        )

    def list(self, request: Request) -> Outcome:
        query: PageQuery = request.query
        after = number_of(query.after or "0")
        if after is None:
            raise InvalidArgument("'after' is not the 'next' of a page")
        records, following = self._delays.waiting(request.identity, request.scope, after, query.limit)
        views = [
            DelayedView(each.id, topic.name, None if each.partition < 0 else each.partition, each.due, each.created)
            for each, topic in records
        ]
        page = Page(views, None if following is None else str(following))
        return after_commit(self._broker.pending_commit, json_reply(page))

    def cancel(self, request: Request) -> Outcome:
        text = request.names["record"]
        group = self._delays.cancel(request.identity, request.scope, number_of(text) or 0)  # ids start at 1
        self._broker.audit.note(request.identity, "delayed.cancel", scope=request.scope, resource=text, action="cancel")
        return done(group)
