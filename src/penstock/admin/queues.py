"""Queues, which BlipMQ calls subscriptions: `/queues`, `/queues/7`."""

from __future__ import annotations

import msgspec

from penstock.admin.paging import Page, PageQuery, cut, number_of, numbered
from penstock.broker.broker import Broker
from penstock.broker.queues.queue import Queue
from penstock.broker.state.state import Topic
from penstock.doors.http.replies import Outcome, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route


class QueueView(msgspec.Struct):
    """A queue."""

    id: int
    topic: str
    at_least_once: bool
    cursors: list[int]  # by partition: the first offset not delivered yet
    in_flight: int  # delivered and not acknowledged
    lag: int  # records not delivered yet
    used: int  # when it was last polled: µs since 1970


class QueueRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queues = broker.queues

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/queues", "/api/v1/queues/{queue}"
        return (
            Route("GET", path, self.list, "Queues of a namespace.", query=PageQuery, reply=Page[QueueView]),
            Route("GET", one, self.get, "One queue.", reply=QueueView),
            Route("DELETE", one, self.delete, "Delete a queue.", audit="queue.delete"),
        )

    def list(self, request: Request) -> Outcome:
        queues = self._queues.in_scope(request.identity, request.scope)
        found = cut(queues, lambda each: numbered(each[0].id), request.query)
        page = Page([self._view(request, *each) for each in found.items], found.next)
        return after_commit(self._broker.pending_commit, json_reply(page))

    def get(self, request: Request) -> Outcome:
        queue, topic = self._queues.find(request.identity, _number(request))
        return after_commit(self._broker.pending_commit, json_reply(self._view(request, queue, topic)))

    def delete(self, request: Request) -> Outcome:
        number = _number(request)
        group = self._queues.delete(request.identity, number)
        self._broker.audit.note(request.identity, "queue.delete", resource=str(number), action="delete")
        return done(group)

    def _view(self, request: Request, queue: Queue, topic: Topic) -> QueueView:
        bounds = self._broker.topics.bounds(request.identity, topic.scope, [topic.name]).get(topic.name, ())
        lag = sum(max(0, end - cursor) for (_, end), cursor in zip(bounds, queue.cursors, strict=False))
        return QueueView(queue.id, topic.name, queue.at_least_once, queue.cursors[:], queue.in_flight, lag, queue.used)


def _number(request: Request) -> int:
    return number_of(request.names["queue"]) or 0  # ids start at 1
